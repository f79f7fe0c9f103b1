"""Facts per op: signatures from TensorFlow's own registry, and the roles that passes ask about."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.errors import InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensorflow.core.framework.op_def_pb2 import OpDef

    from memopt.graph.graph import FunctionLibrary, Node

REF_TYPE_OFFSET = 100
"""TensorFlow's reference types are the value types plus 100 (`kDataTypeRefOffset`)."""

PORT_LIMIT = 1 << 17
"""More ports than any op has; a larger count is a damaged file."""

DT_FLOAT = 1
DT_DOUBLE = 2
DT_INT32 = 3
DT_STRING = 7
DT_INT64 = 9
DT_BOOL = 10
DT_BFLOAT16 = 14
DT_RESOURCE = 20
DT_VARIANT = 21
"""TensorFlow's types by their numbers (types.proto), known without loading it."""

SWITCHES = frozenset({"Switch", "RefSwitch", "_SwitchN"})
ENTERS = frozenset({"Enter", "RefEnter"})
EXITS = frozenset({"Exit", "RefExit"})
MERGES = frozenset({"Merge", "RefMerge", "_XlaMerge"})
NEXT_ITERATIONS = frozenset({"NextIteration", "RefNextIteration"})
CONTROL_FLOW = SWITCHES | ENTERS | EXITS | MERGES | NEXT_ITERATIONS | frozenset({"LoopCond"})
"""Ops that lead from one frame or branch to another."""
OPTIONALS = frozenset({"OptionalFromValue", "OptionalNone"})
"""What makes an optional: with a value, and without."""
REF_VARIABLES = frozenset({"Variable", "VariableV2", "AutoReloadVariable", "TemporaryVariable"})
COLOCATED = "_class"
"""The attribute that names what a node lies beside."""
TURNS_AT_ONCE = "parallel_iterations"
"""The attribute of what begins a loop that says how many turns may run at once."""
_USUAL_TURNS_AT_ONCE = 10
"""How many turns TensorFlow runs at once if a loop does not say (the ops' own default)."""
FORWARDING = frozenset(
    "Identity RefIdentity Reshape Squeeze ExpandDims Switch RefSwitch Enter RefEnter Exit RefExit "
    "IdentityN StopGradient PreventGradient Bitcast".split()
)
"""Ops whose output can share its input's buffer, so that a later write shows through."""

WAITING = (
    *("QueueDequeue", "QueueEnqueue", "BarrierInsert", "BarrierTake", "AccumulatorTake"),
    *("ResourceAccumulatorTake", "SparseAccumulatorTake", "Stage", "Unstage", "MapStage"),
    *("MapUnstage", "OrderedMapStage", "OrderedMapUnstage", "MutexLock", "Recv", "_Recv"),
    *("_HostRecv", "Collective"),
)
"""What ops begin with that wait for something that no edge leads to."""


class Argument(NamedTuple):
    """One declared input or output of an op; may stand for several ports.

    Attributes:
        name: As declared.
        dtype: The fixed element type, or 0 when an attribute gives it.
        type_attribute: Attribute that holds the element type, or "".
        number_attribute: Attribute that holds how many ports there are, or "".
        list_attribute: Attribute that holds one element type per port, or "".
        is_ref: Whether the ports are references.
    """

    name: str
    dtype: int
    type_attribute: str
    number_attribute: str
    list_attribute: str
    is_ref: bool


class PortTypes(NamedTuple):
    """The element types of a node's data inputs and outputs; references are +100."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Signature:
    """An op's declared inputs and outputs, and what else the registry says of it.

    Attributes:
        inputs: The declared inputs.
        outputs: The declared outputs.
        function_attributes: Attributes that name functions.
        is_stateful: Whether running the op twice could differ from running it once.
        is_commutative: Whether its inputs may stand in any order.
    """

    def __init__(self, op_def: OpDef) -> None:
        self.inputs = tuple(_argument(arg) for arg in op_def.input_arg)
        self.outputs = tuple(_argument(arg) for arg in op_def.output_arg)
        self.function_attributes = tuple(
            attr.name for attr in op_def.attr if attr.type in ("func", "list(func)")
        )
        self.is_stateful: bool = op_def.is_stateful
        self.is_commutative: bool = op_def.is_commutative
        self._defaults: Mapping[str, Any] = {
            attr.name: attr.default_value for attr in op_def.attr if attr.HasField("default_value")
        }
        self._readers = _readers((*self.inputs, *self.outputs))
        self._known: dict[tuple[Any, ...], PortTypes] = {}

    def port_types(self, node: Node) -> PortTypes:
        """The element types of a node of this op; worked out once for equal attributes.

        Raises:
            InvalidGraphError: The node lacks an attribute that the types depend on.
        """
        key = self._type_values(node)
        types = self._known.get(key)
        if types is None:
            types = PortTypes(
                self._expand(node, self.inputs, key), self._expand(node, self.outputs, key)
            )
            self._known[key] = types
        return types

    def output_ranges(self, node: Node) -> dict[str, range]:
        """For each declared output its ports, as FunctionDef bodies name them."""
        key = self._type_values(node)
        ranges: dict[str, range] = {}
        start = 0
        for argument in self.outputs:
            stop = start + len(self._expand(node, (argument,), key))
            ranges[argument.name] = range(start, stop)
            start = stop
        return ranges

    def _type_values(self, node: Node) -> tuple[Any, ...]:
        """The values of the attributes that types depend on, in the order of the readers."""
        attributes = node.attributes
        values = []
        for name, read in self._readers.items():
            value = attributes.get(name)
            if value is None:
                value = self._defaults.get(name)
            if value is None:
                raise InvalidGraphError(
                    f"node {node.name!r}: op {node.op!r} needs the attribute {name!r}",
                    node=node.name,
                )
            values.append(read(value))
        return tuple(values)

    def _expand(
        self, node: Node, arguments: Iterable[Argument], key: tuple[Any, ...]
    ) -> tuple[int, ...]:
        """The types of the ports that declared arguments stand for."""
        values = dict(zip(self._readers, key, strict=True))
        types: list[int] = []
        for argument in arguments:
            offset = REF_TYPE_OFFSET if argument.is_ref else 0
            if argument.list_attribute:
                types.extend(dtype + offset for dtype in values[argument.list_attribute])
                continue
            dtype = argument.dtype or values[argument.type_attribute]
            count = values[argument.number_attribute] if argument.number_attribute else 1
            if not 0 <= count <= PORT_LIMIT:
                raise InvalidGraphError(
                    f"node {node.name!r}: attribute {argument.number_attribute!r} is {count}",
                    node=node.name,
                )
            types.extend([dtype + offset] * count)
        return tuple(types)


def joins_branches(node: Node) -> bool:
    """Whether a node is a Merge of the sides of a branch, not one at the head of a loop."""
    return node.op in MERGES and not any(
        tensor.node.op in NEXT_ITERATIONS for tensor in node.inputs
    )


def turns_at_once(node: Node) -> int:
    """How many turns of a loop TensorFlow may run at once, by the node that begins it."""
    value = node.attributes.get(TURNS_AT_ONCE)
    return _USUAL_TURNS_AT_ONCE if value is None else int(value.i)


def signature(op: str, library: FunctionLibrary | None = None) -> Signature | None:
    """The signature of an op or of a library function; `None` if neither knows the name."""
    known = _registered(op)
    if known is not None or library is None:
        return known
    op_def = library.op_def(op)
    return None if op_def is None else Signature(op_def)


def require_signature(node: Node, library: FunctionLibrary | None = None) -> Signature:
    """The signature of a node's op.

    Raises:
        InvalidGraphError: TensorFlow does not know the op.
    """
    known = signature(node.op, library)
    if known is None:
        raise InvalidGraphError(
            f"node {node.name!r}: TensorFlow does not know the op {node.op!r}; "
            "if a library of custom ops defines it, load that with tf.load_op_library first",
            node=node.name,
        )
    return known


def port_types(node: Node, library: FunctionLibrary | None = None) -> PortTypes:
    """The element types of a node's inputs and outputs.

    Raises:
        InvalidGraphError: TensorFlow does not know the op, or an attribute is missing.
    """
    return require_signature(node, library).port_types(node)


def is_stateful(node: Node, library: FunctionLibrary | None = None) -> bool:
    """Whether running the node twice could differ from running it once; unknown ops are."""
    known = signature(node.op, library)
    return known is None or known.is_stateful


def is_commutative(node: Node, library: FunctionLibrary | None = None) -> bool:
    """Whether a node's inputs may stand in any order, as TensorFlow declares it of the op."""
    known = signature(node.op, library)
    return known is not None and known.is_commutative


def called_functions(node: Node, library: FunctionLibrary) -> tuple[str, ...]:
    """The names of the functions that a node calls, by its op or by its attributes."""
    known = signature(node.op, library)
    if known is None:
        return ()
    called = [node.op] if library.op_def(node.op) is not None else []
    for name in known.function_attributes:
        value = node.attributes.get(name)
        if value is not None:
            functions = [value.func, *value.list.func]
            called.extend(function.name for function in functions if function.name)
    return tuple(called)


def _readers(arguments: Iterable[Argument]) -> dict[str, Callable[[Any], Any]]:
    """The attributes that the types of ports depend on, each with how its value is read."""
    readers: dict[str, Callable[[Any], Any]] = {}
    for argument in arguments:
        if argument.list_attribute:
            readers[argument.list_attribute] = _read_list
        if argument.type_attribute:
            readers[argument.type_attribute] = attrgetter("type")
        if argument.number_attribute:
            readers[argument.number_attribute] = attrgetter("i")
    return readers


def _read_list(value: Any) -> tuple[int, ...]:
    return tuple(value.list.type)


@cache
def _registered(op: str) -> Signature | None:
    # The lookup imports TensorFlow, which registers its ops.
    from tensorflow.python.framework import op_def_registry

    op_def = op_def_registry.get(op)
    return None if op_def is None else Signature(op_def)


def _argument(arg: Any) -> Argument:
    return Argument(
        arg.name, arg.type, arg.type_attr, arg.number_attr, arg.type_list_attr, arg.is_ref
    )
