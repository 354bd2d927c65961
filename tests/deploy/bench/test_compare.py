"""Real processes: what runs is held against PyTorch, and what cannot run is left out with its reason."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn

from deployed import as_trained
from granet.deploy import native_engine
from granet.deploy.bench import Entrant, compare
from granet.deploy.bench.compare import distances
from granet.deploy.bench.process import resident
from granet.native import isas


class Ends(nn.Module):
    """Works only in the process in which it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.home:
            os._exit(3)
        return x


class Raises(Ends):
    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() != self.home:
            raise KeyError("far from home")
        return x


class Tires(Ends):
    """Works but a few times there."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(x) if self.calls == 5 else x


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
def test_granet_beside_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "_SECONDS", 0.001)
    model = as_trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), 0.8)
    with torch.no_grad():
        model[0].weight[:3] = 0
    names = ("granet", "granet.compact", "PyTorch", "ONNX Runtime", "OpenVINO")
    found = compare([Entrant(name, name, model.eval()) for name in names], (torch.randn(2, 3, 16, 16),), 1, 0.05)
    results = {result.label: result for result in found.results}
    for name, package in (("ONNX Runtime", "onnxruntime"), ("OpenVINO", "openvino")):
        if find_spec(package) is None:
            assert name not in results and "pip install" in found.left_out.pop(name)
    assert not found.left_out and (found.batch, found.threads) == (2, 1)
    for result in results.values():
        assert result.difference < 1e-4 and result.precision == "float32"
        assert 0 < result.times.least <= result.times.median
        assert result.memory is not None or resident() is None
    assert results["PyTorch"].difference == 0
    assert results["granet.compact"].file < results["PyTorch"].file
    assert not results["granet"].dense and results["PyTorch"].dense


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
def test_sixteen_bits_where_the_processor_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "_SECONDS", 0.001)
    model = as_trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), 0.8).eval()
    found = compare([Entrant("halves", "granet, 16 bit", model)], (torch.randn(2, 3, 16, 16),), 1, 0.05)
    if isas(16):
        (result,) = found.results
        assert result.precision == "float16" and not result.dense and 0 < result.rms < 5e-3
    else:
        assert "does not compute in 16 bits" in found.left_out["halves"]


@pytest.mark.slow
def test_what_fails_is_left_out_with_its_reason() -> None:
    local = nn.Identity()
    local.register_forward_hook(lambda *given: None)  # cannot be pickled
    field = [
        Entrant("whole", "PyTorch", nn.Identity()),
        Entrant("ends", "PyTorch", Ends()),
        Entrant("raises", "PyTorch", Raises()),
        Entrant("tires", "PyTorch", Tires()),
        Entrant("local", "PyTorch", local),
        Entrant("dense", "granet.compact", nn.Linear(4, 4).eval()),
        Entrant("nothing to do", "granet", nn.Identity()),
    ]
    found = compare(field, (torch.randn(1, 4),), 1, 0.01)
    assert [result.label for result in found.results] == ["whole"]
    assert list(found.left_out) == ["local", "dense", "nothing to do", "ends", "raises", "tires"]
    assert found.left_out["ends"] == found.left_out["tires"] == "its process ended with code 3"
    assert found.left_out["raises"] == "KeyError: 'far from home'"
    assert "another process" in found.left_out["local"]
    assert found.left_out["dense"] == "no channel can be taken out"
    assert "no convolution or linear layer" in found.left_out["nothing to do"]


def test_distances_are_of_the_worst_output() -> None:
    wanted = [torch.tensor([1.0, -4.0]).numpy(), torch.tensor([2.0, 2.0]).numpy()]
    far, rms = distances([torch.tensor([1.0, -4.0]).numpy(), torch.tensor([2.0, 1.0]).numpy()], wanted)
    assert far == 0.5 and rms == pytest.approx((1 / 8) ** 0.5)
