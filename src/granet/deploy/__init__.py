"""Sparse networks at work: a trained model becomes plans of operators, which fast engines run.

fast = granet.deploy.compile(model, example_input)
fast(images)
"""

from granet.deploy.compiled import Compiled
from granet.deploy.compiling import compile

__all__ = ["Compiled", "compile"]
