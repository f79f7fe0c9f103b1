"""Rewrites a function that XLA compiles so that, compiled, it keeps to a budget."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.display import bytes_text
from memopt.errors import BudgetError, InvalidGraphError
from memopt.optimization.best_attempt import MOST_TIME
from memopt.passes.compiled_rematerialization import ALL, EXACT, CompiledRematerialization
from memopt.passes.depthwise_gradients import DepthwiseGradients
from memopt.passes.pooling_gradients import PoolingGradients
from memopt.rematerialization.algorithms import BEST
from memopt.runtime.function import build_function
from memopt.runtime.program import Program
from memopt.shapes.assumed import with_sizes_of
from memopt.xla.compiler import compiler_process, compiles_for_cpu
from memopt.xla.equality import Equality
from memopt.xla.records import recording_compiler
from memopt.xla.search import Search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.options import Budget
    from memopt.passes.base import Pass
    from memopt.result import PassReport
    from memopt.xla.buffer_assignment import CompiledMemory
    from memopt.xla.records import RecordingCompiler
    from memopt.xla.search import Form

WORTH_IT = 0.95
"""Without a budget that is kept, a function that would need more than this share stays as it is."""
PLANNING_SECONDS = 10.0


@dataclass(frozen=True)
class CompiledOptions:
    """How a function that XLA compiles is rewritten.

    Attributes:
        budget: What may be in use at any moment of the step, everything included, or the share of
            what the compiled step itself needs; `None` for what costs nothing.
        same_bits: Whether a function is refused whose results are not those of the original to the
            last bit.
        nearest: Whether what comes nearest is taken where the budget cannot be kept, if it saves a
            twentieth; else that is an error.
        algorithm: How plans are made.
        scheduler: How the order is found that they go by.
        planning_seconds: After how many seconds a plan ends with what was found.
        seconds: After how many seconds no other form of the step is compiled.
        most_compilations: How often the compiler is asked at most.
        remembers: Whether plans, and what was found out of a form, are kept in the cache folder
            for the next process that asks.
    """

    budget: Budget | None = None
    same_bits: bool = True
    nearest: bool = False
    algorithm: str = BEST
    scheduler: str = BEST
    planning_seconds: float = PLANNING_SECONDS
    seconds: float = math.inf
    most_compilations: int = 9
    remembers: bool = False


@dataclass(frozen=True)
class CompiledRewrite:
    """A rewritten function, and what the compiler says of it.

    Attributes:
        function: To be called like the original; the original itself where nothing was won.
        original: What the original needs.
        memory: What the function needs.
        limit_bytes: What the budget leaves to the step's own memory; 0 without one.
        reports: What passes did; empty for nothing.
        compilations: How often the compiler was asked.
        equal: Whether results are the same to the last bit; `None` where they were not compared.
            Where bits count and are not the same, the function is the original.
    """

    function: ConcreteFunction
    original: CompiledMemory
    memory: CompiledMemory
    limit_bytes: int
    reports: tuple[PassReport, ...]
    compilations: int
    equal: bool | None


def compiled_memory(
    function: ConcreteFunction, *, inputs: Mapping[str, Any] | Sequence[Any] | None = None
) -> CompiledMemory:
    """What a function needs once XLA has compiled it: what its compiler says, in a fresh process.

    The step's own memory is one allocation, whose size and contents at the peak the compiler knows;
    the peak that TensorFlow's allocator reports of a run is the same to the byte.

    Args:
        function: A `tf.function` that was traced; if it is not one with `jit_compile=True`, what
            it would need as one.
        inputs: Arguments, as for `rewrite_compiled`; for those of shapes that are not known.

    Raises:
        InvalidGraphError: A shape is not known.
        OptionsError: The function captures what cannot be taken to another process.
        ExecutionError: XLA does not compile it.
    """
    if inputs is None:
        check_shapes(function)
    program = Program.from_concrete_function(function, inputs)
    with compiler_process(program) as compiler:
        return compiler.compile(program.item.graph_def).memory


def rewrite_compiled(
    function: ConcreteFunction,
    options: CompiledOptions,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    program: Program | None = None,
) -> CompiledRewrite:
    """A function that computes the same when XLA has compiled it, in less memory.

    Forms of it are compiled in a process of their own, with this process's XLA flags, until one
    keeps the budget. Then it and the original run for some steps, on copies of the variables, and
    what they compute is compared.

    Args:
        function: A `tf.function(jit_compile=True)` that was traced.
        options: How.
        inputs: Arguments to compare with; made up if not given. What the budget is kept for where
            shapes are not known; the function computes the same of all others.
        program: The function with all its values, instead of those that it has now.

    Raises:
        BudgetError: The budget cannot be kept, or only with other last bits.
        InvalidGraphError: A shape is not known, so XLA cannot compile it before it is called.
        OptionsError: It captures what cannot be taken to another process; an argument does not fit.
        ExecutionError: XLA does not compile it.
    """
    if program is None and inputs is None:
        check_shapes(function)
    program = program or Program.from_concrete_function(function, inputs)
    found = rewrite_program(program, options)
    original = found.search.original
    return CompiledRewrite(
        function=(
            function
            if found.form is original
            else build_function(found.form.compiled.graph_def, function)
        ),
        original=original.compiled.memory,
        memory=found.form.compiled.memory,
        limit_bytes=found.limit_bytes,
        reports=found.form.reports,
        compilations=len(found.search.forms),
        equal=found.equal,
    )


def rewrite_program(program: Program, options: CompiledOptions) -> Found:
    """The form of a step that needs less once XLA has compiled it; see `rewrite_compiled`.

    Sizes are those of the program's inputs where the step leaves them open.

    Raises:
        BudgetError: The budget cannot be kept, or only with other last bits.
        ExecutionError: XLA does not compile it.
    """
    program = replace(program, item=with_sizes_of(program.item, program.inputs))
    started = time.monotonic()
    with recording_compiler(program, remembers=options.remembers) as compiler, ExitStack() as stack:
        tools = _Tools(compiler, Equality(program, compiler, stack))
        found = _look(program, options, tools)
        if found.equal is False and options.same_bits and found.has_other_gradients:
            # It may be their place in kernels with others that moved a bit.
            left_s = options.seconds - (time.monotonic() - started)
            hurried = replace(options, seconds=left_s)
            found = _look(program, hurried, tools, other_gradients=False)
    if found.equal is False and options.same_bits:
        if found.limit_bytes and not options.nearest:
            raise _other_bits(found.search, found.form, found.limit_bytes)
        found = found._replace(form=found.search.original)
    return found


class Found(NamedTuple):
    """The form that was found.

    Attributes:
        search: Where it was found.
        limit_bytes: The limit of its own memory; 0 for none.
        form: The form; the original where nothing was won, or bits would not be the same.
        equal: Whether the bits of the best form are the same; `None` if it is the original.
    """

    search: Search
    limit_bytes: int
    form: Form
    equal: bool | None

    @property
    def has_other_gradients(self) -> bool:
        """Whether gradients of pooling or of depthwise filters are computed in another way."""
        names = {each.name for each in self.search.gradients}
        reports = self.form.reports
        return any(each.name in names and each.edits for each in reports)


class _Tools(NamedTuple):
    """What a search asks: the compiler, and whether bits are the same."""

    compiler: RecordingCompiler
    equality: Equality


def _look(
    program: Program, options: CompiledOptions, tools: _Tools, *, other_gradients: bool = True
) -> Found:
    search = Search(
        program.item,
        tools.compiler,
        CompiledRematerialization(
            keep=EXACT if options.same_bits else ALL,
            alike=options.same_bits,
            algorithm=options.algorithm,
            scheduler=options.scheduler,
            planning_seconds=options.planning_seconds,
            cache_plans=options.remembers,
        ),
        most_compilations=options.most_compilations,
        seconds=options.seconds,
        gradients=_gradients() if other_gradients else (),
    )
    limit_bytes, form = find_form(search, options)
    equal = tools.equality.holds_for(form, search.original)
    if equal is False and options.nearest and options.same_bits:
        for other in find_others(search.forms, form, limit_bytes):
            if tools.equality.holds_for(other, search.original):
                return Found(search, limit_bytes, other, True)
    return Found(search, limit_bytes, form, equal)


def find_others(forms: Sequence[Form], form: Form, limit_bytes: int) -> list[Form]:
    """What may have the same bits where a form has others, the likeliest to be near it first.

    That in kernels like the original's, and of these that which keeps no results: a kernel that
    reads in memory what it computed before may be put together otherwise.

    Args:
        forms: All of them, the original first.
        form: The one that has other bits.
        limit_bytes: The limit of the step's own memory; 0 for none.
    """
    found: list[Form] = []
    alike = [each for each in forms if each.alike]
    for fit in (alike, [each for each in alike if not each.keeps]):
        within = [each for each in fit if each.step_bytes <= limit_bytes]
        other = max(within, key=lambda each: each.step_bytes, default=_nearest(fit))
        if other not in (form, forms[0], *found):
            found.append(other)
    return found


def _gradients() -> tuple[Pass, ...]:
    """Passes for gradients of which the compiler has no kernel; a GPU's has some of cuDNN's."""
    return (PoolingGradients(), *([DepthwiseGradients()] if compiles_for_cpu() else []))


def find_form(search: Search, options: CompiledOptions) -> tuple[int, Form]:
    """The limit of the step's own memory, and the form that keeps it, or what costs nothing.

    Raises:
        BudgetError: No form was found that keeps the budget.
    """
    original = search.original
    if options.budget is None:
        return 0, _worth_it(search.keep_results(), original)
    held_bytes = original.compiled.memory.argument_bytes
    budget_bytes = options.budget.limit_bytes(held_bytes, original.step_bytes)
    form = search.within(max(1, budget_bytes - held_bytes))
    if form is None and options.nearest:
        form = _nearest(search.forms)
    if form is None:
        lowest_bytes = held_bytes + search.lowest.step_bytes
        largest = ", ".join(
            f"{value.operation or value.instruction!r} ({value.size_bytes} bytes)"
            for value in search.lowest.compiled.memory.live[:3]
        )
        raise BudgetError(
            f"the budget of {budget_bytes} bytes cannot be kept: the lowest peak that was found, "
            f"compiling {len(search.forms)} forms of the step, is {lowest_bytes} bytes, "
            f"{held_bytes} of which are held before the step begins; the largest results in use "
            f"are {largest}",
            budget_bytes,
            lowest_bytes,
            search.lowest,
        )
    return max(1, budget_bytes - held_bytes), form


def _worth_it(form: Form, original: Form) -> Form:
    """What takes more time for next to nothing is not done where no budget asks for it."""
    return form if form.step_bytes <= original.step_bytes * WORTH_IT else original


def _nearest(forms: Sequence[Form]) -> Form:
    """Of forms of which none keeps the budget, the lowest that does not take too long for that.

    Or one with bits more likely the same that needs hardly more.

    Args:
        forms: The original first, which it is if all others need as much.
    """
    lower = [form for form in forms[1:] if _worth_it(form, forms[0]) is form]
    most_time = MOST_TIME * min((form.time for form in lower), default=0.0)
    soon = sorted((f for f in lower if f.time <= most_time), key=lambda form: form.step_bytes)
    for form in soon:
        if form.alike and form.step_bytes * WORTH_IT <= soon[0].step_bytes:
            return form
    return soon[0] if soon else forms[0]


def check_shapes(function: ConcreteFunction) -> None:
    """Check that XLA can compile a step before it is called.

    Raises:
        InvalidGraphError: An argument has a dimension that is not known.
    """
    for tensor in function.inputs:
        if not tensor.shape.is_fully_defined():
            raise InvalidGraphError(
                f"XLA compiles the function when it is called, since the shape of {tensor.name} is "
                f"{tensor.shape} before; trace it with arguments of known shapes",
                node=tensor.op.name,
            )


def _other_bits(search: Search, form: Form, limit_bytes: int) -> BudgetError:
    held_bytes = search.original.compiled.memory.argument_bytes
    return BudgetError(
        f"within {bytes_text(limit_bytes)} of its own, the step computes other last bits: XLA "
        "rounds a product and a sum once where it computes both in one kernel, and twice where it "
        "does not. Accept that with same_bits=False; or set XLA_FLAGS=--xla_cpu_max_isa=AVX, with "
        "which it always rounds twice on a CPU, before TensorFlow is imported",
        held_bytes + limit_bytes,
        held_bytes + form.step_bytes,
        form,
    )
