"""How fast a network is here: granet's runtime beside PyTorch, ONNX Runtime and OpenVINO, in one run."""

from granet.deploy.bench.candidates import GRANET, GRANET_HALVES
from granet.deploy.bench.compare import Entrant, compare, entrants
from granet.deploy.bench.comparison import Comparison, Result
from granet.deploy.bench.machine import machine

__all__ = ["GRANET", "GRANET_HALVES", "Comparison", "Entrant", "Result", "compare", "entrants", "machine"]
