"""What a rematerialization does, in words for the reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from memopt.rematerialization.storage.forms import TRANSPOSE
from memopt.swapping.ops import SWAP_OPS

if TYPE_CHECKING:
    from memopt.rematerialization.rematerialized import Rematerialized

CHANGES_RESULTS = "this changes results"


def describe(done: Rematerialized) -> str:
    """What is recomputed, compressed and offloaded; "nothing" if nothing is.

    Where something does not come back bit for bit, that is said.
    """
    parts = []
    if done.copies:
        parts.append(f"recomputed instead of kept: {_count(done.copies, 'operation')}")
    conversions = done.instructions.conversions
    stored = Counter(conversions[instruction].form for instruction in done.stored)
    for method in dict.fromkeys(form.method for form in stored):
        forms = [form for form in stored if form.method == method]
        count = sum(stored[form] for form in forms)
        tensors = f"{count} tensor{'s' * (count > 1)}"
        parts.append(_describe_method(method, tensors))
        if any(form.changes_results for form in forms):
            parts[-1] += f" ({CHANGES_RESULTS})"
    return "; ".join(parts) or "nothing"


def _describe_method(method: str, tensors: str) -> str:
    if method == TRANSPOSE:
        return f"kept transposed: {tensors}"
    if method in SWAP_OPS:
        return f"kept on the host: {tensors}"
    return f"kept as {method}: {tensors}"


def _count(found: list[int], what: str) -> str:
    return f"{len(found)} {what}{'s' * (len(found) > 1)}"
