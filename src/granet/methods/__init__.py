"""The methods, one file each, and what methods of one's own are made of; importing this package registers them."""

from granet.methods.base import Method, end_step, periodic, recorded
from granet.methods.by_gradient import GrowsByGradient
from granet.methods.called import method_name
from granet.methods.deep_r import DeepR
from granet.methods.dpf import DPF
from granet.methods.dsr import DSR
from granet.methods.gmp import GMP, Gradual
from granet.methods.gmp_original import GMPOriginal
from granet.methods.gradient_memory import MeanGradient, Momentum
from granet.methods.granet import GraNet
from granet.methods.grasp import GraSP
from granet.methods.gs import GS
from granet.methods.lrr import LRR
from granet.methods.lth import LTH
from granet.methods.magnitude_init import MagnitudeInit
from granet.methods.one_shot import OneShot
from granet.methods.prune_once import PruneAndRegenerate, PruneOnce
from granet.methods.registry import DENSE, MethodInfo, create_method, list_methods, register
from granet.methods.rigl import RigL, RigLITOP, SparseToSparse
from granet.methods.set import SET
from granet.methods.sis import SIS
from granet.methods.snfs import SNFS, SNFSFixed
from granet.methods.snip import SNIP
from granet.methods.soft_threshold import STR
from granet.methods.static import Static
from granet.methods.synflow import SynFlow
from granet.methods.vd import VD
from granet.methods.wanda import Wanda

__all__ = [
    "DENSE",
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
    "DeepR",
    "GMPOriginal",
    "GraNet",
    "GraSP",
    "Gradual",
    "GrowsByGradient",
    "MagnitudeInit",
    "MeanGradient",
    "Method",
    "MethodInfo",
    "Momentum",
    "OneShot",
    "PruneAndRegenerate",
    "PruneOnce",
    "RigL",
    "RigLITOP",
    "SNFSFixed",
    "SparseToSparse",
    "Static",
    "SynFlow",
    "Wanda",
    "create_method",
    "end_step",
    "list_methods",
    "method_name",
    "periodic",
    "recorded",
    "register",
]
