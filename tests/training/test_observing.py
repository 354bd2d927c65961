"""Observers in a run: they see, they change nothing, and a resumed run saw the same."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from granet.data.dataset import ImageSet
from granet.observers import OBSERVERS
from granet.report.read import read_run
from granet.training import Recipe, Run, Training
from granet.training.batches import normaliser
from granet.training.loggers import _metrics
from granet.training.rundir import run_name
from quick import slow_but_for
from refusals import refused

METHOD = {"sparsity": 0.9, "initial_sparsity": 0.5, "every": 3}
PLAIN = Recipe(epochs=2, batch_size=32, milestones=(), method_fields=METHOD, crop=1, flip=True)
WATCHED = replace(PLAIN, observe=tuple(OBSERVERS))


@pytest.fixture(scope="module")
def data() -> ImageSet:
    generator = torch.Generator().manual_seed(0)

    def part(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 2, (count,), generator=generator)
        images = torch.randint(0, 120, (count, 1, 8, 8), generator=generator) + 90 * labels.view(-1, 1, 1, 1)
        return images.to(torch.uint8), labels

    return ImageSet("toy", *part(200), *part(40), *part(40), 2, (0.4,), (0.2,))


@pytest.fixture(scope="module")
def watched(data: ImageSet) -> tuple[Training, list[dict[str, object]]]:
    """A whole run, and its state after each of the 12 steps."""
    training = Training(WATCHED, data)
    states: list[dict[str, object]] = []
    list(training.epochs(lambda: states.append(copy.deepcopy(training.state()))))
    return training, states


def without(data: ImageSet) -> ImageSet:
    """The same images, no validation part."""
    return replace(data, val_images=data.val_images[:0], val_labels=data.val_labels[:0])


def test_the_training_is_the_same_bit_for_bit(data: ImageSet, watched: tuple[Training, object]) -> None:
    for training, images in ((watched[0], data), (Training(WATCHED, without(data)), without(data))):
        list(training.epochs())  # nothing is left of the first
        plain = Training(PLAIN, images)
        list(plain.epochs())
        assert all(map(torch.equal, plain.model.state_dict().values(), training.model.state_dict().values()))
        same = [replace(record, seconds=0, observed=None) for record in training.records]
        assert same == [replace(record, seconds=0) for record in plain.records]


def test_what_was_seen_is_that_of_the_run(watched: tuple[Training, object]) -> None:
    training = watched[0]
    masks = training.sparsifier.masks.values()
    first, last = (record.observed for record in training.records)
    assert first and last and {key.partition(".")[0] for key in first} == set(OBSERVERS)
    dead = [bool(row.any()) for mask in masks for row in mask.flatten(1)]
    assert last["dead_filters.share"] == pytest.approx(dead.count(False) / len(dead))
    assert 0.5 <= first["ever_active.share"] <= last["ever_active.share"] < 1
    assert 0 < first["overlap.jaccard"] < first["overlap.kept"] < 1


@pytest.mark.parametrize("step", slow_but_for([4, 6], [1, 3, 4, 6, 12]))
def test_a_resumed_run_saw_the_same(
    data: ImageSet, watched: tuple[Training, list[dict[str, object]]], step: int
) -> None:
    training, states = watched
    resumed = Training(WATCHED, data, state=states[step - 1])
    list(resumed.epochs())
    first, second = ([replace(record, seconds=0) for record in run.records] for run in (training, resumed))
    assert first == second  # loss and accuracy of an epoch that was begun before, too


def test_a_dense_run_is_watched_without_masks(data: ImageSet) -> None:
    twin = WATCHED.dense_twin()
    assert twin.observe == ("dormant", "gradient_norm", "effective_rank")
    training = Training(replace(twin, epochs=1, observe=WATCHED.observe), data)
    (record,) = training.epochs()
    assert record.observed and {key.partition(".")[0] for key in record.observed} == set(twin.observe)


@pytest.mark.slow
def test_names_of_runs_and_files(data: ImageSet, tmp_path: Path) -> None:
    assert run_name(Recipe()) == "digits-digits_net-granet-0.9-seed0-44136fa3"  # as before there were observers
    assert Recipe.from_dict(json.loads(json.dumps(WATCHED.to_dict()))) == WATCHED
    for recipe in (replace(PLAIN, epochs=1), replace(WATCHED, epochs=1)):
        run = Run(recipe, data, torch.device("cpu"), tmp_path)
        (record,) = run.epochs()
        line = json.loads((run.folder.path / "metrics.jsonl").read_text())
        assert ("observed" in line) == bool(recipe.observe) and line.get("observed") == record.observed
        assert read_run(run.folder.path).records == (record,)
        assert ("observed.overlap.kept" in _metrics(record)) == bool(recipe.observe)


def test_activations_are_those_for_the_first_validation_images_or_else_training_images(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("granet.training.observing.WATCHED_IMAGES", 16)
    monkeypatch.setattr("granet.training.observing.Observers", made := Mock())
    normalise = normaliser(data.mean, data.std, torch.device("cpu"))
    batch, _ = next(Training(PLAIN, without(data))._feed.train.epoch())
    for images, shown in ((data, normalise(data.val_images)), (without(data), batch)):
        Training(WATCHED, images)
        assert torch.equal(made.call_args.args[3], shown[:16])


def test_an_unknown_observer() -> None:
    with refused("observe", "rank"):
        replace(PLAIN, observe=("rank",))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a step is replayed on a GPU only")
def test_a_replayed_step_is_watched_too(data: ImageSet) -> None:
    runs = [Training(replace(recipe, deterministic=True), data, device="cuda") for recipe in (PLAIN, WATCHED)]
    for run in runs:
        list(run.epochs())
    assert all(map(torch.equal, *(run.model.state_dict().values() for run in runs)))
    observed = runs[1].records[0].observed
    assert observed and {key.partition(".")[0] for key in observed} == set(OBSERVERS)
    assert observed["gradient_norm.after_update"] > 0
