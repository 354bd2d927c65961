"""The moving average of the weights: it follows them, and is as sparse."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

import granet
from granet.data.dataset import ImageSet
from granet.training import Recipe, Training
from granet.training.average import Average
from granet.training.batches import normaliser
from granet.training.step import evaluate
from quick import slow_but_for

SHORT = Recipe(epochs=4, batch_size=32, milestones=("50%",), method_fields={"sparsity": 0.9, "every": 2})


@pytest.mark.parametrize("method", slow_but_for(["granet"], ["granet", "dpf"]))
def test_dropped_filters_of_the_average_output_zero(data: ImageSet, method: str) -> None:
    fields = {"sparsity": 0.5, "pattern": "filter", "every": 1}
    recipe = replace(SHORT, epochs=2, method=method, method_fields=fields, ema=0.9, exclude=("classifier.weight",))
    training = Training(recipe, data)
    list(training.epochs())
    dropped = ~training.sparsifier.masks["hidden.0.weight"].any(1)
    assert dropped.any()
    linear_and_norm = training.final_model.eval().hidden[:2]
    assert not linear_and_norm(torch.randn(4, 512))[:, dropped].any()


def test_the_average_follows_and_is_as_sparse(data: ImageSet) -> None:
    training = Training(replace(SHORT, epochs=2, ema=0.9), data)
    expected: dict[str, torch.Tensor] = {}
    masks = training.sparsifier.masks

    def between() -> None:
        for name, value in training.model.state_dict().items():
            if not value.is_floating_point():
                continue
            before = expected.get(name, first[name])
            expected[name] = (0.9 * before.double() + 0.1 * value.double()) * masks.get(name, 1)

    first = {name: value.clone() for name, value in training.model.state_dict().items()}
    list(training.epochs(between))
    for name, value in training.final_model.state_dict().items():
        if name in expected:
            torch.testing.assert_close(value.double(), expected[name], rtol=1e-4, atol=1e-6)
        else:
            assert torch.equal(value, training.model.state_dict()[name]), name
    assert training.final_model is not training.model
    zeros = sum(int((training.final_model.get_parameter(name)[~mask] != 0).sum()) for name, mask in masks.items())
    assert zeros == 0
    assert training.summary().nonzero == sum(int((p != 0).sum()) for p in training.final_model.parameters())


def test_the_average_is_what_is_evaluated(data: ImageSet) -> None:
    training = Training(replace(SHORT, ema=1 - 1e-9), data)  # which stays where the model began
    last = list(training.epochs())[-1]
    normalise = normaliser(data.mean, data.std, torch.device("cpu"))
    test = [(data.test_images, data.test_labels)]
    averaged, trained = (float(evaluate(model, test, normalise)) for model in (training.final_model, training.model))
    assert last.test_accuracy == pytest.approx(averaged) and averaged < trained - 0.2


@pytest.mark.slow
@pytest.mark.parametrize("sparsity", [0.5, 0.9])
@pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")
def test_the_average_of_a_model_that_is_dense_until_the_end(data: ImageSet, sparsity: float) -> None:
    """Noise had silenced more weights than asked for at times; those come back, with the values that they had."""
    fields = {"sparsity": sparsity, "every": 2, "log_sigma2": -3.0, "kl_scale": 0.0, "threshold": 0.0}
    training = Training(replace(SHORT, ema=0.5, method="vd", method_fields=fields), data)
    expected: dict[str, torch.Tensor] = {}
    seen = []

    def between() -> None:
        for name in training.sparsifier.masks:
            weight = training.model.get_parameter(name).detach().double()
            expected[name] = 0.5 * (expected.get(name, first[name]) + weight)
        seen.append(training.sparsifier.sparsity)

    first = {name: training.model.get_parameter(name).detach().double() for name in training.sparsifier.masks}
    *_, last = training.epochs(between)
    assert max(seen) > sparsity == pytest.approx(last.sparsity, abs=1e-4)
    for name, mask in training.sparsifier.masks.items():
        average = training.final_model.get_parameter(name)
        torch.testing.assert_close(average.double(), expected[name] * mask, rtol=1e-4, atol=1e-6)
        assert (average[mask] != 0).all()


def test_the_average_of_a_model_that_is_dense_is_masked_only_to_be_evaluated() -> None:
    model = nn.Linear(2, 3)
    average = Average(copy.deepcopy(model), model, 0.5, {"bias": torch.tensor([True, False, True])}, dense=True)
    average.update()
    with average.masked():
        assert torch.equal(average.model.bias != 0, torch.tensor([True, False, True]))
    assert torch.equal(average.model.bias, model.bias)


def test_the_average_of_a_tied_weight_follows_once_a_step() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_()  # whose values do not matter
    average = Average(twin, model, 0.75, {})
    before = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight.zero_()
    average.update()
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    assert average.model[1].weight is average.model[0].weight
    torch.testing.assert_close(average.model[0].weight.detach(), 0.75 * before)


def test_a_masked_bias_may_be_that_of_a_layer_without_running_mean() -> None:
    model = nn.Linear(2, 3)
    average = Average(copy.deepcopy(model), model, 0.5, {"bias": torch.tensor([True, False, True])})
    average.mask()
    assert torch.equal(average.model.bias != 0, torch.tensor([True, False, True]))


def test_dropped_filters_leave_nothing_to_compute_in_the_average_either(data: ImageSet) -> None:
    fields = {"sparsity": 0.5, "every": 2, "pattern": "filter"}
    training = Training(replace(SHORT, ema=0.9, method_fields=fields, exclude=("classifier.weight",)), data)
    last = list(training.epochs())[-1]
    for name, mask in training.sparsifier.in_use.items():
        assert not training.final_model.get_parameter(name)[~mask].any()
    image = torch.zeros(1, 1, 8, 8)
    assert last.flops == pytest.approx(granet.flops(training.final_model, image).ratio, rel=1e-3)
    assert last.flops < granet.flops(training.final_model, image, masks=training.sparsifier.masks).ratio
