"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

from granet.clock import Clock
from granet.flops import flops
from granet.history import UpdateRecord
from granet.layers import SparseLayer
from granet.methods import (
    DPF,
    GMP,
    GS,
    SET,
    STR,
    VD,
    GMPOriginal,
    GraNet,
    Method,
    MethodInfo,
    RigL,
    RigLITOP,
    Static,
    create_method,
    list_methods,
)
from granet.sparsifier import Sparsifier, sparsify

__version__ = "0.1.0"

__all__ = [
    "DPF",
    "GMP",
    "GS",
    "SET",
    "STR",
    "VD",
    "Clock",
    "GMPOriginal",
    "GraNet",
    "Method",
    "MethodInfo",
    "RigL",
    "RigLITOP",
    "SparseLayer",
    "Sparsifier",
    "Static",
    "UpdateRecord",
    "create_method",
    "flops",
    "list_methods",
    "sparsify",
]
