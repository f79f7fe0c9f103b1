"""Public calls say what they take: named, typed options, the same wherever they are the same."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_overloads

import pytest

import memopt
from memopt.plugin import installing
from memopt.plugin.decorating import INHERITED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FUNCTIONS = [name for name in memopt.__all__ if inspect.isfunction(getattr(memopt, name))]
CLASSES = [
    name
    for name in memopt.__all__
    if inspect.isclass(getattr(memopt, name)) and not issubclass(getattr(memopt, name), Exception)
]
POLICY = {field.name: (field.type, field.default) for field in fields(memopt.Policy) if field.init}


def options_of(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """The annotation and the default of each keyword-only parameter."""
    return {
        name: (parameter.annotation, parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def public_callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in FUNCTIONS:
        yield name, getattr(memopt, name)
    for name in CLASSES:
        value = getattr(memopt, name)
        for key, member in vars(value).items():
            target = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(target) and (key == "__init__" or not key.startswith("_")):
                yield f"{name}.{key}", target


@pytest.mark.parametrize(("name", "function"), list(public_callables()))
def test_public_calls_name_and_annotate_what_they_take(
    name: str, function: Callable[..., Any]
) -> None:
    parameters = dict(inspect.signature(function).parameters)
    for first in ("self", "cls"):
        parameters.pop(first, None)
    for parameter in parameters.values():
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, f"{name}: **{parameter.name}"
        assert parameter.annotation is not inspect.Parameter.empty, f"{name}: {parameter.name}"
    if not name.endswith("__init__"):
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty, name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_is_keyword_only_and_documented(name: str) -> None:
    function = getattr(memopt, name)
    documentation = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function).parameters.values():
        assert f"\n    {parameter.name}: " in documentation, parameter.name
        if parameter.default is not inspect.Parameter.empty:
            is_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
            assert is_positional or parameter.kind is inspect.Parameter.KEYWORD_ONLY, parameter


@pytest.mark.parametrize("function", [memopt.enable, memopt.enabled])
def test_enable_takes_the_fields_of_a_policy(function: Callable[..., Any]) -> None:
    assert MISSING not in {default for _, default in POLICY.values()}
    assert options_of(function) == POLICY
    assert list(options_of(function)) == list(POLICY)


def test_a_decorated_function_takes_the_fields_of_a_policy_and_inherits_their_values() -> None:
    inherited = {name: (annotation, INHERITED) for name, (annotation, _) in POLICY.items()}
    expected = {"enabled": ("bool", True), **inherited}
    implementation = inspect.unwrap(memopt.optimize_function)
    (_, with_options) = get_overloads(implementation)
    assert options_of(memopt.optimize_function) == expected
    assert options_of(with_options) == expected


def test_rewrite_takes_the_options_of_optimize() -> None:
    taken = options_of(memopt.rewrite)
    assert taken.pop("graph_def") == ("GraphDef | None", None)
    assert taken.pop("after_grappler") == ("bool | None", None)
    assert taken.pop("same_bits") == ("bool", True)
    options = options_of(memopt.optimize)
    assert options.pop("after_grappler") == ("bool", False)
    assert taken == options
    assert list(taken) == list(options)


def test_values_given_to_rewrite_reach_optimize(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option arrives under its own name."""
    from memopt import api

    class ReachedError(Exception):
        pass

    def stop(_: Any, **options: Any) -> None:
        raise ReachedError(options)

    monkeypatch.setattr(api, "optimize", stop)
    given: dict[str, Any] = {name: object() for name in options_of(memopt.optimize)}
    del given["after_grappler"]
    with pytest.raises(ReachedError) as caught:
        memopt.rewrite(None, after_grappler=False, **given)
    assert caught.value.args == (given,)


@pytest.mark.parametrize(
    "call",
    [
        memopt.enable,
        memopt.enabled,
        memopt.optimize_function,
        partial(memopt.optimize, "no.pb"),
        partial(memopt.rewrite, None),
    ],
)
def test_an_unknown_option_is_an_error_where_the_call_is_made(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'levle'"):
        call(levle="ordered")


@pytest.mark.parametrize("call", [memopt.enable, memopt.enabled, memopt.optimize_function])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("level", 3),
        ("level", None),
        ("budget", "some"),
        ("budget", 0),
        ("min_nodes", "many"),
        ("min_nodes", -1),
        ("only", "everything"),
        ("report_dir", 3),
        ("deadline_ms", 0),
        ("deadline_ms", 1.5),
        ("algorithm", "luck"),
        ("scheduler", "luck"),
        ("small_node_limit", "1MiB"),
        ("small_node_limit", -1),
        ("pass_options", "ordering{smallest_bytes=65536}"),
        ("pass_options", (3,)),
        ("pass_options", ("no-such-pass",)),
    ],
)
def test_a_bad_value_is_an_error_where_the_call_is_made(
    call: Callable[..., Any], option: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is registered before."""
    monkeypatch.setattr(installing, "register", lambda: pytest.fail("registered"))
    with pytest.raises(memopt.OptionsError):
        call(**{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("deadline_ms", "soon"),
        ("deadline_ms", -1),
        ("small_node_limit", "1MiB"),
        ("pass_options", "swapping{improved=true}"),
        ("level", 3),
    ],
)
def test_a_bad_value_is_an_error_before_a_graph_is_read(option: str, value: object) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(memopt.OptionsError):
        memopt.optimize("no.pb", **options)


def test_the_environment_comes_before_defaults_and_after_what_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMOPT_FLAGS", "--budget=60% --min_nodes=7")
    entered: list[Any] = []
    monkeypatch.setattr("memopt.plugin.switch._enabled", entered.append)
    memopt.enabled()
    memopt.enabled(budget=None, min_nodes=32)
    assert entered == [memopt.Policy(budget="60%", min_nodes=7), memopt.Policy()]


def test_every_option_of_enabled_reaches_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []
    monkeypatch.setattr("memopt.plugin.switch._enabled", entered.append)
    given: dict[str, Any] = {
        "level": "ordered",
        "budget": "60%",
        "min_nodes": 3,
        "only_lower": False,
        "only": "all",
        "report_dir": Path("reports"),
        "from_config": True,
        "deadline_ms": 5,
        "planning_seconds": 2.5,
        "disable_fusions": True,
        "target_scope": "here",
        "algorithm": "path",
        "scheduler": "dfs",
        "small_node_limit": 2,
        "kernels": "measured",
        "pass_options": ["rematerialization{find_lowest=false}"],
        "same_bits": False,
        "verbose": 1,
    }
    assert given.keys() == POLICY.keys()
    memopt.enabled(**given)
    monkeypatch.setattr("memopt.plugin.switch.install", lambda: pytest.fail("installed"))
    assert entered == [memopt.Policy(**given)]
