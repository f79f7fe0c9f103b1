"""What kind of memory a tensor is, and of which layer: by the names and the edges of a step."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.graph.copy_names import COPY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
_MOST_LAYERS = 7
_DEEPEST = 6


def kind_of_name(name: str, *, is_backward: bool) -> int:
    """The kind of what a node makes that is free before the step ends."""
    if name.startswith(COPY_PREFIX):
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
    of forward operations are forward, though gradients read them.

    Args:
        names: By node: its name.
        producers: By node: those that it needs.
        order: The nodes that run, producers first.
    """
    found = [False] * len(names)
    for node in order:
        if names[node].startswith(COPY_PREFIX):
            continue
        found[node] = has_gradient_name(names[node]) or any(found[one] for one in producers[node])
    return found


class Layers:
    """The layers of a step: the scopes in which most of the memory is, and the others.

    1. What wraps names, such as the scope of gradients, does not count.
    2. A scope in which nearly all is, the model, is looked into.
    3. Where there are many scopes, those that begin alike up to a "_" are one: "conv2_block1_conv"
       and "conv2_block2_conv" are both of "conv2", if it takes that for few to have nearly all.

    Args:
        weights: For each name what it weighs, such as the bytes that it makes.
    """

    def __init__(self, weights: Iterable[tuple[str, int]]) -> None:
        by_scope: dict[tuple[str, ...], int] = {}
        for name, weight in weights:
            scope = _scope(name)
            by_scope[scope] = by_scope.get(scope, 0) + weight
        self._inside = _find_model(by_scope)
        self._parts = 0
        for parts in (0, 3, 2, 1):
            self._parts = parts
            self.largest = self._find_largest(by_scope)
            if self._share(by_scope) >= _ENOUGH:
                break

    def of(self, name: str) -> str:
        """The layer of a node."""
        layer = self._label(_scope(name))
        return layer if layer in self.largest else OTHERS

    def _find_largest(self, by_scope: dict[tuple[str, ...], int]) -> tuple[str, ...]:
        totals: dict[str, int] = {}
        for scope, weight in by_scope.items():
            label = self._label(scope)
            totals[label] = totals.get(label, 0) + weight
        ranked = sorted(totals, key=lambda label: (-totals[label], label))
        return tuple(ranked[:_MOST_LAYERS])

    def _share(self, by_scope: dict[tuple[str, ...], int]) -> float:
        known = set(self.largest)
        within = sum(w for scope, w in by_scope.items() if self._label(scope) in known)
        return within / max(sum(by_scope.values()), 1)

    def _label(self, scope: tuple[str, ...]) -> str:
        depth = len(self._inside)
        if scope[:depth] == self._inside:
            scope = scope[depth:]
        if not scope:
            return "no layer"
        return "_".join(scope[0].split("_")[: self._parts]) if self._parts else scope[0]


def _scope(name: str) -> tuple[str, ...]:
    return tuple(_WRAPPERS.sub("", name).split("/")[:_DEEPEST][:-1])


def _find_model(by_scope: dict[tuple[str, ...], int]) -> tuple[str, ...]:
    """The scopes in each other in which nearly all is that is in a scope."""
    inside: tuple[str, ...] = ()
    for _ in range(_DEEPEST):
        deeper: dict[str, int] = {}
        depth = len(inside)
        for scope, weight in by_scope.items():
            if len(scope) > depth and scope[:depth] == inside:
                deeper[scope[depth]] = deeper.get(scope[depth], 0) + weight
        total = sum(deeper.values())
        most = max(deeper, key=lambda part: deeper[part], default="")
        if not total or deeper[most] < _ENOUGH * total:
            return inside
        inside = (*inside, most)
    return inside
