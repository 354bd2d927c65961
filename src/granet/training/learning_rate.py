"""The learning rate of each step of a recipe."""

from __future__ import annotations

from collections.abc import Callable

from granet.clock import Clock
from granet.schedules import cosine, multistep
from granet.training.recipe import Recipe


def learning_rate(recipe: Recipe, clock: Clock) -> Callable[[int], float]:
    """A function of the step, counted from 0.

    For the first `warm_up` steps the rate rises in equal parts to that of the recipe's schedule: `multistep` multiplies
    `lr` by `gamma` at each milestone, `cosine` falls from `lr` to 0 over the steps after the warm-up.
    """
    warm_up = clock.steps(recipe.warm_up, "warm_up")
    total = clock.total("schedule")
    if warm_up >= total:
        raise ValueError(f"warm_up={recipe.warm_up!r}: must be shorter than training, {total} steps")
    milestones = [clock.steps(milestone, "milestones") for milestone in recipe.milestones]

    def rate(step: int) -> float:
        if recipe.schedule == "cosine":
            scheduled = cosine(recipe.lr, 0.0, max(0, step - warm_up) / (total - warm_up))
        else:
            scheduled = multistep(recipe.lr, recipe.gamma, milestones, step)
        return scheduled * min(1.0, (step + 1) / (warm_up + 1))

    return rate
