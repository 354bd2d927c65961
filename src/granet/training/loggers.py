"""Where else the figures of a run go: TensorBoard, W&B, MLflow, or a logger of the user's own.

The run folder has everything with or without them. Before training begins a logger may refuse, with one line that says
why. One that fails later is named in a warning and left out, and the run goes on.
"""

from __future__ import annotations

import json
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from granet.error_line import error_line
from granet.files import write_text
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary


class Logger(Protocol):
    """What a logger must do. `start` may come again after `close`, for the next run."""

    def start(self, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        """Open the log of the run in `folder`: a new one or, if some epochs are done, where it stopped after those.

        If possible, forget what was logged about later epochs: they are trained again.
        """

    def epoch(self, record: EpochRecord) -> None:
        """Log one epoch."""

    def finish(self, summary: Summary) -> None:
        """Log the final figures."""

    def close(self) -> None:
        """Close the log. Without `finish` before it, the run was interrupted."""


class TensorBoard:
    """Event files in `tensorboard/` in the run folder, for `tensorboard --logdir runs`."""

    def __init__(self) -> None:
        self._package = _package("tensorboard", "torch.utils.tensorboard")

    def start(self, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        self._writer = self._package.SummaryWriter(log_dir=str(folder / "tensorboard"), purge_step=epochs_done + 1)
        self._writer.add_text("recipe", f"```json\n{json.dumps(recipe.to_dict(), indent=2)}\n```", global_step=0)

    def epoch(self, record: EpochRecord) -> None:
        self._epoch = record.epoch
        for name, value in _metrics(record).items():
            self._writer.add_scalar(name, value, global_step=record.epoch)
        self._writer.flush()

    def finish(self, summary: Summary) -> None:
        for name, value in _figures(summary).items():
            self._writer.add_scalar(name, value, global_step=self._epoch)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """A run of Weights & Biases. Its random id is kept in the run folder, so that a resumed run is found again.

    W&B ignores epochs that it already has when they are trained again. The project is that of the environment variable
    WANDB_PROJECT, or `granet`.
    """

    def __init__(self) -> None:
        self._package = _package("wandb", "wandb")

    def start(self, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        identity = _kept_id(folder, "wandb") or _keep_id(folder, "wandb", uuid.uuid4().hex)
        self._run = self._package.init(
            project=os.environ.get("WANDB_PROJECT", "granet"),
            id=identity,
            name=folder.name,
            dir=str(folder.absolute()),
            config=recipe.to_dict(),
            resume="allow",
        )
        self._exit_code = 1

    def epoch(self, record: EpochRecord) -> None:
        self._run.log(_metrics(record), step=record.epoch)

    def finish(self, summary: Summary) -> None:
        self._run.summary.update(_figures(summary))
        self._exit_code = 0

    def close(self) -> None:
        self._run.finish(exit_code=self._exit_code)


class MLflow:
    """A run of MLflow, nested if one is active. Its id is kept in the run folder, so that a resumed run is found again.

    MLflow keeps both values of an epoch that is trained twice. Server and experiment are those of MLflow's own
    environment variables, MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME.
    """

    def __init__(self) -> None:
        self._package = _package("mlflow", "mlflow")

    def start(self, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        identity = _kept_id(folder, "mlflow")
        run = self._package.start_run(run_id=identity, run_name=None if identity else folder.name, nested=True)
        try:
            if identity is None:
                _keep_id(folder, "mlflow", run.info.run_id)
            self._package.log_params(_flat(recipe.to_dict()))
        except BaseException:  # the run would stay the active one, and later runs of the process would go inside it
            with suppress(Exception):
                self._package.end_run(status="FAILED")
            raise
        self._status = "KILLED"

    def epoch(self, record: EpochRecord) -> None:
        self._package.log_metrics(_metrics(record), step=record.epoch)

    def finish(self, summary: Summary) -> None:
        self._package.log_metrics(_figures(summary))
        self._status = "FINISHED"

    def close(self) -> None:
        self._package.end_run(status=self._status)


LOGGERS: Mapping[str, type[TensorBoard] | type[Wandb] | type[MLflow]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "mlflow": MLflow,
}


def create_loggers(names: Sequence[str]) -> list[Logger]:
    """The loggers of these names, each once; ValueError for an unknown one and for one whose package is missing."""
    for name in names:
        if name not in LOGGERS:
            raise ValueError(f"log={name!r}: must be one of {', '.join(LOGGERS)}")
    return [LOGGERS[name]() for name in dict.fromkeys(names)]


class LoggerGroup:
    """Passes everything on to the loggers that were started.

    One that cannot start is a ValueError. One that fails later is named in a warning, closed and left out.
    """

    def __init__(self) -> None:
        self._loggers: list[Logger] = []

    def start(self, logger: Logger, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        try:
            logger.start(recipe, folder, epochs_done)
        except Exception as error:
            raise ValueError(f"log: {type(logger).__name__} must start ({error_line(error)})") from error
        self._loggers.append(logger)

    def epoch(self, record: EpochRecord) -> None:
        self._each("epoch", record)

    def finish(self, summary: Summary) -> None:
        self._each("finish", summary)

    def close(self) -> None:
        self._each("close")

    def _each(self, call: str, *arguments: object) -> None:
        for logger in list(self._loggers):
            try:
                getattr(logger, call)(*arguments)
            except Exception as error:
                self._loggers.remove(logger)
                failed = f"{type(logger).__name__}.{call} failed ({error_line(error)})"
                warnings.warn(f"granet: {failed}; the run goes on without it", stacklevel=3)
                with suppress(Exception):
                    logger.close()


@contextmanager
def logging_to(loggers: Sequence[Logger], recipe: Recipe, folder: Path, epochs_done: int) -> Iterator[LoggerGroup]:
    """These loggers, started and, whatever happens, closed."""
    group = LoggerGroup()
    try:
        for logger in loggers:
            group.start(logger, recipe, folder, epochs_done)
        yield group
    finally:
        group.close()


def _package(name: str, module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(f"log={name!r}: needs {name}: pip install 'granet[{name}]' ({error_line(error)})") from error


def _metrics(record: EpochRecord) -> dict[str, float]:
    """The available figures of an epoch."""
    values = _flat(asdict(record)).items()
    return {name: value for name, value in values if name != "epoch" and value is not None}


def _figures(summary: Summary) -> dict[str, float]:
    """The available final figures, apart from those of an epoch."""
    return {f"final/{name}": value for name, value in asdict(summary).items() if value is not None}


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings in `values` become `outer.inner` keys."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def _kept_id(folder: Path, logger: str) -> str | None:
    path = folder / f"{logger}.id"
    return path.read_text(encoding="utf-8").strip() if path.exists() else None


def _keep_id(folder: Path, logger: str, identity: str) -> str:
    write_text(folder / f"{logger}.id", identity + "\n")
    return identity
