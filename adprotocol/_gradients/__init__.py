"""Gradients: the functions that differentiate a structure, or split it into its trainable part and the rest."""
