"""A finished run, read back from its folder."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from safetensors.torch import save_model
from torch import nn

from granet.probe.trained import take_over
from granet.training.rundir import RunDir
from refusals import refused


def net(seed: int, outputs: int = 5) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 5), nn.Linear(5, outputs))
    model[2].weight = model[0].weight  # tied
    return model


def test_a_run_is_read_and_taken_over(tmp_path: Path) -> None:
    run, model = net(1), net(2)
    run(torch.randn(8, 5))
    save_model(run, str(tmp_path / "model.safetensors"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = RunDir(tmp_path).trained_state(model)
    assert state.keys() == run.state_dict().keys()
    assert all(torch.equal(value, run.state_dict()[name]) for name, value in state.items())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    storages = [value.data_ptr() for value in model.state_dict().values()]
    take_over(model, state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert storages == [value.data_ptr() for value in model.state_dict().values()]


def test_a_tied_weight_takes_the_value_of_its_first_name() -> None:
    """Where a method has another one for it, it is written under that."""
    model = net(2)
    state = net(1).state_dict() | {"0.weight": torch.full((5, 5), 3.0)}
    take_over(model, state)
    assert bool((model[0].weight == 3).all()) and model[2].weight is model[0].weight


def test_what_is_no_finished_run_is_refused(tmp_path: Path) -> None:
    with refused("parent", tmp_path, "model.safetensors", unchanged=(tmp_path,)):
        RunDir(tmp_path).trained_state(net(0))
    save_model(net(1, outputs=3), str(tmp_path / "model.safetensors"))
    with refused("parent", tmp_path, "this model (", unchanged=(tmp_path,)):
        RunDir(tmp_path).trained_state(net(0))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with refused("parent", tmp_path, "this model (", unchanged=(tmp_path,)):
        RunDir(tmp_path).trained_state(net(0))


def test_weights_that_one_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path, mode: str) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    save_model(net(1), str(tmp_path / "model.safetensors"))
    monkeypatch.setattr(Path, "open", deny)
    with refused("parent", tmp_path, "model.safetensors", "(Permission denied)"):
        RunDir(tmp_path).trained_state(net(2))
