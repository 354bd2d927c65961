"""Sparse inference on a CPU: the kernels of ``native`` in C++, built with the package where there is a compiler.

`library` finds and loads them, or raises `NativeMissing` that says why they cannot be had; `NativePlan` is what they
compute. Nothing here needs torch.
"""

from granet.native.library import NativeMissing, NativeUnsupported, isas, library
from granet.native.plan import Choice, NativePlan, Step

__all__ = ["Choice", "NativeMissing", "NativePlan", "NativeUnsupported", "Step", "isas", "library"]
