"""`value_and_grad` and `grad`: values and gradients of structures."""
