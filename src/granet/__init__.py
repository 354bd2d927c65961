"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

from granet.clock import Clock
from granet.flops import flops
from granet.history import UpdateRecord
from granet.layers import SparseLayer
from granet.methods import (
    GMP,
    LRR,
    LTH,
    SET,
    SIS,
    SNIP,
    GraNet,
    GraSP,
    MagnitudeInit,
    Method,
    MethodInfo,
    OneShot,
    RigL,
    RigLITOP,
    Static,
    SynFlow,
    create_method,
    list_methods,
)
from granet.sparsifier import Sparsifier, sparsify

__version__ = "0.1.0"

__all__ = [
    "GMP",
    "LRR",
    "LTH",
    "SET",
    "SIS",
    "SNIP",
    "Clock",
    "GraNet",
    "GraSP",
    "MagnitudeInit",
    "Method",
    "MethodInfo",
    "OneShot",
    "RigL",
    "RigLITOP",
    "SparseLayer",
    "Sparsifier",
    "Static",
    "SynFlow",
    "UpdateRecord",
    "create_method",
    "flops",
    "list_methods",
    "sparsify",
]
