"""DOT graphs of a step's large tensors: who makes them, who reads them, how full memory is then.

As `--xla_rematerialization_dump_dot` of Microsoft's rematerialization for XLA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.copy_names import is_copy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memopt.buffers.buffer_graph import MemoryTimeline

LARGE_BYTES = 512 << 10
"""Only operations that make more than this, and who reads it, are drawn."""

_THICKEST = 8.0
_REDDEST_HUE = 0.0
_GREENEST_HUE = 0.33


def dot_text(timelines: Mapping[str, MemoryTimeline], large_bytes: int = LARGE_BYTES) -> str:
    """One graph with a cluster for each step.

    An operation is filled from green to red by the memory in use while it runs, relative to the
    step's peak; one that is recomputed has a blue border; an edge is as thick as the tensor is
    large.

    Args:
        timelines: The steps by title, such as "before" and "after".
        large_bytes: Operations that make no more than this are left out.
    """
    lines = ["digraph memopt {", "  node [shape=box, style=filled];"]
    for number, (title, timeline) in enumerate(timelines.items()):
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f"    label={_quoted(_title(title, timeline))};")
        lines.extend(f"    {line}" for line in _lines(f"s{number}_", timeline, large_bytes))
        lines.append("  }")
    return "\n".join((*lines, "}", ""))


def _title(title: str, timeline: MemoryTimeline) -> str:
    return f"{title}: peak {timeline.peak_bytes} bytes, {timeline.held_bytes} held before"


def _lines(prefix: str, timeline: MemoryTimeline, large_bytes: int) -> Iterator[str]:
    """The operations, in the order in which they run, and the edges."""
    graph = timeline.buffer_graph
    maker: dict[int, int] = {}
    drawn: set[int] = set()
    edges: list[tuple[int, int, int]] = []
    for node in timeline.sequence:
        large = [buffer for buffer in graph.made[node] if graph.size_bytes[buffer] > large_bytes]
        maker.update(dict.fromkeys(large, node))
        read = [buffer for buffer in graph.read[node] if buffer in maker]
        edges += [(maker[buffer], node, graph.size_bytes[buffer]) for buffer in read]
        if large or read:
            drawn.add(node)
    most_bytes = max((size_bytes for _, _, size_bytes in edges), default=1)
    for position, node in enumerate(timeline.sequence):
        if node in drawn:
            yield f"{prefix}{node} [{_attributes(timeline, position)}];"
    for source, target, size_bytes in edges:
        width = max(1.0, _THICKEST * size_bytes / most_bytes)
        yield f'{prefix}{source} -> {prefix}{target} [penwidth={width:.2f}, label="{size_bytes}"];'


def _attributes(timeline: MemoryTimeline, position: int) -> str:
    graph = timeline.buffer_graph
    node = graph.nodes[timeline.sequence[position]]
    share = timeline.usage_bytes[position] / max(timeline.peak_bytes, 1)
    hue = _GREENEST_HUE + (_REDDEST_HUE - _GREENEST_HUE) * share
    border = ', color="blue", penwidth=3' if is_copy(node.name) else ""
    label = _quoted(f"{position}: {node.name}\n{node.op}, {timeline.usage_bytes[position]} in use")
    return f'label={label}, fillcolor="{hue:.3f} 0.6 1.0"{border}'


def _quoted(text: str) -> str:
    """Text as a DOT string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
