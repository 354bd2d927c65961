"""The page of all methods and the README's list, against the registry and against what methods do."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

import granet
from granet.cli.methods import Methods, linked, methods_page

ROOT = Path(__file__).parents[2]
INFOS = {info.name: info for info in granet.list_methods()}


def rows_of(page: str) -> dict[str, list[str]]:
    """Method to the other cells of its row."""
    cells = [
        [cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in page.splitlines() if line[:1] == "|"
    ]
    return {first.strip("`"): rest for first, *rest in cells[2:]}


PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
ROWS = rows_of(PAGE)
README, CAVEATS, PATTERNS = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/caveats.md", "docs/patterns.md")
)
PROBES = {"prune-regrow", "prune-once"}


def test_the_file_is_what_the_command_prints() -> None:
    text = io.StringIO()
    Methods(markdown=True).run(Console(file=text, width=40))
    assert text.getvalue() == PAGE, "run: granet methods --markdown > docs/methods.md"


def test_every_method_has_one_whole_row() -> None:
    assert sorted(ROWS) == sorted(INFOS)
    for name, cells in ROWS.items():
        assert len(cells) == 7 and all(cells), name
        assert cells[1] != "none" and cells[4] != "none", name
        assert re.search(r"\]\(https://\S+\)", cells[6]), name


@pytest.mark.slow
def test_when_says_what_is_zero_before_the_first_step() -> None:
    """Sparse from the start, or dense and pruned later."""
    for name, (when, *_) in ROWS.items():
        fields = {"initial_sparsity": 0.1} if name == "granet" else {"rate": 0.2} if name in PROBES else {}
        expected = 0.0 if when == "during, from dense" else 0.1 if name == "granet" else 0.2
        noisy = 0.02 if name == "vd" else 1e-9  # a weight near zero is mostly noise already
        assert sparsified(name, 0.2, **fields).sparsity == pytest.approx(expected, abs=noisy), name
    assert sparsified("granet", 0.2).sparsity == 0


@pytest.mark.parametrize("name", [name for name, cells in ROWS.items() if cells[2] in ("ERK", "ER", "uniform")])
def test_the_distribution_is_the_one_of_the_first_masks(name: str) -> None:
    """Two layers of 20 x 30 and 30 x 10 weights: by hand, of 180 that stay."""
    expected = {"ERK": [100, 80], "ER": [100, 80], "uniform": [120, 60]}[ROWS[name][2]]
    assert [layer.active for layer in sparsified(name, 0.8).layers.values()] == expected


def test_growth_is_none_exactly_where_nothing_returns() -> None:
    assert {name for name, cells in ROWS.items() if cells[3] == "none"} == {
        name for name, info in INFOS.items() if not info.regrows
    }


def test_the_target_is_exact_but_for_methods_with_a_knob_of_their_own() -> None:
    knobs = {name: cells[4] for name, cells in ROWS.items() if cells[4] != "exact"}
    assert sorted(knobs) == sorted({"sis", "str", "vd"} | PROBES)
    for name, text in knobs.items():
        fields = re.findall(r"`(\w+)`", text)
        assert fields and all(hasattr(INFOS[name].cls, field) for field in fields), name


@pytest.mark.slow
def test_costs_in_memory_are_there() -> None:
    """One byte, one float: what the methods keep for each weight besides the mask."""
    for name, cells in ROWS.items():
        sparsifier = sparsified(name, 0.2)
        layer = next(iter(sparsifier.layers.values()))
        kept = [tensor for tensor in layer.memory.values() if tensor.shape == layer.weight.shape]
        cost = cells[5]
        assert [tensor.dtype for tensor in kept] == [torch.bool] * ("one byte" in cost) + [torch.float32] * (
            "one float" in cost
        ), name
        assert (layer.hidden is not None) == ("second copy" in cost or "twice the trained weights" in cost), name
        assert ("a first run" in cost) == INFOS[name].needs_trained, name
        assert ("copy of the gradients" in cost) == INFOS[name].needs_gradient, name


def test_papers_become_links() -> None:
    assert linked("Verma 2021, https://a.org/x") == "[Verma 2021](https://a.org/x)"
    assert linked("A & B 2019, arXiv 1234.56789; as in C, arXiv 9876.54321") == (
        "[A & B 2019](https://arxiv.org/abs/1234.56789); [as in C](https://arxiv.org/abs/9876.54321)"
    )


def test_the_readme_lists_every_method_in_its_group() -> None:
    groups = dict(
        re.findall(r"^\| (before training|[a-z]+ to sparse|after training) \| (.*) \|$", README, re.MULTILINE)
    )
    expected = {
        "before training": {"before training"},
        "sparse to sparse": {"during, from sparse", "during, from dense or sparse"},
        "dense to sparse": {"during, from dense", "during, from dense or sparse"},
        "after training": {"after training"},
    }
    assert {group: re.findall(r"`([\w-]+)`", names) for group, names in groups.items()} == {
        group: sorted(name for name, info in INFOS.items() if info.when in whens) for group, whens in expected.items()
    }


@pytest.mark.parametrize(
    ("sentence", "flag"),
    [
        (r"a loop (`.*) look at data before the first step", "needs_batches"),
        (r"finished run, and (.*) train something behind the weights", "hidden"),
    ],
)
def test_the_caveats_name_the_methods_that_need_something(sentence: str, flag: str) -> None:
    (names,) = re.findall(sentence, " ".join(CAVEATS.split()))
    assert sorted(re.findall(r"`([\w-]+)`", names)) == sorted(n for n, info in INFOS.items() if getattr(info, flag))


def test_the_pages_say_which_patterns_a_method_does_not_take() -> None:
    assert "Every method takes a [`pattern`]" in " ".join(README.split())
    assert "Every method takes a `pattern`" in PATTERNS
    assert all(info.takes_pattern for info in INFOS.values())
    sentence = r"^(.*) take no N:M, and (.*) take neither N:M nor `\"fan-in\"`"
    ((some, none),) = re.findall(sentence, PATTERNS, re.MULTILINE)
    for names, groups in ((some, ("fan-in",)), (none, ())):
        refusing = sorted(name for name, info in INFOS.items() if info.takes_groups == groups)
        assert re.findall(r"`([\w-]+)`", names) == refusing
    assert {info.takes_groups for info in INFOS.values()} == {("N:M", "fan-in"), ("fan-in",), ()}
    said = PAGE.split("N:M and fan-in ask for", 1)[1].split("\n\n")[0]
    assert set(re.findall(r"`([\w-]+)`", said)) == set(re.findall(r"`([\w-]+)`", some + none))


def test_a_method_without_texts_has_a_row_too() -> None:
    bare = granet.MethodInfo("bare", granet.Static, "Nothing.", "nobody")
    (cells,) = rows_of(methods_page([bare])).values()
    assert cells == ["during", "none", "ERK", "none", "exact", "none", "nobody"]


def sparsified(name: str, sparsity: float, **fields: object) -> granet.Sparsifier:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30, bias=False), nn.ReLU(), nn.Linear(30, 10, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    method = granet.create_method(name, sparsity=sparsity, **fields)
    batches = [(torch.randn(32, 20), torch.randint(10, (32,))) for _ in range(4)]
    trained = {key: value + 0.1 * torch.randn_like(value) for key, value in model.state_dict().items()}
    return granet.sparsify(
        model, optimizer, method, total_steps=2000, steps_per_epoch=100,
        batches=batches, loss=nn.functional.cross_entropy, trained=trained,
    )  # fmt: skip


def test_the_search_for_a_knob_is_as_the_page_shows() -> None:
    """With a training whose sparsity falls as its thresholds start lower."""

    class Trained:
        def __init__(self, method: granet.STR) -> None:
            self.sparsity, self.finish = 1 / (1 - method.s_init / 5e4), lambda: None

    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict[str, object] = {"granet": granet, "train": Trained}
    exec(code, names)
    assert Trained(granet.STR(s_init=-(10 ** names["exponent"]))).sparsity == pytest.approx(0.95, abs=0.01)  # type: ignore[operator]
