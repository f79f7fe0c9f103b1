"""Articulations against definitions that are checked by brute force."""

from __future__ import annotations

from random import Random

import pytest

from memopt.rematerialization.paths.articulations import find_articulations, find_cut_points

SEEDS = range(200)


def random_users(random: Random, count: int, edges: int) -> list[list[int]]:
    """By node: its users, each of them with a larger number."""
    users: list[dict[int, None]] = [{} for _ in range(count)]
    for _ in range(edges if count > 1 else 0):
        first, second = sorted(random.sample(range(count), 2))
        users[first][second] = None
    return [random.sample(list(after), len(after)) for after in users]


def count_parts(users: list[list[int]], nodes: set[int]) -> int:
    """How many parts nodes fall into, whichever way edges go."""
    group = {node: node for node in nodes}
    for node in nodes:
        for user in users[node]:
            if user in nodes and group[user] != group[node]:
                old, new = group[user], group[node]
                group = {each: new if at == old else at for each, at in group.items()}
    return len(set(group.values()))


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_cut_point_others_fall_apart(seed: int) -> None:
    random = Random(seed)
    count = random.randrange(1, 14)
    users = random_users(random, count, random.randrange(2 * count))
    nodes = set(range(count))
    expected = []
    for node in range(count):
        alone = not users[node] and not any(node in after for after in users)
        parts = count_parts(users, nodes - {node}) + alone
        expected.append(parts > count_parts(users, nodes))
    assert find_cut_points(users, range(count)) == expected


def test_cut_points_of_a_ladder() -> None:
    """Forward and back with rungs in between: only what hangs on one edge is cut off."""
    #   0 - 1 - 2 - 3
    #       |   |   |
    #       6 - 5 - 4 - 7
    users = [[1], [2, 6], [3, 5], [4], [5, 7], [6], [], []]
    cuts = find_cut_points(users, range(8))
    assert [node for node, is_cut in enumerate(cuts) if is_cut] == [1, 4]


def search(users: list[list[int]], sequence: list[int]) -> list[bool]:
    """The published search as it is written, recursive: `low` looks at new users only."""
    found = [False] * len(users)
    discovery: dict[int, int] = {}
    low: dict[int, int] = {}
    parent: dict[int, int] = {}

    def visit(node: int) -> None:
        discovery[node] = low[node] = len(discovery)
        children = 0
        for user in users[node]:
            if user in discovery:
                continue
            children += 1
            parent[user] = node
            visit(user)
            low[node] = min(low[node], low[user])
            if (node not in parent and children > 1) or (node in parent and low[user] >= low[node]):
                found[node] = True

    for node in sequence:
        if node not in discovery:
            visit(node)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_is_the_published_one(seed: int) -> None:
    random = Random(seed)
    count = random.randrange(1, 30)
    users = random_users(random, count, random.randrange(3 * count))
    sequence = list(range(count))
    assert find_articulations(users, sequence) == search(users, sequence)


def test_the_search_goes_on_through_a_ladder() -> None:
    """What is no cut point, since a path leads around it, is an articulation all the same."""
    users = [[1], [2, 6], [3, 5], [4], [5], [6], []]
    found = find_articulations(users, range(7))
    assert [node for node, it_is in enumerate(found) if it_is] == [1, 2, 3, 4, 5]
    assert not any(find_cut_points(users, range(7))[2:])


def test_the_search_leaves_out_what_it_reaches_last() -> None:
    """Node 1 leads to node 2 alone, which the root 0 led to before."""
    assert find_articulations([[2], [2], [3], []], range(4)) == [False, False, True, False]


def test_a_long_chain_needs_no_recursion() -> None:
    count = 200_000
    users = [[node + 1] for node in range(count - 1)] + [[]]
    found = find_articulations(users, range(count))
    cuts = find_cut_points(users, range(count))
    assert found == cuts == [False] + [True] * (count - 2) + [False]
