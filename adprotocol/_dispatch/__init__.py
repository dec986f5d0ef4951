"""Who answers for a value: the plugins, and the table from types to the functions that serve them."""
