"""What TensorBoard, W&B and MLflow have of a run, read back from what they wrote; each is skipped if not installed."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from granet.data import load
from granet.training import EpochRecord, Recipe, Run, Summary
from granet.training.loggers import create_loggers, logging_to

pytestmark = pytest.mark.slow

RECIPE = Recipe(method_fields={"sparsity": 0.8, "every": "1ep"}, epochs=3, batch_size=400)
SEEN = {"overlap.kept": 0.7, "dormant.share": None}
RECORD = EpochRecord(4, 76, 0.5, 0.1, 0.3, 0.9, None, 0.91, 0.0, 0.25, observed=SEEN)
METRICS = {
    "step": 76,
    "seconds": 0.5,
    "lr": 0.1,
    "train_loss": 0.3,
    "train_accuracy": 0.9,
    "test_accuracy": 0.91,
    "target_sparsity": 0.0,
    "sparsity": 0.25,
    "flops": 1.0,
    "observed.overlap.kept": 0.7,
}  # what RECORD has: without the epoch itself, and without what there is no number for
SUMMARY = Summary(0.91, None, None, 0.9, 0.9, 100, 10, 0.2, 0.5)
FIGURES = {
    "final/test_accuracy": 0.91,
    "final/sparsity_asked": 0.9,
    "final/sparsity": 0.9,
    "final/parameters": 100,
    "final/nonzero": 10,
    "final/flops_ratio": 0.2,
    "final/seconds": 0.5,
}


@dataclass
class Log:
    """What was read back: each figure's values by epoch, the final figures, the recipe, which run, how it ended."""

    epochs: dict[str, list[tuple[int, float]]]
    final: dict[str, float]
    fields: dict[str, Any]
    runs: set[str]
    ended: str = ""

    def of(self, epoch: int) -> dict[str, float]:
        return {name: dict(values)[epoch] for name, values in self.epochs.items()}


def from_tensorboard(folder: Path) -> Log:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    values = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    final = {name: values.pop(name)[-1][1] for name in list(values) if name.startswith("final/")}
    text = events.Tensors("recipe/text_summary")[-1].tensor_proto.string_val[0].decode()
    fields = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
    return Log(values, final, fields, {"tensorboard"} & {path.name for path in folder.iterdir()})


def from_wandb(folder: Path) -> Log:
    """From the files that an offline run leaves: W&B's own messages, in the order of the runs."""
    from wandb.proto.wandb_internal_pb2 import Record

    log = Log({}, {}, {}, set())
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        deadline, messages = time.monotonic() + 60, [Record()]
        while not messages[-1].HasField("exit"):  # W&B's own process has yet to write the rest
            assert time.monotonic() < deadline
            time.sleep(0.001)
            messages = [Record(), *map(Record.FromString, wandb_messages(path.read_bytes()))]
        for message in messages:
            if message.HasField("run"):
                log.runs.add(message.run.run_id)
                log.fields = {one.key: json.loads(one.value_json) for one in message.run.config.update}
                assert (message.run.project, message.run.display_name) == ("granet", folder.name)
            for item in message.history.item:
                name = item.key or ".".join(item.nested_key)
                if not name.startswith("_"):
                    log.epochs.setdefault(name, []).append((message.history.step.num, json.loads(item.value_json)))
            log.final |= {
                one.key: json.loads(one.value_json) for one in message.summary.update if one.key.startswith("final/")
            }
            if message.HasField("exit"):
                log.ended = str(message.exit.exit_code)
    return log


def wandb_messages(content: bytes) -> Iterator[bytes]:
    """The messages of a .wandb file: LevelDB's log format, in blocks of 32 KiB, after 7 bytes of its own."""
    place, message = 7, b""
    while place < len(content):
        if (left := 32768 - place % 32768) < 7:  # too little for another head
            place += left
            continue
        head, place = content[place : place + 7], place + 7
        if len(head) < 7 or len(content) < place + (size := int.from_bytes(head[4:6], "little")):
            return  # it is being written
        kind, message, place = head[6], message + content[place : place + size], place + size
        if kind in (1, 4):  # the whole or the last part of a message
            yield message
            message = b""


def from_mlflow(folder: Path) -> Log:
    from mlflow import MlflowClient

    client = MlflowClient()
    (run,) = client.search_runs(["0"], f"attributes.run_name = '{folder.name}'")
    values = {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    final = {name: values.pop(name)[-1][1] for name in list(values) if name.startswith("final/")}
    return Log(values, final, run.data.params, {run.info.run_id}, run.info.status)


READ: dict[str, Callable[[Path], Log]] = {"tensorboard": from_tensorboard, "wandb": from_wandb, "mlflow": from_mlflow}


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing leaves the machine, or the folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    settings = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
    settings |= {"MLFLOW_TRACKING_URI": f"file://{tmp_path}/store", "MLFLOW_ALLOW_FILE_STORE": "true"}
    settings |= {"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=READ)
def name(request: pytest.FixtureRequest, offline: None) -> str:
    pytest.importorskip(request.param)
    return str(request.param)


@pytest.fixture
def mlflow(offline: None) -> Any:
    return pytest.importorskip("mlflow")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "some run"
    path.mkdir(parents=True)
    return path


def interrupted(name: str, folder: Path, *records: EpochRecord, recipe: Recipe = RECIPE, done: int = 0) -> None:
    with pytest.raises(KeyboardInterrupt), logging_to(create_loggers([name]), recipe, folder, done) as log:
        for record in records:
            log.epoch(record)
        raise KeyboardInterrupt


def test_the_figures_are_there(name: str, folder: Path) -> None:
    with logging_to(create_loggers([name]), RECIPE, folder, epochs_done=3) as log:
        log.epoch(RECORD)
        log.finish(SUMMARY)
    found = READ[name](folder)
    assert found.epochs.keys() == METRICS.keys() and all(len(values) == 1 for values in found.epochs.values())
    assert found.of(4) == pytest.approx(METRICS) and found.final == pytest.approx(FIGURES)
    assert found.ended == {"tensorboard": "", "wandb": "0", "mlflow": "FINISHED"}[name]
    if name == "mlflow":  # which has text alone, and no fields of fields
        assert found.fields["method_fields.every"] == "1ep" and found.fields["epochs"] == "3"
    else:
        assert json.loads(json.dumps(RECIPE.to_dict())).items() <= found.fields.items()


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"], indirect=True)  # W&B's own process writes when it likes
def test_an_epoch_can_be_seen_before_the_next_one_ends(name: str, folder: Path) -> None:
    with logging_to(create_loggers([name]), RECIPE, folder, epochs_done=0) as log:
        for epoch in (1, 2):
            log.epoch(replace(RECORD, epoch=epoch))
            assert READ[name](folder).of(epoch) == pytest.approx(METRICS)


def test_a_loss_that_is_no_number_is_logged(name: str, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="granet")
        interrupted(name, folder, replace(RECORD, train_loss=math.nan), replace(RECORD, epoch=5, train_loss=math.inf))
    (_, first), (_, second) = READ[name](folder).epochs["train_loss"]
    assert math.isnan(first) and second in (math.inf, "Infinity", 1.7976931348623157e308)  # W&B's word, MLflow's number


def test_an_interrupted_run_is_found_again(name: str, folder: Path) -> None:
    """By other loggers, as in another process. TensorBoard forgets what is trained again."""
    interrupted(name, folder, *(replace(RECORD, epoch=epoch) for epoch in (1, 2, 3)))
    before = READ[name](folder)
    assert before.ended == {"tensorboard": "", "wandb": "1", "mlflow": "KILLED"}[name]
    with logging_to(create_loggers([name]), RECIPE, folder, epochs_done=2) as log:
        log.epoch(replace(RECORD, epoch=3, train_loss=0.25))
        log.finish(SUMMARY)
    found = READ[name](folder)
    assert len(found.runs) == 1 and found.runs == before.runs
    again = [(3, 0.25)] if name == "tensorboard" else [(3, 0.3), (3, 0.25)]
    expected = [(1, 0.3), (2, 0.3), *again]
    assert [epoch for epoch, _ in found.epochs["train_loss"]] == [epoch for epoch, _ in expected]
    assert [loss for _, loss in found.epochs["train_loss"]] == pytest.approx([loss for _, loss in expected])
    assert found.final == pytest.approx(FIGURES)
    assert found.ended == {"tensorboard": "", "wandb": "0", "mlflow": "FINISHED"}[name]


def test_other_runs_have_logs_of_their_own(name: str, tmp_path: Path) -> None:
    """From one logger."""
    (logger,) = create_loggers([name])
    folders = [tmp_path / "a", tmp_path / "b"]
    for place, loss in zip(folders, (0.1, 0.2), strict=True):
        place.mkdir()
        with logging_to([logger], RECIPE, place, epochs_done=0) as log:
            log.epoch(replace(RECORD, train_loss=loss))
    logs = [READ[name](place) for place in folders]
    assert [log.of(4)["train_loss"] for log in logs] == pytest.approx([0.1, 0.2])
    assert name == "tensorboard" or not logs[0].runs & logs[1].runs
    assert {log.ended for log in logs} == {{"tensorboard": "", "wandb": "1", "mlflow": "KILLED"}[name]}


def test_another_recipe_is_taken_or_named(name: str, folder: Path) -> None:
    """A start that is refused must not leave the log open: later runs of the process would be in it."""
    interrupted(name, folder)
    other = replace(RECIPE, epochs=5)
    if name == "mlflow":
        with pytest.raises(ValueError, match=r"^log: MLflow must start \(.*epochs.*'?3'?.*'?5'?"):
            interrupted(name, folder, recipe=other)
        interrupted(name, folder, RECORD)
        assert READ[name](folder).of(4) == pytest.approx(METRICS)
    else:
        interrupted(name, folder, RECORD, recipe=other)
        assert READ[name](folder).fields["epochs"] == 5


def test_a_real_run_that_goes_on_has_one_log(name: str, tmp_path: Path) -> None:
    def run() -> Run:
        return Run(RECIPE, load("digits"), torch.device("cpu"), tmp_path, loggers=create_loggers([name]))

    epochs = run().epochs(checkpoint_every=0)
    for _ in range(2):
        next(epochs)
    epochs.close()  # as an interrupt would
    again = run()
    list(again.epochs())
    found = READ[name](again.folder.path)
    assert len(found.runs) == 1 and len(again.folder.records) == 3
    for record in again.folder.records:
        assert found.of(record.epoch)["train_loss"] == pytest.approx(record.train_loss)
        assert found.of(record.epoch)["sparsity"] == pytest.approx(record.sparsity)
    assert again.summary is not None
    assert found.final["final/test_accuracy"] == pytest.approx(again.summary.test_accuracy)


def test_wandb_knows_the_project_of_its_variable(offline: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    with logging_to(create_loggers(["wandb"]), RECIPE, folder, epochs_done=0):
        assert wandb.run.project == "mine" and wandb.run.name == "some run"
        assert wandb.run.id == (folder / "wandb.id").read_text().strip()
    assert wandb.run is None


def test_mlflow_goes_inside_the_active_run_and_leaves_it_active(mlflow: Any, folder: Path) -> None:
    with mlflow.start_run() as outer:
        interrupted("mlflow", folder, RECORD)
        assert mlflow.active_run().info.run_id == outer.info.run_id
    (identity,) = from_mlflow(folder).runs
    assert mlflow.get_run(identity).data.tags["mlflow.parentRunId"] == outer.info.run_id


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("too long a value"), r"^log: MLflow must start \(RuntimeError: too long a value\)$"),
        (KeyboardInterrupt("by hand"), "^by hand$"),
    ],
)
def test_mlflow_ends_a_run_that_does_not_start(
    mlflow: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, told: str
) -> None:
    """What kept it from starting is told, also where it cannot be ended either."""
    end_run = mlflow.end_run

    def log_params(params: dict[str, Any]) -> None:
        raise error

    def ended(status: str) -> None:
        end_run(status)
        raise RuntimeError("no server")

    monkeypatch.setattr(mlflow, "log_params", log_params)
    monkeypatch.setattr(mlflow, "end_run", ended)
    with (
        pytest.raises((ValueError, KeyboardInterrupt), match=told),
        logging_to(create_loggers(["mlflow"]), RECIPE, folder, 0),
    ):
        pass
    assert mlflow.active_run() is None and from_mlflow(folder).ended == "FAILED"
