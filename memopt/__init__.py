"""TensorFlow graphs that need less memory, with the same results to the last bit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from memopt.analysis import MemoryAnalysis, analyze
from memopt.api import optimize, rewrite
from memopt.cluster import Device, VirtualCluster
from memopt.errors import (
    BudgetError,
    ExecutionError,
    FileError,
    InvalidGraphError,
    MemoptError,
    OptionsError,
    OutOfMemoryError,
    PassError,
    RewriteError,
)
from memopt.io import save
from memopt.item import GrapplerItem, VariableSpec
from memopt.optimizer import MemoryOptimizer
from memopt.options import Budget, Level, Options
from memopt.result import (
    GraphReport,
    OptimizationReport,
    OptimizationResult,
    PassReport,
    RuntimeMemory,
)

if TYPE_CHECKING:
    from memopt.runtime.entry import verify
    from memopt.runtime.verification import Verification

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetError",
    "Device",
    "ExecutionError",
    "FileError",
    "GraphReport",
    "GrapplerItem",
    "InvalidGraphError",
    "Level",
    "MemoptError",
    "MemoryAnalysis",
    "MemoryOptimizer",
    "OptimizationReport",
    "OptimizationResult",
    "Options",
    "OptionsError",
    "OutOfMemoryError",
    "PassError",
    "PassReport",
    "RewriteError",
    "RuntimeMemory",
    "VariableSpec",
    "Verification",
    "VirtualCluster",
    "analyze",
    "optimize",
    "rewrite",
    "save",
    "verify",
]

_IMPORTED_WHEN_USED = {
    "Verification": "memopt.runtime.verification",
    "verify": "memopt.runtime.entry",
}
"""Running graphs takes numpy and more, which a program that only optimizes need not load."""


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_WHEN_USED:
        raise AttributeError(f"module 'memopt' has no attribute {name!r}")
    return getattr(import_module(_IMPORTED_WHEN_USED[name]), name)
