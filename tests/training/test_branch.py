"""Runs that go on from an epoch that another run kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from granet.cli.console import create_console
from granet.cli.many_runs import train_all
from granet.data import load
from granet.studies.jobs import Place
from granet.training import Recipe, Run, Training
from granet.training.branch import find_parent
from granet.training.checkpoint import keep_state, kept_path, load_kept
from granet.training.rundir import run_name
from quick import slow_but_for
from refusals import refused

CPU = torch.device("cpu")
DATA = load("digits")
TRUNK = Recipe(
    method="dense", method_fields={}, epochs=4, milestones=("50%",), batch_size=256, keep=(1, 2, 3), ema=0.9, seed=3
)
BRANCH = replace(TRUNK, parent=run_name(TRUNK), keep=(), branch_epoch=1)
PRUNED = replace(BRANCH, method="prune-regrow", method_fields={"rate": 0.5})


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished trunk in it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    list(Run(TRUNK, DATA, CPU, folder).epochs())
    return folder


def finished(recipe: Recipe, out: Path) -> Training:
    run = Run(recipe, DATA, CPU, out)
    list(run.epochs())
    return run.training


def test_a_branch_that_prunes_nothing_ends_as_its_trunk_bit_for_bit(out: Path) -> None:
    branch = finished(BRANCH, out)
    wanted = load_file(out / run_name(TRUNK) / "model.safetensors")
    got = branch.final_model.state_dict()
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)
    assert [record.epoch for record in branch.records] == [1, 2, 3, 4]
    left = {path.name for path in (out / run_name(BRANCH)).iterdir()}
    assert left == {"config.json", "metrics.jsonl", "summary.json"}  # hundreds of these must be small
    branch.records[0] = replace(branch.records[0], val_accuracy=1.0)  # of the trunk, so not one to choose
    assert branch.summary().best_epoch in (2, 3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("again", ["a run", "a sweep"])
def test_a_run_killed_before_it_removed_its_checkpoints_loses_them_at_the_next_start(
    out: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    branch = replace(PRUNED, seed=len(again), branch_epoch=2)
    run = Run(branch, DATA, CPU, out)
    with monkeypatch.context() as patch:
        patch.setattr("granet.training.run.remove_checkpoints", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            list(run.epochs(checkpoint_every=0))
    assert run.folder.summary is not None and list(run.folder.path.glob("checkpoint-*.pt"))
    trunk = sorted((out / run_name(TRUNK)).iterdir())
    if again == "a run":
        assert Run(branch, DATA, CPU, out).summary is not None
    else:
        assert list(train_all(create_console(), [TRUNK, branch], Place(CPU, out), packed=1)) == [TRUNK, branch]
    assert not list(run.folder.path.glob("checkpoint-*.pt"))
    assert sorted((out / run_name(TRUNK)).iterdir()) == trunk


@pytest.mark.parametrize(
    ("epoch", "hold", "rates"),
    slow_but_for([(3, 1, [0.01])], [(1, 2, [0.1, 0.1]), (3, 1, [0.01]), (1, 0, [0.1, 0.01, 0.01])]),
)
def test_the_learning_rate_is_held_or_follows_the_schedule(
    out: Path, epoch: int, hold: int, rates: list[float]
) -> None:
    recipe = replace(PRUNED, branch_epoch=epoch, hold=hold)
    branch = finished(recipe, out)
    assert [record.lr for record in branch.records[epoch:]] == pytest.approx(rates)
    assert Run(recipe, DATA, CPU, out).epochs_done == epoch + len(rates)
    assert (out / run_name(recipe) / "layers.json").is_file()


def test_a_branch_begins_with_the_kept_weights_pruned_once(out: Path) -> None:
    method = {"rate": 0.75, "distribution": "uniform"}
    branch = Run(replace(BRANCH, method="prune-once", method_fields=method), DATA, CPU, out).training
    state = load_kept(out / run_name(TRUNK), 1, CPU)
    kept, average = state["model"], state["average"]
    for name, weight in branch.model.state_dict().items():
        if name in branch.sparsifier.masks:
            least = kept[name].abs().flatten().sort().values[round(0.75 * weight.numel())]
            assert torch.equal(weight, kept[name] * (kept[name].abs() >= least))
            averaged = branch.final_model.state_dict()[name]
            assert torch.equal(averaged, average[name] * (weight != 0))  # should it return, it begins at zero here too
        else:
            assert torch.equal(weight, kept[name])


@pytest.mark.slow
def test_a_branch_that_is_stopped_is_finished_as_if_it_had_not_been(out: Path, tmp_path: Path) -> None:
    recipe = replace(PRUNED, parent=str(out / run_name(TRUNK)))
    whole = finished(recipe, tmp_path / "whole")
    calls = iter(range(100))
    run = Run(recipe, DATA, CPU, tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        list(run.epochs(stop=lambda: next(calls) == 6))
    again = Run(recipe, DATA, CPU, tmp_path / "parts")
    assert again.epochs_done == 2 and again.training.step == 4 + 7
    list(again.epochs())
    mine, theirs = again.training.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert [r.test_accuracy for r in again.training.records] == [r.test_accuracy for r in whole.records]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gmp", "granet"])
def test_a_gradual_method_reaches_its_sparsity_in_a_branch(out: Path, method: str) -> None:
    fields = {"sparsity": 0.9, "every": 1}
    branch = finished(replace(BRANCH, method=method, method_fields=fields, branch_epoch=2), out)
    assert [record.sparsity for record in branch.records] == pytest.approx([0, 0, 0.9, 0.9], abs=1e-4)  # half-way
    _, *spent = (record.train_flops for record in branch.records)
    third, fourth = spent[1] - spent[0], spent[2] - spent[1]  # of these epochs
    assert fourth < 0.9 * third and third < 1 / 4  # of a dense one


@pytest.mark.slow
def test_a_branch_has_its_own_settings_of_the_optimizer(out: Path) -> None:
    norms = [
        sum(float(p.detach().norm()) for p in finished(replace(BRANCH, weight_decay=decay), out).model.parameters())
        for decay in (1e-3, 0.3)
    ]
    assert norms[1] < 0.9 * norms[0]


def test_every_setting_of_a_branchs_optimizer_is_its_own(out: Path) -> None:
    own = replace(BRANCH, momentum=0.5, weight_decay=0.3, nesterov=not TRUNK.nesterov)
    for group in Run(own, DATA, CPU, out).training._optimizer.param_groups:
        assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.5, 0.3, not TRUNK.nesterov)


def test_the_best_epoch_of_a_branch_is_one_of_its_own(out: Path) -> None:
    training = Run(replace(BRANCH, lr=0.07), DATA, CPU, out).training  # which no other test has finished
    (first,) = training.records
    figures = {1: (0.99, 0.98), 2: (0.6, 0.5), 3: (0.8, 0.7), 4: (0.7, 0.6)}  # validation, test
    training.records = [
        replace(first, epoch=epoch, val_accuracy=val, test_accuracy=test, target_sparsity=0.5, sparsity=0.25)
        for epoch, (val, test) in figures.items()
    ]
    summary = training.summary()
    assert (summary.sparsity_asked, summary.sparsity) == (0.5, 0.25)
    assert (summary.best_epoch, summary.best_test_accuracy, summary.test_accuracy) == (3, 0.7, 0.6)


@pytest.mark.slow
def test_a_branch_may_watch_and_average_where_its_trunk_did_not(tmp_path: Path) -> None:
    trunk = replace(TRUNK, ema=0.0)
    finished(trunk, tmp_path)
    child = replace(PRUNED, parent=run_name(trunk), observe=("overlap",), ema=0.5)
    branch = finished(child, tmp_path)
    assert branch.records[-1].observed is not None
    child = replace(BRANCH, parent=run_name(trunk), ema=1e-9)  # an average that follows at once
    branch = finished(child, tmp_path)
    for name, value in branch.model.state_dict().items():
        torch.testing.assert_close(branch.final_model.state_dict()[name], value)


@pytest.mark.slow
def test_a_branch_watches_itself_whatever_its_trunk_watched(tmp_path: Path) -> None:
    seen = []
    for watched in ((), ("overlap", "gradient_norm")):
        trunk = replace(TRUNK, method="static", method_fields={"sparsity": 0.01}, observe=watched)
        finished(trunk, tmp_path)
        child = replace(PRUNED, parent=run_name(trunk), observe=("overlap", "gradient_norm"))
        seen.append([record.observed for record in finished(child, tmp_path).records[1:]])
    assert seen[0] == seen[1]


@pytest.mark.slow
def test_a_checkpoint_that_is_missing_damaged_or_of_another_model_is_named(out: Path, tmp_path: Path) -> None:
    trunk = replace(TRUNK, epochs=2, keep=(1,))
    finished(trunk, tmp_path)
    path = kept_path(tmp_path / run_name(trunk), 1)
    child = replace(trunk, parent=run_name(trunk), keep=(), branch_epoch=1)
    with refused("branch_epoch", 3, "0003.pt"):
        Run(replace(child, epochs=4, branch_epoch=3), DATA, CPU, tmp_path)
    with refused("model='resnet20', method", child.method):
        Run(replace(child, model="resnet20"), DATA, CPU, tmp_path)
    for name, there in ((run_name(TRUNK), 1), (run_name(trunk), 2)):  # of another run, and of another epoch
        (tmp_path / name).mkdir(exist_ok=True)
        keep_state(tmp_path / name, there, load_kept(out / run_name(TRUNK), 1, CPU))
        whole = path.read_bytes()
        kept_path(tmp_path / name, there).replace(path)
        with refused("branch_epoch", 1, "kept-0001.pt is of another"):
            Run(child, DATA, CPU, tmp_path)
        path.write_bytes(whole)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with refused("branch_epoch", 1, "kept-0001.pt is damaged"):
        Run(child, DATA, CPU, tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"branch_epoch": 2, "hold": 3}, ("hold", 3, "2", "3", "4")),
        ({"branch_epoch": 4}, ("branch_epoch", 4, "4")),
        ({"branch_epoch": 1, "parent": ""}, ("parent", "")),
        ({"branch_epoch": 0, "hold": 1}, ("hold", 1)),
        ({"keep": (4,)}, ("keep", 4, "3")),
    ],
)
def test_bad_recipes_name_the_field(fields: dict[str, object], message: tuple) -> None:
    with refused(*message):
        replace(BRANCH, **fields)


def test_a_parent_is_a_path_before_it_is_a_name_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    (runs / BRANCH.parent).mkdir(parents=True)
    assert find_parent(BRANCH, runs) == runs / BRANCH.parent
    Path(BRANCH.parent).mkdir()
    assert find_parent(BRANCH, runs) == Path(BRANCH.parent)
    finished_only = replace(BRANCH, method="lth", method_fields={"sparsity": 0.5}, branch_epoch=0)
    for other in (finished_only, replace(BRANCH, parent="no such run")):
        with refused("parent", other.parent, repr(str(runs))):
            find_parent(other, runs)


def test_a_branch_has_epochs_of_as_many_steps_as_its_trunk(out: Path) -> None:
    with refused("batch_size", 128, "9", "4"):
        Run(replace(BRANCH, batch_size=128), DATA, CPU, out)


def test_a_branch_may_start_before_its_trunk_is_finished(tmp_path: Path) -> None:
    epochs = Run(TRUNK, DATA, CPU, tmp_path).epochs()
    next(epochs)
    epochs.close()
    for branch in (BRANCH, PRUNED):
        assert Run(branch, DATA, CPU, tmp_path).epochs_done == 1


@pytest.mark.slow
@pytest.mark.parametrize("other", [("features.1.bias",), ("features.4.weight",), ()])
def test_a_branch_has_the_no_decay_of_its_trunk(tmp_path: Path, other: tuple[str, ...]) -> None:
    """Else momentum would go to other parameters: to one of the same shape, of another, or into another group."""
    trunk = replace(TRUNK, epochs=2, keep=(1,), no_decay=("features.1.weight",))
    finished(trunk, tmp_path)
    child = replace(trunk, parent=run_name(trunk), keep=(), branch_epoch=1)
    finished(child, tmp_path)
    with refused("no_decay", other, "features.1.weight"):
        Run(replace(child, no_decay=other), DATA, CPU, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("trunk", slow_but_for(["str"], ["str", "vd", "dpf", "gmp-original"]))
def test_a_branch_of_what_is_trained_behind_the_weights(trunk: str, tmp_path: Path) -> None:
    """It goes on from what the model showed; parameters that are trained besides have no place in it."""
    fields = {"sparsity": 0.5, "every": 1} if trunk in ("dpf", "gmp-original") else {}
    first = replace(TRUNK, method=trunk, method_fields=fields, epochs=2, keep=(1,))
    finished(first, tmp_path)
    recipe = replace(first, method="dense", method_fields={}, parent=run_name(first), keep=(), branch_epoch=1)
    if fields:
        assert [record.epoch for record in finished(recipe, tmp_path).records] == [1, 2]
        return
    with refused("parent", run_name(first), "parameters of its own"):
        Run(recipe, DATA, CPU, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "fields"), [("dense", {}), ("static", {"sparsity": 0.5})])
def test_training_flops_go_on_from_those_of_the_trunk(tmp_path: Path, method: str, fields: dict[str, float]) -> None:
    """A network that was sparse up to there and is dense from then on, say, cost little in its first epochs."""
    trunk = replace(TRUNK, method="static", method_fields={"sparsity": 0.9})
    list(Run(trunk, DATA, CPU, tmp_path).epochs())
    branch = replace(trunk, method=method, method_fields=fields, parent=run_name(trunk), keep=(), branch_epoch=2)
    records = finished(branch, tmp_path).records
    sparse, now = records[0].flops / 4, records[-1].flops / 4
    assert [record.train_flops for record in records] == pytest.approx(
        [sparse, 2 * sparse, 2 * sparse + now, 2 * sparse + 2 * now]
    )
