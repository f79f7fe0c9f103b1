"""Tasks of a fleet: which there are, and names that collide with nothing and lead nowhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memopt.errors import OptionsError
from memopt.fleets.tasks import Task, find_models, find_tasks, fit, parse_shape_set
from memopt.options import Budget


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/step.pb", "step"),
        ("/a/step.PBTXT", "step"),
        ("ram://folder/model v2/", "model-v2"),
        ("/a/.hidden", "hidden"),
        ("/a/über.pb", "ber"),
    ],
)
def test_a_model_is_called_what_its_path_ends_in(path: str, name: str) -> None:
    assert [one.name for one in find_models([path])] == [name]


def test_models_of_one_name_get_others() -> None:
    models = find_models(["/a/step.pb", "/b/STEP.pb", "/c/other.pb", "/a/step.pb"])
    names = [one.name for one in models]
    assert len(models) == len({name.casefold() for name in names}) == 3
    assert names[2] == "other"
    # Whatever else is in the fleet before them.
    assert [one.name for one in find_models(["/b/STEP.pb", "/a/step.pb"])] == names[1::-1]


@given(st.lists(st.text(st.characters(blacklist_characters="\0"), min_size=1), min_size=1))
def test_no_name_leads_out_of_the_folder(paths: list[str]) -> None:
    models = find_models([f"ram://{path}" for path in paths])
    names = [one.name for one in models]
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert name
        assert not name.startswith(".")
        assert not set(name) & set("/\\:%\n ")
        assert len(name) < 100


def test_tasks_are_all_combinations_once() -> None:
    models = find_models(["/a/one.pb", "/a/two.pb"])
    shapes = [{"x": (8, 4)}, {"x": (16, 4)}, {"x": (8, 4)}]
    tasks = find_tasks(models, ["50%,50.0%, 1GiB", 1 << 30], shapes)
    assert [task.name for task in tasks[:4]] == [
        "one/50pct_x-8x4",
        "one/50pct_x-16x4",
        "one/1GiB_x-8x4",
        "one/1GiB_x-16x4",
    ]
    assert len(tasks) == 8


def test_budgets_of_devices_and_long_shapes_have_names() -> None:
    (model,) = find_models(["/a/one.pb"])
    (task,) = find_tasks([model], "GPU:0=6GiB,GPU:1=50%")
    assert task.name == "one/GPU-0-6GiB_GPU-1-50pct"
    many = tuple((f"argument{number}", (number, 1)) for number in range(40))
    assert len(Task(model, Budget.parse("1500000"), many).name) < 90


@pytest.mark.parametrize("budgets", [[], "device", "much", "50%,"])
def test_budgets_that_mean_nothing_are_refused(budgets: str) -> None:
    with pytest.raises(OptionsError):
        find_tasks(find_models(["/a/one.pb"]), budgets)


def test_nothing_is_no_fleet() -> None:
    with pytest.raises(OptionsError, match="needs a model"):
        find_models([])


def test_shapes_go_together() -> None:
    assert parse_shape_set("x=64,16;y=64") == {"x": (64, 16), "y": (64,)}
    assert fit("../..") == ""
