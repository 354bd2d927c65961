"""The fastest engine is found once and remembered, and what cannot be had is done without."""

from __future__ import annotations

import gc
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import granet
from awkward import Inverted
from deployed import as_trained, assert_close
from granet.deploy import engines, native_engine
from granet.deploy.interpret import Interpreter
from granet.deploy.native_engine import Native
from granet.deploy.operators import Activation, Linear
from granet.deploy.plan import Plan
from granet.deploy.unsupported import Unsupported


def small(rows: int = 2) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return as_trained(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), 0.5), torch.randn(rows, 6)


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize("engine", ["native", "torch"])
def test_several_threads_may_call_at_once(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "_SECONDS", 0.001)
    model = as_trained(granet.create_model("resnet20", num_classes=10, width=0.5)).eval()
    batches = [torch.randn(1, 3, 32, 32) for _ in range(16)]
    compiled = granet.deploy.compile(model, batches[0], engine=engine)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compiled, batches))
    for one, batch in zip(found, batches, strict=True):
        assert_close(one, model(batch))


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
def test_the_fastest_is_found_once_and_remembered(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(plan: Plan, threads: int) -> Any:
        run = Interpreter(plan)
        return lambda *inputs: (time.sleep(0.01), run(*inputs))[1]

    monkeypatch.setattr(engines, "_SECONDS", 0.03)
    monkeypatch.setattr(engines, "ENGINES", {"slow": slow, "torch": lambda plan, threads: Interpreter(plan)})
    model, rows = small()
    assert granet.deploy.compile(model, rows).engines == {"plan_0": "torch"}
    (file,) = measured.iterdir()
    monkeypatch.setattr(engines, "fastest", None)
    assert granet.deploy.compile(model, rows).engines == {"plan_0": "torch"}
    with pytest.raises(TypeError):  # another plan is measured
        granet.deploy.compile(model, rows[:1])
    for damaged in ("", "{", "[]", '{"engines": 3, "layers": {}}', file.read_text().replace('"torch"', "7")):
        file.write_text(damaged)
        with pytest.raises(TypeError):
            granet.deploy.compile(model, rows)


@pytest.mark.usefixtures("native_library")
def test_what_is_loaded_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = small()
    granet.deploy.save(granet.deploy.compile(model, rows, engine="torch"), tmp_path / "model.granet")
    monkeypatch.setattr(engines, "fastest", None)
    assert granet.deploy.load(tmp_path / "model.granet").engines == {"plan_0": "native"}


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
def test_how_layers_run_fastest_is_remembered(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = as_trained(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1)), 0.5)
    granet.deploy.compile(model, torch.randn(1, 16, 16, 16), engine="native")
    (file,) = measured.iterdir()
    assert "weights [16, 16, 3, 3], density 2^-1" in file.read_text()
    monkeypatch.setattr(Native, "_fastest", None)
    compiled = granet.deploy.compile(model, torch.randn(1, 16, 16, 16), engine="native")
    images = torch.randn(1, 16, 16, 16)
    assert_close(compiled(images), model(images))
    file.write_text(file.read_text().replace("[16, 16, 3, 3]", "[16, 16, 3, 4]"))
    with pytest.raises(TypeError):
        granet.deploy.compile(model, torch.randn(1, 16, 16, 16), engine="native")


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize(("milliseconds", "tried"), [({4: 8, 2: 4, 1: 2}, [4, 2, 1]), ({4: 2, 2: 4}, [4, 2])])
def test_threads_that_do_not_pay_are_left_out(
    milliseconds: dict[int, int], tried: list[int], measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(Native):
        def __init__(self, plan: Plan, threads: int) -> None:
            super().__init__(plan, 1)  # more than there are processors would wait for each other
            self.threads = threads
            made.append(threads)

        def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
            time.sleep(0.001 * milliseconds[self.threads])
            ran.append(self.threads)
            return super().__call__(*inputs)

    ran: list[int] = []
    monkeypatch.setattr(engines, "_SECONDS", 0.03)
    monkeypatch.setattr(engines, "processors", lambda: 4)
    monkeypatch.setattr(engines, "ENGINES", {"native": Counted})
    model, rows = small()
    compiled = granet.deploy.compile(model, rows[:1], threads=4)
    assert made == tried
    ran.clear()
    assert_close(compiled(rows[:1]), model(rows[:1]))
    fastest = min(milliseconds, key=milliseconds.__getitem__)
    assert set(ran) == {fastest}
    granet.deploy.compile(model, rows[:1], threads=4)  # remembered
    assert made == [*tried, fastest]
    granet.deploy.compile(model, torch.randn(4, 6), threads=4)  # each thread has rows of its own
    assert made == [*tried, fastest, 4]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to(measured: Path) -> None:
    measured.chmod(0o500)
    check_unwritable(measured)


def test_a_folder_that_cannot_be_made(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (measured / "file").touch()
    monkeypatch.setenv("GRANET_DEPLOY_CACHE", str(measured / "file"))
    check_unwritable(measured / "file")


def check_unwritable(folder: Path) -> None:
    model, rows = small()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "ENGINES", {"torch": lambda plan, threads: Interpreter(plan)})
        with pytest.warns(UserWarning, match=f"^granet: {folder}: cannot be written to .*; GRANET_DEPLOY_CACHE names"):
            granet.deploy.compile(model, rows)
        granet.deploy.compile(model, rows)  # is told once


def test_an_engine_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(plan: Plan, threads: int) -> Any:
        return lambda *inputs: tuple(1.001 * output for output in Interpreter(plan)(*inputs))

    monkeypatch.setattr(engines, "ENGINES", {"wrong": wrong, "torch": lambda plan, threads: Interpreter(plan)})
    model, rows = small()
    with pytest.warns(UserWarning, match=r"^granet: the engine wrong is not used: its outputs are not PyTorch's$"):
        assert granet.deploy.compile(model, rows).engines == {"plan_0": "torch"}


@pytest.mark.slow
def test_without_the_native_library(measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # plans of other tests end by the library that they were made with
    monkeypatch.setenv("GRANET_NATIVE_LIBRARY", str(measured / "none.so"))
    engines._tell.cache_clear()
    model, rows = small()
    with pytest.warns(UserWarning, match=r"^granet: networks run without its own kernels, .*none.so"):
        compiled = granet.deploy.compile(model, rows)
    assert_close(compiled(rows), model.eval()(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        granet.deploy.compile(*small(3))
    with pytest.raises(ValueError, match=r"^engine='native': .*none.so"):
        granet.deploy.compile(model, rows, engine="native")


@pytest.mark.slow
@pytest.mark.usefixtures("native_library")
def test_what_the_native_library_cannot_run_runs_elsewhere() -> None:
    model = as_trained(Inverted(4, 4, 1), 0.5)
    with pytest.raises(ValueError, match=r"^engine='native': no native kernel does relu6$"):
        granet.deploy.compile(model, torch.randn(1, 4, 8, 8), engine="native")
    assert granet.deploy.compile(model, torch.randn(1, 4, 8, 8)).engines["plan_0"] != "native"


@pytest.mark.skipif(find_spec("openvino") is not None, reason="is installed")
def test_without_openvino() -> None:
    with pytest.raises(ValueError, match=r"^engine='openvino': OpenVINO is not installed: pip install openvino$"):
        granet.deploy.compile(*small(), engine="openvino")


def test_rows_and_images_are_not_mixed() -> None:
    array = granet.deploy.plan.Array.of(torch.ones(4, 4).numpy())
    plan = Plan(((2, 3, 4), (2, 4)), (Linear(0, 0), Activation(1)), (2, 3), (array,))
    with pytest.raises(Unsupported, match=r"^no native plan mixes images and rows$"):
        Native(plan, 1)
