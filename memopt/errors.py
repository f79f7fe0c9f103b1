"""The exceptions that memopt raises: one small tree.

MemoptError
├── OptionsError          an option or level is not valid
├── FileError             a file cannot be read or written
├── InvalidGraphError     a graph breaks a rule that every TensorFlow graph keeps
├── RewriteError          an edit was refused by the rewriter
├── PassError             a pass failed; names the pass and those that ran before it
├── BudgetError           a step cannot be made to keep to a budget; tells what it needs at least
├── PluginError           memopt cannot be registered with TensorFlow
└── ExecutionError        running a graph for real failed
    └── OutOfMemoryError  the allocator's limit was reached
"""

from typing import Any


class MemoptError(Exception):
    """Base of everything that memopt raises on purpose."""


class OptionsError(MemoptError):
    """An option, level or configuration is not valid."""


class FileError(MemoptError):
    """A file cannot be read or written. The message names the file."""


class InvalidGraphError(MemoptError):
    """A graph breaks a rule that every TensorFlow graph keeps.

    Attributes:
        node: Name of the node at fault, or `None` when it is the graph as a whole.
        input: The input at fault as it is spelled in the graph, or `None`.
    """

    def __init__(self, message: str, node: str | None = None, input: str | None = None) -> None:  # noqa: A002 - the field's standard term
        super().__init__(message)
        self.node = node
        self.input = input


class RewriteError(MemoptError):
    """An edit was refused because it would leave the graph broken. Nothing was changed."""


class PassError(MemoptError):
    """A pass failed. The message names the pass and those that ran before it."""


class BudgetError(MemoptError):
    """A step cannot be made to keep to a budget.

    Attributes:
        budget_bytes: The budget.
        lowest_bytes: The lowest peak that was found, everything included.
        result: What needs so much: the `OptimizationResult`, verified like any other; of
            `memopt.plan` the `Plan`; of `memopt.fit` the smallest size's `OptimizationResult`.
            `None` where there is none.
        functions: Of a SavedModel: what came nearest for each function, as `FunctionReport`s.
    """

    functions: tuple[Any, ...] = ()

    def __init__(
        self, message: str, budget_bytes: int, lowest_bytes: int, result: Any = None
    ) -> None:
        super().__init__(message)
        self.budget_bytes = budget_bytes
        self.lowest_bytes = lowest_bytes
        self.result = result


class PluginError(MemoptError):
    """memopt cannot be registered with TensorFlow, or not in the way that was tried."""


class ExecutionError(MemoptError):
    """Running a graph for real failed. The message carries TensorFlow's own."""


class OutOfMemoryError(ExecutionError):
    """A run reached the allocator's memory limit."""
