"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

from granet.checkpoint import load, save
from granet.clock import Clock
from granet.flops import FlopsReport, TrainingFlops, flops
from granet.history import UpdateRecord
from granet.layers import SparseLayer
from granet.methods import (
    DPF,
    DSR,
    GMP,
    GS,
    LRR,
    LTH,
    SET,
    SIS,
    SNFS,
    SNIP,
    STR,
    VD,
    DeepR,
    GMPOriginal,
    GraNet,
    GraSP,
    MagnitudeInit,
    Method,
    MethodInfo,
    OneShot,
    PruneAndRegenerate,
    PruneOnce,
    RigL,
    RigLITOP,
    SNFSFixed,
    Static,
    SynFlow,
    create_method,
    list_methods,
)
from granet.models import create_model, list_models
from granet.plasticity import PlasticityPoint, PlasticityProbe, plasticity
from granet.pretrained import Pretrained, list_pretrained, load_pretrained
from granet.sparsifier import Sparsifier, sparsify

__version__ = "0.1.0"

__all__ = [
    "DPF",
    "DSR",
    "GMP",
    "GS",
    "LRR",
    "LTH",
    "SET",
    "SIS",
    "SNFS",
    "SNIP",
    "STR",
    "VD",
    "Clock",
    "DeepR",
    "FlopsReport",
    "GMPOriginal",
    "GraNet",
    "GraSP",
    "MagnitudeInit",
    "Method",
    "MethodInfo",
    "OneShot",
    "PlasticityPoint",
    "PlasticityProbe",
    "Pretrained",
    "PruneAndRegenerate",
    "PruneOnce",
    "RigL",
    "RigLITOP",
    "SNFSFixed",
    "SparseLayer",
    "Sparsifier",
    "Static",
    "SynFlow",
    "TrainingFlops",
    "UpdateRecord",
    "create_method",
    "create_model",
    "flops",
    "list_methods",
    "list_models",
    "list_pretrained",
    "load",
    "load_pretrained",
    "plasticity",
    "save",
    "sparsify",
]
