"""Plans that are kept: they come back as they were, and what was tampered with does not."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from support.remat_networks import network_of, random_network
from support.rematerialized import assert_computes_the_same
from support.small_buffers import Step, small_graph
from support.step_networks import layers, nested
from support.steps import tiny_step

from memopt.errors import FileError
from memopt.graph.copy_names import COPY_PREFIX
from memopt.item import GrapplerItem
from memopt.optimizer import MemoryOptimizer
from memopt.options import Level
from memopt.passes import Rematerialization
from memopt.rematerialization import plan_cache
from memopt.rematerialization.algorithms import BEST, PATH, PLANNER, SEGMENTS, STANDARD
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.plan_cache import PlanCache
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.stored_plans import decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

ALGORITHMS = (STANDARD, PATH, SEGMENTS, PLANNER)
NETWORKS = {
    "layers": layers(16),
    "nested": nested(1),
    **{f"random{seed}": random_network(Random(seed), 60) for seed in (2, 3, 10)},
}


def planned(algorithm: str, network: Network, share: float = 0.6) -> Rematerialized:
    done = make_plan(algorithm, network, limits_of(network, share)).done
    assert done is not None
    return done


def names(done: Rematerialized) -> list[str]:
    nodes = done.buffer_graph.nodes
    return [nodes[instruction].name for instruction in (*done.sequence, *done.copies)]


def limits_of(network: Network, share: float) -> Limits:
    return Limits(int(network.peak_bytes * share), largest_block=16)


def changed(data: bytes, draw: Random) -> bytes:
    """A plan with one number, or one list, another."""
    plain = json.loads(zlib.decompress(data))
    part = plain[draw.choice(list(plain))]
    lists = [part, *(each for each in part if isinstance(each, list))]
    some = draw.choice([each for each in lists if each])
    at = draw.randrange(len(some))
    change = draw.choice(("number", "swap", "drop", "twice"))
    if change == "number" and isinstance(some[at], int):
        some[at] = max(0, some[at] + draw.choice((-1, 1, 1000)))
    elif change == "swap":
        other = draw.randrange(len(some))
        some[at], some[other] = some[other], some[at]
    elif change == "drop":
        del some[at]
    else:
        some.insert(at, some[at])
    return zlib.compress(json.dumps(plain).encode())


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_comes_back(algorithm: str, network: Network) -> None:
    done = planned(algorithm, network)
    found = decode(encode(done), network)
    assert_computes_the_same(found)
    limits = Limits(0)
    assert limits.measure(found) == limits.measure(done)._replace(done=found)
    assert len(found.copies) == len(done.copies) > 0
    assert names(found) == names(done)
    assert encode(found) == encode(done)


def test_what_was_changed_is_refused_or_computes_the_same() -> None:
    """Whatever it is that was changed: nothing else is ever computed."""
    draw = Random(1)
    refused = 0
    for network in NETWORKS.values():
        data = encode(planned(SEGMENTS, network))
        for _ in range(150):
            try:
                found = decode(changed(data, draw), network)
            except FileError:
                refused += 1
            else:
                assert_computes_the_same(found)
    assert refused > 400


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no plan",
        zlib.compress(b"{}"),
        zlib.compress(b"[]"),
        zlib.compress(b'{"sequence": [true], "copies": [], "inputs": [[]]}'),
        zlib.compress(b'{"sequence": [0], "copies": [], "inputs": [0]}'),
        zlib.compress(b'{"sequence": [0], "copies": [7], "inputs": [[]]}'),
        zlib.compress(b'{"sequence": [-1], "copies": [], "inputs": [[]]}'),
        zlib.compress(b"[" * 100_000),
        zlib.compress(b"[]")[:-2],
    ],
)
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(FileError, match="a stored plan"):
        decode(data, NETWORKS["layers"])


def test_what_may_not_run_twice_does_not() -> None:
    """A plan for a graph in which it may."""
    steps = [Step(f"a{n}", (f"a{n - 1}",) if n else (), 8) for n in range(6)]
    steps.append(Step("b5", ("a5",), 8))
    steps += [Step(f"b{n}", (f"a{n}", f"b{n + 1}"), 8) for n in reversed(range(5))]
    graph = small_graph(steps)
    free, fixed = network_of(graph), network_of(graph, fixed=("a1", "a2", "a3"))
    data = encode(planned(SEGMENTS, free, 0.7))
    decode(data, free)
    with pytest.raises(FileError, match="something may not run again"):
        decode(data, fixed)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "memopt" / "plans"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits of the plans that are made."""
    made: list[int] = []

    def count(
        algorithm: str, network: Network, limits: Limits, near: Sequence[Rematerialized]
    ) -> Any:
        made.append(limits.limit_bytes)
        return make_plan(algorithm, network, limits, near)

    monkeypatch.setattr(plan_cache, "make_plan", count)
    return made


def test_a_plan_is_made_once(folder: Path, counted: list[int]) -> None:
    network = NETWORKS["layers"]
    limits = limits_of(network, 0.6)
    first, second = (PlanCache("").plan(BEST, network, limits) for _ in range(2))
    assert counted == [limits.limit_bytes]
    assert len(list(folder.iterdir())) == 1
    assert first.done is not None
    assert second.done is not None
    assert second._replace(done=first.done) == first
    assert second.done.sequence == first.done.sequence


def test_where_it_begins_makes_another_plan(folder: Path) -> None:
    network = NETWORKS["layers"]
    limits = limits_of(network, 0.6)
    first = PlanCache("").plan(BEST, network, limits)
    assert first.done is not None
    for _ in range(2):
        PlanCache("").plan(BEST, network, limits, [first.done])
    assert len(list(folder.iterdir())) == 2


def test_another_limit_or_option_or_cost_is_another_plan(counted: list[int], folder: Path) -> None:
    network = NETWORKS["layers"]
    limits = limits_of(network, 0.6)
    dearer = replace(network, weights=[weight + 1 for weight in network.weights])
    PlanCache("").plan(BEST, network, limits)
    PlanCache("").plan(BEST, network, limits_of(network, 0.7))
    PlanCache("other").plan(BEST, network, limits)
    PlanCache("").plan(BEST, dearer, limits)
    assert len(counted) == len(list(folder.iterdir())) == 4


def test_what_needs_no_plan_is_not_kept(counted: list[int], folder: Path) -> None:
    network = NETWORKS["layers"]
    assert PlanCache("").plan(BEST, network, Limits(network.peak_bytes)).done is None
    assert not counted
    assert not folder.exists()


def test_that_there_is_no_better_plan_is_kept(counted: list[int], folder: Path) -> None:
    network = network_of(small_graph([Step("a", (), 8), Step("b", ("a",), 8)]), fixed=("a", "b"))
    plans = [PlanCache("").plan(BEST, network, Limits(1)) for _ in range(2)]
    assert [plan.done for plan in plans] == [None, None]
    assert [plan.peak_bytes for plan in plans] == [network.peak_bytes] * 2
    assert len(counted) == len(list(folder.iterdir())) == 1


def test_a_damaged_plan_is_made_anew(counted: list[int], folder: Path) -> None:
    network = NETWORKS["layers"]
    limits = limits_of(network, 0.6)
    first = PlanCache("").plan(BEST, network, limits)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for number, damaged in enumerate((whole[:50], b"", b"?" * (len(whole) + 1)), 2):
        path.write_bytes(damaged)
        second = PlanCache("", most_bytes=len(whole)).plan(BEST, network, limits)
        assert second.peak_bytes == first.peak_bytes
        assert len(counted) == number
        PlanCache("").plan(BEST, network, limits)
        assert len(counted) == number


def test_a_folder_that_cannot_be_written_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    network = NETWORKS["layers"]
    for _ in range(2):
        assert PlanCache("").plan(BEST, network, limits_of(network, 0.6)).done is not None
    assert len(counted) == 2


def test_what_was_not_used_for_longest_goes(counted: list[int], folder: Path) -> None:
    network = NETWORKS["layers"]
    shares = (0.6, 0.65, 0.7)
    for share in shares:
        PlanCache("").plan(BEST, network, limits_of(network, share))
    kept = {path.name: path.stat().st_size for path in folder.iterdir()}
    PlanCache("").plan(BEST, network, limits_of(network, 0.6))  # used
    small = PlanCache("", most_bytes=sum(kept.values()))
    small.plan(BEST, network, limits_of(network, 0.75))
    assert len(counted) == 4
    assert sum(path.stat().st_size for path in folder.iterdir()) <= small.most_bytes
    PlanCache("").plan(BEST, network, limits_of(network, 0.6))
    assert len(counted) == 4


@pytest.mark.parametrize(("model", "budget"), [("bert", "60%"), ("gpt", "60%")])
def test_a_step_is_the_same_to_the_byte_with_the_plan_of_another_process(
    model: str, budget: str, counted: list[int], folder: Path
) -> None:
    item = GrapplerItem.from_concrete_function(tiny_step(model).function)
    optimizer = MemoryOptimizer(
        Level.ORDERED,
        budget=budget,
        rematerialization=Rematerialization(algorithm=SEGMENTS, cache_plans=True),
    )
    first, second = (optimizer.optimize(None, item) for _ in range(2))
    assert any(COPY_PREFIX in node.name for node in first.graph_def.node)
    assert first.graph_def.SerializeToString(deterministic=True) == (
        second.graph_def.SerializeToString(deterministic=True)
    )
    assert len(counted) == len(list(folder.iterdir())) > 0
