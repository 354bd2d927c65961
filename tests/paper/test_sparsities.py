"""Which networks missed the sparsity of their column."""

from granet.training.rundir import run_name
from paper.compare import Comparison, compare
from paper.sparsities import sparsities_section
from paper.tables import Cell, cells


def ended(row: str, asked: float, *sparsities: float) -> Comparison:
    return Comparison(Cell("zoo", row, "vgg19", "cifar10", asked), (93.0,) * len(sparsities), sparsities=sparsities)


def test_rows_that_missed_their_sparsity_are_named() -> None:
    missed = [ended("STR", 0.9, 0.8992, 0.8990), ended("STR", 0.98, 0.97)]
    met = [ended("GMP", 0.9, 0.90000001), ended("STR", 0.95), ended("Small-Dense", 0.9, 0.0)]
    assert sparsities_section(met) == ""
    told = sparsities_section([*missed, *met])
    assert told.endswith("\n\n- **STR**: 89.91% in place of 90%, 97.00% in place of 98%.\n")


def test_more_sparse_is_a_miss_too_as_soon_as_it_prints_otherwise() -> None:
    assert sparsities_section([ended("VD", 0.9, 0.90004), ended("VD", 0.9, 0.89996)]) == ""
    told = sparsities_section([ended("VD", 0.9, 0.90006), ended("VD", 0.95, 0.94994)])
    assert told.endswith("- **VD**: 90.01% in place of 90%, 94.99% in place of 95%.\n")


def test_the_sparsity_is_that_of_the_results() -> None:
    (cell,) = (cell for cell in cells("zoo") if (cell.row, cell.sparsity) == ("STR", 0.9))
    row = {"accuracy_last": "93.0", "sparsity_achieved": "0.85"}
    assert "85.00% in place of 90%" in sparsities_section(compare([cell], {run_name(cell.recipes(0)[-1]): row}, [0]))
