"""Levels in any spelling, options in and out of RewriterConfig, and bytes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memopt.errors import OptionsError
from memopt.options import DEFAULT_TARGET_SCOPE, Level, Options, parse_bytes


@pytest.mark.parametrize("level", Level)
def test_a_level_is_parsed_in_any_case(level: Level) -> None:
    for text in (level.value, level.name, level.value.title()):
        assert Level.parse(text) is level


@pytest.mark.parametrize("text", ["", "heuristics ", "none", "0", "recomputation"])
def test_another_level_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Level.parse(text)
    assert str(caught.value) == (
        f"there is no level {text!r}; the levels: no_mem_opt, manual, recomputation_heuristics"
    )


@pytest.mark.parametrize("scope", ["gradients/", "gradient_tape/", "auto"])
@pytest.mark.parametrize("level", Level)
def test_options_come_back_from_a_rewriter_config(level: Level, scope: str) -> None:
    options = Options(level, scope)
    config = options.to_rewriter_config()
    assert config.MemOptType.Name(config.memory_optimization) == level.name
    assert Options.from_rewriter_config(config) == options


def test_a_config_without_a_scope_means_grapplers_own() -> None:
    config = Options(Level.MANUAL).to_rewriter_config()
    config.memory_optimizer_target_node_name_scope = ""
    assert Options.from_rewriter_config(config) == Options(Level.MANUAL, "gradients/")
    assert DEFAULT_TARGET_SCOPE == "gradients/"


@pytest.mark.parametrize(
    ("number", "name"), [(0, "DEFAULT_MEM_OPT"), (4, "SWAPPING_HEURISTICS"), (99, "99")]
)
def test_a_config_with_a_level_that_is_not_there_is_refused(number: int, name: str) -> None:
    config = Options().to_rewriter_config()
    config.memory_optimization = number
    with pytest.raises(OptionsError, match=f"there is no level '{name}'"):
        Options.from_rewriter_config(config)


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
