"""Where the way forward of networks like training steps is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from support import step_networks

from memopt.rematerialization.instructions import Instructions
from memopt.rematerialization.segments.cuts import find_cuts
from memopt.rematerialization.segments.stage import Course, Stage, Window

if TYPE_CHECKING:
    from memopt.rematerialization.network import Network

NETWORKS = (
    step_networks.chain(1),
    step_networks.residual(3),
    step_networks.nested(4),
    step_networks.branches(5),
    step_networks.layers(9),
)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("most", [1, 2, 5, 16])
def test_no_part_between_cuts_is_empty(network: Network, most: int) -> None:
    course = Course(Instructions(network))
    turn = course.find_turn(Window(0, len(course.order) - 1))
    cuts = find_cuts(Stage(course, turn, 0), most)
    assert cuts[0] == -1
    assert cuts[-1] == turn
    assert all(before < after for before, after in pairwise(cuts))
    assert len(cuts) <= most + 2


def test_equal_layers_are_cut_in_equal_parts() -> None:
    course = Course(Instructions(step_networks.layers(9)))
    turn = course.find_turn(Window(0, len(course.order) - 1))
    assert find_cuts(Stage(course, turn, 0), 3) == [-1, 3, 6, 8, turn]
