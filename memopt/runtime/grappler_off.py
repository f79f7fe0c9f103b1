"""Functions that run without Grappler, whatever is set for others."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def without_grappler(function: ConcreteFunction) -> ConcreteFunction:
    """Have a function run with Grappler off; returns it.

    Called inside another function that is traced, it is marked so there, but Grappler may still
    inline it into that one.
    """
    call = function._call_flat  # noqa: SLF001 - the one place through which all calls go

    @wraps(call)
    def call_without(*arguments: Any, **keywords: Any) -> Any:
        from tensorflow.python.eager import context

        known = context.context()
        before = known.function_call_options
        known.function_call_options = _options_without(before)
        try:
            return call(*arguments, **keywords)
        finally:
            known.function_call_options = before

    function._call_flat = call_without  # noqa: SLF001
    return function


def _options_without(options: Any) -> Any:
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    config = config_pb2.ConfigProto.FromString(options.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return context.FunctionCallOptions(options.executor_type, config)
