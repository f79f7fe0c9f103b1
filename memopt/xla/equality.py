"""Whether forms of a compiled step compute what it computes, to the last bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.runtime.reference import Runs, reference
from memopt.runtime.step_graph import node_name
from memopt.runtime.verification import settings_for, verify_against
from memopt.shapes.assumed import declared_shapes
from memopt.xla.compiler import compiles_for_cpu

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from memopt.runtime.program import Program
    from memopt.runtime.reference import Reference
    from memopt.xla.records import RecordingCompiler
    from memopt.xla.search import Form

_STEPS = 2
_FEWEST_TO_HALVE = 2


class Equality:
    """Compares forms with the step as it is, which runs once for all of them.

    On a CPU it runs beside the search for forms, from its first compilation on: to make a plan
    takes one thread. On a GPU it runs when a form is there: its memory is for one of them.

    Args:
        program: The step and its values.
        compiler: What the search asks; it knows what was compared before.
        stack: Ends the process that runs the step.
    """

    def __init__(self, program: Program, compiler: RecordingCompiler, stack: ExitStack) -> None:
        self._program = program
        self._compiler = compiler
        self._stack = stack
        self._original: Reference | None = None
        if compiles_for_cpu():
            compiler.after_first(lambda: self._reference().begin())

    def holds_for(self, form: Form, original: Form) -> bool | None:
        """Whether a form computes the same; `None` if it is the original."""
        if form is original:
            return None
        graph_def = form.compiled.graph_def
        known = self._compiler.recall_equal(graph_def)
        if known is not None:
            return known
        original_step = self._reference()
        compared = verify_against(original_step, original_step.program.replace_graph(graph_def))
        self._compiler.keep_equal(graph_def, is_equal=compared.equal)
        return compared.equal

    def _reference(self) -> Reference:
        if self._original is None:
            program = self._program.with_values()
            settings = settings_for(program, program)
            runs = Runs(_STEPS, _smaller_batch(program), program.inputs)
            self._original = self._stack.enter_context(reference(program, settings, runs))
        return self._original


def _smaller_batch(program: Program) -> Mapping[str, Any] | None:
    """Inputs of half the samples, as the last batch may have; `None` where sizes are fixed."""
    assumed = program.item.assumed_shapes
    declared = {node.name: declared_shapes(node) for node in program.item.graph_def.node}
    open_inputs = [
        name
        for name in program.inputs
        if (node := node_name(name)) in assumed and (declared[node][0] or ())[:1] == (-1,)
    ]
    sizes = {len(program.inputs[name]) for name in open_inputs}
    if len(sizes) != 1 or min(sizes) < _FEWEST_TO_HALVE:
        return None
    half = min(sizes) // 2
    return {**program.inputs, **{name: program.inputs[name][:half] for name in open_inputs}}
