"""The training loop: a recipe and its images in, a trained model and its records out."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from granet.data.dataset import ImageSet
from granet.training.average import Average
from granet.training.bfloat16_weights import RoundedWeights, rounded_weights
from granet.training.branch import check_no_extras, check_same_steps
from granet.training.checkpoint import fitting
from granet.training.cost import Cost
from granet.training.device import enough_memory, prepare_device
from granet.training.feeds import Data, Split, make_feed
from granet.training.graph import GraphStep
from granet.training.learning_rate import learning_rate
from granet.training.observing import observe
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary, best_epoch
from granet.training.setup import attach_method, check_outputs, make_model, make_sgd
from granet.training.step import Step, eager_step, evaluate, loss_function

_OPTIONS = ("momentum", "weight_decay", "nesterov")
"""What a recipe says about SGD, besides the learning rate, which is set before each step."""


class Training:
    """One run of a recipe, ready to start: `for record in Training(recipe, data).epochs(): ...`

    Everything that can be wrong with a recipe is found here, before the first step. Small image sets move to the device
    as bytes. Seeds torch's global generator with the recipe's seed, from which the initial weights are drawn.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: Data,
        *,
        device: torch.device | str = "cpu",
        state: Mapping[str, Any] | None = None,
        workers: int | None = None,
        parent: Path | None = None,
        branch: Mapping[str, Any] | None = None,
    ) -> None:
        """`state` is what the method `state` returned between two steps: training continues from there.

        `workers` processes read the images of a set that stays in its files. `parent` is the folder of the finished run
        that a method may start from. `branch` is the state that another run of the same model kept after an epoch: this
        run takes over the weights, optimizer, batches and records, and its method begins there.
        """
        self._device = device = torch.device(device)
        clock = recipe.clock(len(data.train_labels if isinstance(data, ImageSet) else data.train))
        prepare_device(device, recipe.deterministic)
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.records: list[EpochRecord] = []
        with enough_memory(device):
            self.model = make_model(recipe, data).to(device)
            if device.type == "cuda":
                self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            check_outputs(recipe, self.model, torch.zeros(1, *data.shape, device=device), data.classes)
            twin = copy.deepcopy(self.model) if recipe.ema else None  # before the method adds hooks of its own
            self._optimizer = make_sgd(recipe, self.model)
            if branch is not None:
                check_no_extras(recipe, self._optimizer, branch)
                self._load_weights(branch)  # before the method begins: it looks at them
            self._feed = make_feed(data, recipe, device, workers)
            self.sparsifier = attach_method(recipe, self.model, self._optimizer, self._feed, parent)
            self._cost = Cost(recipe, data, self.model, self.sparsifier, recipe.epochs * len(self._feed.train))
            masks = self.sparsifier.in_use if self.sparsifier else {}
            hidden = self.sparsifier.hidden if self.sparsifier else None
            dense = hidden is not None and not hidden.shows_zeros
            self._average = Average(twin, self.model, recipe.ema, masks, dense) if twin is not None else None
            self._observers = observe(recipe, self.model, self.sparsifier, self._feed)
            self._totals = torch.zeros(2, device=device)  # loss and right answers of the epoch so far
            self._batch = 0  # batches done of the epoch
            self._seconds = 0.0
            self._drawn_from = self._feed.train.random_state
            if branch is not None:
                self._load_progress(branch)
                check_same_steps(recipe, self.records[-1], len(self._feed.train))
                if self._average:
                    self._average.mask()
            if state is not None:
                self._load(state)  # before the step is made: a captured step keeps using the present tensors
            self._learning_rate = self._held_rate() if recipe.hold else learning_rate(recipe, clock)
            self._step = self._make_step()

    @property
    def final_model(self) -> nn.Module:
        """What is evaluated and saved: the model, or the average of its weights."""
        return self._average.model if self._average else self.model

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return len(self.records) * len(self._feed.train) + self._batch

    def epochs(self, between: Callable[[], None] = lambda: None) -> Iterator[EpochRecord]:
        """Train to the end, an epoch at a time, with an evaluation on validation and test images after each.

        Nothing is selected: the model at the end is that of the last epoch. `between` is called after each step, when
        `state` can be taken; an exception from it ends the training there.
        """
        began = time.perf_counter() - self._seconds
        for epoch in range(len(self.records) + 1, self.recipe.total_epochs + 1):
            with enough_memory(self._device):
                self._train_epoch(began, between)
                if epoch == self.recipe.total_epochs:
                    self._end()
                record = self._evaluate(epoch, began)
            self.records.append(record)
            self._batch, self._drawn_from, self._seconds = 0, self._feed.train.random_state, record.seconds
            yield record

    def _train_epoch(self, began: float, between: Callable[[], None]) -> None:
        self.model.train()
        if self._batch == 0:
            self._totals.zero_()
        self._feed.train.random_state = self._drawn_from  # an epoch that was left in the middle has drawn from it
        for images, labels in self._feed.train.epoch(skip=self._batch):
            self._train_on(images, labels)
            self._seconds = time.perf_counter() - began
            between()

    def _train_on(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self._set_lr(self._learning_rate(self.step))
        self._step(images, labels)
        if self._average:
            self._average.update()
        if self._observers:
            self._observers.after_step()
        self._batch += 1

    def _end(self) -> None:
        """End what was trained behind the weights, so that plain weights with zeros are evaluated."""
        if self.sparsifier is not None:
            self.sparsifier.finish()
        if self._average:
            self._average.mask()

    def _evaluate(self, epoch: int, began: float) -> EpochRecord:
        steps = len(self._feed.train)
        trunk = self.records[self.recipe.branch_epoch - 1] if self.recipe.branch_epoch else None
        figures = torch.stack(
            [
                *(self._totals / (steps * self.recipe.batch_size)),
                *map(self._accuracy, (self._feed.val, self._feed.test)),
            ]
        )
        train_loss, train_accuracy, val_accuracy, test_accuracy = figures.tolist()
        return EpochRecord(
            epoch=epoch,
            step=epoch * steps,
            seconds=time.perf_counter() - began,
            lr=self._optimizer.param_groups[0]["lr"],
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            val_accuracy=None if self._feed.val is None else val_accuracy,
            test_accuracy=test_accuracy,
            target_sparsity=self.sparsifier.target_sparsity if self.sparsifier else 0.0,
            sparsity=self.sparsifier.sparsity if self.sparsifier else 0.0,
            flops=self._cost.of_a_pass(),
            train_flops=self._cost.of_training(epoch * steps, trunk),
            observed=self._observers.epoch() if self._observers else None,
        )

    def _accuracy(self, split: Split | None) -> torch.Tensor:
        if split is None:
            return torch.zeros((), device=self._device)
        with self._average.masked() if self._average else nullcontext():
            return evaluate(self.final_model, split, self._feed.normalise, self.recipe.precision)

    def _set_lr(self, lr: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = lr

    def _make_step(self) -> Step:
        """On a GPU one CUDA graph, elsewhere the plain step."""
        recipe = self.recipe
        rounded = self._round_weights()
        copies = rounded.copies if rounded else None
        loss = loss_function(self.model, recipe.precision, recipe.label_smoothing, copies, recipe.compile)
        if self._device.type != "cuda":
            return eager_step(loss, self._optimizer, self.sparsifier, self._totals, recipe.clip)
        blank = torch.zeros(recipe.batch_size, *self._feed.shape, dtype=torch.uint8, device=self._device)
        labels = torch.zeros(recipe.batch_size, dtype=torch.int64, device=self._device)
        return GraphStep(
            self.model,
            loss,
            self._optimizer,
            self.sparsifier,
            self._totals,
            self._feed.normalise(blank),
            labels,
            recipe.compile,
            recipe.clip,
            rounded,
        )

    def _round_weights(self) -> RoundedWeights | None:
        """Rounded copies of the weights, for the passes to read; none where others read or move the weights."""
        on_gpu = self._device.type == "cuda" and self.recipe.precision == "bfloat16"
        if not on_gpu or (self.sparsifier and self.sparsifier.hidden) or self._observers:
            return None
        noise = torch.arange(2 * math.prod(self._feed.shape), device=self._device) * 37 % 256
        return rounded_weights(self.model, self._feed.normalise(noise.byte().view(2, *self._feed.shape)))

    def state(self) -> dict[str, Any]:
        """Everything that training needs to continue, between two steps: tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "average": self._average.model.state_dict() if self._average else None,
            "optimizer": self._optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict() if self.sparsifier else None,
            "batches": self._drawn_from,
            "batch": self._batch,
            "totals": self._totals,
            "random": torch.get_rng_state(),
            "device_random": torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None,
            "observers": self._observers.state() if self._observers else None,
            "seconds": self._seconds,
            "records": [asdict(record) for record in self.records],
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._load_weights(state)
        with fitting(self.recipe):
            if self.sparsifier is not None:
                self.sparsifier.load_state_dict(state["sparsifier"])
            if self._observers:
                self._observers.load(state["observers"])
        self._load_progress(state)

    def _load_weights(self, state: Mapping[str, Any]) -> None:
        with fitting(self.recipe):
            self.model.load_state_dict(state["model"])
            own = [{key: group[key] for key in _OPTIONS} for group in self._optimizer.param_groups]
            self._optimizer.load_state_dict(state["optimizer"])
            for group, options in zip(self._optimizer.param_groups, own, strict=True):
                group |= options  # a branch has its own options, whatever its trunk had

    def _load_progress(self, state: Mapping[str, Any]) -> None:
        with fitting(self.recipe):
            if self._average:
                self._average.model.load_state_dict(state["average"] or self.model.state_dict())
            self._drawn_from = state["batches"].cpu()
            self._batch, self._seconds = state["batch"], state["seconds"]
            self._totals.copy_(state["totals"])
            torch.set_rng_state(state["random"].cpu())
            if state["device_random"] is not None:
                torch.cuda.set_rng_state(state["device_random"].cpu(), self._device)
            self.records = [EpochRecord(**record) for record in state["records"]]

    def _held_rate(self) -> Callable[[int], float]:
        """The learning rate of the last step before the branch, from then on."""
        held = self._optimizer.param_groups[0]["lr"]
        return lambda step: held

    def summary(self) -> Summary:
        """The final figures, once `epochs` has run."""
        last, best = self.records[-1], best_epoch(self.records[self.recipe.branch_epoch :])
        parameters = list(self.final_model.parameters())
        return Summary(
            test_accuracy=last.test_accuracy,
            best_test_accuracy=best.test_accuracy if best else None,
            best_epoch=best.epoch if best else None,
            sparsity_asked=last.target_sparsity,
            sparsity=last.sparsity,
            parameters=sum(parameter.numel() for parameter in parameters),
            nonzero=sum(int(torch.count_nonzero(parameter)) for parameter in parameters),
            flops_ratio=last.flops,
            seconds=last.seconds,
            train_flops=last.train_flops,
        )
