"""Sparse networks at work: a trained model becomes plans of operators, which fast engines run, or a file for others.

fast = granet.deploy.compile(model, example_input)
outputs = fast(images)
granet.deploy.save(fast, "model.granet")
fast = granet.deploy.load("model.granet")
granet.deploy.to_onnx(model, example_input, "model.onnx")
"""

from granet.deploy.compiled import Compiled
from granet.deploy.compiling import compile
from granet.deploy.onnx_file import to_onnx
from granet.deploy.openvino_file import to_openvino
from granet.deploy.runtime_file import to_runtime
from granet.deploy.saved import load, save
from granet.deploy.semi_structured import SemiStructured, to_semi_structured
from granet.deploy.torch_file import to_torch
from granet.deploy.written import Written

__all__ = [
    "Compiled",
    "SemiStructured",
    "Written",
    "compile",
    "load",
    "save",
    "to_onnx",
    "to_openvino",
    "to_runtime",
    "to_semi_structured",
    "to_torch",
]
