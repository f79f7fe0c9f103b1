"""Graph files: what is read is what was written, and whatever is bad is named in one line."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bad_inputs import (
    NAMES,
    SHAPES_THAT_DO_NOT_FIT,
    BadInput,
    bad_graph_files,
    graph_def_of,
    nested_text,
)

import memopt.io
from memopt.api import optimize
from memopt.errors import FileError, InvalidGraphError, MemoptError, OptionsError
from memopt.files.whole_files import read_arrays, write_bytes
from memopt.graph.graphdef import from_graph_def
from memopt.graph.verify import verify_graph
from memopt.io import GraphFile, as_item, read_graph, save, write_graph
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

KINDS = ("GraphDef", "MetaGraphDef")
FILE_NAMES = ("graph.pb", "graph.pbtxt", "step", "picture.png")
UNKNOWN_FIELD = b"\xf8\x3f\x01"
"""Field 1023, an integer: what a later version of TensorFlow might add."""


@pytest.fixture(scope="module")
def messages(tiny_item: Callable[[str], GrapplerItem]) -> dict[str, GraphDef | MetaGraphDef]:
    """A real training step as either kind of message."""
    item = tiny_item("convnet_v1")
    return {"GraphDef": item.graph_def, "MetaGraphDef": memopt.io.meta_graph_of(item)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def bad_files(folder: Path, messages: dict[str, GraphDef | MetaGraphDef]) -> dict[str, BadInput]:
    return bad_graph_files(folder, serialized(messages["GraphDef"]))


@pytest.fixture(scope="module")
def model_bytes(messages: dict[str, GraphDef | MetaGraphDef]) -> dict[str, bytes]:
    return {kind: serialized(message) for kind, message in messages.items()}


def serialized(message: GraphDef | MetaGraphDef) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("file_name", FILE_NAMES)
@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_told_by_its_content_and_written_back_as_it_was(
    kind: str,
    is_text: bool,
    file_name: str,
    messages: dict[str, GraphDef | MetaGraphDef],
    tmp_path: Path,
) -> None:
    first, second = tmp_path / file_name, tmp_path / "copy"
    write_graph(GraphFile(messages[kind], is_text), str(first))

    file = read_graph(str(first))
    write_graph(file, str(second))

    assert file.is_text is is_text
    assert file.message == messages[kind]
    assert file.graph_def == messages["GraphDef"]
    assert second.read_bytes() == first.read_bytes()
    assert first.read_bytes().startswith(b"node {" if kind == "GraphDef" else b"graph_def {") is (
        is_text
    )


@pytest.mark.parametrize("model", ["convnet_v1", "lstm"])
@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_that_is_left_alone_comes_out_byte_for_byte(
    kind: str,
    is_text: bool,
    model: str,
    tiny_item: Callable[[str], GrapplerItem],
    tmp_path: Path,
) -> None:
    item = tiny_item(model)
    message = item.graph_def if kind == "GraphDef" else memopt.io.meta_graph_of(item)
    before, after = tmp_path / "before", tmp_path / "after"
    write_graph(GraphFile(message, is_text), str(before))

    file = read_graph(str(before))
    result = optimize(file.message, level="no_mem_opt")
    write_graph(file.with_graph(result.graph_def), str(after))

    assert after.read_bytes() == before.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_later_versions_stay(
    kind: str, model_bytes: dict[str, bytes], tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_bytes(model_bytes[kind] + UNKNOWN_FIELD)
    file = read_graph(str(before))
    write_graph(file.with_graph(optimize(file.message, level="no_mem_opt").graph_def), str(after))
    assert after.read_bytes() == before.read_bytes()


def test_another_graph_goes_into_a_copy_of_the_file(
    messages: dict[str, GraphDef | MetaGraphDef],
) -> None:
    file = GraphFile(messages["MetaGraphDef"], is_text=False)
    before = serialized(file.message)
    other = graph_def_of("a = NoOp()")

    changed = file.with_graph(other)

    assert changed.graph_def == other
    assert changed.item().feed == file.item().feed
    assert serialized(file.message) == before


@pytest.mark.parametrize("is_text", [False, True])
def test_bytes_do_not_depend_on_the_order_in_which_attributes_were_set(
    is_text: bool, tmp_path: Path
) -> None:
    from tensorflow.core.framework import graph_pb2

    keys = [f"_key{number}" for number in range(40)]
    for name, order in (("one", keys), ("other", keys[::-1])):
        graph_def = graph_pb2.GraphDef()
        node = graph_def.node.add(name="a", op="NoOp")
        for key in order:
            node.attr[key].i = 1
        write_graph(GraphFile(graph_def, is_text), str(tmp_path / name))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_every_bad_input_is_one_line_that_names_the_file_or_the_node(
    name: str, bad_files: dict[str, BadInput]
) -> None:
    bad = bad_files[name]
    with pytest.raises((FileError, InvalidGraphError), match=bad.message) as caught:
        optimize(bad.path)
    assert "\n" not in str(caught.value)
    if isinstance(caught.value, FileError):
        assert str(caught.value).startswith(f"{bad.path}: ")


def test_the_list_of_bad_inputs_is_complete(bad_files: dict[str, BadInput]) -> None:
    assert sorted(NAMES) == sorted(bad_files)


def test_shapes_that_do_not_fit_are_one_line_of_tensorflow(folder: Path) -> None:
    path = folder / "shapes.pb"
    save(graph_def_of(SHAPES_THAT_DO_NOT_FIT), str(path))
    with pytest.raises(InvalidGraphError, match=r"Dimensions must be equal.*node y") as caught:
        optimize(str(path)).report.to_json()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b.pb", "\udcff.pb"])
def test_a_path_that_tensorflow_cannot_spell_is_refused(path: str, tmp_path: Path) -> None:
    whole = f"{tmp_path}/{path}"
    for act in (lambda: read_graph(whole), lambda: write_bytes(whole, b"content")):
        with pytest.raises(FileError, match="is no path that TensorFlow can open"):
            act()
    assert names_in(tmp_path) == []


def test_a_file_beyond_the_limit_is_not_even_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_bytes: dict[str, bytes]
) -> None:
    content = model_bytes["GraphDef"]
    path = tmp_path / "graph.pb"
    path.write_bytes(content)
    monkeypatch.setattr("memopt.files.whole_files.SIZE_LIMIT_BYTES", len(content))
    read_graph(str(path))
    monkeypatch.setattr("memopt.files.whole_files.SIZE_LIMIT_BYTES", len(content) - 1)
    with pytest.raises(FileError, match=rf"graph.pb: has {len(content)} bytes; at most"):
        read_graph(str(path))


def test_a_place_without_permission_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Refused by TensorFlow's file layer: a mode on disk does not stop every user."""
    import tensorflow as tf

    def refuse(*_: object) -> None:
        raise tf.errors.PermissionDeniedError(None, None, "go away")

    path = tmp_path / "graph.pb"
    path.write_bytes(b"content")
    monkeypatch.setattr(tf.io.gfile, "GFile", refuse)
    with pytest.raises(FileError, match=r"graph\.pb: cannot be read: go away"):
        read_graph(str(path))
    with pytest.raises(FileError, match=r"graph\.pb: cannot be written: go away"):
        write_bytes(str(path), b"other")
    assert path.read_bytes() == b"content"


def reads_or_refuses(path: Path, content: bytes) -> None:
    """Whatever a file holds, it is a valid graph or one of memopt's own errors."""
    path.write_bytes(content)
    try:
        result = optimize(str(path), target_scope="auto")
    except MemoptError as error:
        assert str(error)  # noqa: PT017 - which error it is, is free
    else:
        verify_graph(from_graph_def(result.graph_def))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(share=st.floats(0, 1))
def test_a_file_cut_short_anywhere_is_a_graph_or_is_refused(
    kind: str, share: float, folder: Path, model_bytes: dict[str, bytes]
) -> None:
    content = model_bytes[kind]
    reads_or_refuses(folder / "cut.pb", content[: int(share * len(content))])


def test_a_file_cut_short_between_two_nodes_is_a_graph_or_is_refused(
    folder: Path, messages: dict[str, GraphDef | MetaGraphDef]
) -> None:
    """There alone does the rest parse: the first nodes, without those that they may read."""
    graph_def = memopt.io.GraphFile(messages["GraphDef"], is_text=False).graph_def
    whole = 0
    for count in range(1, len(graph_def.node), 5):
        start = type(graph_def)(node=graph_def.node[:count])
        path = folder / "start.pb"
        reads_or_refuses(path, serialized(start))
        whole += len(read_graph(str(path)).graph_def.node) == count
    assert whole == len(range(1, len(graph_def.node), 5))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(
    flips=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4
    )
)
def test_a_file_with_spoiled_bytes_is_a_graph_or_is_refused(
    kind: str, flips: list[tuple[float, int]], folder: Path, model_bytes: dict[str, bytes]
) -> None:
    content = bytearray(model_bytes[kind])
    for share, value in flips:
        content[int(share * len(content))] = value
    reads_or_refuses(folder / "spoiled.pb", bytes(content))


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_bytes_and_texts_of_any_kind_are_a_graph_or_are_refused(
    content: bytes, folder: Path
) -> None:
    reads_or_refuses(folder / "any.pb", content)


@settings(max_examples=40, deadline=None)
@given(depth=st.integers(1, 300))
def test_text_nested_at_any_depth_is_written_again_or_refused(depth: int, folder: Path) -> None:
    path, copy = folder / "nested.pbtxt", folder / "nested_copy.pbtxt"
    copy.write_bytes(b"before")
    path.write_bytes(nested_text(depth))
    try:
        file = read_graph(str(path))
        write_graph(file, str(copy))
    except FileError:
        assert copy.read_bytes() == b"before"
    else:
        assert read_graph(str(copy)).message == file.message


# --- writing -------------------------------------------------------------------------------------


def test_a_write_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    path.write_bytes(b"a longer content than the new one")
    write_bytes(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == ["graph.pb"]


@pytest.mark.parametrize("stage", ["open", "write", "rename"])
@pytest.mark.parametrize("interrupted", [False, True], ids=["refused", "interrupted"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    stage: str, interrupted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tensorflow as tf

    def fail(*_: object, **__: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        raise tf.errors.ResourceExhaustedError(None, None, "the disk is full")

    class Stream(tf.io.gfile.GFile):  # type: ignore[misc] # TensorFlow has no types
        def write(self, content: bytes) -> None:
            super().write(content[:3])
            fail()

    patches = {"open": ("GFile", fail), "write": ("GFile", Stream), "rename": ("rename", fail)}
    path = tmp_path / "graph.pb"
    path.write_bytes(b"old content")
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.gfile, *patches[stage])
        with pytest.raises(KeyboardInterrupt if interrupted else FileError) as caught:
            write_bytes(str(path), b"new content")

    assert interrupted or "graph.pb: cannot be written: the disk is full" in str(caught.value)
    assert path.read_bytes() == b"old content"
    assert names_in(tmp_path) == ["graph.pb"]


@pytest.mark.parametrize("place", ["missing/graph.pb", "folder", "file/graph.pb"])
def test_a_place_that_cannot_be_written_to_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(FileError, match="cannot be written: ") as caught:
        write_bytes(str(tmp_path / place), b"content")
    assert str(caught.value).startswith(f"{tmp_path / place}: ")
    assert names_in(tmp_path) == ["file", "folder"]
    assert names_in(tmp_path / "folder") == []


def test_a_message_that_protobuf_cannot_encode_is_named(tmp_path: Path) -> None:
    from google.protobuf import message as protobuf

    class TooLarge:
        def SerializeToString(self, **_: bool) -> bytes:  # noqa: N802 - protobuf's name
            raise protobuf.EncodeError("exceeds 2 GiB")

    message: Any = TooLarge()
    with pytest.raises(FileError, match=r"graph\.pb: the graph is larger than the 2 GiB"):
        write_graph(GraphFile(message, is_text=False), str(tmp_path / "graph.pb"))
    assert names_in(tmp_path) == []


# --- arrays --------------------------------------------------------------------------------------


def test_arrays_come_back_by_name(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "x:0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scope/y:1": np.array(7),
    }
    path = tmp_path / "inputs.npz"
    np.savez(path, **arrays)
    read = read_arrays(str(path))
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        assert read[name].tolist() == array.tolist()


def archive(**members: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name, member in members.items():
            opened.writestr(name, member)
    return content.getvalue()


def npz(*, compressed: bool = False, **arrays: Any) -> bytes:
    content = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(content, **arrays)
    return content.getvalue()


def npy(array: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


NUMBERS = np.arange(300.0)


@pytest.mark.parametrize(
    "content",
    [
        b"text",
        npz(x=NUMBERS)[:-30],
        npz(x=NUMBERS, compressed=True)[:200],
        npy(NUMBERS),
        npz(x=np.array([{"an": "object"}], object)),
        archive(readme=b"no array"),
    ],
    ids=["text", "cut short", "cut short, compressed", "one array", "objects", "another member"],
)
def test_a_file_without_plain_arrays_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npz"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"inputs\.npz: is no \.npz file of plain arrays: ") as bad:
        read_arrays(str(path))
    assert "\n" not in str(bad.value)


@pytest.mark.parametrize(("name", "message"), [("none.npz", "no such file"), ("", "is a folder")])
def test_arrays_that_are_not_there_are_named(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=message):
        read_arrays(str(tmp_path / name))


@pytest.mark.parametrize("compressed", [False, True])
@settings(max_examples=150, deadline=None)
@given(
    flips=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=3
    )
)
def test_spoiled_arrays_are_read_or_refused(
    compressed: bool, flips: list[tuple[float, int]], folder: Path
) -> None:
    content = bytearray(npz(x=NUMBERS, y=np.ones((2, 2), np.int8), compressed=compressed))
    for share, value in flips:
        content[int(share * len(content))] = value
    path = folder / "spoiled.npz"
    path.write_bytes(content)
    try:
        arrays = read_arrays(str(path))
    except FileError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017 - most spoiled files are refused
    else:
        assert all(isinstance(array, np.ndarray) for array in arrays.values())


# --- what a file says of its use -----------------------------------------------------------------


TWO_ENDS = """
x = Placeholder() {dtype=float, shape=[2]}
y = Placeholder() {dtype=float, shape=[2]}
sum = Add(x, y) {T=float}
end = Relu(sum) {T=float}
effect = NoOp(^sum)
"""


def test_of_a_bare_graph_placeholders_are_fed_and_ends_fetched() -> None:
    item = as_item(graph_def_of(TWO_ENDS))
    assert item.feed == ("x:0", "y:0")
    assert item.fetch == ("end", "effect")


def meta_graph_of(text: str) -> MetaGraphDef:
    from tensorflow.core.protobuf import meta_graph_pb2

    meta_graph: MetaGraphDef = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def_of(text))
    return meta_graph


def test_a_meta_graph_that_says_nothing_is_used_like_a_bare_graph() -> None:
    meta_graph = meta_graph_of(TWO_ENDS)
    before = serialized(meta_graph)
    item = as_item(meta_graph)
    assert (item.feed, item.fetch) == (("x:0", "y:0"), ("end", "effect"))
    assert serialized(meta_graph) == before


def test_a_meta_graph_says_its_use_by_signatures_and_train_op() -> None:
    meta_graph = meta_graph_of(TWO_ENDS)
    for name in ("a", "b"):
        signature = meta_graph.signature_def[name]
        signature.inputs["second"].name = "y:0"
        signature.inputs["first"].name = "x:0"
        signature.outputs["result"].name = "end:0"
    meta_graph.collection_def["train_op"].node_list.value.append("effect")
    item = as_item(meta_graph)
    assert item.feed == ("x:0", "y:0")
    assert item.fetch == ("end:0", "effect")


def test_a_graph_exported_by_a_session_is_used_by_its_train_op(tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "exported.meta"
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        weight = tf.compat.v1.get_variable("w", [2], use_resource=False)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.5)
        optimizer.minimize(tf.reduce_sum(x * weight), name="train")
        tf.compat.v1.train.export_meta_graph(str(path))
    item = read_graph(str(path)).item()
    assert (item.feed, item.fetch) == (("x:0",), ("train",))


@pytest.mark.parametrize("kind", ["GraphDef", "MetaGraphDef", "item", "path", "Path"])
def test_what_the_caller_names_goes_before_what_the_graph_says(kind: str, tmp_path: Path) -> None:
    graph_def = graph_def_of(TWO_ENDS)
    path = tmp_path / "graph.pb"
    save(graph_def, str(path))
    sources: dict[str, Any] = {
        "GraphDef": graph_def,
        "MetaGraphDef": meta_graph_of(TWO_ENDS),
        "item": GrapplerItem(graph_def, feed=("x:0",), fetch=("end",), keep=("sum",)),
        "path": str(path),
        "Path": path,
    }
    item = as_item(sources[kind], fetch=["sum:0"], feed=["y:0"])
    assert (item.fetch, item.feed) == (("sum:0",), ("y:0",))
    assert item.graph_def == graph_def
    assert item.keep == (("sum",) if kind == "item" else ())


@pytest.mark.parametrize("source", [3, None, ["graph.pb"], {}])
def test_what_holds_no_graph_is_refused_by_its_type(source: Any, tmp_path: Path) -> None:
    for use in (lambda: as_item(source), lambda: save(source, str(tmp_path / "graph.pb"))):
        with pytest.raises(OptionsError, match=rf"a {type(source).__name__} holds no graph; give"):
            use()
    assert names_in(tmp_path) == []


# --- saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_a_saved_step_is_used_as_before(
    model: str, tiny_item: Callable[[str], GrapplerItem], tmp_path: Path
) -> None:
    item = tiny_item(model)
    path = str(tmp_path / "step.pb")
    save(item, path)
    read = read_graph(path).item()
    assert read.fetch == item.fetch
    assert read.feed == item.feed
    assert [node.name for node in read.graph_def.node] == [
        node.name for node in item.graph_def.node
    ]
    handles = {node.name for node in read.graph_def.node if node.op == "VarHandleOp"}
    assert handles == set(item.variables)


@pytest.fixture(scope="module")
def function() -> Any:
    """A step with an argument, a variable, a captured constant, an output and an effect."""
    import tensorflow as tf

    weight = tf.Variable(np.eye(3, dtype=np.float32), name="weight")
    offset = tf.constant([1.5, 2.5, 3.5])

    def step(x: Any) -> Any:
        weight.assign_add(tf.ones([3, 3]))
        return tf.matmul(x, weight) + offset

    concrete = tf.function(step).get_concrete_function(tf.TensorSpec([None, 3]))
    concrete.keep_alive = weight
    return concrete


@pytest.mark.parametrize("file_name", ["step.pb", "step.pbtxt"])
def test_a_saved_function_brings_its_captured_constants_and_variables(
    file_name: str, function: Any, tmp_path: Path
) -> None:
    import tensorflow as tf

    path = tmp_path / file_name
    save(function, str(path))
    file = read_graph(str(path))
    item = file.item()

    original = GrapplerItem.from_concrete_function(function)
    assert file.is_text is file_name.endswith(".pbtxt")
    assert item.feed == ("x:0",)
    assert item.fetch == original.fetch
    (captured,) = set(original.feed) - {"x:0"}
    nodes = {node.name: node for node in item.graph_def.node}
    constant = nodes[captured.removesuffix(":0")]
    assert constant.op == "Const"
    assert tf.make_ndarray(constant.attr["value"].tensor).tolist() == [1.5, 2.5, 3.5]
    (variable,) = original.variables
    assert nodes[variable].op == "VarHandleOp"
    assert [dim.size for dim in nodes[variable].attr["shape"].shape.dim] == [3, 3]


def test_a_saved_function_computes_the_same(function: Any, tmp_path: Path) -> None:
    """In a session, as another program would run the file."""
    import tensorflow as tf

    path = str(tmp_path / "step.pb")
    save(function, path)
    item = read_graph(path).item()
    (variable,) = (node.name for node in item.graph_def.node if node.op == "VarHandleOp")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(item.graph_def, name="")
        handle = graph.get_tensor_by_name(f"{variable}:0")
        start = tf.raw_ops.AssignVariableOp(resource=handle, value=np.eye(3, dtype=np.float32))
        with tf.compat.v1.Session() as session:
            session.run(start)
            (output,) = session.run(item.fetched_tensors, {"x:0": x})
    expected = x @ (np.eye(3, dtype=np.float32) + 1) + np.array([1.5, 2.5, 3.5], np.float32)
    assert output.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_message_stays_what_it_is(
    kind: str, messages: dict[str, GraphDef | MetaGraphDef], tmp_path: Path
) -> None:
    binary, text = tmp_path / "graph.pb", tmp_path / "graph.pbtxt"
    save(messages[kind], str(binary))
    save(messages[kind], str(text))
    assert binary.read_bytes() == serialized(messages[kind])
    assert read_graph(str(text)) == GraphFile(messages[kind], is_text=True)


def test_a_saved_path_becomes_a_step_that_says_its_use(tmp_path: Path) -> None:
    first, second = tmp_path / "graph.pb", tmp_path / "step.pb"
    save(graph_def_of(TWO_ENDS), str(first))
    save(first, str(second))
    message: Any = read_graph(str(second)).message
    assert list(message.collection_def["train_op"].node_list.value) == ["end", "effect"]


def test_saving_changes_nothing_that_it_is_given(
    tiny_item: Callable[[str], GrapplerItem], tmp_path: Path
) -> None:
    item = tiny_item("mlp")
    before = serialized(item.graph_def)
    save(item, str(tmp_path / "step.pb"))
    assert serialized(item.graph_def) == before
