"""In 16 bits where that was asked for, is safe, and the processor does so; else in 32."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import granet
from deployed import as_trained, assert_close
from granet.deploy import engines, native_engine
from granet.deploy.halves import LARGEST_ERROR
from granet.deploy.interpret import Interpreter
from granet.deploy.native_engine import Native
from native_twin import EMULATED, halves

HALF = torch.float16


@pytest.fixture(autouse=True)
def emulated(native_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this processor computed with halves."""
    if EMULATED not in halves():
        pytest.skip("the compiler has no halves")
    monkeypatch.setattr(native_engine, "_SECONDS", 0.001)
    monkeypatch.setattr(engines, "_SECONDS", 0.001)
    monkeypatch.setattr(engines, "HALVES", {"native float16": partial(Native, bits=16, isa=EMULATED)})


def network(scale: float = 1.0) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    convs = (nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 16, 3, padding=1), nn.ReLU())
    model = as_trained(nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)), 0.5)
    with torch.no_grad():
        model[0].weight *= scale
        model[3].weight /= scale
    return model.eval(), torch.randn(2, 3, 12, 12)


def test_outputs_are_close_and_not_the_same() -> None:
    model, images = network()
    fast = granet.deploy.compile(model, images, engine="native", dtype=HALF)
    assert fast.engines == {"plan_0": "native float16"}
    found, expected = fast(images), model(images).detach()
    assert found.dtype == torch.float32
    error = float((found - expected).square().mean() / expected.square().mean()) ** 0.5
    assert 1e-6 < error < LARGEST_ERROR


@pytest.mark.slow
def test_nothing_is_rounded_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "HALVES", {"native float16": None})
    model, images = network()
    fast = granet.deploy.compile(model, images, engine="native")
    assert fast.engines == {"plan_0": "native"}
    assert_close(fast(images), model(images))


@pytest.mark.slow
def test_sums_that_are_too_large_are_computed_in_32_bits() -> None:
    model, images = network(3e4)
    with pytest.warns(UserWarning, match=r"^granet: the engine native float16 is not used: sums reach .*, and"):
        fast = granet.deploy.compile(model, images, engine="native", dtype=HALF)
    assert fast.engines == {"plan_0": "native"}
    assert_close(fast(images), model(images))


def test_sums_of_the_example_count() -> None:
    model, images = network()
    with pytest.warns(UserWarning, match=r"not used: sums reach"):
        granet.deploy.compile(model, 1e5 * images, engine="native", dtype=HALF)


def test_the_example_is_seen_by_every_plan_and_leaves_no_trace() -> None:
    class Squared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.two(torch.special.erf(self.one(x)) * 1e6) + self.calls

    model, rows = Squared(), torch.randn(2, 4)
    with pytest.warns(UserWarning) as told:
        fast = granet.deploy.compile(model, rows, engine="native", dtype=HALF)
    assert len(told) == 1
    assert list(fast.engines.values()) == ["native float16", "native"]
    assert model.calls == 1  # by torch.export alone
    assert torch.allclose(fast(rows), model.eval()(rows), rtol=0.01, atol=1e3)  # of 4e5


def test_an_engine_that_is_too_far_off_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(plan: granet.deploy.plan.Plan, threads: int) -> engines.Engine:
        return lambda *inputs: tuple(1.006 * output for output in Interpreter(plan)(*inputs))

    monkeypatch.setattr(engines, "HALVES", {"native float16": wrong})
    model, images = network()
    with pytest.warns(UserWarning, match=r"is not used: output 0 is off by .* \(root mean square\) in 16 bits$"):
        assert granet.deploy.compile(model, images, dtype=HALF).engines != {"plan_0": "native float16"}


def test_the_fastest_is_taken_and_known_when_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = network()
    monkeypatch.setattr(engines, "fastest", lambda built, plan, threads: next(iter(built)))
    fast = granet.deploy.compile(model, images, dtype=HALF)
    assert fast.engines == {"plan_0": "native float16"}
    granet.deploy.save(fast, tmp_path / "net.granet")
    assert granet.deploy.load(tmp_path / "net.granet", dtype=HALF).engines == {"plan_0": "native float16"}
    assert granet.deploy.load(tmp_path / "net.granet").engines == {"plan_0": "native"}


def test_without_such_a_processor_it_is_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "HALVES", {"native float16": partial(Native, bits=16)})
    if granet.native.isas(16):
        pytest.skip("this one computes with halves")
    model, images = network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert granet.deploy.compile(model, images, engine="native", dtype=HALF).engines == {"plan_0": "native"}


def test_other_types_are_refused() -> None:
    model, images = network()
    said = r"^dtype=torch.bfloat16: must be one of torch.float32, torch.float16$"
    with pytest.raises(ValueError, match=said):
        granet.deploy.compile(model, images, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=said):
        granet.deploy.load("none.granet", dtype=torch.bfloat16)
