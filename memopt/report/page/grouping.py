"""What kind of memory a tensor is, and of which layer: by the names and the edges of a step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.graph.copy_names import COPY_PREFIX, is_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Scope = tuple[str, ...]

HELD, FORWARD, BACKWARD, RECOMPUTED, RETURNED, KEPT, SCRATCH = range(7)
KINDS = (
    "held before the step",
    "activations",
    "gradients",
    "recomputed",
    "brought back",
    "results that stay",
    "scratch memory",
)
"""The kinds of memory, by number."""

OTHERS = "others"
_GRADIENT = re.compile(r"(?:^|/)(?:gradient_tape|gradients(?:_[0-9]+)?|[A-Za-z0-9]+_grad)(?:/|$)")
_WRAPPERS = re.compile(
    rf"^(?:{COPY_PREFIX}|Decompressed/|Compressed/|Kept/|gradient_tape/|gradients(?:_[0-9]+)?/"
    r"|(?:Stateful)?PartitionedCall(?:_[0-9]+)?/|Func/)+"
)
_RETURNS = ("swap_in_", "Decompressed/")
_ENOUGH = 0.9
"""The share of all memory that the layers which are told apart should have together."""
_LARGE = 0.25
"""The share of all memory with which a scope is looked into."""
_MOST_LAYERS = 7
_DEEPEST = 6


def kind_of_name(name: str, *, is_backward: bool) -> int:
    """The kind of what a node makes that is free before the step ends."""
    if is_copy(name):
        return RECOMPUTED
    if name.startswith(_RETURNS):
        return RETURNED
    return BACKWARD if is_backward else FORWARD


def has_gradient_name(name: str) -> bool:
    """Whether a node is called as those are that compute gradients."""
    return _GRADIENT.search(name) is not None


def find_backward(
    names: Sequence[str], producers: Sequence[Sequence[int]], order: Iterable[int]
) -> list[bool]:
    """By node: whether it computes gradients, by its name, or is computed from such a node.

    The report has no graph any more for which `graph.backward` could tell it by structure. Copies
    of forward operations are forward, though gradients may come before them; so is what reads only
    such of gradients as no forward operation leads to: lists that are made before a loop.

    Args:
        names: By node: its name.
        producers: By node: those whose results it reads.
        order: The nodes that run, producers first.
    """
    found, spreads = [False] * len(names), [False] * len(names)
    follows_forward = [False] * len(names)
    for node in order:
        needed, is_named = producers[node], has_gradient_name(names[node])
        follows_forward[node] = any(follows_forward[one] for one in needed) or (
            bool(needed) and not is_named
        )
        if is_copy(names[node]):
            continue
        spreads[node] = (is_named and follows_forward[node]) or any(spreads[one] for one in needed)
        found[node] = is_named or spreads[node]
    return found


class Layers:
    """The layers of a step: the scopes in which most of the memory is, and the others.

    1. What wraps names, such as the scope of gradients, does not count.
    2. A scope in which a large part of all is, such as the model, is looked into.
    3. Where there are many scopes, those that begin alike up to a "_" are one: "conv2_block1_conv"
       and "conv2_block2_conv" are both of "conv2", if it takes that for few to have nearly all.

    Args:
        weights: For each name what it weighs, such as the bytes that it makes.
    """

    def __init__(self, weights: Iterable[tuple[str, int]]) -> None:
        by_scope: dict[Scope, int] = {}
        for name, weight in weights:
            scope = _scope(name)
            by_scope[scope] = by_scope.get(scope, 0) + weight
        self._opened = _find_opened(by_scope)
        self._parts = 0
        for parts in (0, 3, 2, 1):
            self._parts = parts
            totals = self._totals(by_scope)
            ranked = sorted(totals, key=lambda label: (-totals[label], label))
            self.largest = frozenset(ranked[:_MOST_LAYERS])
            within = sum(totals[label] for label in self.largest)
            if within >= _ENOUGH * sum(totals.values()):
                break

    def of(self, name: str) -> str:
        """The layer of a node."""
        layer = self._label(_scope(name))
        return layer if layer in self.largest else OTHERS

    def _totals(self, by_scope: dict[Scope, int]) -> dict[str, int]:
        totals: dict[str, int] = {}
        for scope, weight in by_scope.items():
            label = self._label(scope)
            totals[label] = totals.get(label, 0) + weight
        return totals

    def _label(self, scope: Scope) -> str:
        prefix = _prefix(scope, self._opened)
        if not prefix:
            return "no layer"
        return "_".join(prefix[-1].split("_")[: self._parts]) if self._parts else prefix[-1]


def _scope(name: str) -> Scope:
    return tuple(_WRAPPERS.sub("", name).split("/")[:_DEEPEST][:-1])


def _prefix(scope: Scope, opened: frozenset[Scope]) -> Scope:
    """The outermost scope around a node that is not looked into."""
    depth = 1
    while depth < len(scope) and scope[:depth] in opened:
        depth += 1
    return scope[:depth]


def _find_opened(by_scope: dict[Scope, int]) -> frozenset[Scope]:
    """The scopes that are looked into."""
    opened: frozenset[Scope] = frozenset()
    total = sum(by_scope.values())
    for _ in range(_DEEPEST):
        inside: dict[Scope, int] = {}
        for scope, weight in by_scope.items():
            prefix = _prefix(scope, opened)
            if len(prefix) < len(scope):
                inside[prefix] = inside.get(prefix, 0) + weight
        large = max(inside, key=lambda prefix: (inside[prefix], prefix), default=())
        if not large or inside[large] < _LARGE * total:
            break
        opened |= {large}
    return opened
