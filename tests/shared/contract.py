"""Trainings of every kind that the library promises the same of, and how one is interrupted and taken up again.

Run as a script, it is the new process: it takes up the trainings saved in a folder, and saves how they end.
"""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import granet
from bits import Parts
from nets import CHANNELS, blocks, matrices
from pairwise import pairwise

EVERY, LAST, STEPS, AFTER = 3, 9, 12, 2
"""Steps between updates, of the last one, of the training, and of what follows when it has ended."""
MOMENTS = {"fresh": 2, "between": 7, "late": 11, "finished": STEPS}
"""When a training is interrupted: the step after the first two is an update, or within the gradients it reads."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "granet-sparse": ("granet", {"initial_sparsity": 0.25, "grow_batch_count": 3}),
    "granet-uniform": ("granet", {"distribution": "uniform"}),
    "granet-lamp": ("granet", {"score": "lamp"}),
    "rigl-apart": ("rigl", {"step_on_update": False, "grow_batch_count": 3}),
}
INFOS = {info.name: info for info in granet.list_methods()}
METHODS = [*INFOS, *VARIANTS]
"""Every registered method: one that is added later is tested by itself."""
SHORT: dict[str, Any] = {
    "every": EVERY, "end": LAST, "prune_end": LAST, "rounds": 3, "batch_count": 1, "iterations": 10, "log_every": EVERY
}  # fmt: skip
"""Fields that must fit so short a training, where a method has them."""
LIVELY: dict[str, dict[str, Any]] = {
    "deep-r": {"l1": 0.05, "noise": 0.3},
    "dsr": {"threshold": 0.05},
    "gmp-original": {"dense_first": False},
    "sis": {"tolerance": 0.3},
    "str": {"s_init": -2.2},
    "vd": {"log_sigma2": -3.0, "kl_scale": 0.5, "examples": 20},
}
"""Fields with which something moves in so short a training."""
OUTCOME = {"prune-once", "prune-regrow", "sis", "str"}
"""Methods whose sparsity is an outcome; a value would be a wish."""
PATTERNS = {"weight": 0.6, "filter": 0.5, "4x1": 0.75, "2:4": 0.5, "fan-in": 0.75}
"""And the sparsity that is asked for."""

NETS: dict[str, tuple[Callable[[], nn.Module], str, tuple[int, ...]]] = {
    "blocks": (blocks, "9.weight", (4, 5, 5)),
    **{name: (*CHANNELS[name], (3, 8, 8)) for name in ("vgg", "residual", "separable")},
    "matrices": (matrices, "5.weight", (4, 5, 5)),
}
"""Each with its classifier, which is left dense, and the shape of an image."""
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": partial(torch.optim.AdamW, lr=0.01),
    "adamw-fused": partial(torch.optim.AdamW, lr=0.01, fused=True),
    "adagrad": partial(torch.optim.Adagrad, lr=0.02, initial_accumulator_value=0.3),
    "muon": partial(torch.optim.Muon, lr=0.01),
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
THROUGH = ("memory", "file", "deepcopy", "pickle")
ORDERS = ("model sparsifier optimizer", "optimizer model sparsifier", "sparsifier optimizer model")
"""Any two of the three come in either order."""


@dataclass(frozen=True)
class Row:
    """One kind of training, when it is interrupted, and how it is taken up again."""

    method: str
    pattern: str
    net: str
    optimizer: str
    dtype: str
    moment: str
    through: str
    taken: str
    """How steps are taken after that: by ``step()``, or with a ``closure``."""
    skipped: str
    """How a step is tried that a GradScaler skips: gradients ``scaled``, or unscaled and masked to be ``clipped``."""

    def __str__(self) -> str:
        return "-".join(dataclasses.astuple(self))

    @property
    def info(self) -> granet.MethodInfo:
        return INFOS[VARIANTS.get(self.method, (self.method,))[0]]


def create(method: str, pattern: str) -> granet.Method:
    """Raises ValueError if that method does not take the pattern."""
    name, fields = VARIANTS.get(method, (method, {}))
    has = {field.name for field in dataclasses.fields(INFOS[name].cls)}
    short = {key: value for key, value in SHORT.items() if key in has}
    sparsity = 0.0 if name in OUTCOME else PATTERNS[pattern]
    return granet.create_method(
        name, **{"sparsity": sparsity, "pattern": pattern} | short | LIVELY.get(name, {}) | fields
    )


@cache
def takes(method: str, pattern: str) -> bool:
    try:
        create(method, pattern)
    except ValueError:
        return False
    return True


def fits(row: Mapping[str, str]) -> bool:
    """Whether these columns of a row are possible together."""
    method, pattern, net, optimizer = (row.get(name) for name in ("method", "pattern", "net", "optimizer"))
    if method and pattern and not takes(method, pattern):
        return False
    if net and optimizer and (net == "matrices") != (optimizer == "muon"):
        return False
    if net not in (None, "blocks", "matrices") and pattern not in (None, "weight", "filter", "fan-in"):
        return False  # their layers are not divided by 4
    return optimizer != "muon" or method in (None, "granet")


ROWS = [
    Row(**row)
    for row in pairwise(
        {
            "method": METHODS,
            "pattern": list(PATTERNS),
            "net": list(NETS),
            "optimizer": list(OPTIMIZERS),
            "dtype": list(DTYPES),
            "moment": list(MOMENTS),
            "through": THROUGH,
            "taken": ("step", "closure"),
            "skipped": ("scaled", "clipped"),
        },
        fits,
    )
]


def first_of_each(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows with a value that no row before has."""
    met: set[tuple[str, str]] = set()
    for row in rows:
        cells = set(dataclasses.asdict(row).items())
        if not cells <= met:
            yield row
        met |= cells


QUICK = set(first_of_each(ROWS))
"""Those of the quick suite."""


class Run(Parts):
    """A training of that kind; its data and its noise are functions of the step. ``step`` counts those taken.

    With ``saved`` it goes on where that was taken: the state is given to ``sparsify``, and the others are loaded, all
    in that ``order``.
    """

    model: nn.Module
    optimizer: Optimizer
    sparsifier: granet.Sparsifier

    def __init__(
        self, row: Row, device: str, seed: int = 0, saved: dict[str, Any] | None = None, order: str = "sparsifier"
    ) -> None:
        self.row, self.device, self.step = row, device, saved["step"] if saved else 0
        self.dtype = DTYPES[row.dtype]
        make, classifier, self.image = NETS[row.net]
        torch.manual_seed(seed)
        self.model, trained = (make().to(device, self.dtype) for _ in range(2))
        self.optimizer = OPTIMIZERS[row.optimizer](self.model.parameters())
        for part in order.split():
            if part == "sparsifier":
                self.sparsifier = granet.sparsify(
                    self.model,
                    self.optimizer,
                    create(row.method, row.pattern),
                    total_steps=STEPS,
                    steps_per_epoch=EVERY,
                    seed=seed,
                    exclude=(classifier,),
                    batches=[self.batch(100), self.batch(101)],
                    loss=nn.functional.cross_entropy,
                    trained=trained.state_dict(),
                    state=saved["sparsifier"] if saved else None,
                )
            elif saved:
                getattr(self, part).load_state_dict(saved[part])

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(8, *self.image, generator=torch.Generator().manual_seed(step))
        return x.to(self.device, self.dtype), x[:, :, 0, 0].argmax(1).to(self.device)

    def loss(self, step: int) -> Tensor:
        x, y = self.batch(step)
        torch.manual_seed(step)
        return nn.functional.cross_entropy(self.model(x).float(), y)

    def backward(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(self.step)
        loss.backward()
        return loss

    def train(self, last: int, *, taken: str = "step", check: Callable[[], None] = lambda: None) -> Run:
        """Up to that step; at the last one of the training comes its end."""
        while self.step < last:
            if taken == "closure":
                self.optimizer.step(self.backward)
            else:
                self.backward()
                self.optimizer.step()
            self.step += 1
            check()
            if self.step == STEPS:
                self.sparsifier.finish()
        return self

    def skip(self) -> None:
        """A step that a GradScaler skips; the norms do not look at its batch."""
        scaler = torch.amp.GradScaler(self.device, init_scale=64.0)
        self.optimizer.zero_grad()
        norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
        for norm in norms:
            norm.eval()
        scaler.scale(self.loss(999)).backward()
        for norm in norms:
            norm.train()
        weight = next(iter(self.sparsifier.layers.values())).weight
        assert weight.grad is not None
        weight.grad.view(-1)[5] = torch.inf
        if self.row.skipped == "clipped":
            scaler.unscale_(self.optimizer)
            self.sparsifier.mask_gradients()
        scaler.step(self.optimizer)
        scaler.update()
        assert scaler.get_scale() == 32.0

    def state(self) -> dict[str, Any]:
        return copy.deepcopy(super().state() | {"step": self.step})

    def everything(self) -> dict[str, Any]:
        """The state, and what follows from it."""
        sparsifier = self.sparsifier
        follows = {"in use": sparsifier.in_use, "target": sparsifier.target_sparsity, "updates": sparsifier.updates}
        return copy.deepcopy(self.state() | follows)

    def load(self, state: dict[str, Any], order: str = "model sparsifier optimizer") -> Run:
        """An optimizer goes on with the tensors that it loads, so it gets a copy."""
        for part in order.split():
            getattr(self, part).load_state_dict(copy.deepcopy(state[part]))
        self.step = state["step"]
        return self

    def twin(self, copied: Callable[[Any], Any]) -> Run:
        twin = copy.copy(self)
        twin.model, twin.optimizer, twin.sparsifier = copied((self.model, self.optimizer, self.sparsifier))
        return twin


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def taken_up(run: Run) -> dict[str, Run]:
    """The same training once more, by each way that the row has; another seed, so that nothing is right by luck."""
    row, again = run.row, partial(Run, run.row, run.device, 5)
    if row.through == "deepcopy":
        return {"deepcopy": run.twin(copy.deepcopy)}
    if row.through == "pickle":
        return {"pickle": run.twin(lambda parts: pickle.loads(pickle.dumps(parts)))}
    state = run.state()
    if row.through == "memory":
        further = again().train(1).load(state).train(max(state["step"], STEPS - 1))
        return {"loaded": again().load(state), "gone back": further.load(state, "sparsifier optimizer model")}
    state = through_a_file(state)
    # What hides something may add parameters to the optimizer, whose state fits only then.
    orders = [o for o in ORDERS if not (row.info.hidden and o.startswith("optimizer"))]
    return {order: again(copy.deepcopy(state), order) for order in orders}


def same_sums() -> AbstractContextManager[None]:
    """Within it a GPU adds up in the same order each time."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def main(folder: Path, device: str) -> None:
    for row in ROWS:
        path = folder / f"{row}.pt"
        if path.exists():
            run = Run(row, device, 5).load(torch.load(path, weights_only=True))
            torch.save(run.train(STEPS + AFTER).state(), path)


if __name__ == "__main__":
    with same_sums():
        main(Path(sys.argv[1]), sys.argv[2])
