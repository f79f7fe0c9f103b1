"""The algorithms by name: each gives plans that are worth a look, from an entry of one shape."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from memopt.rematerialization.paths.entry import path
from memopt.rematerialization.planned.entry import planner
from memopt.rematerialization.segments.entry import segments, sqrt
from memopt.rematerialization.xla.entry import compress, peak_priority, standard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.rematerialization.limits import Algorithm

STANDARD = "standard"
PATH = "path"
SEGMENTS = "segments"
PEAK_PRIORITY = "peakpriority"
SQRT = "sqrt"
PLANNER = "planner"
COMPRESS = "compress"
STANDARD_COMPRESS = "standardcompress"
BEST = "best"

COMPRESSING = (COMPRESS, STANDARD_COMPRESS)
"""The algorithms that keep results in smaller forms."""

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        STANDARD: standard,
        PATH: path,
        SEGMENTS: segments,
        PEAK_PRIORITY: peak_priority,
        SQRT: sqrt,
        PLANNER: planner,
        COMPRESS: compress,
        STANDARD_COMPRESS: standard,
    }
)
"""The algorithms by name.

- `standard`: XLA's walk along the sequence.
- `path`: Microsoft's, with improvements; see `rematerialize_paths`.
- `segments`: checkpointing by segments; see `rematerialize_segments`.
- `peakpriority`: the walk for the sake of one peak after the other, as in today's XLA.
- `sqrt`: the plain rule of sqrt(n) segments, to compare with. It knows no limit.
- `planner`: a search for order, copies and swaps together; see `rematerialize_planned`.
- `compress`, `standardcompress`: the walk, which keeps results in smaller forms, or computes them
  again, whichever costs less.
"""
