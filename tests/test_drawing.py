"""What all figures share."""

from __future__ import annotations

from pathlib import Path

import pytest

from granet import drawing


@pytest.mark.parametrize("count", [1, 8, 9, 40])
def test_as_many_colours_as_asked_for(count: int) -> None:
    shades = drawing.colours(count)
    assert len(set(shades)) == count
    assert (shades[0] == drawing.colours(1)[0]) == (count <= 8)  # as long as there are enough that most eyes tell apart
    assert all(len(shade) == 7 and int(shade[1:], 16) >= 0 for shade in shades)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_same_figure_is_the_same_bytes_in_the_style_of_all(ending: str, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    for name in "ab":
        with drawing.figure(2, 1) as figure:
            axes = figure.subplots()
            axes.plot([1, 2])
            drawing.save(figure, tmp_path / f"{name}.{ending}")
        assert axes.spines["left"].get_edgecolor() == matplotlib.colors.to_rgba(drawing.GRID)
    one, other = (tmp_path / f"{name}.{ending}" for name in "ab")
    assert one.read_bytes() == other.read_bytes()
    assert sorted(tmp_path.iterdir()) == [one, other]
