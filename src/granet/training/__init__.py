"""From a recipe to a folder of results: the loop, its batches, its records and its files."""

from granet.methods import DENSE
from granet.training.loop import Training
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary
from granet.training.run import Run
from granet.training.rundir import RunDir

__all__ = ["DENSE", "EpochRecord", "Recipe", "Run", "RunDir", "Summary", "Training"]
