"""`non_differentiable` and the label `NonDifferentiable`: constants for every derivative."""
