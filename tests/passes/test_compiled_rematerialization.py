"""What plans for compiled steps say of themselves, and who may use them again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.optimization.pipeline import Pipeline
from memopt.passes import CompiledRematerialization
from memopt.rematerialization import plan_cache
from memopt.rematerialization.plan_choice import make_plan
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.rematerialization.limits import Plan
    from memopt.result import PassReport

PLANS = CompiledRematerialization(keep="none")


@pytest.fixture(scope="module")
def item() -> GrapplerItem:
    return GrapplerItem.from_concrete_function(
        MODELS["mlp"](layers=8, width=32, batch=256).function
    )


def run(item: GrapplerItem, options: CompiledRematerialization, stored: str = "") -> PassReport:
    context = replace(
        Context.of_item(item, Properties.of(item)),
        stored=frozenset(node.name for node in item.graph_def.node if node.op == stored),
    )
    graph = from_graph_def(item.graph_def)
    (report,) = Pipeline((options,), ()).run("", graph, context, math.inf).passes
    assert not report.failure
    return report


def estimate(item: GrapplerItem) -> int:
    context = Context.of_item(item, Properties.of(item))
    return PLANS.estimated_bytes(from_graph_def(item.graph_def), context)


def test_a_plan_says_what_it_comes_to(item: GrapplerItem) -> None:
    """Where it keeps its limit, and where none does."""
    limit_bytes = estimate(item) * 3 // 5
    (edit,) = run(item, replace(PLANS, step_limit=limit_bytes)).edits
    assert 0 < edit.planned.step_bytes <= limit_bytes
    (least,) = run(item, replace(PLANS, step_limit=1)).edits
    assert 1 < least.planned.step_bytes < edit.planned.step_bytes
    assert 0 < edit.planned.overhead < least.planned.overhead
    (again,) = run(item, replace(PLANS, step_limit=least.planned.step_bytes)).edits
    assert again.planned.step_bytes <= least.planned.step_bytes


def test_a_plan_is_made_once_whatever_kernels_its_copies_are_in(
    item: GrapplerItem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(*arguments: Any) -> Plan:
        made.append(1)
        return make_plan(*arguments)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(plan_cache, "make_plan", counted)
    options = replace(PLANS, step_limit=estimate(item) // 2, cache_plans=True)
    edits = [run(item, replace(options, alike=alike), "MatMul").edits for alike in (True, False)]
    assert len(made) == 1
    assert edits[0][0].planned.step_bytes == edits[1][0].planned.step_bytes
