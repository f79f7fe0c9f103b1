"""TensorFlow's allocator simulated: its rules."""

from __future__ import annotations

from memopt.allocator.best_fit import (
    Memory,
    allocate,
    largest_free_bytes,
    layout,
    new_memory,
    release,
)

MIB = 1 << 20


def allocate_all(memory: Memory, *sizes: int) -> list[int]:
    """The chunks of sizes, all of which find room."""
    chunks = [allocate(memory, size) for size in sizes]
    assert min(chunks) >= 0
    return chunks


def test_what_is_freed_is_used_again_and_grows_together() -> None:
    memory = new_memory(2 * MIB, 8)
    chunks = allocate_all(memory, *[MIB // 2] * 4)
    assert allocate(memory, 1) < 0
    place = memory.place[chunks[1]]
    for chunk in chunks[1:3]:
        release(memory, chunk)
    assert allocate(memory, MIB + 1) < 0
    (found,) = allocate_all(memory, MIB)
    assert memory.place[found] == place


def test_a_chunk_is_only_split_if_half_of_it_is_left() -> None:
    memory = new_memory(2 * MIB, 8)
    (chunk,) = allocate_all(memory, MIB + 256)
    assert memory.size[chunk] == 2 * MIB
    assert allocate(memory, 256) < 0, "the rest went to the first"


def test_a_large_rest_is_split_off_in_any_case() -> None:
    memory = new_memory(512 * MIB, 8)
    release(memory, *allocate_all(memory, 512 * MIB))
    first, rest = allocate_all(memory, 300 * MIB, 212 * MIB)
    assert memory.after[first] == rest


def test_nothing_reaches_over_the_end_of_a_region() -> None:
    """2, 4 and 8 MiB: of 14 MiB in all, nothing has more than 8."""
    memory = new_memory(14 * MIB, 8)
    for chunk in allocate_all(memory, *[2 * MIB] * 7):
        release(memory, chunk)
    assert allocate(memory, 9 * MIB) < 0
    assert allocate(memory, 8 * MIB) >= 0


def test_the_smallest_chunk_that_is_large_enough_is_taken() -> None:
    memory = new_memory(2 * MIB, 8)
    large, _, small, _ = allocate_all(memory, *(size * 256 for size in (900, 1, 600, 1)))
    place = memory.place[small]
    release(memory, large)
    release(memory, small)
    (found,) = allocate_all(memory, 500 * 256)
    assert memory.place[found] == place


def test_what_can_be_had_in_one_piece_is_the_largest_hole_or_what_was_not_taken_yet() -> None:
    memory = new_memory(6 * MIB, 8)
    assert largest_free_bytes(memory) == 6 * MIB
    chunks = allocate_all(memory, MIB, MIB)
    assert largest_free_bytes(memory) == 4 * MIB
    allocate_all(memory, 4 * MIB)
    assert largest_free_bytes(memory) == 0
    release(memory, chunks[0])
    assert largest_free_bytes(memory) == MIB


def test_the_same_state_has_the_same_layout() -> None:
    memory = new_memory(6 * MIB, 8)
    allocate_all(memory, MIB)
    before = layout(memory)
    chunks = allocate_all(memory, 1000, 3 * MIB, 5000)
    assert layout(memory) != before
    for chunk in chunks:
        release(memory, chunk)
    # A region stays once it was taken.
    first = layout(memory)
    for chunk in reversed(allocate_all(memory, 1000, 3 * MIB, 5000)):
        release(memory, chunk)
    assert layout(memory) == first != before
