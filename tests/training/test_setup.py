"""What a run is made of, and recipes that do not fit are refused before the first step."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import granet
from granet.data.dataset import ImageSet
from granet.training import Recipe, Training
from refusals import refused

SHORT = Recipe(epochs=4, batch_size=32, milestones=("50%",), method_fields={"sparsity": 0.9, "every": 2})


@pytest.mark.parametrize(
    ("wrong", "subject"),
    [
        ({"method": "granett"}, "method='granett'"),
        ({"method_fields": {"sparsity": 1.0}}, "sparsity=1.0"),
        ({"method_fields": {"sparsity": 0.9, "evry": 2}}, "evry=2"),
        ({"method": "dense"}, "method_fields={'sparsity': 0.9, 'every': 2}"),
        ({"milestones": ("half",)}, "milestones='half'"),
        ({"model": "resnet21"}, "model='resnet21'"),
        ({"batch_size": 500}, "batch_size=500"),
        ({"crop": 8}, "crop=8"),
        ({"warm_up": "100%"}, "warm_up='100%'"),
        ({"no_decay": ("batchnorm*",)}, "no_decay=('batchnorm*',)"),
    ],
)
def test_wrong_recipes_fail_before_the_first_step(data: ImageSet, wrong: dict[str, object], subject: str) -> None:
    with refused(subject):
        Training(replace(SHORT, **wrong), data)


def test_a_method_that_looks_at_batches_takes_none_from_the_training(data: ImageSet) -> None:
    """So that runs of one seed train on the same batches, whatever their methods look at."""
    recipe = replace(SHORT, method="snip", method_fields={"sparsity": 0.5})
    first, second = (next(iter(Training(one, data)._feed.train.epoch())) for one in (recipe, recipe.dense_twin()))
    assert torch.equal(first[0], second[0])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_method_looks_at_training_batches_through_the_loss_of_training(data: ImageSet, precision: str) -> None:
    recipe = replace(SHORT, method="snip", method_fields={"sparsity": 0.5}, precision=precision)
    ours, plain = Training(recipe, data), Training(recipe.dense_twin(), data)
    by_hand = granet.sparsify(
        plain.model,
        plain._optimizer,
        granet.create_method("snip", sparsity=0.5),
        batches=((images.float(), labels) for images, labels in plain._feed.train.epoch()),
        loss=nn.functional.cross_entropy,
    )
    assert all(torch.equal(mask, by_hand.masks[name]) for name, mask in ours.sparsifier.masks.items())


def test_a_method_counts_the_epochs_of_the_run_and_leaves_out_what_is_excluded(data: ImageSet) -> None:
    fields = {"sparsity": 0.9, "every": "1ep"}
    sparsifier = Training(replace(SHORT, method_fields=fields, exclude=("classifier*",)), data).sparsifier
    assert list(sparsifier.updates) == [6, 12, 18]
    assert "hidden.0.weight" in sparsifier.masks and "classifier.weight" not in sparsifier.masks


def test_some_parameters_are_not_decayed(data: ImageSet) -> None:
    recipe = replace(SHORT, lr=1e-12, weight_decay=0.5, momentum=0.0, nesterov=False, no_decay=("*bias", "*.1.weight"))
    for clip in (0.0, 1.0):
        training = Training(replace(recipe, clip=clip).dense_twin(), data)
        groups = training._optimizer.param_groups
        assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
        exempt = {id(parameter) for parameter in groups[1]["params"]}
        for name, parameter in training.model.named_parameters():
            assert (id(parameter) in exempt) == name.endswith(("bias", ".1.weight")), name
        assert sum(len(group["params"]) for group in groups) == len(list(training.model.parameters()))


def test_a_method_that_counts_examples_gets_the_training_images(data: ImageSet) -> None:
    recipe = replace(SHORT, method="vd", method_fields={})
    assert Training(recipe, data).sparsifier.method.examples == 6 * 32
    asked = replace(recipe, method_fields={"examples": 7})
    assert Training(asked, data).sparsifier.method.examples == 7


def outputs(answer: Callable[[torch.Tensor], object]) -> nn.Module:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, images: torch.Tensor) -> object:
            return answer(self.layer(images.flatten(1)))

    return Model()


def not_written_yet(_: object) -> None:
    raise NotImplementedError


def too_large(_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.")


def of_other_size(x: torch.Tensor) -> None:
    torch._assert(x.shape[-1] == 224, f"height {x.shape[-1]} is not 224")


@pytest.mark.parametrize(
    ("model", "tells"),
    [
        (outputs(lambda x: (x, x)), "not a tuple"),
        (outputs(lambda x: x[:, :1]), "[images, 2] for the 2 classes of digits; for one image it returns [1, 1]"),
        (outputs(lambda x: x.sum()), "for one image it returns []"),
        (nn.Linear(5, 10), "1x8x8 (RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        (outputs(not_written_yet), "1x8x8 (NotImplementedError: )"),
        (outputs(of_other_size), "1x8x8 (AssertionError: height 10 is not 224)"),
        (nn.BatchNorm1d(64), "1x8x8 (ValueError: expected 2D or 3D input"),
    ],
    ids=["tuple", "few", "none", "images", "silent", "assertion", "dimensions"],
)
def test_a_model_that_does_not_fit_is_found_before_the_first_step(
    data: ImageSet, model: nn.Module, tells: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("granet.training.setup.create_model", lambda *_, **__: model)
    with refused("model", "digits_net", tells):
        Training(Recipe(), data)


def test_a_model_may_have_more_outputs_than_classes_but_not_than_fit(
    data: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = iter([outputs(lambda x: x), outputs(too_large)])
    monkeypatch.setattr("granet.training.setup.create_model", lambda *_, **__: next(models))
    Training(Recipe(), data)
    with refused("device", "cpu"):
        Training(Recipe(), data)


def test_a_method_that_starts_from_a_finished_run_is_given_one(data: ImageSet) -> None:
    with refused("parent", ""):
        Training(Recipe(method="lth", method_fields={"sparsity": 0.5}), data)


def test_a_run_that_has_no_use_for_another_is_not_given_one(data: ImageSet) -> None:
    for method, fields in (("rigl", {"sparsity": 0.5}), ("dense", {})):
        with refused("parent", "runs/other", method):
            Training(Recipe(method=method, method_fields=fields, parent="runs/other"), data)
