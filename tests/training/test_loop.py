"""The loop learns, counts as it says, repeats itself, and selects nothing on test images."""

import copy
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

import granet
from granet.data.dataset import ImageSet
from granet.training import Recipe, Training
from granet.training.batches import normaliser
from granet.training.step import evaluate, loss_function
from quick import slow_but_for

SHORT = Recipe(epochs=4, batch_size=32, milestones=("50%",), method_fields={"sparsity": 0.9, "every": 2})


def test_granet_reaches_its_sparsity_and_learns(data: ImageSet) -> None:
    training = Training(SHORT, data)
    rates: list[float] = []
    records = list(training.epochs(lambda: rates.append(training._optimizer.param_groups[0]["lr"])))
    assert rates == pytest.approx([0.1] * 12 + [0.01] * 12)  # of each step
    assert [record.epoch for record in records] == [1, 2, 3, 4]
    assert [record.step for record in records] == [6, 12, 18, 24]
    assert [record.lr for record in records] == pytest.approx([0.1, 0.1, 0.01, 0.01])
    assert [record.target_sparsity for record in records] == sorted(record.target_sparsity for record in records)
    assert records[0].sparsity < records[-1].sparsity
    weights = 159_264 - 128 * 8  # two classes instead of ten
    active = sum(int(mask.sum()) for mask in training.sparsifier.masks.values())
    assert active == round(weights * 0.1)
    summary = training.summary()
    assert summary.sparsity_asked == 0.9 and summary.sparsity == pytest.approx(1 - active / weights)
    assert summary.test_accuracy == records[-1].test_accuracy > 0.95
    assert summary.seconds == records[-1].seconds > 0
    assert summary.parameters == weights + 2 * (32 + 64 + 128 + 128) + 2
    assert summary.parameters - summary.nonzero >= weights - active
    assert 0 < summary.flops_ratio < 1
    assert records[-1].train_loss < records[0].train_loss
    norms = [module for module in training.model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert [norm.num_batches_tracked.item() for norm in norms] == [24] * 3  # each step in training mode, no evaluation


def test_records_agree_with_the_model(data: ImageSet) -> None:
    data = replace(data, val_labels=1 - data.val_labels)  # so that the two accuracies differ
    training = Training(replace(SHORT, epochs=2), data)
    last = list(training.epochs())[-1]
    normalise = normaliser(data.mean, data.std, torch.device("cpu"))
    for images, labels, accuracy in (
        (data.val_images, data.val_labels, last.val_accuracy),
        (data.test_images, data.test_labels, last.test_accuracy),
    ):
        training.model.eval()
        with torch.no_grad():
            answers = torch.cat([training.model(normalise(image[None])).argmax(1) for image in images])
        assert accuracy == pytest.approx((answers == labels).float().mean().item())


def test_training_figures_are_means_over_the_images(data: ImageSet) -> None:
    recipe = replace(SHORT.dense_twin(), epochs=1, lr=1e-12)  # the weights stay
    (record,) = Training(recipe, data).epochs()
    twin = Training(recipe, data)
    seen = [(twin.model.train()(images), labels) for images, labels in twin._feed.train.epoch()]
    logits, labels = (torch.cat(parts).detach() for parts in zip(*seen, strict=True))
    assert record.train_loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-4)
    assert record.train_accuracy == pytest.approx((logits.argmax(1) == labels).float().mean().item())


def test_same_recipe_same_run_other_seed_other_run(data: ImageSet) -> None:
    def weights(recipe: Recipe) -> torch.Tensor:
        training = Training(recipe, data)
        list(training.epochs())
        return torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()])

    recipe = replace(SHORT, epochs=2, crop=1, flip=True)
    first = weights(recipe)
    torch.rand(7)  # whatever else drew from the global generator
    assert torch.equal(first, weights(recipe))
    assert not torch.equal(first, weights(replace(recipe, seed=1)))
    static = replace(SHORT, method="static", method_fields={"sparsity": 0.5})
    starts = [Training(replace(static, seed=seed), data) for seed in (0, 1)]
    assert not torch.equal(*(start.model.classifier.bias for start in starts))  # which no mask touches
    assert not torch.equal(*(start.sparsifier.masks["hidden.0.weight"] for start in starts))
    assert not torch.equal(*(next(start._feed.train.epoch())[1] for start in starts))


def test_every_setting_of_a_recipe_reaches_the_training(data: ImageSet) -> None:
    def weights(**changed: object) -> torch.Tensor:
        training = Training(replace(recipe, **changed), few)
        list(training.epochs())
        return torch.cat([parameter.detach().flatten() for parameter in training.final_model.parameters()])

    parts = ("train_images", "train_labels", "val_images", "val_labels", "test_images", "test_labels")
    few = replace(data, **{part: getattr(data, part)[:16] for part in parts})
    recipe = replace(SHORT.dense_twin(), epochs=1, batch_size=4, crop=2)
    first = weights()
    for name, value in {
        "lr": 0.02, "momentum": 0.8, "nesterov": False, "weight_decay": 0.0, "no_decay": ("*bias",), "gamma": 0.5,
        "schedule": "cosine", "milestones": (), "warm_up": 2, "label_smoothing": 0.1, "clip": 0.01, "ema": 0.5,
        "crop": 1, "padding": "zero", "flip": True, "batch_size": 3, "stretch": 2.0,
    }.items():  # fmt: skip
        assert not torch.equal(first, weights(**{name: value})), name


def test_dense_twin_starts_from_the_same_weights_and_stays_dense(data: ImageSet) -> None:
    sparse, dense = Training(SHORT, data), Training(SHORT.dense_twin(), data)
    assert all(map(torch.equal, sparse.model.parameters(), dense.model.parameters()))
    list(dense.epochs())
    summary = dense.summary()
    assert dense.sparsifier is None
    assert (summary.sparsity, summary.flops_ratio) == (0.0, 1.0)


@pytest.mark.slow
def test_test_images_change_nothing_but_the_test_figures(data: ImageSet) -> None:
    """Wrong test labels: the same weights, the same chosen epoch."""
    runs = [Training(SHORT, one) for one in (data, replace(data, test_labels=1 - data.test_labels))]
    for run in runs:
        list(run.epochs())
    assert all(map(torch.equal, *(run.model.parameters() for run in runs)))
    first, second = (run.summary() for run in runs)
    assert first.best_epoch == second.best_epoch
    assert second.test_accuracy == pytest.approx(1 - first.test_accuracy)


def test_no_validation_part(data: ImageSet) -> None:
    training = Training(
        replace(SHORT, epochs=2), replace(data, val_images=data.val_images[:0], val_labels=data.val_labels[:0])
    )
    assert [record.val_accuracy for record in training.epochs()] == [None, None]
    assert training.summary().best_test_accuracy is None


def test_evaluate_in_parts_equals_evaluate_at_once(data: ImageSet) -> None:
    training = Training(SHORT, data)
    normalise = normaliser(data.mean, data.std, torch.device("cpu"))

    def accuracy(size: int) -> torch.Tensor:
        batches = zip(data.test_images.split(size), data.test_labels.split(size), strict=True)
        return evaluate(training.model, batches, normalise)

    assert accuracy(1000) == accuracy(33)


def test_clipping_bounds_the_masked_gradients(data: ImageSet) -> None:
    """With plain SGD the move of a step is lr times the clipped gradient, so its norm is lr times the bound."""
    recipe = replace(SHORT, momentum=0.0, nesterov=False, weight_decay=0.0, clip=0.01, milestones=(), method="static")
    training = Training(replace(recipe, method_fields={"sparsity": 0.9}, epochs=1), data)
    seen: list[torch.Tensor] = []

    def note() -> None:
        seen.append(torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()]))

    note()
    list(training.epochs(note))
    norms = [(after - before).norm().item() for before, after in pairwise(seen)]
    assert norms == pytest.approx([0.1 * 0.01] * 6, rel=1e-3)


def test_labels_are_smoothed() -> None:
    model = torch.nn.Linear(3, 4)
    images, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])
    loss, sums = loss_function(model, "float32", label_smoothing=0.2)(images, labels)
    smooth = 0.8 * torch.nn.functional.one_hot(labels, 4) + 0.2 / 4
    expected = -(smooth * model(images).log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(sums[0], 5 * expected.detach())


def test_in_bfloat16_passes_are_rounded_and_the_loss_is_not() -> None:
    torch.manual_seed(0)
    model, seen = nn.Linear(64, 4), []
    model.register_forward_hook(lambda module, arguments, output: seen.append(output))
    images, labels = torch.randint(0, 256, (50, 64), dtype=torch.uint8), torch.arange(50) % 4
    loss, _ = loss_function(model, "bfloat16")(images / 255, labels)
    evaluate(model, [(images, labels)], lambda batch: batch / 255, "bfloat16")
    evaluate(model, [(images, labels)], lambda batch: batch / 255)
    assert [output.dtype for output in seen] == [torch.bfloat16, torch.bfloat16, torch.float32]
    assert [output.requires_grad for output in seen] == [True, False, False]  # evaluation keeps nothing for a backward
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, nn.functional.cross_entropy(seen[0].double(), labels).float())


def test_images_and_evaluation_are_at_the_precision_of_the_recipe(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, evaluation = Training(replace(SHORT, precision="bfloat16"), data), Mock()
    assert next(training._feed.train.epoch())[0].dtype == torch.bfloat16
    monkeypatch.setattr("granet.training.loop.evaluate", evaluation)
    training._accuracy(training._feed.test)
    assert evaluation.call_args.args[-1] == "bfloat16"


def test_the_device_is_asked_to_repeat_results_if_the_recipe_says_so(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("granet.training.loop.prepare_device", asked := Mock())
    for deterministic in (True, False):
        Training(replace(SHORT, deterministic=deterministic), data)
        asked.assert_called_with(torch.device("cpu"), deterministic)


@pytest.mark.slow
@pytest.mark.parametrize("ema", slow_but_for([0.9], [0.0, 0.9]))
def test_a_run_goes_on_from_any_step(data: ImageSet, ema: float) -> None:
    recipe = replace(SHORT, epochs=2, crop=1, flip=True, ema=ema)
    whole = Training(recipe, data)
    states: list[dict[str, object]] = []
    list(whole.epochs(lambda: states.append(copy.deepcopy(whole.state()))))
    assert len(states) == 12
    for step, state in enumerate(states, start=1):
        torch.rand(3)
        resumed = Training(recipe, data, state=state)
        assert resumed.step == step
        list(resumed.epochs())
        assert all(map(torch.equal, whole.final_model.state_dict().values(), resumed.final_model.state_dict().values()))
        mine, theirs = ([replace(record, seconds=0) for record in run.records] for run in (whole, resumed))
        assert mine == theirs


def test_an_epoch_that_was_left_in_the_middle_goes_on(data: ImageSet) -> None:
    whole, left = (Training(replace(SHORT, epochs=2), data) for _ in range(2))
    list(whole.epochs())

    def leave() -> None:
        if left.step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(left.epochs(leave))
    list(left.epochs())
    assert all(map(torch.equal, whole.model.parameters(), left.model.parameters()))
    assert [record.train_loss for record in left.records] == [record.train_loss for record in whole.records]


@pytest.mark.slow
def test_training_flops_are_counted_as_training_goes(data: ImageSet) -> None:
    dense = Training(replace(SHORT.dense_twin(), stretch=1.5), data)
    assert [record.train_flops for record in dense.epochs()] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
    static = Training(replace(SHORT, method="static", method_fields={"sparsity": 0.9}), data)
    *_, last = static.epochs()
    assert 0 < last.flops < 0.5 and last.train_flops == pytest.approx(last.flops)
    gradual = Training(SHORT, data)
    records = list(gradual.epochs())
    assert records[-1].flops < records[0].flops < 1 and last.flops < records[-1].train_flops < 1
    assert gradual.summary().train_flops == records[-1].train_flops
    expected = granet.flops(gradual.model, torch.zeros(1, 1, 8, 8), masks=gradual.sparsifier.masks).ratio
    assert gradual.summary().flops_ratio == pytest.approx(expected)


def test_seconds_include_the_evaluation(data: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def slowly(*arguments: Any) -> torch.Tensor:
        nonlocal now
        now += 5.0
        return evaluate(*arguments)

    monkeypatch.setattr("granet.training.loop.time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr("granet.training.loop.evaluate", slowly)
    (record,) = Training(Recipe(epochs=1, method="dense", method_fields={}), data).epochs()
    assert record.seconds == 10.0  # validation and test
