"""Levels in any spelling, options in and out of RewriterConfig, and bytes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import zygote
from support.child import child_environment
from support.native import CPU, RELAX_ATTRIBUTE, memory_only_config, optimize_native

from memopt.cluster import Device
from memopt.errors import OptionsError
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.options import DEFAULT_TARGET_SCOPE, Level, Options, parse_bytes

NATIVE = [level for level in Level if not level.improves]


@pytest.mark.parametrize("level", Level)
def test_a_level_is_parsed_in_any_case(level: Level) -> None:
    for text in (level.value, level.name, level.value.title()):
        assert Level.parse(text) is level


@pytest.mark.parametrize("text", ["", "heuristics ", "none", "0", "recomputation"])
def test_another_level_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Level.parse(text)
    assert str(caught.value) == (
        f"there is no level {text!r}; the levels: default_mem_opt, no_mem_opt, manual, heuristics, "
        "swapping_heuristics, recomputation_heuristics, scheduling_heuristics, "
        "improved_heuristics, ordered"
    )


def test_the_levels_are_those_of_rewriter_config() -> None:
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    numbers = RewriterConfig.MemOptType
    assert [(level.name, number) for number, level in enumerate(NATIVE)] == sorted(
        numbers.items(), key=lambda item: item[1]
    )


SHORT_OF_MEMORY = """
v = VariableV2() {dtype=float, shape=[1024,1024]} @/gpu:0
x = Placeholder() {dtype=float, shape=[1024,1024]} @/gpu:0
assigned = Assign(v, x) {T=float} @/gpu:0
listed = Relu(v) {T=float} @/gpu:0
hinted = Exp(v) {T=float, _recompute_hint=0} @/gpu:0
gradients/a = Tanh(listed) {T=float} @/gpu:0
gradients/b = Tanh(hinted) {T=float} @/gpu:0
big = Exp(v) {T=float} @/gpu:0
s0 = Exp(big) {T=float} @/gpu:0
s1 = MatMul(s0, s0) {T=float} @/gpu:0
s2 = MatMul(s1, s1) {T=float} @/gpu:0
s3 = MatMul(s2, s2) {T=float} @/gpu:0
late = Mul(s3, big) {T=float} @/gpu:0
marked = Mul(s3, s0) {T=float, _swap_to_host=1} @/gpu:0
t0 = Exp(v) {T=float} @/gpu:0
t1 = Exp(v) {T=float} @/gpu:0
t2 = Exp(v) {T=float} @/gpu:0
t3 = Exp(v) {T=float} @/gpu:0
sum = AddN(t0, t1, t2, t3) {T=float, N=4} @/gpu:0
all = NoOp(^assigned, ^sum, ^late, ^marked, ^gradients/a, ^gradients/b)
"""
"""Something to do for every step, on a slow GPU of 8 MiB; matrices have 4 MiB."""


@pytest.mark.parametrize("level", NATIVE)
def test_levels_take_the_steps_that_native_takes(level: Level) -> None:
    gpu = Device("GPU:0", "GPU", 8 << 20, 1, 1, 500_000, "7")
    graph_def = to_graph_def(parse_graph(SHORT_OF_MEMORY))
    native = optimize_native(graph_def, level.name, ["all"], devices=[CPU, gpu])
    nodes = {node.name: node for node in native.node}
    assert level.relaxes == (RELAX_ATTRIBUTE in nodes["assigned"].attr)
    assert level.recomputes == ("Recomputed/listed" in nodes)
    assert level.recomputes_by_hint == ("Recomputed/hinted" in nodes)
    assert level.schedules == ("sum/tmp_var" in nodes)
    assert level.swaps == ("swap_out_late_1" in nodes)
    assert level.swaps_by_hint == ("swap_out_marked_1" in nodes)


def test_the_default_is_everything_for_as_long_as_it_takes() -> None:
    assert Options() == Options(Level.HEURISTICS, "gradients/", deadline_ms=0)


@pytest.mark.parametrize("deadline_ms", [0, 1, 300_000])
@pytest.mark.parametrize("scope", ["gradients/", "gradient_tape/", "auto"])
@pytest.mark.parametrize("level", NATIVE)
def test_options_come_back_from_a_rewriter_config(
    level: Level, scope: str, deadline_ms: int
) -> None:
    options = Options(level, scope, deadline_ms)
    config = options.to_rewriter_config()
    assert config.MemOptType.Name(config.memory_optimization) == level.name
    assert config.meta_optimizer_timeout_ms == deadline_ms
    assert Options.from_rewriter_config(config) == options


def test_a_level_of_our_own_takes_every_step_and_is_none_of_tensorflows() -> None:
    own = Level.IMPROVED_HEURISTICS
    steps = ("relaxes", "recomputes", "recomputes_by_hint", "schedules", "swaps", "swaps_by_hint")
    assert all(getattr(own, step) and getattr(Level.HEURISTICS, step) for step in steps)
    with pytest.raises(OptionsError, match="no level 'improved_heuristics'"):
        Options(own).to_rewriter_config()


def test_an_order_is_a_level_of_its_own() -> None:
    steps = ("recomputes", "recomputes_by_hint", "schedules", "swaps", "swaps_by_hint")
    assert Level.ORDERED.orders
    assert Level.ORDERED.relaxes
    assert not any(getattr(Level.ORDERED, step) for step in steps)
    assert not any(level.orders for level in NATIVE)


def test_an_empty_config_means_grapplers_own_defaults() -> None:
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    expected = Options(Level.DEFAULT_MEM_OPT, "gradients/", deadline_ms=0)
    assert Options.from_rewriter_config(RewriterConfig()) == expected
    assert Options.from_config_proto(ConfigProto()) == expected


def test_no_scope_means_grapplers_own() -> None:
    config = Options(Level.MANUAL).to_rewriter_config()
    config.memory_optimizer_target_node_name_scope = ""
    assert Options.from_rewriter_config(config) == Options(Level.MANUAL, "gradients/")
    assert Options(target_scope="") == Options()
    assert DEFAULT_TARGET_SCOPE == "gradients/"


def test_a_negative_timeout_is_none() -> None:
    config = Options().to_rewriter_config()
    config.meta_optimizer_timeout_ms = -1
    assert Options.from_rewriter_config(config).deadline_ms == 0
    with pytest.raises(OptionsError, match="a deadline is after 0 ms or more, not -1"):
        Options(deadline_ms=-1)


def test_a_config_with_a_level_that_is_not_there_is_refused() -> None:
    config = Options().to_rewriter_config()
    config.memory_optimization = 99
    with pytest.raises(OptionsError, match="there is no level '99'"):
        Options.from_rewriter_config(config)


ASSIGNMENT = """
x = Placeholder() {dtype=float, shape=[]}
v = VarHandleOp() {dtype=float, shape=[]}
a = AssignVariableOp(v, x) {dtype=float}
"""


def native_runs(level: str, jit_level: int) -> bool:
    graph_def = to_graph_def(parse_graph(ASSIGNMENT))
    native = optimize_native(graph_def, level, ["a"], jit_level=jit_level)
    return any(RELAX_ATTRIBUTE in node.attr for node in native.node)


@pytest.mark.parametrize("jit_level", [-1, 0, 1, 2])
@pytest.mark.parametrize("level", [Level.DEFAULT_MEM_OPT, Level.HEURISTICS])
def test_a_compiling_session_leaves_out_the_default_as_native(level: Level, jit_level: int) -> None:
    options = Options.from_config_proto(memory_only_config(level.name, "", jit_level))
    assert options.level == (level if native_runs(level.name, jit_level) else Level.NO_MEM_OPT)
    assert (options.level is level) == (level is not Level.DEFAULT_MEM_OPT or jit_level < 1)


XLA_FLAGS = [
    ("--tf_xla_auto_jit=2", [False, False, False, False]),
    ("--tf_xla_auto_jit=1 --tf_xla_min_cluster_size=4", [False, False, False, False]),
    ("--tf_xla_auto_jit=fusible", [False, False, False, False]),
    ("--tf_xla_auto_jit=0", [True, True, False, False]),
    ("--tf_xla_auto_jit=-1", [True, True, True, True]),
    ("--tf_xla_auto_jit=2 --tf_xla_auto_jit=-1", [True, True, True, True]),
    ("--tf_xla_auto_jit=single-gpu(2)", [True, True, False, False]),
    ("--tf_xla_auto_jit=-1 --tf_xla_auto_jit=single-gpu(2)", [True, True, True, True]),
    ("--tf_xla_cpu_global_jit", [True, True, False, False]),
]
"""Flags, and whether DEFAULT_MEM_OPT then does anything at the levels -1, 0, 1 and 2."""


@pytest.mark.parametrize(("flags", "expected"), XLA_FLAGS)
def test_xla_flags_come_before_the_session(flags: str, expected: list[bool]) -> None:
    for jit_level, runs in zip((-1, 0, 1, 2), expected, strict=True):
        config = memory_only_config("DEFAULT_MEM_OPT", "", jit_level)
        level = Options.from_config_proto(config, flags).level
        assert level is (Level.DEFAULT_MEM_OPT if runs else Level.NO_MEM_OPT)
        config = memory_only_config("MANUAL", "", jit_level)
        assert Options.from_config_proto(config, flags).level is Level.MANUAL


@pytest.mark.parametrize(("flags", "expected"), XLA_FLAGS[3::3])
def test_xla_flags_mean_what_they_mean_to_native(flags: str, expected: list[bool]) -> None:
    """TensorFlow reads them once, when it first needs them: in a process of its own."""
    code = (
        "from test_options import native_runs\n"
        "print([native_runs('DEFAULT_MEM_OPT', level) for level in (-1, 0, 1, 2)])"
    )
    done = zygote.run_source(code, (), child_environment(TF_XLA_FLAGS=flags), 600)
    done.check_returncode()
    assert done.stdout.splitlines()[-1] == str(expected)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("1500000", 1_500_000),
        ("512MiB", 512 << 20),
        ("6 GB", 6_000_000_000),
        ("6GiB", 6 << 30),
        ("1.5k", 1500),
        ("1.5 KiB", 1536),
        ("2t", 2 * 10**12),
        ("0.001MB", 1000),
        (" 7B ", 7),
        ("1gib", 1 << 30),
        ("1.9", 1),
        ("9007199254740993", (1 << 53) + 1),
    ],
)
def test_bytes_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "0", "0.5", "-5", "GiB", "5 apples", "1e6", "6 PiB", "1,5GB", "5BB", "inf", "9" * 400],
)
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="is no number of bytes, such as 512MiB"):
        parse_bytes(text)


@given(st.integers(1, 1 << 62))
def test_whole_numbers_are_exact(size_bytes: int) -> None:
    assert parse_bytes(str(size_bytes)) == size_bytes


@given(st.text(max_size=20))
def test_any_text_is_a_number_of_bytes_or_is_refused(text: str) -> None:
    try:
        assert parse_bytes(text) >= 1
    except OptionsError as error:
        assert repr(text) in str(error)  # noqa: PT017 - most texts are refused
