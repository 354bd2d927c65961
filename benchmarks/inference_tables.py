"""Writes the tables of inference in README.md and docs/deploy.md, from results/inference.

python benchmarks/inference_tables.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from granet.cli.markdown import markdown_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "inference"
BEGIN, END = "<!-- inference: made by python benchmarks/inference_tables.py -->", "<!-- end of inference -->"

NETWORKS = {"vgg19": "VGG-19, 32 x 32", "resnet50": "ResNet-50, 224 x 224"}
MASKS = {"uniform": "uniform", "granet": "GraNet's"}
PRECISIONS = ("", ", 16 bit")
"""As labels and tables end of what ran in float32, and in 16 bits where the processor computes so."""
SPARSITIES = (0.9, 0.95, 0.98)

Measured = Mapping[str, Any]
"""What benchmarks/sparse_inference.py writes: of a whole run, or one comparison of it."""


def main() -> None:
    results = read_results()
    for page, text in ((ROOT / "README.md", front(results)), (ROOT / "docs" / "deploy.md", whole(results))):
        page.write_text(with_text(page.read_text(encoding="utf-8"), text), encoding="utf-8")
        print(f"wrote {page}")


def read_results() -> list[Measured]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]


def with_text(page: str, text: str) -> str:
    """The page with another text between its two marks."""
    before, begun, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not begun or not ended:
        raise ValueError(f"a page must have the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{text}{END}{after}"


def front(results: Sequence[Measured]) -> str:
    """One image in one thread, of machines that both networks were measured on in one run."""
    return "\n".join(part for result in results for part in _front(result))


def _front(result: Measured) -> Iterator[str]:
    alone = [one for one in result["comparisons"] if (one["batch"], one["threads"]) == (1, 1)]
    if {one["network"] for one in alone} == NETWORKS.keys():
        yield f"One image in one thread of {processor(result)}:\n"
        rows = [("network", "masks", "best dense engine", *(f"{sparsity:.0%}" for sparsity in SPARSITIES))]
        for one in alone:
            place = NETWORKS[one["network"]], dense(one)
            for words, labels in rows_of(one):
                rows.append((place[0], words, place[1], *(ratios(one, label) for label in labels)))
                place = "", ""
        yield markdown_table(rows)


def whole(results: Sequence[Measured]) -> str:
    """Everything, machine by machine, and where zeros begin to pay."""
    return "\n".join(part for result in results for part in (*parts(result), ""))


def parts(result: Measured) -> Iterator[str]:
    machine = result["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "onnxruntime", "openvino") if name in machine)
    yield f"**{processor(result)}**, {machine['processors']} processors ({versions}; commit `{result['commit']}`):\n"
    rows = [("network", "batch", "threads", "best dense engine", "masks", *(f"{s:.0%}" for s in SPARSITIES))]
    for one in result["comparisons"]:
        place = NETWORKS[one["network"]], str(one["batch"]), str(one["threads"]), dense(one)
        for words, labels in rows_of(one):
            rows.append(
                (*place, words, *(f"{1e3 * time(one, label):.3g} ms, {ratios(one, label)}" for label in labels))
            )
            place = "", "", "", ""
    yield markdown_table(rows)
    first = {one["network"]: one for one in reversed(result["comparisons"])}
    first = {name: first[name] for name in NETWORKS if name in first}
    yield "Uniform zeros pay, one image at a time in one thread, beside\n"
    engines = dict.fromkeys(row["label"] for one in first.values() for row in one["results"] if row["dense"])
    rows = [("engine", *(NETWORKS[name] for name in first))]
    rows += [(engine, *(break_even(one, engine) for one in first.values())) for engine in engines]
    yield markdown_table(rows)


def processor(result: Measured) -> str:
    return str(result["machine"]["processor"])


def rows_of(one: Measured) -> Iterator[tuple[str, list[str]]]:
    """What was measured of granet: a name for the row, and the label for each sparsity."""
    there = {row["label"] for row in one["results"]}
    for masks, words in MASKS.items():
        for precision in PRECISIONS:
            labels = [f"{masks} {sparsity:g}{precision}" for sparsity in SPARSITIES]
            if there.issuperset(labels):
                yield words + precision, labels


def row_of(one: Measured, label: str) -> Mapping[str, Any]:
    (row,) = (row for row in one["results"] if row["label"] == label)
    return row


def time(one: Measured, label: str) -> float:
    return float(row_of(one, label)["times"]["median"])


def dense(one: Measured) -> str:
    """The best in float32, and in any precision if that is another one."""
    names = dict.fromkeys((one["best_dense_float32"], one["best_dense"]))
    return "; ".join(f"{name} {1e3 * time(one, name):.3g} ms" for name in names)


def ratios(one: Measured, label: str) -> str:
    """Over the best dense engine in float32; in parentheses over the best in any precision if that is another one."""
    row = row_of(one, label)
    over = f"{row['over_best_float32']:.1f}x"
    return over if one["best_dense"] == one["best_dense_float32"] else f"{over} ({row['over_best']:.1f}x)"


def break_even(one: Measured, engine: str) -> str:
    """The sparsity from which on granet is faster, between two that were measured: time is linear in density."""
    if not any(row["label"] == engine for row in one["results"]):
        return "-"
    wanted = time(one, engine)
    measured = sorted(
        (float(row["label"].removeprefix("uniform ")), float(row["times"]["median"]))
        for row in one["results"]
        if row["label"].startswith("uniform ") and not row["label"].endswith(PRECISIONS[1])
    )
    slower = [point for point in measured if point[1] > wanted]
    if not slower:
        return f"below {measured[0][0]:.0%}"
    before = slower[-1]
    after = next((point for point in measured if point[0] > before[0]), None)
    if after is None:
        return f"not at {before[0]:.0%}"
    share = (before[1] - wanted) / (before[1] - after[1])
    return f"from {before[0] + share * (after[0] - before[0]):.0%}"


if __name__ == "__main__":
    main()
