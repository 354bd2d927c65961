"""The methods, one file each; importing this package registers them."""

from granet.methods.base import Method, MethodInfo, create_method, list_methods, method_name
from granet.methods.gmp import GMP
from granet.methods.granet import GraNet
from granet.methods.grasp import GraSP
from granet.methods.lrr import LRR
from granet.methods.lth import LTH
from granet.methods.magnitude_init import MagnitudeInit
from granet.methods.one_shot import OneShot
from granet.methods.rigl import RigL, RigLITOP
from granet.methods.set import SET
from granet.methods.sis import SIS
from granet.methods.snip import SNIP
from granet.methods.static import Static
from granet.methods.synflow import SynFlow

__all__ = [
    "GMP",
    "LRR",
    "LTH",
    "SET",
    "SIS",
    "SNIP",
    "GraNet",
    "GraSP",
    "MagnitudeInit",
    "Method",
    "MethodInfo",
    "OneShot",
    "RigL",
    "RigLITOP",
    "Static",
    "SynFlow",
    "create_method",
    "list_methods",
    "method_name",
]
