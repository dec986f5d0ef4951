"""What a process for compiled programs loads before it is asked to run one."""

import torch._dynamo
import torch._inductor.config

import adprotocol_torch
from fuzz import outcome, torch_side

__all__ = ["adprotocol_torch", "outcome", "torch", "torch_side"]
