"""The methods, one file each; importing this package registers them."""

from granet.methods.base import Method, MethodInfo, create_method, list_methods, may_regrow, method_name
from granet.methods.deep_r import DeepR
from granet.methods.dsr import DSR
from granet.methods.gmp import GMP
from granet.methods.granet import GraNet
from granet.methods.rigl import RigL, RigLITOP
from granet.methods.set import SET
from granet.methods.snfs import SNFS, SNFSFixed
from granet.methods.static import Static

__all__ = [
    "DSR",
    "GMP",
    "SET",
    "SNFS",
    "DeepR",
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
