"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

from granet.checkpoint import load, save
from granet.clock import Clock
from granet.flops import flops
from granet.history import UpdateRecord
from granet.layers import SparseLayer
from granet.methods import GMP, SET, GraNet, Method, MethodInfo, RigL, RigLITOP, Static, create_method, list_methods
from granet.sparsifier import Sparsifier, sparsify

__version__ = "0.1.0"

__all__ = [
    "GMP",
    "SET",
    "Clock",
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
    "load",
    "save",
    "sparsify",
]
