"""What single functions ask for: an attribute on the nodes that are traced inside of them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from memopt.errors import OptionsError
from memopt.plugin.marks import SCOPE
from memopt.plugin.policy import Policy, Unset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef

_ENABLED = "enabled"


def asked_for(graph_def: GraphDef, policy: Policy | Unset) -> Policy | Unset | None:
    """The policy with what a graph's function asks for; `None` if it asks to be left alone.

    Fused and folded nodes, and those of generated functions, lost the attribute; where it says
    different things, the first node decides.

    Raises:
        OptionsError: The attribute says what cannot be.
    """
    found = next((node.attr[SCOPE].s for node in graph_def.node if SCOPE in node.attr), None)
    if found is None:
        return policy
    try:
        options: dict[str, Any] = dict(json.loads(found))
        is_enabled = options.pop(_ENABLED, True)
    except (ValueError, TypeError) as error:
        raise OptionsError(f"the attribute {SCOPE} cannot be {found!r}") from error
    if not is_enabled:
        return None
    base = Policy() if isinstance(policy, Unset) else policy
    return base.with_options(options)


@contextmanager
def scope(text: bytes) -> Iterator[None]:
    """Give every node that is made inside in the current graph the attribute."""
    from tensorflow.core.framework import attr_value_pb2
    from tensorflow.python.framework import ops

    graph = ops.get_default_graph()
    with graph._attr_scope({SCOPE: attr_value_pb2.AttrValue(s=text)}):  # noqa: SLF001 - its only way
        yield


def mark_function(function: Any, text: bytes) -> Any:
    """A function that computes the same, and whose nodes carry the attribute when it is traced."""
    if hasattr(function, "python_function") and hasattr(function, "_decorate"):
        # A tf.function: what it traces is decorated, and it stays what it is.
        function._decorate(lambda traced: _marked(traced, text))  # noqa: SLF001
        return function
    return _marked(function, text)


def _marked(function: Callable[..., Any], text: bytes) -> Callable[..., Any]:
    @wraps(function)
    def marked(*arguments: Any, **keywords: Any) -> Any:
        import tensorflow as tf

        if tf.executing_eagerly():
            return function(*arguments, **keywords)
        with scope(text):
            return function(*arguments, **keywords)

    return marked


def scope_text(options: Mapping[str, Any], *, enabled: bool) -> bytes:
    """What the attribute says.

    Raises:
        OptionsError: There is no such option, or its value is not valid.
    """
    Policy().with_options(options)
    return json.dumps({_ENABLED: enabled, **options}, default=str).encode()
