"""Ways to be part of TensorFlow where the best one is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.child import needs_compiler, run_child

if TYPE_CHECKING:
    from pathlib import Path

NOT_EXPORTED = "this TensorFlow does not export the function that registers plugins"


@needs_compiler
def test_the_shim_is_loaded_as_a_plugin(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "MEMOPT_FLAGS": "--only_lower=false"}
    found = run_child("fallbacks", "function", "session", **environment)
    assert found["registered"] == {"CPU": "shim", "GPU": "shim"}
    assert found["failures"] == {"symbol": NOT_EXPORTED}
    assert found["same"] == {"function": True, "session": True}
    assert found["outcomes"] == ["rewritten", "rewritten"]


@pytest.mark.slow
def test_functions_are_rewritten_when_they_are_traced(tmp_path: Path) -> None:
    environment = {
        "XDG_CACHE_HOME": str(tmp_path),
        "CC": "no-compiler",
        "MEMOPT_FLAGS": "--only_lower=false",
    }
    found = run_child("fallbacks", "function", "keras_fit", **environment)
    assert found["registered"] == {"CPU": "transforms", "GPU": "transforms"}
    assert found["failures"]["shim"] == "there is no C compiler (no-compiler)"
    assert found["same"] == {"function": True, "keras_fit": True}
    # Keras's step is traced as a function and as part of those around it.
    assert set(found["outcomes"]) == {"rewritten"}
