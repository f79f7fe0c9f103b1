"""The public surface: these names, documented, and light to import."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import memopt

NAMES = (
    "Budget BudgetError CompiledMemory CostGraph Device ExecutionError FileError Fit FleetReport "
    "FleetTask FunctionAnalysis FunctionReport GraphRecord GraphReport GrapplerItem "
    "InvalidGraphError KernelProfile Level MemoptError MemoryAnalysis MemoryOptimizer "
    "OptimizationReport OptimizationResult Options OptionsError OutOfMemoryError PassError "
    "PassReport Plan PluginError PluginStatus Policy Profile RewriteError RuntimeMemory "
    "SavedModelAnalysis SavedModelReport SavedModelVerification SignatureVerification "
    "VariableSpec Verification VirtualCluster analyze analyze_saved_model compiled_memory "
    "cost_graph disable enable enabled export_training_step fit fit_saved_model fleet last_reports "
    "optimize optimize_function optimize_saved_model plan plugin_status profile profile_kernels "
    "profile_saved_model rewrite save sweep verify verify_saved_models"
).split()


def test_the_names_are_these() -> None:
    """A name that goes, or that nobody meant to give away, breaks somebody's program."""
    assert memopt.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_documented(name: str) -> None:
    value = getattr(memopt, name)
    documentation = inspect.getdoc(value)
    assert documentation
    assert documentation.splitlines()[0].rstrip().endswith(".")
    assert value.__module__.startswith("memopt.")
    # Where it says it is from, it is the same object.
    assert getattr(importlib.import_module(value.__module__), name) is value


@pytest.mark.parametrize("name", NAMES)
def test_every_public_member_is_documented(name: str) -> None:
    value = getattr(memopt, name)
    if not inspect.isclass(value) or issubclass(value, Exception):
        return
    own = {key: member for key, member in vars(value).items() if not key.startswith("_")}
    for key, member in own.items():
        target = member.fget if isinstance(member, property) else member
        if inspect.isfunction(target) or isinstance(member, classmethod):
            assert inspect.getdoc(getattr(value, key)), f"{name}.{key}"


@pytest.mark.parametrize(
    "name",
    [
        *("analyze", "fit", "optimize", "profile", "rewrite", "save", "verify"),
        *("analyze_saved_model", "export_training_step", "optimize_saved_model"),
        *("fit_saved_model", "profile_saved_model", "verify_saved_models"),
    ],
)
def test_arguments_of_functions_are_documented(name: str) -> None:
    function = getattr(memopt, name)
    documentation = inspect.getdoc(function) or ""
    if "Args:" in documentation:
        for parameter in inspect.signature(function).parameters:
            assert f"{parameter}: " in documentation, f"{name}({parameter})"


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'memopt' has no attribute 'swap'"):
        memopt.swap  # noqa: B018 - the look-up is what is tested


def test_errors_form_one_tree() -> None:
    errors = [getattr(memopt, name) for name in NAMES if name.endswith("Error")]
    assert all(issubclass(error, memopt.MemoptError) for error in errors)
    assert issubclass(memopt.OutOfMemoryError, memopt.ExecutionError)


def test_the_version_is_that_of_the_distribution() -> None:
    assert memopt.__version__ == version("memopt")


@pytest.mark.parametrize("use", ["import memopt", "from memopt import *", "import memopt.cli"])
def test_importing_does_not_import_what_is_heavy(use: str) -> None:
    """`from memopt import *` needs the runtime's classes, and with them numpy."""
    heavy = {"tensorflow", "keras", "google.protobuf"} | ({"numpy"} if "*" not in use else set())
    script = f"{use}\nimport sys\nprint(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_names_that_come_when_used_are_in_the_list_of_names() -> None:
    assert set(memopt._IMPORTED_WHEN_USED) < set(NAMES)
