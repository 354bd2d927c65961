"""What was written before fields had their present names is read, and runs keep their names.

The files in `former_names` were written by that version; `METHOD` is what it trained with, in today's words.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import torch
from torch import nn

import granet
from granet.methods import former_names
from granet.methods.registry import DENSE
from granet.studies.plasticity_file import read_study
from granet.studies.spec import read_spec
from granet.training.recipe import Recipe
from granet.training.recipe_file import read_recipe_file
from granet.training.rundir import RunDir, run_name
from refusals import refused

FILES = Path(__file__).parent / "former_names"
FIELDS = {
    "sparsity": 0.75, "initial_sparsity": 0.5, "prune_end": 6, "every": 2, "distribution": "global",
    "initial_distribution": "uniform", "grow_batch_count": 2,
}  # fmt: skip
RUN = {**FIELDS, "sparsity": 0.9, "every": 10, "prune_end": "50%"}
NAME = "digits-digits_net-granet-0.9-seed0-cdab9467"


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))


def test_a_state_is_loaded_and_training_goes_on() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = granet.sparsify(model, optimizer, granet.GraNet(**FIELDS), total_steps=10)
    masks = granet.load(model, FILES / "packed.safetensors")
    sparsifier.load_state_dict(torch.load(FILES / "state.pt", weights_only=True))
    assert sparsifier.step == 5
    assert all(torch.equal(sparsifier.masks[name], mask) for name, mask in masks.items())
    for _ in range(5):
        model(torch.ones(3, 6)).sum().backward()
        optimizer.step()
    assert sparsifier.sparsity == 0.75


def test_a_state_of_other_fields_is_refused_under_their_present_names() -> None:
    model = net()
    method = granet.GraNet(**(FIELDS | {"prune_end": 7}))
    sparsifier = granet.sparsify(model, torch.optim.SGD(model.parameters(), lr=0.1), method, total_steps=10)
    with refused("state['fields']['prune_end']", 6, "7"):
        sparsifier.load_state_dict(torch.load(FILES / "state.pt", weights_only=True))


def test_the_folder_of_a_run_is_found() -> None:
    recipe = Recipe(epochs=2, method_fields=RUN)
    assert run_name(recipe) == NAME
    run = RunDir.find(FILES, recipe)
    assert run.recipe == recipe
    assert run.summary is not None and len(run.records) == 2


def test_the_results_of_this_project_keep_their_names() -> None:
    logs = sorted((Path(__file__).parents[2] / "results" / "logs").glob("*.json"))
    assert logs
    for log in logs:
        recipe = Recipe.from_dict(json.loads(log.read_text(encoding="utf-8"))["recipe"])
        assert run_name(recipe) == log.stem
        if recipe.method != DENSE:
            granet.create_method(recipe.method, **recipe.method_fields)


def test_a_recipe_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(
        '[methods.granet]\nsparsity = 0.9\nend = "30%"\ndistribution = "uniform"\n[methods.gmp]\nscope = "uniform"\n'
        '[methods.gs]\nend = 9\n[methods.rigl]\nend = "70%"\ndistribution = "er"\n'
    )
    file = read_recipe_file(tmp_path / "old.toml")
    fields = {"sparsity": 0.9, "prune_end": "30%", "initial_distribution": "uniform"}
    assert file.recipe("granet").method_fields == fields
    assert file.recipe("gmp").method_fields == {"distribution": "uniform"}
    assert file.recipe("gs").method_fields == {"prune_end": 9}
    assert file.recipe("rigl").method_fields == {"end": "70%", "distribution": "er"}


def test_a_grid_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text('sparsity = 0.9\nevery = 10\nend = 60\n[[runs]]\nmethod = ["gmp", "rigl"]\n')
    gmp, rigl = read_spec(tmp_path / "old.toml").recipes
    assert gmp.method_fields == {"sparsity": 0.9, "every": 10, "prune_end": 60}
    assert rigl.method_fields == {"sparsity": 0.9, "every": 10, "end": 60}


def test_one_field_under_both_names_is_refused() -> None:
    with refused("end", 3, "prune_end=4"):
        former_names.present(granet.GMP, {"end": 3, "prune_end": 4})


def test_what_granet_calls_its_distribution_is_that_of_its_start_only_in_what_was_written_before() -> None:
    def present(**fields: object) -> dict[str, object]:
        return former_names.present(granet.GraNet, fields)

    assert present(scope="uniform") == {"distribution": "uniform"}
    assert present(scope="global", distribution=None) == {"distribution": "global", "initial_distribution": None}
    assert present(distribution="er") == {"initial_distribution": "er"}
    assert present(end=3, distribution="uniform") == {"prune_end": 3, "initial_distribution": "uniform"}
    now = {"distribution": "uniform", "initial_distribution": "uniform", "prune_end": 3}
    assert present(**now) == now
    assert present(distribution="uniform") == {"distribution": "uniform"}
    before = former_names.first_written(granet.GraNet, now)
    assert before == {"scope": "uniform", "distribution": "uniform", "end": 3}
    assert present(**before) == now


def test_a_study_of_plasticity_is_read(tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text('epochs = 4\ncheckpoints = [1]\ncontinue_epochs = 1\nscopes = ["uniform"]\n')
    study, _ = read_study(tmp_path / "old.toml")
    assert study.distributions == ("uniform",)


def test_methods_of_ones_own_have_the_former_names_of_what_they_derive_from() -> None:
    class Mine(granet.GMP):
        pass

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class WithAnEnd(granet.GMP):
        end: int = 3

    fields = {"end": 3, "prune_end": 4}
    assert former_names.present(WithAnEnd, fields) == former_names.first_written(WithAnEnd, fields) == fields
    assert former_names.present(Mine, {"end": 3}) == {"prune_end": 3}
    assert former_names.first_written(Mine, {"prune_end": 3}) == {"end": 3}
    assert former_names.present(granet.RigL, {"end": 3, "grow_batches": 2}) == {"end": 3, "grow_batch_count": 2}
    assert former_names.present(granet.SNIP, {"batches": 2}) == {"batch_count": 2}
