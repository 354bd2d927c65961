"""Sparse training for PyTorch: GraNet and the methods it is compared with."""

from granet.account import ZeroCheck
from granet.checkpoint import load, save
from granet.clock import Clock
from granet.flop_counting import FlopsReport, TrainingFlops, flops
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
    Wanda,
    create_method,
    list_methods,
)
from granet.models import create_model, list_models
from granet.net import Change
from granet.pretrained import Pretrained, list_pretrained, load_pretrained
from granet.pruning import prune
from granet.pruning_plasticity import PlasticityPoint, PlasticityProbe, plasticity
from granet.sparsifier import Sparsifier, UpdateRecord, sparsify
from granet.weights import Coverage, Orientation, SparseLayer, register_weights

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
    "Change",
    "Clock",
    "Coverage",
    "DeepR",
    "FlopsReport",
    "GMPOriginal",
    "GraNet",
    "GraSP",
    "MagnitudeInit",
    "Method",
    "MethodInfo",
    "OneShot",
    "Orientation",
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
    "Wanda",
    "ZeroCheck",
    "create_method",
    "create_model",
    "flops",
    "list_methods",
    "list_models",
    "list_pretrained",
    "load",
    "load_pretrained",
    "plasticity",
    "prune",
    "register_weights",
    "save",
    "sparsify",
]
