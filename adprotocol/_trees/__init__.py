"""What a structure is: nodes, leaves, paths, and what classes declare of their fields."""
