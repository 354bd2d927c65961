"""Run folders: whole files, one folder a run, readable by anything that reads JSON."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from granet.data import load
from granet.files import atomic
from granet.training import Run
from granet.training.recipe import Recipe
from granet.training.records import EpochRecord, Summary
from granet.training.rundir import RunDir, run_name
from refusals import refused

CPU = torch.device("cpu")
IMAGES = {"name": "digits", "train": 1086, "checksum": 7}
RECORD = EpochRecord(1, 19, 0.5, 0.1, 0.3, 0.9, None, 0.91, 0.0, 0.0)
WRITTEN = {name: value for name, value in asdict(RECORD).items() if name != "observed"}  # there were no observers


def opened(root: Path, recipe: Recipe, device: torch.device) -> RunDir:
    run = RunDir.find(root, recipe)
    run.make()
    run.describe(recipe, device, IMAGES)
    return run


SUMMARY = Summary(0.91, None, None, 0.9, 0.9, 100, 10, 0.2, 0.5)


def test_name_tells_the_recipe_and_is_its_own(tmp_path: Path) -> None:
    names = [opened(tmp_path / "runs", Recipe(seed=4), CPU).path.name for _ in range(2)]
    assert names[0] == names[1] and names[0].startswith("digits-digits_net-granet-0.9-seed4-")
    recipes = [Recipe(), Recipe(seed=4), Recipe(lr=0.2), Recipe().dense_twin(), Recipe(method_fields={"sparsity": 0.9})]
    assert len({opened(tmp_path, recipe, CPU).path for recipe in recipes}) == len(recipes)


def test_the_name_of_a_run_stays(tmp_path: Path) -> None:
    """Runs of before must be found again: a new field with its default may not change a name."""
    assert opened(tmp_path, Recipe(), CPU).path.name == "digits-digits_net-granet-0.9-seed0-44136fa3"
    assert run_name(Recipe(method_fields={"sparsity": 0.0})) == "digits-digits_net-granet-0-seed0-f305f85b"
    one, same = {"sparsity": 0.8, "every": 2}, {"every": 2, "sparsity": 0.8}
    assert run_name(Recipe(method_fields=one)) == run_name(Recipe(method_fields=same))  # in whatever order they come


def test_models_and_methods_of_ones_own_give_names_that_windows_allows(tmp_path: Path) -> None:
    recipe = Recipe(model="models.small:Net", method="my_methods:Mine.Faster", method_fields={"sparsity": 0.5})
    run = opened(tmp_path, recipe, CPU)
    assert run.path.name.startswith("digits-models.small.Net-my_methods.Mine.Faster-0.5-seed0-")
    assert run.recipe == recipe and RunDir.find(tmp_path, recipe) == run
    other = replace(recipe, method="my_methods.Mine:Faster")  # another module, so another run
    assert run_name(other) != run.path.name


@pytest.mark.parametrize("sparsity", ["0.9", [0.9]])
def test_a_sparsity_that_is_no_number_gives_no_name(sparsity: object) -> None:
    with refused("sparsity", sparsity):
        run_name(Recipe(method_fields={"sparsity": sparsity}))


def test_the_name_is_that_of_one_folder() -> None:
    assert run_name(Recipe(model="timm:hf-hub:owner/net")).startswith("digits-timm.hf-hub.owner.net-granet-0.9-seed0-")


def test_a_folder_of_another_recipe_is_left_alone(tmp_path: Path) -> None:
    config = opened(tmp_path, Recipe(), CPU).path / "config.json"
    other = config.read_text().replace('"lr": 0.1', '"lr": 0.3')
    config.write_text(other)
    with refused("out", tmp_path, "-seed0-", unchanged=(tmp_path,)):
        opened(tmp_path, Recipe(), CPU)


def test_finding_makes_nothing(tmp_path: Path) -> None:
    run = RunDir.find(tmp_path / "runs", Recipe())
    assert run.summary is None
    assert list(tmp_path.iterdir()) == []


def test_beginning_again_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    run = opened(tmp_path, Recipe(), CPU)
    run.begin([])
    run.append(RECORD)
    run.append(RECORD)
    run.begin([RECORD])
    assert (run.path / "metrics.jsonl").read_text() == json.dumps(WRITTEN) + "\n"


def test_beginning_again_drops_half_written_files_and_no_others(tmp_path: Path) -> None:
    run = opened(tmp_path, Recipe(), CPU)
    folders = {".ipynb_checkpoints", ".old.7"}
    for name in folders:
        (run.path / name).mkdir()
    others = {".notes", ".metrics.jsonl.swp", ".config.2024.json"}
    half_written = {".model.safetensors.123.safetensors", ".metrics.jsonl.7.jsonl"}
    for name in {"layers.json", "updates.jsonl"} | others | half_written:
        (run.path / name).touch()
    run.begin([])
    assert {path.name for path in run.path.glob(".*")} == folders | others
    assert {path.name for path in run.path.glob("[!.]*")} == {"config.json", "metrics.jsonl"}


def test_a_whole_number_is_as_good_as_a_fraction() -> None:
    assert run_name(Recipe(lr=1, weight_decay=0)) == run_name(Recipe(lr=1.0, weight_decay=0.0))


def test_config_gives_the_recipe_back(tmp_path: Path) -> None:
    recipe = Recipe(method_fields={"sparsity": 0.8, "every": 10})
    config = json.loads((opened(tmp_path, recipe, CPU).path / "config.json").read_text())
    assert Recipe.from_dict(config["recipe"]) == recipe
    assert config["environment"]["torch"] == torch.__version__
    assert config["environment"]["device"] == "cpu"
    assert config["environment"]["threads"] == torch.get_num_threads()


def test_reading_a_recipe_imports_nothing(tmp_path: Path) -> None:
    """The folder may be a stranger's, and so may the method."""
    (tmp_path / "config.json").write_text('{"recipe": {"method": "no_such_module:Mine"}}')
    assert RunDir(tmp_path).recipe.method == "no_such_module:Mine"


def test_a_line_that_is_being_written_is_no_epoch_yet(tmp_path: Path) -> None:
    run = opened(tmp_path, Recipe(), CPU)
    run.append(RECORD)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "st')
    assert run.records == [RECORD]


def test_metrics_are_one_json_object_a_line(tmp_path: Path) -> None:
    run = opened(tmp_path, Recipe(), CPU)
    seen = {"overlap.kept": float("inf"), "overlap.jaccard": 0.5}
    diverged = EpochRecord(2, 38, 0.9, 0.1, float("nan"), 0.1, None, 0.1, 0.0, 0.0, observed=seen)
    run.append(RECORD)
    run.append(diverged)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    first, second = (json.loads(line, parse_constant=refuse) for line in lines)
    assert first == WRITTEN
    assert second["train_loss"] is None and second["epoch"] == 2
    assert second["observed"] == {"overlap.kept": None, "overlap.jaccard": 0.5}


def test_a_line_that_the_disk_has_no_room_for_is_an_error(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")  # not on Windows
    run = opened(tmp_path, Recipe(), CPU)
    run.append(RECORD)
    size = (run.path / "metrics.jsonl").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + size // 2, before[1]))  # room for a line and a half
    try:
        with pytest.raises(OSError, match="File too large"):
            run.append(RECORD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_finish_saves_weights_also_tied_ones(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    run = opened(tmp_path, Recipe(), CPU)
    assert run.summary is None
    run.finish(model, SUMMARY)
    assert run.summary == SUMMARY
    saved = load_file(run.path / "model.safetensors")
    assert torch.equal(saved["0.weight"], model[0].weight) and torch.equal(saved["1.bias"], model[1].bias)
    assert len({path.stat().st_mode for path in run.path.iterdir()}) == 1
    assert json.loads((run.path / "summary.json").read_text()) == asdict(SUMMARY)
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json", "model.safetensors", "summary.json"]


def test_weights_that_the_disk_has_no_room_for_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: nn.Module, path: str) -> None:
        Path(path).write_text("half of the w")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("granet.training.rundir.save_model", full)
    run = opened(tmp_path, Recipe(), CPU)
    with pytest.raises(OSError, match="No space left"):
        run.finish(nn.Linear(3, 3), SUMMARY)
    assert [path.name for path in run.path.iterdir()] == ["config.json"]


@pytest.mark.slow
def test_layers_and_updates_say_what_became_of_the_weights(tmp_path: Path) -> None:
    """Also of a run that was stopped and resumed: not a byte differs."""
    recipe = Recipe(method_fields={"sparsity": 0.8, "every": 3}, epochs=4, batch_size=400)
    whole, resumed = (Run(recipe, load("digits"), CPU, tmp_path / name) for name in ("whole", "resumed"))
    assert len(list(whole.epochs())) == 4
    epochs = resumed.epochs(checkpoint_every=0)
    assert [next(epochs).epoch for _ in range(3)] == [1, 2, 3]
    epochs.close()
    folder = resumed.folder.path
    (folder / "layers.json").write_text("left by a start that was killed at the very end")
    epochs = Run(recipe, load("digits"), CPU, tmp_path / "resumed").epochs()
    next(epochs)
    assert not (folder / "layers.json").exists()
    list(epochs)
    for name in ("layers.json", "updates.jsonl"):
        assert (folder / name).read_bytes() == (whole.folder.path / name).read_bytes()
    layers = json.loads((folder / "layers.json").read_text())
    weights = load_file(folder / "model.safetensors")
    shapes = {name: list(weight.shape) for name, weight in weights.items() if weight.ndim > 1}
    assert {layer["name"]: layer["shape"] for layer in layers} == shapes
    for layer in layers:
        nonzero = int(weights[layer["name"]].count_nonzero())
        assert layer["weights"] == weights[layer["name"]].numel()
        assert nonzero <= layer["active"] <= nonzero + 50  # an active weight may happen to be zero
    assert sum(layer["weights"] for layer in layers) == 159_264
    updates = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
    assert [update["step"] for update in updates][:2] == [3, 6]
    assert updates[-1]["active"] == [layer["active"] for layer in layers]
    assert sum(updates[-1]["active"]) == round(0.2 * 159_264)
    assert sum(update["pruned"] for update in updates) == 159_264 - sum(updates[-1]["active"])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic(path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for out in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with refused("out", out):
            opened(out, Recipe(), CPU)


def test_one_process_at_a_time_and_errors_inside_pass_as_they_are(tmp_path: Path) -> None:
    run = opened(tmp_path, Recipe(), CPU)
    with run.locked(), pytest.raises(ValueError, match=r"is being trained already$"), run.locked():
        pass
    for error in (BlockingIOError, FileNotFoundError):
        with pytest.raises(error), run.locked():
            raise error
    with run.locked():  # free again
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_process_that_reads_images_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    run = opened(tmp_path, Recipe(), CPU)
    (begun, begins), (over, ends) = os.pipe(), os.pipe()
    with run.locked():
        with RunDir(tmp_path).locked():
            pass  # a run beside it is done
        child = os.fork()
        if child == 0:
            os.close(ends)
            os.write(begins, b"x")
            os.read(over, 1)  # until the test ends
            os._exit(0)
    os.read(begun, 1)
    try:
        with run.locked():
            pass
    finally:
        os.close(ends)
        os.waitpid(child, 0)
        for descriptor in (begun, begins, over):
            os.close(descriptor)


def test_who_comes_second_writes_nothing(tmp_path: Path) -> None:
    recipe = Recipe(epochs=1, method="dense", method_fields={})
    second = Run(recipe, load("digits"), CPU, tmp_path)
    first = RunDir.find(tmp_path, recipe)
    first.make()
    with first.locked(), pytest.raises(ValueError, match="is being trained already"):
        next(second.epochs())
    assert list(first.path.iterdir()) == []
