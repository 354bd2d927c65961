"""The tables of inference are what the results say, and the arithmetic behind them."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.inference_tables import BEGIN, END, ROOT, break_even, front, read_results, whole, with_text


@pytest.mark.parametrize(("page", "text"), [("README.md", front), ("docs/deploy.md", whole)])
def test_pages_have_what_was_measured(page: str, text: Any) -> None:
    found = (ROOT / page).read_text(encoding="utf-8")
    assert with_text(found, text(read_results())) == found


def row(label: str, ms: float, best: float, best32: float, dense: bool = False) -> dict[str, Any]:
    times = {"median": ms / 1e3, "least": ms / 2e3}
    return {"label": label, "times": times, "dense": dense, "over_best": best / ms, "over_best_float32": best32 / ms}


def comparison(batch: int, threads: int, engines: dict[str, float], ours: dict[str, float]) -> dict[str, Any]:
    in32 = {name: ms for name, ms in engines.items() if "16 bit" not in name}
    best, best32 = min(engines, key=engines.__getitem__), min(in32, key=in32.__getitem__)
    rows = [row(name, ms, engines[best], engines[best32]) for name, ms in ours.items()]
    rows += [row(name, ms, engines[best], engines[best32], True) for name, ms in engines.items()]
    place = {"network": "vgg19", "batch": batch, "threads": threads}
    return place | {"best_dense": best, "best_dense_float32": best32, "results": rows}


OURS = {f"{masks} {s}": ms for masks, more in (("uniform", 1), ("granet", 2)) for s, ms in
        {"0.9": 4.0 * more, "0.95": 2.0 * more, "0.98": 1.0 * more}.items()}  # fmt: skip
HALVES = {f"{label}, 16 bit": ms / 2 for label, ms in OURS.items()}
RESULT = {
    "machine": {"processor": "P with AVX2", "processors": 2, "torch": "2.13", "openvino": "2026"},
    "commit": "abc",
    "comparisons": [
        comparison(1, 1, {"OpenVINO": 12.0, "PyTorch": 30.0}, OURS | {"uniform 0.5": 20.0, "uniform 0.8": 10.0}),
        comparison(64, 1, {"OpenVINO": 12.0, "OpenVINO, 16 bit": 3.0}, OURS | HALVES),
    ],
}


def test_the_front_has_one_image_in_one_thread_where_both_networks_were_measured() -> None:
    other = RESULT["comparisons"][0] | {"network": "resnet50"}
    assert front([RESULT, RESULT | {"comparisons": [*RESULT["comparisons"], other]}]).splitlines() == [
        "One image in one thread of P with AVX2:",
        "",
        "| network | masks | best dense engine | 90% | 95% | 98% |",
        "| --- | --- | --- | --- | --- | --- |",
        "| VGG-19, 32 x 32 | uniform | OpenVINO 12 ms | 3.0x | 6.0x | 12.0x |",
        "|  | GraNet's |  | 1.5x | 3.0x | 6.0x |",
        "| ResNet-50, 224 x 224 | uniform | OpenVINO 12 ms | 3.0x | 6.0x | 12.0x |",
        "|  | GraNet's |  | 1.5x | 3.0x | 6.0x |",
    ]
    assert front([]) == whole([]) == ""


def test_the_page_has_both_opponents_and_where_zeros_begin_to_pay() -> None:
    text = whole([RESULT])
    assert "**P with AVX2**, 2 processors (torch 2.13, openvino 2026; commit `abc`):" in text
    best = "OpenVINO 12 ms; OpenVINO, 16 bit 3 ms"
    assert f"| VGG-19, 32 x 32 | 64 | 1 | {best} | uniform | 4 ms, 3.0x (0.8x) | 2 ms, 6.0x (1.5x) |" in text
    assert "|  |  |  |  | GraNet's, 16 bit | 4 ms, 3.0x (0.8x) | 2 ms, 6.0x (1.5x) | 1 ms, 12.0x (3.0x) |" in text
    assert "| OpenVINO | from 74% |\n| PyTorch | below 50% |\n" in text


def test_break_even_is_between_what_was_measured() -> None:
    one = comparison(1, 1, {"slow": 100.0, "fast": 0.5, "near": 3.0}, OURS)
    assert [break_even(one, engine) for engine in ("slow", "fast", "near", "none")] == [
        "below 90%", "not at 98%", "from 92%", "-",
    ]  # fmt: skip


def test_a_page_without_the_marks_is_refused() -> None:
    assert with_text(f"a\n{BEGIN}\nold\n{END}\nb", "new\n") == f"a\n{BEGIN}\nnew\n{END}\nb"
    with pytest.raises(ValueError, match="must have the lines"):
        with_text("a page", "new\n")
