"""Parts of a sequence, up to all of it, planned by CP-SAT: exact where it comes to its end."""

from __future__ import annotations

from memopt.errors import OptionsError


def check_installed() -> None:
    """Fail if OR-Tools is not there.

    Raises:
        OptionsError: It is not.
    """
    try:
        from ortools.sat.python import cp_model  # noqa: F401 - whether it can be imported
    except ImportError as error:
        raise OptionsError("exact plans need OR-Tools: pip install memopt[exact]") from error
