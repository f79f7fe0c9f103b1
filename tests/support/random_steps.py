"""Random small graphs of operations that share, show and take over memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from support.small_buffers import Step, small_graph

if TYPE_CHECKING:
    from support.small_buffers import SmallGraph


@st.composite
def random_graphs(draw: st.DrawFn) -> SmallGraph:
    """Up to 20 operations, each reading and waiting for earlier ones; some may be fused."""
    more_sizes = st.lists(st.sampled_from([4, 100]), max_size=2).map(tuple)
    coins = st.booleans()
    steps: list[Step] = []
    for number in range(draw(st.integers(1, 20))):
        names = [step.name for step in steps]
        earlier = (
            st.lists(st.sampled_from(names), max_size=3, unique=True) if names else st.just([])
        )
        size_bytes = draw(st.sampled_from([-1, 0, 4, 16, 32, 100, 1000]))
        reads = tuple(draw(earlier))
        if reads and size_bytes < 0:
            size_bytes = 0
        sizes = {step.name: step.size_bytes for step in steps}
        alike = [name for name in reads if sizes[name] == size_bytes > 0]
        steps.append(
            Step(
                f"n{number}",
                reads,
                size_bytes,
                aliases=bool(reads) and not size_bytes,
                waits=tuple(draw(earlier)),
                scratch_bytes=draw(st.sampled_from([0, 0, 50])) if size_bytes >= 0 else 0,
                reuses=tuple(alike) if draw(coins) else (),
                lasting=draw(coins) if size_bytes > 0 else False,
                more_bytes=draw(more_sizes) if size_bytes > 0 else (),
            )
        )
        if reads and draw(st.sampled_from([False, False, True])):
            steps[-1:] = _fused(steps[-1], draw(st.sampled_from([0, 16, 100])))
    return small_graph(steps)


def _fused(step: Step, size_bytes: int) -> tuple[Step, Step]:
    """An operation as the first of a pair that oneDNN may make one of, and the second."""
    second = Step(f"{step.name}s", size_bytes=size_bytes, waits=step.waits)
    if len(step.reads) > 2:
        reads = step.reads[2:]
        return step._replace(op="Conv2DBackpropFilter"), second._replace(
            op="BiasAddGrad", reads=reads
        )
    reads = (step.name, *step.reads)
    return step._replace(op="Conv2D"), second._replace(op="BiasAdd", reads=reads)
