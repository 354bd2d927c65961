"""How every figure looks, is made and is saved: one style, one set of colours. Needs matplotlib."""

from __future__ import annotations

import colorsys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granet.files import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID = "#1f2430", "#697080", "#d8dce4"
STYLE: Any = {
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": MUTED,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched and takes the page's typeface
    "svg.hashsalt": "granet",  # the same figure is the same bytes
}
_COLOURS = ("#2f7ed8", "#e0762f", "#2ca58d", "#b455c4", "#a88410", "#d64550", "#6f7f94", "#8c6bd8")
"""Told apart by most eyes, on white and on black."""
_ONE_AT_A_TIME = threading.RLock()
"""A style holds for the whole process, and runs that end side by side on a GPU are threads."""


def colours(count: int) -> list[str]:
    """That many colours, as `#rrggbb`."""
    if count <= len(_COLOURS):
        return list(_COLOURS[:count])
    hues = [index * 0.381966 % 1 for index in range(count)]  # by the golden angle: neighbours are far apart
    wheel = [colorsys.hls_to_rgb(hue, (0.3, 0.45, 0.6)[index % 3], 0.65) for index, hue in enumerate(hues)]
    return ["#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in wheel]


@contextmanager
def style() -> Iterator[None]:
    """What is made inside looks as all figures do."""
    import matplotlib

    with _ONE_AT_A_TIME, matplotlib.rc_context(STYLE):
        yield


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """An empty figure of that many inches, to draw on and to save inside."""
    from matplotlib.figure import Figure

    with style():
        yield Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path, dpi: int = 120) -> None:
    """Write it whole or not at all, as what the path ends in; without what differs each time."""
    metadata = {"Date" if path.suffix == ".svg" else "Software": None}
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=dpi, facecolor="white", metadata=metadata)
