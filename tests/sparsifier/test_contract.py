"""What is promised of every method, whatever the pattern, the net, the optimizer and the moment.

A training that is interrupted and taken up again equals one that was not, bit for bit; zeros are exact at every step; a
step that is skipped leaves no trace; and what remains in the end is a plain model. Every two values of a row meet in
some row, not every three; in the quick suite every value is in some row. A failing row is run alone by ``-k`` and its
name.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import contract
import granet
from bits import differences
from contract import AFTER, EVERY, MOMENTS, NETS, PATTERNS, QUICK, ROWS, STEPS, Row, Run, same_sums, taken_up
from devices import DEVICES
from granet.patterns import parse_pattern
from quick import slow_but_for

STILL = {"grasp", "lrr", "lth", "magnitude-init", "one-shot", "prune-once", "sis", "snip", "static", "synflow", "wanda"}
"""Methods whose masks stay as they begin."""
every_device = pytest.mark.parametrize("device", DEVICES)
END = STEPS + AFTER
pytestmark = pytest.mark.filterwarnings("ignore:granet. step .* only what its floor keeps is left")  # of tiny layers


@pytest.fixture(autouse=True)
def the_same_sums_each_time() -> Iterator[None]:
    with same_sums():
        yield


def check_zeros(run: Run) -> None:
    """Zeros are where the masks say, whole units of the pattern, and as many as the history tells."""
    sparsifier, pattern = run.sparsifier, parse_pattern(run.row.pattern)
    layers = sparsifier.layers.values()
    counts = tuple(int(layer.mask.sum()) for layer in layers)
    if sparsifier.method.dense_passes == 0 or sparsifier.hidden is None:
        assert sparsifier.check(), f"step {run.step}: {sparsifier.check()}"
        assert not any(torch.count_nonzero(layer.weight[~layer.mask]) for layer in layers)
    assert pattern is None or all(pattern.holds(layer, layer.mask) for layer in layers)
    assert tuple(sparsifier.active.values()) == counts and sparsifier.step == run.step
    numel = sum(layer.numel for layer in layers)
    assert sparsifier.sparsity == (numel - sum(counts)) / numel
    recorded = bool(sparsifier.history) and sparsifier.history[-1].step == run.step
    clock = granet.Clock(run.step, STEPS, EVERY)
    assert recorded == (run.step in sparsifier.updates and sparsifier.method.logged(clock))
    if recorded:
        assert sparsifier.history[-1].active == counts
        assert sparsifier.history[-1].achieved == sparsifier.sparsity


def check_promised(run: Run) -> None:
    """The zeros are as many as were asked for, to a half of the largest unit."""
    sparsifier, asked = run.sparsifier, PATTERNS[run.row.pattern]
    layers = sparsifier.layers.values()
    numel, zeros = sum(layer.numel for layer in layers), sum(int((~layer.mask).sum()) for layer in layers)
    if run.row.info.exact_target:
        pattern = parse_pattern(run.row.pattern)
        largest = 0 if pattern is None or ":" in pattern.text else max(pattern.quantum(layer) for layer in layers)
        assert abs(zeros - round(numel * asked)) <= largest / 2
        assert sparsifier.target_sparsity == asked
    assert 0 < zeros < numel or run.row.method == "prune-regrow"


def check_plain(run: Run) -> None:
    """Nothing is behind the weights any more, and in the end nothing is left of what was put around them."""
    sparsifier, optimizer = run.sparsifier, run.optimizer
    assert sparsifier.hidden is None
    before = run.everything()
    sparsifier.finish()
    assert not differences(before, run.everything()), "it ends once"
    sparsifier.remove()
    assert list(run.model.state_dict()) == list(NETS[run.row.net][0]().state_dict())
    assert [len(group["params"]) for group in optimizer.param_groups] == [len(list(run.model.parameters()))]
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
    shown = sum(int((parameter == 0).sum()) for parameter in run.model.parameters())
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    left = sum(int((parameter == 0).sum()) for parameter in run.model.parameters())
    assert left < shown or shown == 0, "nothing masks the gradients"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in run.model.modules())


@every_device
@pytest.mark.parametrize("row", slow_but_for(QUICK, ROWS), ids=str)
def test_a_training(row: Row, device: str) -> None:
    moment = MOMENTS[row.moment]
    whole, troubled = Run(row, device), Run(row, device).train(moment)
    first = copy.deepcopy(whole.sparsifier.masks)

    def check() -> None:
        check_zeros(whole)
        whole.sparsifier.state_dict()

    check()
    whole.train(moment, check=check)
    here, kept = whole.everything(), whole.sparsifier.state_dict()
    assert not differences(here, troubled.everything()), "saving changes nothing"

    others = taken_up(whole)
    for name, other in others.items():
        assert not differences(here, other.everything()), name
        other.train(END, taken=row.taken)
    assert not differences(here, whole.everything()), "a copy goes its own way"

    if device == "cpu" or row.dtype != "bfloat16":  # which not every torch can unscale on a GPU
        troubled.skip()
    assert not differences(here, troubled.everything()), "a step that is skipped"

    whole.train(STEPS, check=check)
    check_promised(whole)
    if row.pattern in ("weight", "2:4") or row.method in STILL:  # larger units move less often
        assert bool(differences(first, whole.sparsifier.masks)) == (row.method not in STILL)
    whole.train(END, check=check)
    assert not differences(here["sparsifier"], kept), "a state is a copy"
    end = whole.everything()
    for name, other in others.items():
        assert not differences(end, other.everything()), name
    assert not differences(end, troubled.train(END).everything()), "a step that was skipped"
    check_plain(whole)


@pytest.mark.slow
@every_device
def test_a_new_process_goes_on(device: str, tmp_path: Path) -> None:
    rows, ends = ROWS[::12], {}
    for row in rows:
        run = Run(row, device).train(MOMENTS[row.moment])
        torch.save(run.state(), tmp_path / f"{row}.pt")
        ends[row] = run.train(END).state()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    subprocess.run([sys.executable, contract.__file__, str(tmp_path), device], env=environment, check=True, timeout=300)
    for row, end in ends.items():
        assert not differences(end, torch.load(tmp_path / f"{row}.pt", weights_only=True)), row
