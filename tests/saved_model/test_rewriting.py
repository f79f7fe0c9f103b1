"""Functions in a SavedModel are rewritten, compute the same bits, and nothing else changes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from support.saved_models import BATCH, WIDTH, read_message, train, values

import memopt
from memopt.errors import BudgetError, OptionsError
from memopt.saved_model.entry import optimize_saved_model, parse_shape

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.core.framework.function_pb2 import FunctionDef

    from memopt.saved_model.report import FunctionReport, SavedModelReport

SHAPES = {"x": (BATCH, WIDTH), "y": (BATCH, WIDTH)}


def of(report: SavedModelReport, name: str) -> FunctionReport:
    return next(one for one in report.functions if one.called_as == name)


def functions_of(path: Path) -> dict[str, FunctionDef]:
    library = read_message(path).meta_graphs[0].graph_def.library
    return {one.signature.name: one for one in library.function}


def test_a_training_function_keeps_the_budget(report: SavedModelReport) -> None:
    done = of(report, "train")
    assert done.outcome == "rewritten"
    assert done.signatures == ("train",)
    assert done.after_grappler
    assert done.keeps_budget
    own = done.peak_before_bytes - done.held_bytes
    assert done.peak_after_bytes - done.held_bytes <= 0.6 * own


def test_what_does_not_train_stays(report: SavedModelReport) -> None:
    assert of(report, "predict").outcome == "left alone"
    assert of(report, "predict").reason == "computes no gradients"


def test_it_trains_on_with_the_same_bits(network: Path, leaner: Path) -> None:
    assert train(leaner) == train(network)


def test_everything_else_stays(network: Path, leaner: Path) -> None:
    before, after = read_message(network), read_message(leaner)
    names = [one.signature.name for one in before.meta_graphs[0].graph_def.library.function]
    changed = []
    for message in (before, after):
        graph = message.meta_graphs[0]
        functions = {one.signature.name: one for one in graph.graph_def.library.function}
        changed.append({name: functions[name].SerializeToString() for name in names})
        graph.graph_def.library.ClearField("function")
        graph.meta_info_def.ClearField("stripped_op_list")
    assert before == after
    differing = [name for name in names if changed[0][name] != changed[1][name]]
    assert len(differing) == 1
    assert differing[0].startswith("__inference_train_")


def test_signatures_of_rewritten_functions_stay(network: Path, leaner: Path) -> None:
    """Arguments, results and effects have the names that they had."""
    before, after = functions_of(network), functions_of(leaner)
    for name, function in before.items():
        assert after[name].signature == function.signature
        assert after[name].attr == function.attr
        assert sorted(after[name].control_ret.values()) == sorted(function.control_ret.values())


def test_variables_are_linked_and_assets_copied(network: Path, leaner: Path) -> None:
    names = sorted(path.relative_to(network) for path in network.rglob("*") if path.is_file())
    assert names == sorted(p.relative_to(leaner) for p in leaner.rglob("*") if p.is_file())
    for name in names:
        before, after = (network / name).stat(), (leaner / name).stat()
        assert (before.st_ino == after.st_ino) == (name.parts[0] == "variables")
    assert (leaner / "assets" / "network_labels.txt").read_text() == "one\ntwo\n"


def test_the_fingerprint_is_of_what_was_written(network: Path, leaner: Path) -> None:
    import tensorflow as tf

    before, after = map(tf.saved_model.experimental.read_fingerprint, map(str, (network, leaner)))
    assert before.saved_model_checksum != after.saved_model_checksum
    assert before.signature_def_hash == after.signature_def_hash
    assert before.checkpoint_hash == after.checkpoint_hash


def test_the_same_model_gives_the_same_bytes(network: Path, leaner: Path, tmp_path: Path) -> None:
    optimize_saved_model(network, tmp_path / "again", budget="60%")
    for name in ("saved_model.pb", "fingerprint.pb"):
        assert (tmp_path / "again" / name).read_bytes() == (leaner / name).read_bytes()


def test_what_was_rewritten_can_be_rewritten_again(
    network: Path, leaner: Path, tmp_path: Path
) -> None:
    again = optimize_saved_model(leaner, tmp_path / "again", budget="90%", only_lower=False)
    (done,) = [one for one in again.functions if one.signatures == ("train",)]
    assert not done.after_grappler
    assert train(tmp_path / "again") == train(network)


def test_functions_that_do_not_train_are_rewritten_when_asked(
    network: Path, tmp_path: Path
) -> None:
    import tensorflow as tf

    report = optimize_saved_model(
        network, tmp_path / "out", signatures=["predict"], level="ordered", only_lower=False
    )
    (done,) = report.functions
    assert done.called_as == "predict"
    assert not done.after_grappler
    given = tf.random.stateless_normal((BATCH, WIDTH), (1, 2))
    results = [
        tf.saved_model.load(str(path)).signatures["predict"](x=given)["hidden"].numpy().tobytes()
        for path in (network, tmp_path / "out")
    ]
    assert results[0] == results[1]


def test_functions_that_others_call_stay_for_them(network: Path, tmp_path: Path) -> None:
    """What is rewritten with its caller gets a name of its own."""
    out = tmp_path / "out"
    optimize_saved_model(network, out, functions=["predict"], level="ordered", only_lower=False)
    before, after = functions_of(network), functions_of(out)
    changed = [name for name in before if after[name] != before[name]]
    assert [name.partition("predict")[0] for name in changed] == ["__inference_"]
    called = {node.attr["f"].func.name for node in after[changed[0]].node_def if "f" in node.attr}
    added = after.keys() - before.keys()
    assert called <= added | before.keys()
    assert all(name.partition("_memopt_")[0] in before for name in added)
    assert added == called - before.keys()
    assert added


def test_what_grappler_made_runs_without_it(leaner: Path) -> None:
    """For Python's loader by the configuration of the call, for sessions by an attribute too."""
    from tensorflow.core.protobuf import config_pb2

    functions = functions_of(leaner)
    (name,) = [name for name in functions if "_memopt_" in name]
    assert functions[name].attr["_noinline"].b
    assert functions[name].attr["_tf_data_function"].b
    (caller,) = [one for key, one in functions.items() if name.startswith(f"{key}_memopt_")]
    (call,) = [node for node in caller.node_def if "f" in node.attr]
    assert call.attr["f"].func.name == name
    config = config_pb2.ConfigProto.FromString(call.attr["config_proto"].s)
    assert config.graph_options.rewrite_options.disable_meta_optimizer
    assert {node.op for node in caller.node_def} == {"StatefulPartitionedCall", "NoOp"}
    assert all(not node.device for node in functions[name].node_def)


def test_what_does_not_train_can_still_be_differentiated(network: Path, tmp_path: Path) -> None:
    import tensorflow as tf

    optimize_saved_model(network, tmp_path / "out", functions=["predict"], only_lower=False)
    outcomes = []
    for path in (network, tmp_path / "out"):
        loaded = tf.saved_model.load(str(path))
        with tf.GradientTape() as tape:
            hidden = loaded.predict(tf.constant(values()["x"]))["hidden"]
        gradients = tape.gradient(hidden, loaded.weights)
        outcomes.append([gradient.numpy().tobytes() for gradient in gradients])
    assert outcomes[0] == outcomes[1]


def test_a_program_may_call_it_in_a_function_of_its_own(network: Path, leaner: Path) -> None:
    """Grappler works on that function, and leaves the rewritten one inside of it alone."""
    import tensorflow as tf

    outcomes = []
    for path in (network, leaner):
        loaded = tf.saved_model.load(str(path))
        step = tf.function(lambda x, y, loaded=loaded: loaded.train(x, y)["loss"] * 2.0)
        losses = [step(*map(tf.constant, values().values())).numpy() for _ in range(3)]
        outcomes.append([*losses, *(weight.numpy().tobytes() for weight in loaded.weights)])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("kind", ["functions", "signatures"])
def test_an_unknown_name_is_told_with_those_that_exist(
    kind: str, network: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionsError, match=f"no {kind[:-1]} 'fit'.*it has: predict, train"):
        optimize_saved_model(network, tmp_path / "out", **{kind: ["fit"]})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_budget_that_no_function_keeps_is_an_error(network: Path, tmp_path: Path) -> None:
    with pytest.raises(
        BudgetError, match="no function keeps the budget; train: the budget of 1024"
    ):
        optimize_saved_model(network, tmp_path / "out", budget="1KiB", algorithm="path")
    assert not list(tmp_path.iterdir())


def test_open_shapes_need_a_shape_to_plan_with(open_network: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=r"shape of x is open, \(None, 48\).*--shape x="):
        optimize_saved_model(open_network, tmp_path / "out", budget="60%")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (4, WIDTH)}, "no function takes an argument 'z'; there are: x, y"),
        ({"x": (4, 3), "y": (4, 3)}, r"[xy] is of shape \(None, 48\), which \(4, 3\) is not"),
        ({"x": (0, WIDTH)}, "a dimension of x"),
    ],
)
def test_shapes_that_do_not_fit_are_told(
    shapes: dict[str, tuple[int, ...]], message: str, open_network: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionsError, match=message):
        optimize_saved_model(open_network, tmp_path / "out", budget="60%", shapes=shapes)


def test_a_planned_shape_is_not_baked_in(open_network: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = optimize_saved_model(open_network, out, budget="60%", shapes=SHAPES)
    assert of(report, "train").outcome == "rewritten"
    assert of(report, "train").keeps_budget
    for batch in (BATCH, 7):
        assert train(out, batch=batch) == train(open_network, batch=batch)


def test_a_fixed_shape_is_accepted_when_asked(open_network: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = optimize_saved_model(open_network, out, budget="60%", shapes=SHAPES, fix_shapes=True)
    assert of(report, "train").outcome == "rewritten"
    assert train(out) == train(open_network)


def test_the_report_shows_and_serializes(report: SavedModelReport) -> None:
    text = " ".join(repr(report).split())
    assert text.startswith("SavedModelReport: ")
    assert "1 of 2 functions rewritten" in text
    plain = json.loads(json.dumps(report.to_json()))
    assert [one["outcome"] for one in plain["functions"]] == ["left alone", "rewritten"]
    assert "predicted peak" in repr(of(report, "train"))


def test_text_models_are_read(network: Path, leaner: Path, tmp_path: Path) -> None:
    from google.protobuf import text_format

    shutil.copytree(network, tmp_path / "text")
    (tmp_path / "text" / "saved_model.pb").unlink()
    (tmp_path / "text" / "saved_model.pbtxt").write_text(
        text_format.MessageToString(read_message(network))
    )
    optimize_saved_model(tmp_path / "text", tmp_path / "out", budget="60%")
    assert not (tmp_path / "out" / "saved_model.pbtxt").exists()
    assert read_message(tmp_path / "out") == read_message(leaner)


def test_functions_are_analysed(network: Path, report: SavedModelReport) -> None:
    found = memopt.analyze_saved_model(network)
    kinds = {one.called_as: one.kind for one in found.functions}
    assert kinds == {"train": "training", "predict": "inference"}
    (train_,) = [one for one in found.functions if one.called_as == "train"]
    assert train_.peak_bytes == of(report, "train").peak_before_bytes
    assert train_.arguments == ("x", "y")
    assert "predicted peak" in repr(found)
    assert json.loads(json.dumps(found.to_json()))["path"] == str(network)


@pytest.mark.parametrize("text", ["", "x", "x=", "=3", "x=a", "x=1,,2", "x=0", "x=-1"])
def test_a_bad_shape_is_told(text: str) -> None:
    if text == "x=":
        assert parse_shape(text) == ("x", ())
        return
    with pytest.raises(OptionsError):
        parse_shape(text)


def test_a_shape_is_parsed() -> None:
    assert parse_shape("x=64, 16") == ("x", (64, 16))
