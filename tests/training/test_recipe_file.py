"""Recipe files: what is in them, and one clear line for what should not be."""

from pathlib import Path

import pytest

from granet.cli.train import Train
from granet.methods import create_method
from granet.training.recipe import DENSE
from granet.training.recipe_file import find_recipe, read_recipe_file, recipe_path
from refusals import refused

FOLDER = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(
    path
    for path in FOLDER.glob("*.toml")
    if "[[runs]]" not in path.read_text(encoding="utf-8") and path.stem.count("-") == 1
)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_papers_recipes(path: Path) -> None:
    file = read_recipe_file(path)
    data, network = path.stem.split("-")
    recipe = file.recipe()
    assert (recipe.data, recipe.model.split("_")[0], recipe.lr, recipe.batch_size) == (data, network, 0.1, 128)
    if data == "imagenet":
        assert (recipe.epochs, recipe.weight_decay, recipe.milestones) == (100, 1e-4, ("30%", "60%", "90%"))
        assert (recipe.warm_up, recipe.label_smoothing, recipe.nesterov) == ("5ep", 0.1, False)
    else:
        assert (recipe.epochs, recipe.weight_decay, recipe.milestones) == (160, 5e-4, ("50%", "75%"))
    for name, fields in file.methods.items():
        create_method(name, sparsity=0.95, **fields)
        assert file.recipe(name).method_fields == fields
    assert file.recipe(DENSE).method_fields == {}


def test_options_replace_parts_of_a_file() -> None:
    path = next(path for path in RECIPES if path.stem == "cifar10-vgg19")
    recipe = Train(recipe=path, sparsity=0.98, seed=1).whole_recipe()
    assert (recipe.method, recipe.model, recipe.seed, recipe.epochs) == ("granet", "vgg19", 1, 160)
    assert recipe.method_fields == {"sparsity": 0.98, "initial_sparsity": 0.5, "every": 1000, "prune_end": "50%"}
    recipe = Train(recipe=path, method="rigl-itop", sparsity=0.9, every="500", stretch=2.5).whole_recipe()
    assert (recipe.method, recipe.epochs, recipe.total_epochs) == ("rigl-itop", 160, 400)
    assert recipe.method_fields == {"sparsity": 0.9, "every": 500}
    assert recipe.clock(45_000).steps("50%") == 200 * 351
    assert Train(recipe=path, method="dense").whole_recipe().method_fields == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epoch = 3", "unknown key 'epoch'; the nearest is 'epochs'"),
        ("sparsity = 0.9", "unknown key 'sparsity'; as a field of granet it stands under [methods.granet]"),
        ("method = 'rigl'\nend = 5", "unknown key 'end'; as a field of rigl it stands under [methods.rigl]"),
        ('epochs = "3"', "epochs='3': must be of type int"),
        ("epochs = true", "epochs=True: must be of type int"),
        ("milestones = 80", "milestones=80: must be of type list"),
        ('keep = ["1ep"]', "keep=['1ep']: must hold whole numbers"),
        ("keep = [1.5]", "keep=[1.5]: must hold whole numbers"),
        ("no_decay = [1]", "no_decay=[1]: must hold text"),
        ("milestones = [1.5]", "milestones=1.5: must be optimizer steps (1000)"),
        ("warm_up = 1.5", "warm_up=1.5: must be optimizer steps (1000)"),
        ("epochs = 0", "epochs=0: must be 1 or more"),
        ("[methods.grannet]", "unknown key 'methods.grannet'; the nearest is 'methods.granet'"),
        ("[methods.my-own]", "; one of your own is written [methods.'package.module:Class']"),
        ("[methods.granet]\nregrown = 0.5", "unknown key 'methods.granet.regrown'; the nearest is"),
        ("[methods.granet]\nsparsity = '0.9'", "sparsity='0.9': must be a number in [0, 1)"),
        ("[methods.granet]\nregrow = 2", "regrow=2: must be in [0, 1]"),
        ("[methods.sis]\ntolerance = 0.1\nsparsity = 0.5", "tolerance=0.1: gives a sparsity of its own"),
        ("method = 'granett'", "method='granett': must be one of dense, "),
        ("stretch = inf", "stretch=inf: must be finite"),
        ("methods = 3", "methods=3: must be a table"),
        ("epochs = ", "must be TOML"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with refused(Path("mine.toml"), ..., says) if text != "epochs = " else refused("recipe", path, says):
        read_recipe_file(path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "method = 'dense'",
        "[methods.granet]\ninitial_sparsity = 0.995",
        "[methods.gmp]\npattern = '2:4'",
        "[methods.sis]\nbatches = 2",
        "[methods.sis]\ntolerance = 0.1",
    ],
)
def test_a_file_may_leave_the_sparsity_to_an_option(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    read_recipe_file(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with refused("recipe", tmp_path / "none.toml"):
        read_recipe_file(tmp_path / "none.toml")


def test_a_stretch_of_nothing() -> None:
    with refused("stretch", 0.0):
        Train(stretch=0.0).whole_recipe()


def test_a_recipe_that_comes_with_granet_needs_only_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = find_recipe("cifar10-vgg19")
    assert recipe_path("cifar10-vgg19") == recipe_path(Path("cifar10-vgg19.toml")) == ours
    assert recipe_path("cifar10-vgg19.toml", tmp_path) == ours
    assert Train(recipe=Path("cifar10-vgg19")).whole_recipe() == Train(recipe=ours).whole_recipe()
    assert recipe_path("mine.toml") == Path("mine.toml")  # reading it says what is wrong
    (tmp_path / "cifar10-vgg19.toml").touch()
    assert recipe_path("cifar10-vgg19.toml") == Path("cifar10-vgg19.toml")  # one's own comes first


NO_FILE = "must be a file that can be read (No such file or directory)"
COMES = "or the name of a recipe that comes with granet"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cifar10-vgg", f"{NO_FILE}, {COMES}; the nearest is 'cifar10-vgg19'"),
        ("zoo-digit", f"{NO_FILE}, {COMES}; the nearest is 'zoo-digits'"),
        ("uniform", f"{NO_FILE}, {COMES}; the nearest is 'studies/uniform'"),
        ("studies/unifrom", f"{NO_FILE}, {COMES}; the nearest is 'studies/uniform'"),
        ("nothere", f"{NO_FILE}, {COMES}"),
        ("long" * 100, f"must be a file that can be read (File name too long), {COMES}"),
    ],
)
def test_a_name_that_is_neither_a_file_nor_comes_with_granet(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), tmp_path):  # where one works, and that of a grid
        with pytest.raises(ValueError) as error:
            recipe_path(name, folder)
        assert str(error.value) == f"recipe={str(folder / name)!r}: {says}"


@pytest.mark.parametrize("name", ["cifar10-vgg.toml", "mine/cifar10-vgg", "../uniform", "/cifar10-vgg", "mine.tml"])
def test_a_path_is_not_taken_for_the_name_of_a_recipe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recipe_path(name) == Path(name)  # reading it says what is wrong
