"""Loggers, against stand-ins with the documented signatures that write down every call."""

import ast
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from granet.data import load
from granet.training import EpochRecord, Recipe, Run, Summary
from granet.training.loggers import Logger, create_loggers, logging_to

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
Calls = list[tuple[str, dict[str, Any]]]


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    module = types.ModuleType(name)
    module.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The signatures are those of torch's own source, which cannot be imported without tensorboard."""
    source = (Path(torch.__path__[0]) / "utils" / "tensorboard" / "writer.py").read_text()
    (writer,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "SummaryWriter")
    assert isinstance(writer, ast.ClassDef)
    signatures = {
        node.name: [one.arg for one in node.args.args][1:] for node in writer.body if isinstance(node, ast.FunctionDef)
    }
    calls: Calls = []

    class SummaryWriter:
        def __init__(self, *values: Any, **fields: Any) -> None:
            self._note("__init__", *values, **fields)

        def __getattr__(self, name: str) -> Any:
            return lambda *values, **fields: self._note(name, *values, **fields)

        def _note(self, name: str, *values: Any, **fields: Any) -> None:
            assert set(fields) <= set(signatures[name]) and len(values) <= len(signatures[name])
            calls.append((name, dict(zip(signatures[name], values, strict=False)) | fields))

    stand_in(monkeypatch, "torch.utils.tensorboard", SummaryWriter=SummaryWriter)
    return calls


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls: Calls = []

    class Summaries:
        def update(self, d: dict[str, Any]) -> None:
            calls.append(("summary", d))

    class WandbRun:
        summary = Summaries()

        def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
            calls.append(("log", {"data": data, "step": step}))

        def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
            calls.append(("finish", {"exit_code": exit_code}))

    def init(
        *,
        project: str | None = None,
        dir: str | None = None,
        id: str | None = None,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str | None = None,
    ) -> WandbRun:
        calls.append(("init", {"project": project, "dir": dir, "id": id, "name": name, "resume": resume}))
        assert config == RECIPE.to_dict()
        return WandbRun()

    stand_in(monkeypatch, "wandb", init=init)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return calls


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls: Calls = []

    def start_run(
        run_id: str | None = None,
        experiment_id: str | None = None,
        run_name: str | None = None,
        nested: bool = False,
    ) -> types.SimpleNamespace:
        calls.append(("start_run", {"run_id": run_id, "run_name": run_name, "nested": nested}))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or f"id{len(calls)}"))

    def log_params(params: dict[str, Any]) -> None:
        calls.append(("log_params", params))

    def log_metrics(metrics: dict[str, float], step: int | None = None) -> None:
        calls.append(("log_metrics", {"metrics": metrics, "step": step}))

    def end_run(status: str = "FINISHED") -> None:
        calls.append(("end_run", {"status": status}))

    stand_in(
        monkeypatch, "mlflow", start_run=start_run, log_params=log_params, log_metrics=log_metrics, end_run=end_run
    )
    return calls


def test_tensorboard(tensorboard: Calls, tmp_path: Path) -> None:
    with logging_to(create_loggers(["tensorboard"]), RECIPE, tmp_path, epochs_done=3) as log:
        log.epoch(RECORD)
        log.finish(replace(SUMMARY, sparsity_asked=0.0))
    assert tensorboard[0] == ("__init__", {"log_dir": str(tmp_path / "tensorboard"), "purge_step": 4})
    assert tensorboard[1][0] == "add_text" and '"sparsity": 0.8' in tensorboard[1][1]["text_string"]
    scalars = [fields for name, fields in tensorboard if name == "add_scalar"]
    assert all(fields["global_step"] == 4 for fields in scalars)
    logged = {fields["tag"]: fields["scalar_value"] for fields in scalars}
    assert {tag: value for tag, value in logged.items() if not tag.startswith("final/")} == METRICS
    assert (logged["final/nonzero"], logged["final/sparsity_asked"]) == (10, 0.0) and "final/best_epoch" not in logged
    assert tensorboard[-1] == ("close", {})
    last = max(place for place, (_, fields) in enumerate(tensorboard) if fields.get("tag") in METRICS)
    assert tensorboard[last + 1] == ("flush", {})  # so that an epoch can be seen before the next one ends


def test_wandb(wandb: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs" / "some run"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with logging_to(create_loggers(["wandb"]), RECIPE, Path("runs/some run"), epochs_done=0) as log:
        log.epoch(RECORD)
        log.finish(SUMMARY)
    name, fields = wandb[0]
    identity = fields.pop("id")
    assert name == "init" and not set(identity) & set("/\\#?%:")
    assert fields == {"project": "granet", "dir": str(folder), "name": "some run", "resume": "allow"}
    assert wandb[1] == ("log", {"data": METRICS, "step": 4})
    assert wandb[2][0] == "summary" and wandb[2][1]["final/test_accuracy"] == 0.91
    assert wandb[3:] == [("finish", {"exit_code": 0})]
    assert (folder / "wandb.id").read_text() == identity + "\n"


def test_wandb_finds_an_interrupted_run_again(wandb: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    (logger,) = create_loggers(["wandb"])
    for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(KeyboardInterrupt), logging_to([logger], RECIPE, folder, epochs_done=0):
            raise KeyboardInterrupt
    assert [name for name, _ in wandb] == ["init", "finish"] * 3
    first, again, other = (fields["id"] for name, fields in wandb if name == "init")
    assert first == again != other
    assert wandb[0][1]["project"] == "mine" and wandb[1][1] == {"exit_code": 1}


def test_mlflow(mlflow: Calls, tmp_path: Path) -> None:
    (logger,) = create_loggers(["mlflow"])
    with pytest.raises(KeyboardInterrupt), logging_to([logger], RECIPE, tmp_path, epochs_done=0):
        raise KeyboardInterrupt
    with logging_to([logger], RECIPE, tmp_path, epochs_done=3) as log:
        log.epoch(RECORD)
        log.finish(SUMMARY)
    starts = [fields for name, fields in mlflow if name == "start_run"]
    assert starts == [
        {"run_id": None, "run_name": tmp_path.name, "nested": True},
        {"run_id": "id1", "run_name": None, "nested": True},
    ]
    assert [fields["status"] for name, fields in mlflow if name == "end_run"] == ["KILLED", "FINISHED"]
    params = [fields for name, fields in mlflow if name == "log_params"]
    assert params[0] == params[1] and params[0]["method_fields.every"] == "1ep" and params[0]["epochs"] == 3
    first, last = (fields for name, fields in mlflow if name == "log_metrics")
    assert first == {"metrics": METRICS, "step": 4}
    assert last["metrics"]["final/flops_ratio"] == 0.2


@pytest.mark.parametrize(("name", "finished", "interrupted"), [("wandb", 0, 1), ("mlflow", "FINISHED", "KILLED")])
def test_an_interrupted_run_after_a_finished_one(
    wandb: Calls, mlflow: Calls, tmp_path: Path, name: str, finished: int | str, interrupted: int | str
) -> None:
    """One logger for both."""
    (logger,) = create_loggers([name])
    with logging_to([logger], RECIPE, tmp_path, epochs_done=0) as log:
        log.finish(SUMMARY)
    with pytest.raises(KeyboardInterrupt), logging_to([logger], RECIPE, tmp_path, epochs_done=0):
        raise KeyboardInterrupt
    ends = [fields for call, fields in wandb + mlflow if call in ("finish", "end_run")]
    assert [value for fields in ends for value in fields.values()] == [finished, interrupted]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("too long a value"), r"^log: MLflow cannot start \(RuntimeError: too long a value\)$"),
        (KeyboardInterrupt("by hand"), "^by hand$"),
    ],
)
def test_mlflow_ends_a_run_that_does_not_start(
    mlflow: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, told: str
) -> None:
    """What kept it from starting is told, also where it cannot be ended either."""

    def log_params(params: dict[str, Any]) -> None:
        raise error

    def end_run(status: str) -> None:
        mlflow.append(("end_run", {"status": status}))
        raise RuntimeError("no server")

    monkeypatch.setattr(sys.modules["mlflow"], "log_params", log_params)
    monkeypatch.setattr(sys.modules["mlflow"], "end_run", end_run)
    with (
        pytest.raises((ValueError, KeyboardInterrupt), match=told),
        logging_to(create_loggers(["mlflow"]), RECIPE, tmp_path, 0),
    ):
        pass
    assert [name for name, _ in mlflow] == ["start_run", "end_run"] and mlflow[-1][1] == {"status": "FAILED"}


def test_names(tensorboard: Calls, wandb: Calls) -> None:
    assert create_loggers([]) == []
    kinds = [type(logger).__name__ for logger in create_loggers(["wandb", "tensorboard", "wandb"])]
    assert kinds == ["Wandb", "TensorBoard"]
    with pytest.raises(ValueError, match=r"^log='tensorbord': must be one of tensorboard, wandb, mlflow$"):
        create_loggers(["tensorboard", "tensorbord"])


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_one_line_before_anything_is_done(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from granet.cli import main

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["train", "--log", name])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith(f"granet: log='{name}': needs {name}: pip install 'granet[{name}]'")
    assert message.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_a_package_that_does_not_work_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow.py").write_text("raise ImportError('this Python is too old')")
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^log='mlflow': needs mlflow: .*this Python is too old\)$"):
        create_loggers(["mlflow"])


class Notes:
    """A logger of the user's own. It fails in the calls that it is told to."""

    def __init__(self, *failing: str) -> None:
        self.calls: list[Any] = []
        self._failing = failing

    def start(self, recipe: Recipe, folder: Path, epochs_done: int) -> None:
        self._note("start", epochs_done)

    def epoch(self, record: EpochRecord) -> None:
        self._note("epoch", record.epoch)

    def finish(self, summary: Summary) -> None:
        self._note("finish", summary.sparsity_asked)

    def close(self) -> None:
        self._note("close")

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self._failing:
            raise RuntimeError(f"no {call[0]}\nand more")


def run(out: Path, *loggers: Logger) -> Run:
    return Run(RECIPE, load("digits"), torch.device("cpu"), out, loggers=loggers)


def warned(records: Iterator[EpochRecord]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert [record.epoch for record in records] == [1, 2, 3]
    return [str(one.message) for one in caught if "granet" in str(one.message)]


def test_a_failing_logger_does_not_lose_the_run(tmp_path: Path) -> None:
    good, bad, worse, late = Notes(), Notes("epoch", "close"), Notes("finish"), Notes("close")
    one = run(tmp_path, bad, good, worse, late)
    messages = warned(one.epochs())
    assert one.summary is not None and one.folder.summary == one.summary
    assert good.calls == [("start", 0), ("epoch", 1), ("epoch", 2), ("epoch", 3), ("finish", 0.8), ("close",)]
    assert bad.calls == [("start", 0), ("epoch", 1), ("close",)]  # never called again
    assert worse.calls[-2:] == [("finish", 0.8), ("close",)]
    assert messages == [
        "granet: Notes.epoch failed (RuntimeError: no epoch); the run goes on without it",
        "granet: Notes.finish failed (RuntimeError: no finish); the run goes on without it",
        "granet: Notes.close failed (RuntimeError: no close); the run goes on without it",
    ]


def test_a_logger_that_cannot_start_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    good, bad = Notes(), Notes("start")
    with pytest.raises(ValueError, match=r"^log: Notes cannot start \(RuntimeError: no start\)$"):
        next(run(tmp_path, good, bad).epochs())
    assert good.calls == [("start", 0), ("close",)] and bad.calls == [("start", 0)]


def test_a_resumed_run_goes_on_in_its_loggers_and_a_finished_one_says_nothing(tmp_path: Path) -> None:
    first, second, third = Notes(), Notes(), Notes()
    epochs = run(tmp_path, first).epochs(checkpoint_every=0)
    for _ in range(3):
        next(epochs)  # with the checkpoint of epoch 2, for the last epoch has none
    epochs.close()  # as an interrupt would
    assert first.calls == [("start", 0), ("epoch", 1), ("epoch", 2), ("epoch", 3), ("close",)]
    again = run(tmp_path, second)
    assert [record.epoch for record in again.epochs()] == [3]
    assert second.calls == [("start", 2), ("epoch", 3), ("finish", 0.8), ("close",)]
    assert list(run(tmp_path, third).epochs()) == [] and third.calls == []
