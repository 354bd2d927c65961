"""Modes of models that do more than set a flag when they are told to train or to evaluate."""

from typing import Self

from torch import nn

from granet.probe.modes import in_mode


class Merging(nn.Linear):
    """As layers with low-rank adapters do."""

    merged = False

    def train(self, mode: bool = True) -> Self:
        self.merged = not mode
        return super().train(mode)


class Frozen(nn.BatchNorm1d):
    def train(self, mode: bool = True) -> Self:
        return super().train(False)


def test_evaluating_merges_nothing() -> None:
    model = nn.Sequential(Merging(2, 2), nn.Dropout())
    with in_mode(model, training=False):
        assert [module.training for module in model.modules()] == [False] * 3 and not model[0].merged
    assert [module.training for module in model.modules()] == [True] * 3 and not model[0].merged


def test_what_is_frozen_stays_so_in_training() -> None:
    model = nn.Sequential(Frozen(2), nn.Dropout()).eval()
    with in_mode(model, training=True):
        assert (model.training, model[0].training, model[1].training) == (True, False, True)
    assert not any(module.training for module in model.modules())


def test_a_part_of_two_modules_has_its_own_mode_again() -> None:
    part = nn.Dropout()
    model = nn.Sequential(nn.Sequential(part), nn.Sequential(part))
    model[1].training = False
    with in_mode(model, training=False):
        pass
    assert (model.training, model[0].training, model[1].training, part.training) == (True, True, False, True)
