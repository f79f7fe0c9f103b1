"""Other forms in which a result can be kept while nobody reads it: smaller ones, or elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRANSPOSE = "transpose"


class Form(NamedTuple):
    """One form of a result, and what it takes to store it so and to have it back.

    Attributes:
        method: How; see `Conversions`, which makes the operations.
        size_bytes: What the form takes of the memory that is counted; 0 on the host.
        weight: What both ways cost, beside the weights of nodes; at least 1.
        restore_weight: What the way back costs alone.
        changes_results: Whether what comes back is not what was stored, bit for bit.
        stays: Whether the result can be had from the form any number of times, since keeping the
            form takes nothing. XLA never does that with what it compressed.
    """

    method: str
    size_bytes: int
    weight: int = 1
    restore_weight: int = 1
    changes_results: bool = False
    stays: bool = False


class Conversion(NamedTuple):
    """What an instruction does that is neither a node nor a copy of one.

    Attributes:
        form: The form.
        restores: Whether it makes the result of the form; otherwise the form of the result.
    """

    form: Form
    restores: bool


@dataclass(frozen=True)
class Strategies:
    """What the walk may do with a result that is in the way.

    XLA's modes: recompute only is `Strategies()`, compress only
    `Strategies(recompute=False, forms=...)`, and both `Strategies(forms=...)`. See `find_forms`.

    Attributes:
        recompute: Whether results may be recomputed.
        forms: By node: the forms in which its result, a single buffer, can be stored.
    """

    recompute: bool = True
    forms: Mapping[int, Sequence[Form]] = field(default_factory=dict)
