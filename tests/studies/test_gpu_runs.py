"""On a GPU: every method in a replayed step, runs on streams of one process equal to runs alone, and taken up again."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import granet
from granet.data import load
from granet.models import create_model
from granet.studies.jobs import Place
from granet.studies.jobs.gate import Gate
from granet.studies.jobs.threads import in_threads
from granet.studies.spec import read_spec
from granet.training import Recipe, Run, RunDir, Training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="a step is replayed on a GPU only")

REPEATABLE = Recipe(
    method="granet",
    method_fields={"sparsity": 0.9, "initial_sparsity": 0.5, "every": 5},
    epochs=4,
    batch_size=128,
    deterministic=True,
)
RECIPES = [
    REPEATABLE,
    replace(REPEATABLE, seed=1, clip=0.5, no_decay=("*.bias",)),
    replace(REPEATABLE, seed=2, method="rigl-itop", method_fields={"sparsity": 0.8, "every": 5}, ema=0.9),
    replace(REPEATABLE, seed=3, method="dpf", method_fields={"sparsity": 0.8, "every": 5}, clip=0.5),
]


@pytest.fixture
def gpu() -> torch.device:
    return torch.device("cuda")


def weights(out: Path, recipe: Recipe) -> dict[str, torch.Tensor]:
    return load_file(RunDir.find(out, recipe).path / "model.safetensors")


def test_every_method_trains_side_by_side(tmp_path: Path, gpu: torch.device) -> None:
    recipes = [
        replace(recipe, epochs=2, method_fields={**recipe.method_fields} | _short(recipe))
        for recipe in read_spec(Path("recipes/zoo-digits.toml")).recipes
        if not recipe.parent
    ]
    events = list(in_threads(recipes, Place(gpu, tmp_path), 6, lambda: False))
    assert {event.recipe: event.error for event in events if event.record is None} == dict.fromkeys(recipes)
    targets = {info.name for info in granet.list_methods() if info.exact_target}
    for recipe in recipes:
        summary = RunDir.find(tmp_path, recipe).summary
        assert summary is not None
        if recipe.method in targets:
            assert summary.sparsity == pytest.approx(summary.sparsity_asked, abs=1e-5)


def _short(recipe: Recipe) -> dict[str, int]:
    return {"every": 3} if "every" in recipe.method_fields else {}


def test_runs_on_streams_equal_runs_alone(tmp_path: Path, gpu: torch.device) -> None:
    events = list(in_threads(RECIPES, Place(gpu, tmp_path / "packed"), 4, lambda: False))
    assert [event.error for event in events if event.record is None] == [None] * len(RECIPES)
    for recipe in RECIPES:
        list(Run(recipe, load("digits"), gpu, tmp_path / "alone").epochs())
        mine, theirs = weights(tmp_path / "packed", recipe), weights(tmp_path / "alone", recipe)
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("compile", [False, True])
def test_a_step_is_made_beside_threads_that_evaluate_a_model(gpu: torch.device, compile: bool) -> None:
    """They wait for the device, and they call modules."""
    gate, done, waits, errors = Gate(), threading.Event(), [], []
    model = create_model("digits_net", num_classes=10, in_channels=1).eval().to(gpu)

    def work() -> None:
        while not done.is_set():
            try:
                with gate.working(), torch.no_grad():
                    model(torch.zeros(8, 1, 8, 8, device=gpu))
                    torch.cuda.synchronize()
            except Exception as error:
                errors.append(error)
            waits.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for seed in range(5):
            before = len(waits)
            with gate.alone():
                Training(replace(REPEATABLE, seed=seed, compile=compile), load("digits"), device=gpu)
            while len(waits) == before:
                time.sleep(0.001)
    finally:
        done.set()
        thread.join()
    assert not errors


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.method)
@pytest.mark.parametrize("stopped_after", [3, 17, 30])
def test_a_stopped_run_ends_as_an_uninterrupted_one(
    tmp_path: Path, gpu: torch.device, recipe: Recipe, stopped_after: int
) -> None:
    data = load("digits")
    looks = iter(range(10**6))
    with pytest.raises(KeyboardInterrupt):
        list(Run(recipe, data, gpu, tmp_path / "stopped").epochs(stop=lambda: next(looks) >= stopped_after))
    list(Run(recipe, data, gpu, tmp_path / "stopped").epochs())
    list(Run(recipe, data, gpu, tmp_path / "whole").epochs())
    mine, theirs = weights(tmp_path / "stopped", recipe), weights(tmp_path / "whole", recipe)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
