"""Which calls go to Grappler by themselves, by the configuration that they carry."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import function_pb2
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.core.protobuf.config_pb2 import ConfigProto

from memopt.graph.final import is_given_to_grappler
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def


def config(*, is_off: bool) -> bytes:
    found = ConfigProto()
    found.graph_options.rewrite_options.disable_meta_optimizer = is_off
    return bytes(found.SerializeToString())


@pytest.mark.parametrize(
    ("stays", "carried", "is_given"),
    [
        (True, config(is_off=False), True),
        (True, config(is_off=True), False),
        (True, b"\xff damaged", True),
        (True, None, False),
        (False, config(is_off=False), False),
    ],
)
def test_a_call_goes_to_grappler_as_its_configuration_says(
    stays: bool, carried: bytes | None, is_given: bool
) -> None:
    called = function_pb2.FunctionDef()
    called.signature.name = "called"
    called.attr["_noinline"].b = stays
    graph_def = GraphDef()
    graph_def.library.function.append(called)
    call = graph_def.node.add(name="call", op="PartitionedCall")
    call.attr["f"].func.name = "called"
    for name in ("Tin", "Tout"):
        call.attr[name].list.SetInParent()
    if carried is not None:
        call.attr["config_proto"].s = carried
    graph = from_graph_def(graph_def)
    assert isinstance(graph.library, Library)
    assert is_given_to_grappler(graph["call"], graph.library) == is_given
