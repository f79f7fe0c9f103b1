"""The house's rules, read from the source: who may import whom, and who may change a graph."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import memopt

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(memopt.__file__).parent
MODULES = {
    ".".join(("memopt", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): (
        path
    )
    # The models stand beside the package, which has a link to them.
    for path in sorted({*ROOT.rglob("*.py"), *(ROOT / "models").glob("*.py")})
}

LAYERS = (
    ("errors", "display", "collector", "cores", "interpreter", "progress", "time_limit"),
    ("options",),
    ("flags",),
    ("files", "terminal"),
    ("compilation",),
    ("graph", "planning"),
    ("item", "io", "cluster"),
    ("shapes",),
    ("costs",),
    ("simulation", "buffers"),
    ("context", "allocator"),
    ("sequencing",),
    ("accumulation",),
    ("swapping", "control_dependencies"),
    ("rematerialization",),
    ("fission", "loops"),
    ("passes",),
    ("result", "analysis"),
    ("optimization",),
    ("optimizer",),
    ("step_cost_graph",),
    ("runtime", "report", "kernels", "workers", "plugin", "fitting", "xla", "saved_model"),
    ("api", "plans"),
    ("models",),
    ("demo", "doctor", "fleets"),
    ("cli",),
    ("__main__", "keras"),
)
"""From the bottom up: a part imports itself and what is below it."""

SAME_LAYER = {
    "io": {"item"},
    "report": {"runtime", "fitting", "kernels", "saved_model"},
    "workers": {"runtime", "kernels"},
    "fitting": {"runtime", "workers"},
    "kernels": {"runtime"},
    "plugin": {"runtime", "kernels", "xla", "fitting"},
    "xla": {"runtime"},
    "saved_model": {"runtime", "kernels", "plugin", "fitting", "xla"},
}
"""Beside that: files hold items, and reports show what the runtime measured."""

LEAVES = {
    "errors": set[str](),
    "display": set[str](),
    "progress": set[str](),
    "planning": {"compilation", "cores", "errors", "display", "interpreter", "progress"},
    "models": {"errors"},
}
"""Parts that import these parts and no others, though they stand above others."""

SERIALIZERS = {
    f"memopt.graph.{name}"
    for name in "graphdef final functiondef nodedef attributes text op_types kernels verify".split()
}
"""Of the graph only these know protobuf and TensorFlow, inside functions or for types."""

REWRITING = {"passes", "swapping", "accumulation", "control_dependencies", "rematerialization"}
"""Parts that rewrite graphs."""

MUTATORS = {"add_node", "remove_node", "set_state", "connect", "restore_node"}
OF_NAMED_TUPLES = ("_asdict", "_replace")
"""Public methods, whatever their names look like."""
OUTSIDE = ("tensorflow", "keras", "google")


class Import(NamedTuple):
    """One import of a module.

    Attributes:
        name: The module, or the name in it, with all its parts.
        line: Where it stands.
        at_start: Whether it runs when the importing module is imported.
        for_types: Whether it only runs for a type checker.
    """

    name: str
    line: int
    at_start: bool
    for_types: bool


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    return tuple(_imports(tree_of(module), at_start=True, for_types=False))


def _imports(parent: ast.AST, *, at_start: bool, for_types: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_start and not for_types, for_types)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield Import(name, node.lineno, at_start and not for_types, for_types)
        elif isinstance(node, ast.If) and _asks_for_types(node.test):
            yield from _imports(node, at_start=False, for_types=True)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(node, at_start=at_start and not inside, for_types=for_types)


def _asks_for_types(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def part_of(name: str) -> str:
    """The part of the house: `memopt.graph.text.parse_graph` is of `graph`."""
    return name.split(".")[1] if "." in name else ""


def rank_of(part: str) -> int:
    return next(rank for rank, layer in enumerate(LAYERS) if part in layer)


@pytest.mark.parametrize("module", [name for name in MODULES if name != "memopt"])
def test_imports_go_one_way(module: str) -> None:
    """Imports for types alone as well: what one only names, one depends on too."""
    part = part_of(module)
    for imported in imports_of(module):
        if not imported.name.startswith("memopt"):
            continue
        where = f"{module}:{imported.line} imports {imported.name}"
        other = part_of(imported.name)
        assert other, f"{where}: the public surface is for users"
        if other == part:
            continue
        if part in LEAVES:
            assert other in LEAVES[part], where
        elif rank_of(other) == rank_of(part):
            assert other in SAME_LAYER.get(part, ()), where
        else:
            assert rank_of(other) < rank_of(part), where


def test_every_part_has_its_place() -> None:
    known = {part for layer in LAYERS for part in layer} | set(LEAVES)
    assert {part_of(name) for name in MODULES if name != "memopt"} <= known


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for types alone as well: who only names another needs it too."""
    needs = {
        module: {
            found
            for imported in imports_of(module)
            if (found := module_of(imported.name)) not in ("", module)
        }
        for module in MODULES
    }
    done: set[str] = set()
    while len(done) < len(needs):
        ready = {module for module in needs if module not in done and needs[module] <= done}
        assert ready, f"a circle among {sorted(needs.keys() - done)}"
        done |= ready


def module_of(name: str) -> str:
    """The module of memopt that an imported name is of, or "" for another's."""
    while name not in MODULES and "." in name:
        name = name.rpartition(".")[0]
    return name if name in MODULES else ""


@pytest.mark.parametrize("module", MODULES)
def test_tensorflow_is_imported_only_where_it_is_used(module: str) -> None:
    if module == "memopt.keras":
        # A callback is one of Keras's classes; nothing of memopt imports this.
        return
    for imported in imports_of(module):
        if imported.name.partition(".")[0] in OUTSIDE:
            assert not imported.at_start, f"{module}:{imported.line} imports {imported.name}"


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) == "graph"])
def test_only_the_graphs_serializers_know_protobuf(module: str) -> None:
    for imported in imports_of(module):
        if imported.name.partition(".")[0] in OUTSIDE:
            assert module in SERIALIZERS, f"{module}:{imported.line} imports {imported.name}"


def test_the_serializers_are_modules() -> None:
    assert SERIALIZERS - set(MODULES) == set()


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) in REWRITING])
def test_passes_change_graphs_only_through_the_rewriter(module: str) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = node.func
            if called.attr in MUTATORS:
                owner = ast.unparse(called.value).rpartition(".")[2]
                assert owner in ("rewriter", "_rewriter"), f"{module}:{node.lineno} {owner}"
        # Nor does a pass set a field of a node, or of anything but itself.
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            assert ast.unparse(node.value) == "self", f"{module}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("module", [name for name in MODULES if part_of(name) in REWRITING])
def test_passes_look_at_nothing_that_a_graph_keeps_to_itself(module: str) -> None:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            if node.attr in OF_NAMED_TUPLES:
                continue
            owner = ast.unparse(node.value)
            assert owner in ("self", "cls") or node.attr.startswith("__"), (
                f"{module}:{node.lineno} reads {owner}.{node.attr}"
            )


def test_the_rules_find_what_breaks_them() -> None:
    """On a source that breaks them, since no module does."""
    source = (
        "import tensorflow as tf\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from memopt.cli import main\n"
        "def run():\n"
        "    from memopt import optimizer\n"
    )
    found = {
        imported.name: imported
        for imported in _imports(ast.parse(source), at_start=True, for_types=False)
    }
    assert found["tensorflow"].at_start
    assert found["memopt.cli.main"].for_types
    assert not found["memopt.cli.main"].at_start
    assert not found["memopt.optimizer"].at_start
    assert part_of("memopt.cli.main") == "cli"
    assert rank_of("graph") < rank_of("passes") < rank_of("cli")
