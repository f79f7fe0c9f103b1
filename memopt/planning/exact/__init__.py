"""Parts of a sequence, up to all of it, planned by CP-SAT: exact where it comes to its end."""

from __future__ import annotations

from importlib.util import find_spec

from memopt.errors import OptionsError


def check_installed() -> None:
    """Fail if OR-Tools is not there.

    Raises:
        OptionsError: It is not.
    """
    try:
        # Not imported here: see `apart`.
        is_there = find_spec("ortools.sat.python") is not None
    except ImportError:
        is_there = False
    if not is_there:
        raise OptionsError("exact plans need OR-Tools: pip install memopt[exact]")
