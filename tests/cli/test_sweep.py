"""Options of a command that trains many runs: what is wrong with them is told once, not by each run."""

from collections.abc import Callable
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[2] / "recipes"
COMMANDS = {
    "train": ["train"],
    "sweep": ["sweep", str(RECIPES / "zoo-digits.toml")],
    "plasticity": ["plasticity", str(RECIPES / "studies" / "plasticity-digits.toml")],
}
SECONDS = "must be 0 or more seconds"


@pytest.mark.parametrize(
    ("command", "option", "value", "allowed"),
    [
        *((command, "checkpoint_every", value, SECONDS) for command in COMMANDS for value in (-1.0, float("nan"))),
        ("train", "workers", -1, "must be 0 or more processes"),
        ("sweep", "workers", -1, "must be 0 or more processes"),
        ("sweep", "packed", 0, "must be 1 or more"),
        ("plasticity", "threads", -2, "must be from 1 to 1024, a number of CPU threads"),
    ],
)
def test_a_wrong_option_is_refused_before_the_first_run(
    command: str, option: str, value: float, allowed: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    said = refused(*COMMANDS[command], f"--{option.replace('_', '-')}={value}")
    assert said == f"granet: {option}={value!r}: {allowed}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]
