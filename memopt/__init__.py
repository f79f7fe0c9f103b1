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
    PluginError,
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
    from memopt.fitting.fit import fit
    from memopt.fitting.result import Fit
    from memopt.fleets.entry import fleet
    from memopt.fleets.report import FleetReport, FleetTask
    from memopt.kernels.profile import KernelProfile, profile_kernels
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.plan import Plan
    from memopt.plans import cost_graph, plan, sweep
    from memopt.plugin.decorating import optimize_function
    from memopt.plugin.policy import Policy
    from memopt.plugin.records import GraphRecord
    from memopt.plugin.status import PluginStatus, last_reports, plugin_status
    from memopt.plugin.switch import disable, enable, enabled
    from memopt.runtime.entry import verify
    from memopt.runtime.profile import Profile, profile
    from memopt.runtime.verification import Verification
    from memopt.saved_model.analysis import SavedModelAnalysis, analyze_saved_model
    from memopt.saved_model.entry import optimize_saved_model
    from memopt.saved_model.fitting import fit_saved_model
    from memopt.saved_model.profiling import profile_saved_model
    from memopt.saved_model.report import FunctionAnalysis, FunctionReport, SavedModelReport
    from memopt.saved_model.training import export_training_step
    from memopt.saved_model.verification import (
        SavedModelVerification,
        SignatureVerification,
        verify_saved_models,
    )
    from memopt.xla.buffer_assignment import CompiledMemory
    from memopt.xla.entry import compiled_memory

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "BudgetError",
    "CompiledMemory",
    "CostGraph",
    "Device",
    "ExecutionError",
    "FileError",
    "Fit",
    "FleetReport",
    "FleetTask",
    "FunctionAnalysis",
    "FunctionReport",
    "GraphRecord",
    "GraphReport",
    "GrapplerItem",
    "InvalidGraphError",
    "KernelProfile",
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
    "Plan",
    "PluginError",
    "PluginStatus",
    "Policy",
    "Profile",
    "RewriteError",
    "RuntimeMemory",
    "SavedModelAnalysis",
    "SavedModelReport",
    "SavedModelVerification",
    "SignatureVerification",
    "VariableSpec",
    "Verification",
    "VirtualCluster",
    "analyze",
    "analyze_saved_model",
    "compiled_memory",
    "cost_graph",
    "disable",
    "enable",
    "enabled",
    "export_training_step",
    "fit",
    "fit_saved_model",
    "fleet",
    "last_reports",
    "optimize",
    "optimize_function",
    "optimize_saved_model",
    "plan",
    "plugin_status",
    "profile",
    "profile_kernels",
    "profile_saved_model",
    "rewrite",
    "save",
    "sweep",
    "verify",
    "verify_saved_models",
]

_IMPORTED_WHEN_USED = {
    "CompiledMemory": "memopt.xla.buffer_assignment",
    "CostGraph": "memopt.planning.cost_graph",
    "Fit": "memopt.fitting.result",
    "FleetReport": "memopt.fleets.report",
    "FleetTask": "memopt.fleets.report",
    "FunctionAnalysis": "memopt.saved_model.report",
    "FunctionReport": "memopt.saved_model.report",
    "GraphRecord": "memopt.plugin.records",
    "KernelProfile": "memopt.kernels.profile",
    "Plan": "memopt.planning.plan",
    "PluginStatus": "memopt.plugin.status",
    "Policy": "memopt.plugin.policy",
    "Profile": "memopt.runtime.profile",
    "SavedModelAnalysis": "memopt.saved_model.analysis",
    "SavedModelReport": "memopt.saved_model.report",
    "SavedModelVerification": "memopt.saved_model.verification",
    "SignatureVerification": "memopt.saved_model.verification",
    "Verification": "memopt.runtime.verification",
    "analyze_saved_model": "memopt.saved_model.analysis",
    "compiled_memory": "memopt.xla.entry",
    "cost_graph": "memopt.plans",
    "disable": "memopt.plugin.switch",
    "enable": "memopt.plugin.switch",
    "enabled": "memopt.plugin.switch",
    "export_training_step": "memopt.saved_model.training",
    "fit": "memopt.fitting.fit",
    "fit_saved_model": "memopt.saved_model.fitting",
    "fleet": "memopt.fleets.entry",
    "last_reports": "memopt.plugin.status",
    "optimize_function": "memopt.plugin.decorating",
    "optimize_saved_model": "memopt.saved_model.entry",
    "plan": "memopt.plans",
    "plugin_status": "memopt.plugin.status",
    "profile": "memopt.runtime.profile",
    "profile_kernels": "memopt.kernels.profile",
    "profile_saved_model": "memopt.saved_model.profiling",
    "sweep": "memopt.plans",
    "verify": "memopt.runtime.entry",
    "verify_saved_models": "memopt.saved_model.verification",
}
"""What runs graphs takes numpy and more, which a program that only optimizes need not load."""


def __getattr__(name: str) -> Any:
    if name == "keras":
        return import_module("memopt.keras")
    if name not in _IMPORTED_WHEN_USED:
        raise AttributeError(f"module 'memopt' has no attribute {name!r}")
    return getattr(import_module(_IMPORTED_WHEN_USED[name]), name)
