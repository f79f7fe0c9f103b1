"""Which instructions nobody needs any more since their readers got copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.rematerialization.instructions import Instructions


def find_dead(instructions: Instructions) -> list[int]:
    """The instructions that were copied and have no reader left, and what only they read.

    An instruction whose copies run needs nobody to wait for it: those that did wait for a copy.
    A view has to stay if somebody waits for it, since its copies are not waited for.
    """
    table = instructions
    first_copy = len(table.network.buffer_graph.nodes)
    uses = [0] * len(table.origin)
    for instruction in table.line:
        for source in table.inputs[instruction]:
            uses[source] += 1
    copied = {table.origin[copy] for copy in range(first_copy, len(table.origin))}
    pending = [
        instruction
        for instruction in table.line
        if table.origin[instruction] in copied and not uses[instruction]
    ]
    removed: list[int] = []
    while pending:
        instruction = pending.pop()
        if not _can_go(table, instruction, copied):
            continue
        removed.append(instruction)
        for source in table.inputs[instruction]:
            uses[source] -= 1
            if not uses[source]:
                pending.append(source)
    return removed


def _can_go(table: Instructions, instruction: int, copied: set[int]) -> bool:
    if instruction in table.conversions:
        return True
    origin = table.origin[instruction]
    if origin not in copied or not table.network.recomputable[origin]:
        return False
    return not (table.is_view(instruction) and table.network.followers[origin])
