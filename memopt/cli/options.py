"""What several commands share: options, and what is wrong with their values."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from memopt.cluster import VirtualCluster
from memopt.errors import OptionsError
from memopt.options import Budget, parse_bytes
from memopt.terminal.console import silence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt


@contextmanager
def usage(option: str) -> Iterator[None]:
    """Turn what is wrong with the value of an option into wrong usage: exit status 2."""
    try:
        yield
    except OptionsError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from error


def _as_cluster(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> VirtualCluster | None:
    del context, parameter
    with usage("--device"):
        return VirtualCluster(values) if values else None


def as_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A number of bytes, as a callback of an option."""
    del context
    with usage(parameter.opts[0]):
        return None if value is None else parse_bytes(value)


def as_budget(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> Budget | None:
    """A budget, as a callback of an option."""
    del context
    with usage(parameter.opts[0]):
        return None if value is None else Budget.parse(value)


def _as_shapes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    from memopt.saved_model.entry import parse_shape

    del context, parameter
    with usage("--shape"):
        return dict(map(parse_shape, values))


def values(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command for what its steps run with: inputs, variables and a seed."""
    return _INPUTS(_VARIABLES(SEED(command)))


def arrays_of(path: str | None) -> dict[str, npt.NDArray[Any]] | None:
    """The values of `--inputs` or `--variables`; `None` if the option is not given.

    Raises:
        FileError: The file holds none.
    """
    from memopt.files.whole_files import read_arrays

    return None if path is None else read_arrays(path)


def listed(devices: VirtualCluster | None) -> VirtualCluster:
    """The devices that were named, or those that TensorFlow finds here when it has started."""
    if devices is not None:
        return devices
    with silence():
        return VirtualCluster.of_this_machine()


COSTS = click.option(
    "--costs",
    default="auto",
    show_default=True,
    help='Times of operations: "auto", "grappler", "native", a table (.json) or a profile.',
)
KERNELS = click.option(
    "--kernels",
    help='Whose memory and times are predicted: "rules", by default; "measured", where new kernels '
    "are run first, each alone; or a file that `memopt profile-kernels` wrote.",
)
MODE = click.option(
    "--mode",
    type=click.Choice(["exact", "as-is"]),
    default="exact",
    show_default=True,
)
VERIFICATION_MODE = click.option(
    "--mode",
    type=click.Choice(["exact", "as-is"]),
    show_default="exact; as-is for a graph that Grappler has been at",
)
_INPUTS = click.option("--inputs", help="An .npz file with values of what is fed, by tensor name.")
_VARIABLES = click.option(
    "--variables", help="An .npz file with values of variables, by node name."
)
SEED = click.option("--seed", type=int, default=0, show_default=True, help="For values made up.")


def _as_page(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The file of a report page; that it can be made is to be known before the work begins."""
    del context, parameter
    if value is not None:
        from memopt.report.page.entry import check_page

        check_page(value)
    return value


JOBS = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Plans that are made at a time, in processes of their own; in this one if not given.",
)
ON = click.option(
    "--on", metavar="ADDRESS", help='A Ray cluster to work on, such as "auto" or "HOST:6379".'
)
REPORT = click.option(
    "--report",
    metavar="FILE.html",
    callback=_as_page,
    help="Where a page goes that shows memory over the step, what is in it and why: one file for a "
    "browser, without a network.",
)


def _as_place(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A file that is written at the end; that it can be is to be known before the work begins."""
    del context, parameter
    if value is not None:
        from memopt.report.page.entry import check_place

        check_place(value)
    return value


TRACE = click.option(
    "--trace",
    metavar="FILE",
    callback=_as_place,
    help="Where a trace goes for Perfetto or chrome://tracing: operations by device, memory as a "
    "counter, before and after.",
)
DEVICES = click.option(
    "--device",
    "devices",
    multiple=True,
    callback=_as_cluster,
    help='A device, such as "GPU:0=GPU:16GiB"; this machine\'s if none is given.',
)
FUNCTIONS = click.option(
    "--function",
    "functions",
    multiple=True,
    help="Of a SavedModel: a function, by its name in the program that saved it.",
)
SIGNATURES = click.option(
    "--signature", "signatures", multiple=True, help="Of a SavedModel: the key of a signature."
)
FUNCTION = click.option(
    "--function",
    help="Of a SavedModel: the function, by its name in the program that saved it; the only one "
    "that trains if none is named.",
)
SIGNATURE = click.option("--signature", help="Of a SavedModel: the key of a signature instead.")
SHAPES = click.option(
    "--shape",
    "shapes",
    multiple=True,
    callback=_as_shapes,
    help='Of a SavedModel: a shape to go by where one is open, such as "x=64,16".',
)
