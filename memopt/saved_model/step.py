"""One function of a SavedModel as a step, for what works on steps: the largest batch, profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.errors import OptionsError
from memopt.saved_model.entry import make_wish
from memopt.saved_model.files import read_saved_model
from memopt.saved_model.functions import choose
from memopt.saved_model.library import LibraryRewriting, computes_gradients
from memopt.saved_model.main_graph import find_work

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from memopt.item import GrapplerItem
    from memopt.saved_model.bodies import StepBody
    from memopt.saved_model.functions import ModelFunction

_MOST_NAMES = 10


@dataclass(frozen=True)
class ModelStep:
    """A function of a SavedModel, to be looked at as a step.

    Attributes:
        message: The message of the SavedModel.
        rewriting: The library that the function stands in.
        function: The function.
        body: What stands in the library.
        settled: What runs: what Grappler makes of the body, where it trains, or the body itself.
    """

    message: SavedModel
    rewriting: LibraryRewriting
    function: ModelFunction
    body: StepBody
    settled: StepBody

    @property
    def item(self) -> GrapplerItem:
        """The graph that runs."""
        return self.settled.item

    @property
    def after_grappler(self) -> bool:
        """Whether that is what Grappler made, and runs without it."""
        return self.settled is not self.body

    @property
    def arguments(self) -> dict[str, str]:
        """By what callers call an argument the node that stands for it."""
        return {called: node for node, called in self.settled.called_as.items()}

    def node_of(self, name: str) -> str:
        """The node of an argument.

        Raises:
            OptionsError: There is no such argument; the message has those that there are.
        """
        known = self.arguments
        if name not in known and name not in known.values():
            raise OptionsError(
                f"{self.function.called_as} takes no argument {name!r}; there are: "
                f"{', '.join(known) or 'none'}"
            )
        return known.get(name, name)


def read_step(
    path: str | os.PathLike[str],
    function: str | None = None,
    signature: str | None = None,
    after_grappler: bool | None = None,
) -> ModelStep:
    """A function of a SavedModel as a step: the one that is named, or the only one that trains.

    Args:
        path: The folder of the SavedModel.
        function: The function's name in the library, or in the program that saved it.
        signature: The key of a signature that runs it.
        after_grappler: Whether it is what Grappler makes of it; `None` if it trains.

    Raises:
        FileError: The SavedModel cannot be read.
        OptionsError: There is no such function, or several; or XLA compiles it.
        InvalidGraphError: It breaks a rule.
    """
    message = read_saved_model(path)
    wish = make_wish(after_grappler=after_grappler)
    functions = [] if function is None else [function]
    signatures = [] if signature is None else [signature]
    found: list[tuple[LibraryRewriting, ModelFunction]] = []
    for meta_graph in message.meta_graphs:
        rewriting = LibraryRewriting(meta_graph, wish, path)
        found += [(rewriting, one) for one in find_work(meta_graph)]
    chosen = choose([one for _, one in found], functions, signatures)
    wanted = [(rewriting, one) for rewriting, one in found if any(one is each for each in chosen)]
    if not functions and not signatures:
        wanted = [pair for pair in wanted if _trains(*pair)]
    rewriting, one = _only(wanted, [one.called_as for _, one in found])
    if one.compiled:
        raise OptionsError(
            f"XLA compiles {one.called_as}, all of it into one program without operations"
        )
    body = rewriting.body(one)
    return ModelStep(message, rewriting, one, body, rewriting.settled(body))


def sized(step: ModelStep, shapes: Mapping[str, Iterable[int]]) -> GrapplerItem:
    """A step whose open dimensions have the sizes that are given.

    Raises:
        OptionsError: A shape is not one that the function takes, is for no argument of it, or is
            missing.
    """
    known = make_wish(shapes=shapes).shapes or {}
    for name in known:
        step.node_of(name)
    still_open = step.settled.open_arguments(known)
    if still_open:
        name, shape = still_open[0]
        raise OptionsError(f"the shape of {name} is open, {shape}: give one, --shape {name}=...")
    return step.settled.sized(known)


def _trains(rewriting: LibraryRewriting, one: ModelFunction) -> bool:
    return computes_gradients(rewriting.body(one).step_graph)


def _only(
    wanted: Sequence[tuple[LibraryRewriting, ModelFunction]], names: Sequence[str]
) -> tuple[LibraryRewriting, ModelFunction]:
    """The one that there is.

    Raises:
        OptionsError: There is none, or there are several.
    """
    if len(wanted) == 1:
        return wanted[0]
    there = ", ".join(sorted({one.called_as for _, one in wanted} or set(names))[:_MOST_NAMES])
    what = "several functions train" if wanted else "no function trains"
    raise OptionsError(f"{what}: name one with --function; there are: {there or 'none'}")
