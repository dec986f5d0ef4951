"""Layers, kernels and training loops that import no framework: `adprotocol` is the one dependency.

Arrays may be of NumPy, autograd, JAX or PyTorch. Random numbers come from the
caller, since each framework draws its own way.
"""

from neutral.batch_norm import BatchNorm, Statistics
from neutral.descent import descend
from neutral.dropout import dropout
from neutral.kernels import Product, RationalQuadratic, Scaled, SquaredExponential, Sum, smooth
from neutral.lora import LoRA
from neutral.maml import adapt, meta_loss
from neutral.network import Dense, Network
from neutral.quantize import quantize
from neutral.spectral_norm import spectral_norm

__all__ = [
    "BatchNorm",
    "Dense",
    "LoRA",
    "Network",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "SquaredExponential",
    "Statistics",
    "Sum",
    "adapt",
    "descend",
    "dropout",
    "meta_loss",
    "quantize",
    "smooth",
    "spectral_norm",
]
