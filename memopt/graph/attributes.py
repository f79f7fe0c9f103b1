"""Attribute values as text, short for the common kinds and complete for all of them; as keys."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

    from memopt.graph.graph import Node

VALUE_PATTERN = r'"(?:\\.|[^"\\])*"|<(?:[^">]|"(?:\\.|[^"\\])*")*>|\[[^\]]*\]|[^,}\s]+'
"""What one attribute value looks like: a string, a message, a shape, or a word."""

_INTEGER = re.compile(r"-?[0-9]+")
_FLOAT = re.compile(r"-?(?:[0-9]+\.[0-9]*(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+|inf|nan)")


def own_attributes(attributes: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    """Those of a node that belong to no op, but to whoever made the graph."""
    return {name: value for name, value in attributes.items() if name.startswith("_")}


def op_attributes(attributes: Mapping[str, AttrValue]) -> dict[str, AttrValue]:
    """Those of a node that belong to its op."""
    return {name: value for name, value in attributes.items() if not name.startswith("_")}


def format_attribute(value: AttrValue) -> str:
    """One attribute value as text: `float`, `3`, `true`, `1.5`, `"name"`, `[2,?]`, `<message>`."""
    from google.protobuf import text_format
    from tensorflow.core.framework import types_pb2

    kind = value.WhichOneof("value")
    message = text_format.MessageToString(value, as_one_line=True)
    text = f"<{message}>"
    if kind == "type" and value.type in types_pb2.DataType.values():
        text = types_pb2.DataType.Name(value.type).removeprefix("DT_").lower()
    elif kind in ("i", "b"):
        text = message.removeprefix(f"{kind}: ")
    elif kind == "f":
        text = message.removeprefix("f: ")
        text = f"{text}.0" if _INTEGER.fullmatch(text) else text
    elif kind == "s" and value.s.isascii():
        text = json.dumps(value.s.decode())
    elif kind == "shape" and not _has_dimension_names(value.shape):
        text = _format_shape(value.shape)
    return text


def parse_attribute(text: str) -> AttrValue:
    """The attribute value that `format_attribute` printed.

    Raises:
        InvalidGraphError: The text is no attribute value.
    """
    from google.protobuf import text_format
    from tensorflow.core.framework import attr_value_pb2, types_pb2

    value: AttrValue = attr_value_pb2.AttrValue()
    if text in ("true", "false"):
        value.b = text == "true"
    elif _INTEGER.fullmatch(text):
        value.i = int(text)
    elif _FLOAT.fullmatch(text):
        value.f = float(text)
    elif text.startswith('"'):
        value.s = json.loads(text).encode()
    elif text.startswith("["):
        _parse_shape(text, value.shape)
    elif text.startswith("<"):
        try:
            text_format.Parse(text[1:-1], value)
        except text_format.ParseError as error:
            raise InvalidGraphError(f"{text!r} is no attribute value: {error}") from error
    elif f"DT_{text.upper()}" in types_pb2.DataType.keys():  # noqa: SIM118 - no mapping
        value.type = types_pb2.DataType.Value(f"DT_{text.upper()}")
    else:
        raise InvalidGraphError(f"{text!r} is no attribute value")
    return value


def attributes_key(attributes: Iterable[tuple[str, AttrValue]]) -> tuple[tuple[str, bytes], ...]:
    """Attributes by name, in a form that is equal if they are and can be hashed."""
    named = sorted(attributes, key=lambda each: each[0])
    return tuple((name, value.SerializeToString(deterministic=True)) for name, value in named)


def _has_dimension_names(shape: TensorShapeProto) -> bool:
    return any(dimension.name for dimension in shape.dim)


def _format_shape(shape: TensorShapeProto) -> str:
    if shape.unknown_rank:
        return "[*]"
    sizes = ("?" if dimension.size < 0 else str(dimension.size) for dimension in shape.dim)
    return f"[{','.join(sizes)}]"


def _parse_shape(text: str, shape: TensorShapeProto) -> None:
    sizes = [size.strip() for size in text[1:-1].split(",") if size.strip()]
    if sizes == ["*"]:
        shape.unknown_rank = True
        return
    shape.SetInParent()
    for size in sizes:
        if size != "?" and not size.isdecimal():
            raise InvalidGraphError(f"{text!r} is no shape")
        shape.dim.add().size = -1 if size == "?" else int(size)


@cache
def type_attribute(dtype: int) -> AttrValue:
    """The attribute that says a type, by TensorFlow's enumeration value; not to be changed."""
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue(type=dtype)


def integer_attribute(value: int) -> AttrValue:
    """The attribute that is a number."""
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue(i=value)


def number_attribute(node: Node, name: str) -> int:
    """An attribute that is a number or a truth value; 0 if it is not there."""
    value = node.attributes.get(name)
    if value is None:
        return 0
    return int(value.b) if value.WhichOneof("value") == "b" else int(value.i)
