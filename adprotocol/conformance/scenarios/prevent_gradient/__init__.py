"""`prevent_gradient`: an error where somebody differentiates."""
