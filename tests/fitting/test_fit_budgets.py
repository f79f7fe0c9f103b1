"""The budgets that a size is planned within, one after the other."""

from __future__ import annotations

from memopt.fitting.budgets import Budgets

LIMIT = 10_000


def test_where_the_allocator_finds_no_room_it_is_left_more() -> None:
    budgets = Budgets(LIMIT, LIMIT)
    assert budgets.learn(peak_bytes=9_900, needed_bytes=14_000, excess=0.4)
    assert 0.7 * 9_900 < budgets.next_bytes < 0.9 * 9_900
    first = budgets.next_bytes
    assert budgets.learn(peak_bytes=first, needed_bytes=LIMIT + 1, excess=0.0001)
    assert budgets.next_bytes <= 0.96 * first


def test_between_no_room_and_too_much_time_the_middle_is_tried() -> None:
    budgets = Budgets(LIMIT, 9_000)
    assert budgets.learn(9_000, 12_000, 0.2)
    low = budgets.next_bytes
    assert budgets.learn(low, low, excess=3.0), "however slow: there is something faster above"
    assert budgets.next_bytes == (low + 9_000 + 1) // 2
    middle = budgets.next_bytes
    assert budgets.learn(middle, 11_000, 0.1)
    assert low < budgets.next_bytes < middle


def test_what_was_left_to_the_allocator_is_taken_back_where_it_takes_too_much_time() -> None:
    budgets = Budgets(LIMIT, 8_000)
    assert budgets.learn(8_000, 8_000, excess=0.1)
    assert budgets.next_bytes == 9_000
    assert budgets.learn(9_000, 9_000, excess=0.05)
    assert budgets.next_bytes == 9_500


def test_there_is_an_end() -> None:
    assert not Budgets(LIMIT, LIMIT).learn(LIMIT, LIMIT, excess=0.1)
    assert not Budgets(LIMIT, 8_000).learn(8_000, 8_000, excess=0.9), "hopeless"
    budgets = Budgets(LIMIT, 8_000)
    for _ in range(100):
        if not budgets.learn(budgets.next_bytes, budgets.next_bytes, excess=0.1):
            break
    assert budgets.next_bytes <= LIMIT
    assert budgets.too_low * 1.01 >= budgets.next_bytes
