"""The training loop: a recipe and its images in, a trained model and its records out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from granet.clock import Clock
from granet.data.dataset import ImageSet
from granet.flops import flops
from granet.methods import create_method
from granet.models import create_model
from granet.schedules import multistep
from granet.sparsifier import Sparsifier, sparsify
from granet.training.batches import Batches, normaliser
from granet.training.graph import GraphStep
from granet.training.recipe import DENSE, Recipe
from granet.training.records import EpochRecord, Summary, best_epoch, share
from granet.training.step import Step, eager_step, evaluate, loss_function


class Training:
    """One run of a recipe, ready to start: `for record in Training(recipe, data).epochs(): ...`

    All that can be wrong with a recipe is found here, before the first step. The images move to the device as bytes.
    Seeds torch's global generator with the recipe's seed, from which the initial weights are drawn.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: ImageSet,
        *,
        device: torch.device | str = "cpu",
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """`state` is what `state` returned after some epoch: training goes on from there."""
        device = torch.device(device)
        clock = recipe.clock(len(data.train_labels))
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.model = create_model(recipe.model, num_classes=data.classes, in_channels=data.shape[0]).to(device)
        if device.type == "cuda":
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
        )
        self._milestones = [clock.steps(milestone, "milestones") for milestone in recipe.milestones]
        self.sparsifier = _attach(recipe, self.model, self._optimizer, clock)
        self._normalise = normaliser(data.mean, data.std, device, getattr(torch, recipe.precision))
        self._batches = Batches(
            data.train_images.to(device),
            data.train_labels.to(device),
            batch_size=recipe.batch_size,
            normalise=self._normalise,
            crop=recipe.crop,
            padding=recipe.padding,
            flip=recipe.flip,
            seed=recipe.seed,
        )
        self._val = data.val_images.to(device), data.val_labels.to(device)
        self._test = data.test_images.to(device), data.test_labels.to(device)
        self._image = torch.zeros(1, *data.shape, device=device)
        self._totals = torch.zeros(2, device=device)
        self.records: list[EpochRecord] = []
        if state is not None:
            self._load(state)  # before the step is made: a captured one holds on to the tensors there are
        self._step = self._make_step()

    def _make_step(self) -> Step:
        """On a GPU one CUDA graph, elsewhere the plain step."""
        loss = loss_function(self.model, self.recipe.precision)
        if self.recipe.compile:
            loss = torch.compile(loss, dynamic=False)
        if self._totals.device.type != "cuda":
            return eager_step(loss, self._optimizer, self._totals)
        batch_size = self.recipe.batch_size
        images = self._normalise(self._test[0][:1].expand(batch_size, -1, -1, -1))
        labels = torch.zeros(batch_size, dtype=torch.int64, device=images.device)
        compile = self.recipe.compile
        return GraphStep(self.model, loss, self._optimizer, self.sparsifier, self._totals, images, labels, compile)

    def epochs(self) -> Iterator[EpochRecord]:
        """Train to the end, an epoch at a time, with an evaluation on validation and test images after each.

        Nothing is selected: the model at the end is that of the last epoch.
        """
        seen = len(self._batches) * self.recipe.batch_size
        before = self.records[-1].seconds if self.records else 0.0
        began = time.perf_counter() - before
        for epoch in range(len(self.records) + 1, self.recipe.epochs + 1):
            self.model.train()
            self._totals.zero_()
            for step, (images, labels) in enumerate(self._batches.epoch(), start=(epoch - 1) * len(self._batches)):
                lr = multistep(self.recipe.lr, self.recipe.gamma, self._milestones, step)
                self._optimizer.param_groups[0]["lr"] = lr
                self._step(images, labels)
            val = evaluate(self.model, *self._val, self._normalise, self.recipe.precision)
            test = evaluate(self.model, *self._test, self._normalise, self.recipe.precision)
            train_loss, train_accuracy, val_accuracy, test_accuracy = torch.stack(
                [*(self._totals / seen), val, test]
            ).tolist()
            self.records.append(
                EpochRecord(
                    epoch=epoch,
                    step=epoch * len(self._batches),
                    seconds=time.perf_counter() - began,
                    lr=lr,
                    train_loss=train_loss,
                    train_accuracy=train_accuracy,
                    val_accuracy=share(val_accuracy),
                    test_accuracy=test_accuracy,
                    target_sparsity=self.sparsifier.target_sparsity if self.sparsifier else 0.0,
                    sparsity=self.sparsifier.sparsity if self.sparsifier else 0.0,
                )
            )
            yield self.records[-1]

    def state(self) -> dict[str, Any]:
        """All that training goes on from, between two epochs: tensors and plain values."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict() if self.sparsifier else None,
            "batches": self._batches.random_state,
            "random": torch.get_rng_state(),
            "records": [asdict(record) for record in self.records],
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self.sparsifier is not None:
            self.sparsifier.load_state_dict(state["sparsifier"])
        self._batches.random_state = state["batches"]
        torch.set_rng_state(state["random"].cpu())
        self.records = [EpochRecord(**record) for record in state["records"]]

    def summary(self) -> Summary:
        """The final figures, once `epochs` has run."""
        last, best = self.records[-1], best_epoch(self.records)
        masks = self.sparsifier.masks if self.sparsifier else {}
        return Summary(
            test_accuracy=last.test_accuracy,
            best_test_accuracy=best.test_accuracy if best else None,
            best_epoch=best.epoch if best else None,
            sparsity_asked=last.target_sparsity,
            sparsity=last.sparsity,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            nonzero=sum(int(torch.count_nonzero(parameter)) for parameter in self.model.parameters()),
            flops_ratio=flops(self.model, self._image, masks).ratio,
            seconds=last.seconds,
        )


def _attach(recipe: Recipe, model: nn.Module, optimizer: torch.optim.Optimizer, clock: Clock) -> Sparsifier | None:
    if recipe.method == DENSE:
        if recipe.method_fields:
            raise ValueError(f"method_fields={dict(recipe.method_fields)!r}: must be empty for method {DENSE!r}")
        return None
    method = create_method(recipe.method, **recipe.method_fields)
    return sparsify(
        model,
        optimizer,
        method,
        total_steps=clock.total(),
        steps_per_epoch=clock.steps_per_epoch,
        seed=recipe.seed,
    )
