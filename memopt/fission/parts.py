"""Writes a region part by part: rows sliced, operations repeated, results put into one buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.fission.dimensions import Role, size_of
from memopt.fission.regions import part_numbers
from memopt.graph.attributes import type_attribute
from memopt.graph.copy_names import free_name
from memopt.graph.op_types import DT_INT32
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.context import Context
    from memopt.fission.regions import Region
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.tensor_properties import TensorProperties


def write_parts(rewriter: Rewriter, region: Region, parts: int, context: Context) -> None:
    """Let a region run in parts, one after the other.

    1. Each part reads its rows by a Slice, which shares the buffer where kernels can read from
       there, and has every operation of the region for its rows, `<name>/part_<number>`.
    2. The first part's results are padded to the size of the whole, and each following part writes
       its rows into that buffer (InplaceUpdate), so that parts and whole are never there together.
    3. The slices of a part wait for what the part before it has written.
    4. Who read the region reads the whole, `<name>/whole`; the original operations go.

    To be called inside an edit. The properties learn what is made.
    """
    _Writing(rewriter, region, parts, context).write()


class _Writing:
    def __init__(self, rewriter: Rewriter, region: Region, parts: int, context: Context) -> None:
        # Here, since numpy is not light.
        from memopt.shapes import integer_evaluation

        self._rewriter = rewriter
        self._region = region
        self._facts = region.facts
        self._shares = region.shares(parts)
        self._properties = context.properties
        self._arithmetic = integer_evaluation
        self._constants: dict[tuple[int, tuple[int, ...], tuple[int, ...], str], Tensor] = {}
        self._free: dict[Tensor, Tensor] = {}
        self._slices: dict[Tensor, Tensor] = {}
        self._wholes: dict[Tensor, Tensor] = {}
        self._parts_of: dict[Node, list[Node]] = {}
        self._ended: list[Node] = []

    def write(self) -> None:
        region = self._region
        start = 0
        for number, share in enumerate(self._shares):
            self._slices = {}
            made = self._write_part(number, start, share)
            self._ended = [
                self._join(tensor, made[tensor], number, start) for tensor in region.outputs
            ]
            start += share
        for tensor in region.outputs:
            self._replace(tensor)
        self._hand_on_waits()
        self._remove()

    def _write_part(self, number: int, start: int, share: int) -> dict[Tensor, Tensor]:
        """The operations of a part; returns which tensor each tensor of the region is in it."""
        made: dict[Tensor, Tensor] = {}
        for node in self._region.nodes:
            inputs = self._inputs(node, number, start, share, made)
            reads_rows = any(tensor in made.values() for tensor in inputs)
            reads_rows = reads_rows or any(tensor in self._slices.values() for tensor in inputs)
            controls = list(node.control_inputs)
            if not reads_rows:
                controls += self._ended
            added = self._rewriter.add_node(
                free_name(f"{node.name}/part_{number}", self._rewriter.graph),
                node.op,
                inputs=inputs,
                control_inputs=controls,
                device=node.device,
                attributes=self._attributes(node, share),
            )
            self._know(
                added,
                [self._region.part_properties(k, share) for k in self._facts.outputs(node)],
            )
            self._parts_of.setdefault(node, []).append(added)
            for tensor in node.outputs:
                made[tensor] = added.output(tensor.port)
        return made

    def _attributes(self, node: Node, share: int) -> dict[str, Any]:
        """A node's attributes without what says its shapes or with whom it is placed."""
        del share
        return {key: value for key, value in node.attributes.items() if key not in _OF_THE_WHOLE}

    def _inputs(
        self, node: Node, number: int, start: int, share: int, made: dict[Tensor, Tensor]
    ) -> list[Tensor]:
        inputs = []
        roles = self._facts.roles(node)
        for slot, (tensor, role) in enumerate(zip(node.inputs, roles, strict=True)):
            if role is Role.SHAPE:
                numbers = part_numbers(self._region, node, slot, share)
                assert numbers is not None
                known = self._facts.known(tensor)
                inputs.append(self._constant(node, numbers, known.dtype, known.shape or ()))
            elif role is Role.WHOLE:
                inputs.append(self._without_waits(tensor))
            elif tensor in made:
                inputs.append(made[tensor])
            else:
                inputs.append(self._slice(tensor, node, number, start, share))
        return inputs

    def _without_waits(self, tensor: Tensor) -> Tensor:
        """A constant that waits for nothing: what it waited for may come after the parts."""
        node = tensor.node
        if node.op != "Const" or not node.control_inputs:
            return tensor
        if tensor not in self._free:
            added = self._rewriter.add_node(
                free_name(f"{node.name}/for_parts", self._rewriter.graph),
                "Const",
                device=node.device,
                attributes=node.attributes,
            )
            self._know(added, [self._facts.known(tensor)])
            self._free[tensor] = added.output()
        return self._free[tensor]

    def _slice(self, tensor: Tensor, reader: Node, number: int, start: int, share: int) -> Tensor:
        """The rows of a tensor that a part has."""
        if tensor in self._slices:
            return self._slices[tensor]
        known = self._facts.known(tensor)
        shape = known.shape or ()
        rows = shape[0] // self._region.unit
        begin = (start * rows, *(0 for _ in shape[1:]))
        size = (share * rows, *shape[1:])
        added = self._rewriter.add_node(
            free_name(f"{tensor.node.name}/rows_{tensor.port}_{number}", self._rewriter.graph),
            "Slice",
            inputs=[
                tensor,
                self._constant(reader, begin, DT_INT32, (len(shape),)),
                self._constant(reader, size, DT_INT32, (len(shape),)),
            ],
            control_inputs=self._ended,
            device=reader.device,
            attributes={"T": type_attribute(known.dtype), "Index": type_attribute(DT_INT32)},
        )
        self._know(added, [self._region.part_properties(known, share)])
        self._slices[tensor] = added.output()
        return self._slices[tensor]

    def _join(self, tensor: Tensor, part: Tensor, number: int, start: int) -> Node:
        """Write a part's rows to their place in the whole; the first part makes the whole."""
        known = self._facts.known(tensor)
        units, node = self._region.unit, tensor.node
        row = size_of(known.shape or ()) // units
        share = self._shares[number]
        name = f"{node.name}/part_{number}/output_{tensor.port}"
        flat = self._add(
            f"{name}/flat",
            "Reshape",
            node,
            [part, self._constant(node, (share, row), DT_INT32, (2,))],
            {"T": type_attribute(known.dtype), "Tshape": type_attribute(DT_INT32)},
            tensor_properties(known.dtype, (share, row)),
        )
        whole = tensor_properties(known.dtype, (units, row))
        if not number:
            paddings = self._constant(node, (0, units - share, 0, 0), DT_INT32, (2, 2))
            attributes = {"T": type_attribute(known.dtype), "Tpaddings": type_attribute(DT_INT32)}
            joined = self._add(f"{name}/padded", "Pad", node, [flat, paddings], attributes, whole)
        else:
            places = self._places(node, start, share)
            joined = self._add(
                f"{name}/written",
                "InplaceUpdate",
                node,
                [self._wholes[tensor], places, flat],
                {"T": type_attribute(known.dtype)},
                whole,
            )
        self._wholes[tensor] = joined
        return joined.node

    def _places(self, node: Node, start: int, share: int) -> Tensor:
        numbers = tuple(range(start, start + share))
        return self._constant(node, numbers, DT_INT32, (share,))

    def _replace(self, tensor: Tensor) -> None:
        """Let all who are not in the region read the whole."""
        known = self._facts.known(tensor)
        shape = known.shape or ()
        node = tensor.node
        suffix = f"_{tensor.port}" if tensor.port else ""
        whole = self._add(
            f"{node.name}/whole{suffix}",
            "Reshape",
            node,
            [self._wholes[tensor], self._constant(node, shape, DT_INT32, (len(shape),))],
            {"T": type_attribute(known.dtype), "Tshape": type_attribute(DT_INT32)},
            known,
        )
        for reader, slot in tensor.uses:
            if reader not in self._region.members:
                self._rewriter.set_input(reader, slot, whole)

    def _hand_on_waits(self) -> None:
        """Who waited for an operation waits for its parts."""
        for node in self._region.nodes:
            if node not in self._region.moved:
                continue
            for user in node.control_users:
                if user in self._region.members:
                    continue
                others = [before for before in user.control_inputs if before is not node]
                self._rewriter.set_control_inputs(user, [*others, *self._parts_of[node]])

    def _remove(self) -> None:
        """Take out what the parts have taken the place of."""
        for node in reversed(self._region.nodes):
            is_useless = node in self._region.moved or self._facts.can_go(node)
            if is_useless and not node.users:
                self._rewriter.remove_node(node)

    def _add(
        self,
        name: str,
        op: str,
        beside: Node,
        inputs: Sequence[Tensor],
        attributes: dict[str, Any],
        known: TensorProperties,
    ) -> Tensor:
        added = self._rewriter.add_node(
            free_name(name, self._rewriter.graph),
            op,
            inputs=inputs,
            device=beside.device,
            attributes=attributes,
        )
        self._know(added, [known])
        return added.output()

    def _constant(
        self, beside: Node, numbers: tuple[int, ...], dtype: int, shape: tuple[int, ...]
    ) -> Tensor:
        """A constant of integers, one for all parts that need the same."""
        key = (dtype, numbers, shape, beside.device)
        if key not in self._constants:
            value = self._arithmetic.as_array(list(numbers)).reshape(shape)
            added = self._rewriter.add_node(
                free_name(f"{beside.name}/sizes", self._rewriter.graph),
                "Const",
                device=beside.device,
                attributes=self._arithmetic.constant_attributes(value, dtype),
            )
            self._know(added, [tensor_properties(dtype, shape)])
            self._constants[key] = added.output()
        return self._constants[key]

    def _know(self, node: Node, outputs: Iterable[TensorProperties]) -> None:
        self._properties.add(node.name, tuple(outputs))


_OF_THE_WHOLE = frozenset({"_output_shapes", "_class"})
"""Attributes that are not true of a part."""
