"""The methods, one file each; importing this package registers them."""

from granet.methods.base import Method, MethodInfo, create_method, list_methods, may_regrow, method_name
from granet.methods.deep_r import DeepR
from granet.methods.dpf import DPF
from granet.methods.dsr import DSR
from granet.methods.gmp import GMP
from granet.methods.gmp_original import GMPOriginal
from granet.methods.granet import GraNet
from granet.methods.gs import GS
from granet.methods.rigl import RigL, RigLITOP
from granet.methods.set import SET
from granet.methods.snfs import SNFS, SNFSFixed
from granet.methods.soft_threshold import STR
from granet.methods.static import Static
from granet.methods.vd import VD

__all__ = [
    "DPF",
    "DSR",
    "GMP",
    "GS",
    "SET",
    "SNFS",
    "STR",
    "VD",
    "DeepR",
    "GMPOriginal",
    "GraNet",
    "Method",
    "MethodInfo",
    "RigL",
    "RigLITOP",
    "SNFSFixed",
    "Static",
    "create_method",
    "list_methods",
    "may_regrow",
    "method_name",
]
