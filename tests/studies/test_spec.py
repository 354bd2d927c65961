"""Grids as files: what they expand to, and one clear line for what is wrong."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import granet
from granet.methods import registry
from granet.net import SparseNet
from granet.studies.spec import Spec, read_spec
from granet.training.recipe import Recipe
from granet.training.rundir import run_name


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def test_lists_are_crossed_and_each_run_comes_once(tmp_path: Path) -> None:
    text = """
    packed = 3
    seed = [0, 1]
    sparsity = [0.9, 0.95]
    every = "2ep"
    [[runs]]
    method = ["dense", "gmp"]
    [[runs]]
    method = "granet"
    initial_sparsity = [0.0, 0.5]
    epochs = 4
    stretch = 2.5
    """
    spec = read_spec(write(tmp_path, text))
    assert spec.packed == 3
    named = [
        (r.method, r.seed, r.method_fields.get("sparsity"), r.method_fields.get("initial_sparsity"))
        for r in spec.recipes
    ]
    one, other = (
        [("dense", seed, None, None), ("gmp", seed, 0.9, None), ("gmp", seed, 0.95, None)]  # no sparsity to cross
        for seed in (0, 1)
    )
    granet = [("granet", seed, s, initial) for seed in (0, 1) for s in (0.9, 0.95) for initial in (0.0, 0.5)]
    assert named == one + other + granet  # in the order they are written
    assert {r.total_epochs for r in spec.recipes if r.method == "granet"} == {10}
    assert all(r.method_fields["every"] == "2ep" for r in spec.recipes if r.method != "dense")


def test_a_recipe_file_beside_it_is_the_base(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("epochs = 7\nlr = 0.3\n[methods.set]\nevery = 5\nsparsity = 0.7\n")
    spec = read_spec(
        write(tmp_path, 'recipe = "base.toml"\nmilestones = [["50%"], []]\n[[runs]]\nmethod = "set"\nsparsity = 0.8')
    )
    assert [recipe.milestones for recipe in spec.recipes] == [("50%",), ()]
    assert {(recipe.epochs, recipe.lr) for recipe in spec.recipes} == {(7, 0.3)}
    assert [recipe.method_fields for recipe in spec.recipes] == [{"every": 5, "sparsity": 0.8}] * 2


def test_no_runs_is_the_grid_of_the_keys_above(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, "packed = 1\nsparsity = 0.9\nevery = '1ep'\n"))
    assert spec == Spec((Recipe(),), packed=1)


def test_several_recipe_files_are_crossed_with_the_grid(tmp_path: Path) -> None:
    for name, lr in (("one", 0.1), ("two", 0.2)):
        (tmp_path / f"{name}.toml").write_text(f"lr = {lr}")
    text = """
    recipe = ["one.toml", "two.toml"]
    seed = [0, 1]
    method = "dense"
    observe = ["dormant", "gradient_norm"]
    """
    recipes = read_spec(write(tmp_path, text)).recipes
    assert [(recipe.lr, recipe.seed) for recipe in recipes] == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    assert all(recipe.observe == ("dormant", "gradient_norm") for recipe in recipes)


def test_a_parent_is_a_point_of_the_grid_that_comes_first(tmp_path: Path) -> None:
    text = """
    seed = [0, 1]
    sparsity = 0.9
    [[runs]]
    method = ["lth", "lrr"]
    parent = { method = "granet", sparsity = 0.5 }
    """
    recipes = read_spec(write(tmp_path, text)).recipes
    assert [(r.method, r.seed) for r in recipes] == [
        (method, seed) for seed in (0, 1) for method in ("granet", "lth", "lrr")
    ]
    for first, *others in (recipes[:3], recipes[3:]):
        assert first.method_fields == {"sparsity": 0.5} and first.parent == ""
        assert {recipe.parent for recipe in others} == {run_name(first)}


def test_a_parent_has_the_seed_of_its_run(tmp_path: Path) -> None:
    text = """
    [[runs]]
    method = "lth"
    sparsity = 0.5
    seed = [1, 2]
    lr = 0.05
    parent = { method = "dense" }
    """
    recipes = read_spec(write(tmp_path, text)).recipes
    assert [(r.method, r.seed, r.lr) for r in recipes] == [
        (method, seed, lr) for seed in (1, 2) for method, lr in (("dense", 0.1), ("lth", 0.05))
    ]
    recipes = read_spec(write(tmp_path, text.replace('"dense"', '"dense", seed = 7'))).recipes  # unless it says another
    assert [(r.method, r.seed) for r in recipes] == [("dense", 7), ("lth", 1), ("lth", 2)]


def test_a_parent_may_start_from_one_of_its_own(tmp_path: Path) -> None:
    grid = """
    sparsity = 0.5
    [[runs]]
    method = "lrr"
    seed = 3
    parent = { method = "lth", sparsity = 0.2, parent = { method = "dense" } }
    """
    first, second, third = read_spec(write(tmp_path, grid)).recipes
    assert [recipe.method for recipe in (first, second, third)] == ["dense", "lth", "lrr"]
    assert [recipe.parent for recipe in (first, second, third)] == ["", run_name(first), run_name(second)]
    assert {recipe.seed for recipe in (first, second, third)} == {3}


def test_a_parent_may_have_a_field_that_is_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    @registry.register("in-phases", paper="none")
    @dataclass(frozen=True, kw_only=True)
    class InPhases(granet.Method):
        """Has a field of several numbers."""

        phases: tuple[float, ...]

        def begin(self, net: SparseNet) -> None:
            """Dense."""

    run = 'sparsity = 0.5\n[[runs]]\nmethod = "lth"\nparent = { method = "in-phases", phases = %s }'
    first, second = read_spec(write(tmp_path, run % "[[0.2, 0.1]]")).recipes
    assert first.method_fields == {"sparsity": 0.5, "phases": [0.2, 0.1]}
    assert second.parent == run_name(first)
    with pytest.raises(ValueError, match="must have one value of 'phases'"):
        read_spec(write(tmp_path, run % "[[0.2, 0.1], [0.4, 0.0]]"))


def test_a_whole_number_makes_no_second_run(tmp_path: Path) -> None:
    (recipe,) = read_spec(write(tmp_path, "sparsity = 0.5\ninitial_sparsity = [0, 0.0]")).recipes
    assert type(recipe.method_fields["initial_sparsity"]) is float


def test_an_empty_list_is_a_value_of_a_field_that_is_a_list(tmp_path: Path) -> None:
    (recipe,) = read_spec(write(tmp_path, "sparsity = 0.5\nmilestones = []")).recipes
    assert recipe.milestones == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epoch = 3", "unknown key 'epoch'; the nearest is 'epochs'"),
        ('[[runs]]\nmethod = "gmp"\ninitial_sparsity = 0.5', "unknown key 'initial_sparsity' for gmp"),
        ('[[runs]]\nmethod = "gnp"', "method='gnp': must be one of dense, "),
        ('epochs = ["3"]', "epochs='3': must be of type int"),
        ("sparsity = 0.5\nepochs = [3, 0]", "epochs=0: must be 1 or more"),
        ("seed = []", "seed=[]: must have one value or more to try"),
        (
            'sparsity = "0.9"\n[[runs]]\nmethod = "lth"\nparent = { method = "gmp" }',
            "sparsity='0.9': must be a number in [0, 1)",
        ),
        ('method = "vd"\nkl_scale = -1.0', "kl_scale=-1.0: must be a number, 0 or more"),
        (
            'sparsity = 0.5\n[[runs]]\nmethod = "gmp"\nparent = { method = "dense" }',
            ": must be left out, gmp does not start from another run",
        ),
        ('method = "lth"\nsparsity = 0.5', "parent='': lth starts from a finished run, so it must be given"),
        (
            'parent = { method = "lth" }\nsparsity = 0.5\n[[runs]]\nmethod = "lrr"',  # which is not its own parent
            "parent='': lth starts from a finished run, so it must be given",
        ),
        ("method = {a = 1}", "method={'a': 1}: must be of type str"),
        ('method = [["granet"]]', "method=['granet']: must be of type str"),
        (
            'sparsity = 0.5\n[[runs]]\nmethod = "lth"\nparent = { method = ["dense", "granet"] }',
            "parent={'method': ['dense', 'granet']}: must have one value of 'method'",
        ),
        (
            'sparsity = 0.5\n[[runs]]\nbranch_epoch = 3\nparent = { method = "dense", keep = [2] }',
            "parent={'method': 'dense', 'keep': [2]}: must keep=[3], the epoch that a run branches from",
        ),
        ("sparsity = 0.5\nevery = [5, 0]", "every=0: must be at least one optimizer step"),
        (
            'sparsity = 0.5\nprune_end = "12x"',
            "prune_end='12x': must be optimizer steps (1000), epochs ('30ep') or a share (0.5 or '50%')",
        ),
        ('sparsity = 0.5\nwarm_up = "12x"', "warm_up='12x': must be optimizer steps (1000)"),
        ("runs = []", "runs=[]: must be tables, each begun by [[runs]]"),
        ("sparsity = 0.5\nstretch = [1, inf]", "stretch=inf: must be finite"),
        ("packed = 0", "packed=0: must be a number of runs"),
        ("packed = true", "packed=True: must be a number of runs"),
        ("runs = 3", "runs=3: must be tables"),
        ("runs = [3]", "runs=[3]: must be tables"),
        ("recipe = 3", "recipe=3: must be the name of a recipe file"),
        ('recipe = ["one.toml", 3]', "3]: must be the name of a recipe file, or a list of names"),
        ("recipe = []", "recipe=[]: must be the name of a recipe file, or a list of names"),
        ('observe = ["overlap", "rank"]', "observe='rank': must be one of overlap, "),
        ('recipe = "none.toml"', "none.toml': must be a file that can be read"),
        ("seed = ", "must be TOML"),
        (
            "method = ['snfs']\nsparsity = 0.5\nmomentum = 0.8",
            "momentum=0.8: the recipe and snfs both have such a field",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ValueError) as error:
        read_spec(write(tmp_path, text))
    assert says in str(error.value) and "\n" not in str(error.value)
    assert ("none.toml" if "none.toml" in text else str(tmp_path / "grid.toml")) in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"spec='.*none\.toml': must be a file that can be read"):
        read_spec(tmp_path / "none.toml")


def test_a_parent_for_all_is_one_for_those_that_start_from_it(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        'parent = { method = "dense" }\nsparsity = 0.5\nevery = "1ep"\n[[runs]]\nmethod = ["dense", "gmp", "lth"]\n'
    )
    recipes = read_spec(path).recipes
    dense = run_name(recipes[0])
    assert [(recipe.method, recipe.parent) for recipe in recipes] == [("dense", ""), ("gmp", ""), ("lth", dense)]


def test_the_parent_in_a_recipe_file_is_that_of_its_own_method(tmp_path: Path) -> None:
    """As with `granet train --method`; a branch starts from a run whatever its method."""
    (tmp_path / "recipe.toml").write_text('method = "lth"\nparent = "first"\n')
    (tmp_path / "grid.toml").write_text(
        'recipe = "recipe.toml"\nsparsity = 0.5\n[[runs]]\nmethod = ["lth", "lrr", "gmp", "dense"]\n'
        '[[runs]]\nmethod = "gmp"\nbranch_epoch = 3\n[[runs]]\nmethod = "one-shot"\nparent = { method = "dense" }\n'
    )
    recipes = read_spec(tmp_path / "grid.toml").recipes
    assert [(recipe.method, recipe.parent) for recipe in recipes] == [
        ("lth", "first"), ("lrr", "first"), ("gmp", ""), ("dense", ""), ("gmp", "first"),
        ("one-shot", run_name(recipes[3])),
    ]  # fmt: skip
    (branch,) = read_spec(
        write(tmp_path, 'recipe = "recipe.toml"\nsparsity = 0.5\nmethod = "gmp"\nbranch_epoch = 3')
    ).recipes
    assert branch.parent == "first"


@pytest.mark.parametrize("starting", ['method = "gmp"\nbranch_epoch = 3\n', 'method = "lth"\n'])
def test_the_parent_of_a_grid_comes_before_that_of_its_recipe_file(starting: str, tmp_path: Path) -> None:
    """Also where it is the recipe file that says that runs branch, or which method they have."""
    (tmp_path / "recipe.toml").write_text(starting + 'parent = "first"\n')
    grid = 'recipe = "recipe.toml"\nsparsity = 0.5\nparent = ["second", "third"]'
    assert [recipe.parent for recipe in read_spec(write(tmp_path, grid)).recipes] == ["second", "third"]


@pytest.mark.parametrize("where", ["grid", "recipe file"])
def test_what_makes_runs_branches_does_not_make_their_parent_one(tmp_path: Path, where: str) -> None:
    branching = "branch_epoch = 3\nhold = 2\n"
    in_file, in_grid = (branching + 'parent = "x"\n', "") if where == "recipe file" else ("", branching)
    (tmp_path / "recipe.toml").write_text(in_file)
    grid = 'recipe = "recipe.toml"\nmethod = "gmp"\nsparsity = 0.5\nparent = { method = "dense", keep = [3] }\n'
    trunk, branch = read_spec(write(tmp_path, grid + in_grid)).recipes
    assert (trunk.method, trunk.branch_epoch, trunk.hold, trunk.parent) == ("dense", 0, 0, "")
    assert (branch.method, branch.branch_epoch, branch.hold, branch.parent) == ("gmp", 3, 2, run_name(trunk))


@pytest.mark.parametrize(
    ("parent", "methods"),
    [
        ('[{ method = "own_parent:Mine" }, { method = "dense" }]', ["lth", "dense", "lth"]),
        ('{ method = "lrr", parent = { method = "own_parent:Mine" } }', ["lrr", "lth"]),
    ],
)
def test_a_method_of_ones_own_may_be_that_of_any_parent(
    parent: str, methods: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.delitem(sys.modules, "own_parent", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_parent.py").write_text(
        "from dataclasses import dataclass\nimport granet\n\n\n@dataclass(frozen=True, kw_only=True)\n"
        'class Mine(granet.GMP):\n    """Mine."""\n\n    flavour: int = 3\n'
    )
    grid = f'sparsity = 0.5\nflavour = 4\n[[runs]]\nmethod = "gmp"\n[[runs]]\nmethod = "lth"\nparent = {parent}\n'
    recipes = read_spec(write(tmp_path, grid)).recipes
    assert [recipe.method for recipe in recipes] == ["gmp", "own_parent:Mine", *methods]
    assert recipes[1].method_fields == {"sparsity": 0.5, "flavour": 4}


def test_a_grid_may_start_from_a_recipe_that_comes_with_granet(tmp_path: Path) -> None:
    (recipe,) = read_spec(write(tmp_path, 'recipe = "cifar10-vgg19"\nsparsity = 0.9')).recipes
    assert (recipe.model, recipe.data, recipe.epochs) == ("vgg19", "cifar10", 160)
    with pytest.raises(ValueError, match=r"^recipe='.*cifar10-vgg': must be a file that can be read \(No such file"):
        read_spec(write(tmp_path, 'recipe = "cifar10-vgg"'))
