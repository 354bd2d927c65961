"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

from granet.clock import Clock
from granet.flops import FlopsReport, TrainingFlops, flops
from granet.history import UpdateRecord
from granet.layers import SparseLayer
from granet.methods import (
    DPF,
    DSR,
    GMP,
    GS,
    SET,
    SNFS,
    STR,
    VD,
    DeepR,
    GMPOriginal,
    GraNet,
    Method,
    MethodInfo,
    RigL,
    RigLITOP,
    SNFSFixed,
    Static,
    create_method,
    list_methods,
)
from granet.sparsifier import Sparsifier, sparsify

__version__ = "0.1.0"

__all__ = [
    "DPF",
    "DSR",
    "GMP",
    "GS",
    "SET",
    "SNFS",
    "STR",
    "VD",
    "Clock",
    "DeepR",
    "FlopsReport",
    "GMPOriginal",
    "GraNet",
    "Method",
    "MethodInfo",
    "RigL",
    "RigLITOP",
    "SNFSFixed",
    "SparseLayer",
    "Sparsifier",
    "Static",
    "TrainingFlops",
    "UpdateRecord",
    "create_method",
    "flops",
    "list_methods",
    "sparsify",
]
