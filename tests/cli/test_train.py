"""The options of `granet train` that are on, off or as the recipe says."""

import errno
import io
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from granet.cli import main
from granet.cli.train import Train
from granet.training import Recipe, Run, RunDir, Summary
from granet.training.step import evaluate
from refusals import refused

RECIPE = (
    'data = "digits"\nmodel = "digits_net"\ncompile = true\ndeterministic = true\n[methods.granet]\nsparsity = 0.5\n'
)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes of the commands that are called, which train nothing."""
    found: list[Recipe] = []
    monkeypatch.setattr(Train, "run", lambda train, console: found.append(train.whole_recipe()))
    return found


@pytest.mark.parametrize(
    ("options", "plain", "written"),
    [
        ("", (False, False), (True, True)),
        ("--deterministic", (False, True), (True, True)),
        ("--no-deterministic", (False, False), (True, False)),
        ("--compile", (True, False), (True, True)),
        ("--no-compile --deterministic", (False, True), (False, True)),
    ],
)
def test_flags_replace_the_recipes_value_only_when_given(
    options: str, plain: tuple[bool, bool], written: tuple[bool, bool], parsed: list[Recipe], tmp_path: Path
) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(RECIPE)
    main(["train", *options.split()])
    main(["train", str(file), *options.split()])
    assert [(recipe.compile, recipe.deterministic) for recipe in parsed] == [plain, written]


def test_lists_of_a_file_stay_unless_others_are_given(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text(f'exclude = ["classifier.*"]\nobserve = ["dormant"]\n{RECIPE}')
    recipe = Train(recipe=file, observe=("overlap",)).whole_recipe()
    assert (recipe.exclude, recipe.observe) == (("classifier.*",), ("overlap",))


def test_times_are_steps_epochs_or_shares() -> None:
    recipes = [Train(every=time, prune_end=time, warm_up=time).whole_recipe() for time in ("20", "2ep", "5%", "0.05")]
    for recipe, read in zip(recipes, (20, "2ep", "5%", "5%"), strict=True):
        assert (recipe.method_fields["every"], recipe.method_fields["prune_end"], recipe.warm_up) == (read, read, read)


def test_an_option_under_a_former_name_is_that_field() -> None:
    recipe = Train(end="40%").whole_recipe()
    assert "end" not in recipe.method_fields
    assert recipe == Train(prune_end="40%").whole_recipe()


@pytest.mark.parametrize(
    ("option", "value", "read"),
    [
        ("sparsity", 0.5, 0.5),
        ("pattern", "2:4", "2:4"),
        ("every", "3", 3),
        ("initial_sparsity", 0.0, 0.0),
        ("end", "50%", "50%"),
        ("prune_end", "50%", "50%"),
    ],
)
def test_what_dense_training_has_no_use_for_is_refused(option: str, value: Any, read: Any) -> None:
    with refused(option, read):
        Train(method="dense", **{option: value}).whole_recipe()


@pytest.mark.parametrize(
    ("method", "branch", "parent"),
    [
        (None, "", "first"),
        ("lrr", "", "first"),
        ("granet", "", ""),
        ("dense", "", ""),
        ("granet", "branch_epoch = 1\n", "first"),
    ],
)
def test_another_method_than_the_files_keeps_the_parent_only_if_it_starts_from_one(
    method: str | None, branch: str, parent: str, tmp_path: Path
) -> None:
    """Nothing on the command line could clear it: an empty argument is refused."""
    file = tmp_path / "recipe.toml"
    file.write_text(f'method = "lth"\nparent = "first"\n{branch}[methods.lth]\nsparsity = 0.5\n')
    assert Train(recipe=file, method=method).whole_recipe().parent == parent
    assert Train(recipe=file, method=method, parent="second").whole_recipe().parent == "second"  # refused later


def test_a_signal_during_the_last_evaluation_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> torch.Tensor:
        if not list(tmp_path.glob("*/interrupted")):
            next(tmp_path.glob("*static*")).joinpath("interrupted").touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments)

    monkeypatch.setattr("granet.training.loop.evaluate", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["train", "--method", "static", "--epochs", "1", "--out", str(tmp_path)])
    assert ended.value.code == 130
    assert list(tmp_path.glob("*static*/summary.json")) and not list(tmp_path.glob("*dense*"))


def test_what_comes_before_the_first_step_has_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A method may search for minutes then."""
    text = io.StringIO()

    def build(*arguments: object, **options: object) -> None:
        deadline = time.monotonic() + 10
        while "granet     getting ready for the first step" not in text.getvalue():  # another thread draws it
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("granet.training.Run", build)
    with pytest.raises(KeyboardInterrupt):
        Train(out=tmp_path).run(Console(file=text, force_terminal=True, color_system=None))


def test_an_image_that_is_gone_is_not_blamed_on_the_folder_of_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def gone(run: Run, checkpoint_every: float, stop: Any) -> Any:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "cat.png")

    monkeypatch.setattr(Run, "epochs", gone)
    with pytest.raises(FileNotFoundError):
        Train(method="static", out=tmp_path).run(Console(file=io.StringIO()))


def test_options_say_how_a_run_is_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[tuple[Any, ...]] = []

    class Begun:
        """A run that is stopped at once."""

        summary, epochs_done = None, 3

        def __init__(self, recipe: Recipe, data: Any, device: Any, out: Path, workers: int, loggers: Any) -> None:
            made.append((recipe.seed, data, device, out, workers, loggers))

        def epochs(self, checkpoint_every: float, stop: Any) -> Any:
            made.append((checkpoint_every,))
            raise KeyboardInterrupt

    text = io.StringIO()
    monkeypatch.setattr("granet.training.Run", Begun)
    monkeypatch.setattr("granet.data.load", lambda name, data_dir: (name, data_dir))
    monkeypatch.setattr("granet.training.loggers.create_loggers", list)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: made.append(("threads", threads)))
    images = tmp_path / "images"
    train = Train(seed=5, out=tmp_path, data_dir=images, workers=2, log=("wandb",), checkpoint_every=7.0)
    with pytest.raises(KeyboardInterrupt):
        train.run(Console(file=text))
    run = (5, ("digits", images), torch.device("cpu"), tmp_path, 2, ["wandb"])
    assert made == [("threads", 1), run, (7.0,)]
    assert "granet     goes on after epoch 3\n" in text.getvalue()


@pytest.mark.parametrize(("width", "dense"), [(None, "dense"), (1.0, "dense"), (0.5, "the full-width dense network")])
def test_the_table_says_which_dense_network_shares_are_of(
    width: float | None, dense: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Done:
        """A run that is finished."""

        summary, epochs_done = Summary(0.9, 0.9, 1, 0.9, 0.9, 100, 10, 0.1, 1.0, 0.2), 30

        def __init__(self, recipe: Recipe, *_: Any, **__: Any) -> None:
            self.folder = RunDir.find(tmp_path, recipe)

    text = io.StringIO()
    monkeypatch.setattr("granet.training.Run", Done)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    Train(model="resnet20", width=width, out=tmp_path).run(Console(file=text, width=120))
    for figure in ("inference", "training"):
        assert f" {figure} FLOPs of {dense} " in text.getvalue()
