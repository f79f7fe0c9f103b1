"""Ready-node managers alone: numbers in, numbers out, in the order in which they would run."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from memopt.errors import OptionsError
from memopt.simulation.ready_nodes import (
    MANAGERS,
    Composite,
    Fifo,
    FirstReady,
    FirstReadyByReference,
    Lifo,
    ready_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from memopt.simulation.ready_nodes import ReadyNodes


def wiring(
    *,
    device: Sequence[int] = (),
    sends: Collection[int] = (),
    receives: Collection[int] = (),
    merges: Collection[int] = (),
) -> Any:
    """As much of a Wiring as managers look at."""
    return SimpleNamespace(device=device, sends=sends, receives=receives, merges=merges)


def filled(manager: ReadyNodes, nodes: Iterable[int]) -> ReadyNodes:
    for node in nodes:
        manager.push(node)
    return manager


def drain(manager: ReadyNodes) -> list[int]:
    found = []
    while manager:
        found.append(manager.pop())
    return found


# --- FIFO and LIFO -------------------------------------------------------------------------------


def test_fifo_takes_them_as_they_came() -> None:
    assert drain(filled(Fifo(), [3, 1, 2])) == [3, 1, 2]


def test_lifo_takes_the_latest() -> None:
    manager = filled(Lifo(()), [3, 1])
    assert manager.pop() == 1
    manager.push(2)
    assert drain(manager) == [2, 3]


def test_lifo_lets_merges_wait_until_nothing_else_is_there() -> None:
    manager = filled(Lifo({7, 8}), [1, 7, 2, 8, 3])
    assert drain(manager) == [3, 2, 1, 7, 8]


def test_what_lifo_has_named_as_the_next_stays_the_next() -> None:
    """TensorFlow keeps its place in the list until the node is taken out."""
    manager = Lifo(())
    filled(manager, [1, 2])
    assert manager.peek() == 2
    filled(manager, [3])
    assert manager.peek() == 2
    assert drain(manager) == [2, 3, 1]


# --- first ready ---------------------------------------------------------------------------------

BY_TIME = (FirstReady, FirstReadyByReference)


@pytest.mark.parametrize("kind", BY_TIME)
def test_the_first_that_was_ready_goes_first(
    kind: type[FirstReady | FirstReadyByReference],
) -> None:
    ready_ns = [30, 10, 20, 0]
    assert drain(filled(kind(ready_ns, [0, 1, 2, 3]), range(4))) == [3, 1, 2, 0]


@pytest.mark.parametrize("kind", BY_TIME)
def test_of_those_ready_at_the_same_time_names_decide(
    kind: type[FirstReady | FirstReadyByReference],
) -> None:
    # By name: node 2, node 0, node 3, node 1.
    ready_ns, rank = [5, 5, 5, 4], [1, 3, 0, 2]
    assert drain(filled(kind(ready_ns, rank), range(4))) == [3, 2, 0, 1]


@pytest.mark.parametrize("kind", BY_TIME)
def test_what_comes_later_takes_its_place(kind: type[FirstReady | FirstReadyByReference]) -> None:
    ready_ns = [10, 30, 20, 40]
    manager = filled(kind(ready_ns, [0, 1, 2, 3]), [0, 1])
    assert manager.pop() == 0
    assert drain(filled(manager, [3, 2])) == [2, 1, 3]


@pytest.mark.parametrize("kind", BY_TIME)
def test_a_single_node_and_long_times_are_no_special_case(
    kind: type[FirstReady | FirstReadyByReference],
) -> None:
    manager = filled(kind([1 << 60], [0]), [0])
    assert manager.pop() == 0
    assert not manager


@pytest.mark.parametrize("seed", range(20))
def test_both_ways_to_find_the_first_agree_while_times_stay(seed: int) -> None:
    choice = random.Random(seed)
    total = choice.randint(1, 200)
    ready_ns = [choice.randrange(20) for _ in range(total)]
    rank = choice.sample(range(total), total)
    expected = sorted(range(total), key=lambda node: (ready_ns[node], rank[node]))
    pushed = choice.sample(range(total), total)
    for kind in BY_TIME:
        assert drain(filled(kind(ready_ns, rank), pushed)) == expected


def test_a_time_that_changes_in_the_heap_is_seen_but_nothing_is_sorted_anew() -> None:
    """As in TensorFlow, where the heap holds nodes and looks up their times."""
    ready_ns = [0, 10, 20, 30]
    manager = filled(FirstReadyByReference(ready_ns, [0, 1, 2, 3]), range(4))
    ready_ns[0] = 99
    # It still stands at the root, and goes first; those below are found by their times.
    assert drain(manager) == [0, 1, 2, 3]

    ready_ns = [0, 10, 20, 30]
    manager = filled(FirstReadyByReference(ready_ns, [0, 1, 2, 3]), range(4))
    ready_ns[2] = 5
    assert drain(manager) == [0, 2, 1, 3]


def test_what_first_ready_has_named_as_the_next_stays_the_next() -> None:
    manager = FirstReadyByReference([10, 5], [0, 1])
    manager.push(0)
    assert manager.peek() == 0
    manager.push(1)
    assert manager.peek() == 0
    assert drain(manager) == [0, 1]


# --- composite -----------------------------------------------------------------------------------


def test_composite_takes_the_latest_of_each_device() -> None:
    """Between the devices the time of being ready decides, then the name."""
    known = wiring(device=[0, 0, 1, 1])
    manager = Composite([0, 0, 0, 0], [0, 1, 2, 3], known)
    # The latest are 1 and 3; of these two 1 is first by name.
    assert drain(filled(manager, range(4))) == [1, 0, 3, 2]

    manager = Composite([0, 50, 0, 20], [0, 1, 2, 3], known)
    # 3 was ready before 1, then 2 before 1, and only after 1 comes what it lay upon.
    assert drain(filled(manager, range(4))) == [3, 2, 1, 0]


def test_composite_prefers_sends_then_receives_at_the_same_time() -> None:
    known = wiring(device=[0, 0, 1, 2], sends={3}, receives={2})
    assert drain(filled(Composite([7] * 4, [0, 1, 2, 3], known), range(4))) == [3, 2, 1, 0]
    # Elsewhere the time decides.
    assert drain(filled(Composite([1, 1, 2, 3], [0, 1, 2, 3], known), range(4))) == [1, 0, 2, 3]


def test_composite_takes_the_first_ready_of_the_sends() -> None:
    known = wiring(device=[0, 0, 0], sends={0, 1, 2})
    assert drain(filled(Composite([9, 3, 3], [0, 2, 1], known), range(3))) == [2, 1, 0]


def test_composite_lets_merges_wait_on_their_device() -> None:
    known = wiring(device=[0, 0, 0], merges={2})
    assert drain(filled(Composite([0, 0, 0], [0, 1, 2], known), range(3))) == [1, 0, 2]


# --- by name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manager", "kind"),
    [("FirstReady", FirstReady), ("FIFO", Fifo), ("LIFO", Lifo), ("Composite", Composite)],
)
def test_a_manager_is_found_by_its_name(manager: str, kind: type[ReadyNodes]) -> None:
    assert type(ready_nodes(manager, [0], [0], wiring(device=[0]))) is kind
    assert manager in MANAGERS


def test_where_there_are_merges_first_ready_keeps_references() -> None:
    found = ready_nodes("FirstReady", [0], [0], wiring(device=[0], merges={0}))
    assert type(found) is FirstReadyByReference


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(OptionsError, match=f"'Random', only {', '.join(MANAGERS)}"):
        ready_nodes("Random", [], [], wiring())
