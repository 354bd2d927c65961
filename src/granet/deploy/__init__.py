"""Sparse networks at work: a trained model becomes plans of operators, which fast engines run.

fast = granet.deploy.compile(model, example_input)
outputs = fast(images)
granet.deploy.save(fast, "model.granet")
fast = granet.deploy.load("model.granet")
"""

from granet.deploy.compiled import Compiled
from granet.deploy.compiling import compile
from granet.deploy.saved import load, save

__all__ = ["Compiled", "compile", "load", "save"]
