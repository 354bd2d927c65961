"""Pruning plasticity as a table to reproduce: a reduced grid of the paper's main figure."""

from __future__ import annotations

from granet.studies.plasticity import Study
from granet.studies.plasticity_file import read_study
from granet.training.recipe_file import find_recipe


def paper_grid() -> Study:
    """ResNet-20 on CIFAR-10 around both drops of the learning rate; `paper_grid().recipes()` are its runs."""
    return read_study(find_recipe("studies/plasticity-cifar10-resnet20-reduced"))[0]
