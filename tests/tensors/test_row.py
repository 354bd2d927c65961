"""Tensors that lie one after another in one flat tensor."""

import copy
import pickle

import pytest
import torch
from torch import nn

import granet
from granet.tensors.row import Row, addresses, contiguous, kinds, row_of, sizes
from granet.weights import find_layers, gradients_of


def some() -> list[torch.Tensor]:
    image = torch.arange(2 * 3 * 4 * 4.0).view(2, 3, 4, 4)
    return [torch.arange(5.0), image.to(memory_format=torch.channels_last), torch.arange(6.0).view(2, 3)]


def test_parts_have_the_shapes_and_layouts_of_others() -> None:
    tensors = some()
    row = Row(torch.arange(107.0), tensors)
    assert len(row) == 3
    assert [part.shape for part in row] == [tensor.shape for tensor in tensors]
    assert [part.stride() for part in row] == [tensor.stride() for tensor in tensors]
    assert [part.view(-1)[0].item() for part in (row[0], row[2])] == [0, 101]
    assert row[1].permute(0, 2, 3, 1).flatten().tolist() == list(range(5, 101))  # as they lie in memory
    row[1].zero_()
    assert row.whole.count_nonzero() == 107 - 96 - 1


def test_addresses_are_those_of_the_parts() -> None:
    row = Row(torch.zeros(107, dtype=torch.float64), some())
    assert addresses(row) == tuple(part.data_ptr() for part in row) == addresses(list(row))


def test_a_clone_is_another_row() -> None:
    row = Row(torch.zeros(107), some())
    other = row.clone()
    other[2].fill_(1)
    assert row.whole.sum() == 0 and other.whole.sum() == 6


def test_the_row_that_tensors_lie_in() -> None:
    whole = torch.zeros(20)
    parts = [whole[2:5], whole[5:11].view(2, 3), whole[11:12]]
    row = row_of(parts)
    assert row is not None and len(row.whole) == 10
    row.whole.fill_(1)
    assert whole.tolist() == [0] * 2 + [1] * 10 + [0] * 8


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.zeros(3), torch.zeros(4)],
        (lambda whole: [whole[:3], whole[4:]])(torch.zeros(9)),
        (lambda whole: [whole[3:], whole[:3]])(torch.zeros(9)),
        (lambda whole: [whole[:6].view(2, 3).t(), whole[6:]])(torch.zeros(9)),
        (lambda whole: [whole[:4], whole[4:].view(torch.int32)])(torch.zeros(8, dtype=torch.int8)),
    ],
    ids=["apart", "a gap", "another order", "not in logical order", "another type"],
)
def test_no_row(tensors: list[torch.Tensor]) -> None:
    assert row_of(tensors) is None


def test_masks_of_a_training_lie_in_a_row_and_so_do_those_of_its_copies() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Conv2d(2, 3, 3), nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = model, optimizer, granet.sparsify(model, optimizer, granet.create_method("static", sparsity=0.5))
    for *_, sparsifier in (run, copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        row = row_of([mask.view(-1) for mask in sparsifier.masks.values()])
        assert row is not None and len(row.whole) == 15 + 54 + 10
        assert 0 < row.whole.sum() < len(row.whole)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bool])
def test_what_is_said_of_a_row_holds_for_its_parts(dtype: torch.dtype) -> None:
    row = Row(torch.zeros(107, dtype=dtype), some())
    assert kinds(row) == kinds(list(row)) == {(torch.device("cpu"), dtype)}
    assert sizes(row) == sizes(list(row)) == (5, 96, 6)
    assert contiguous(row) is contiguous(list(row)) is False
    assert contiguous(Row(torch.zeros(11), [some()[0], some()[2]]))


def test_gradients_are_the_row_they_were_kept_in_if_there_is_nothing_else_in_it() -> None:
    layers = find_layers(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)))
    kept = tuple(torch.randn_like(layer.weight) for layer in layers)
    for place, layer in enumerate(layers):
        layer.keep_gradient(kept, place)
    assert gradients_of(layers) is kept
    assert [id(one) for one in gradients_of(layers[:1])] == [id(kept[0])]
    assert [id(one) for one in gradients_of(layers[::-1])] == [id(kept[1]), id(kept[0])]
    layers[1].gradient = other = torch.zeros(2, 5)
    assert [id(one) for one in gradients_of(layers)] == [id(kept[0]), id(other)]
