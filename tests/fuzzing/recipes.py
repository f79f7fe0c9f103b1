"""Recipes: random training steps as plain data, which can be made, shrunk and kept in files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fuzzing.operations import BINARY, CONTROL, MANY, SPECIAL, UNARY, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

OPTIMIZERS = ("descent", "momentum", "adam")
WRAPPINGS = ("plain", "plain", "plain", "called", "called twice", "noinline")
_ROWS = (8, 24, 64)
_WIDTHS = (4, 16, 48)
_MOST_OPERATIONS = 24
_ON_SECOND_DEVICE = 0.15


@dataclass(frozen=True)
class Operation:
    """One operation of a recipe.

    Attributes:
        kind: Its name in `fuzzing.operations`.
        inputs: Numbers of the values that it reads: first the inputs, then one for each operation.
        number: A number by which the kind may vary.
        device: The number of the host device that it runs on.
    """

    kind: str
    inputs: tuple[int, ...]
    number: int = 0
    device: int = 0


@dataclass(frozen=True)
class Recipe:
    """A training step.

    Attributes:
        seed: What it was made from.
        shapes: Of the inputs.
        operations: In order.
        losses: Numbers of the values whose squares make the loss.
        optimizer: How variables are updated.
        wrapping: How the step is called.
    """

    seed: int
    shapes: tuple[Shape, ...]
    operations: tuple[Operation, ...]
    losses: tuple[int, ...]
    optimizer: str = "descent"
    wrapping: str = "plain"

    @property
    def devices(self) -> int:
        """How many devices it runs on."""
        return len({operation.device for operation in self.operations} | {0})

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Recipe:
        """The recipe that `to_json` described."""
        operations = [
            Operation(each["kind"], tuple(each["inputs"]), each["number"], each["device"])
            for each in plain["operations"]
        ]
        return cls(
            plain["seed"],
            tuple(map(tuple, plain["shapes"])),
            tuple(operations),
            tuple(plain["losses"]),
            plain["optimizer"],
            plain["wrapping"],
        )


def random_recipe(seed: int) -> Recipe:
    """The recipe of a seed; the same in every process."""
    import numpy as np

    random = np.random.default_rng(seed)
    rows = int(random.choice(_ROWS))
    shapes: list[Shape] = [
        (rows, int(random.choice(_WIDTHS))) for _ in range(random.integers(1, 4))
    ]
    known: list[Shape] = list(shapes)
    operations: list[Operation] = []
    spreads = bool(random.random() < _ON_SECOND_DEVICE)
    for _ in range(int(random.integers(3, _MOST_OPERATIONS + 1))):
        operation = _random_operation(random, known, spreads=spreads)
        operations.append(operation)
        known.append(result_shape(operation, known))
    made = range(len(shapes), len(known))
    count = min(len(made), int(random.integers(1, 4)))
    losses = {made[-1], *(int(n) for n in random.choice(made, count, replace=False))}
    return Recipe(
        seed,
        tuple(shapes),
        tuple(operations),
        tuple(sorted(losses)),
        str(random.choice(OPTIMIZERS)),
        # Functions that are given variables of several devices TensorFlow cannot place.
        "plain" if spreads else str(random.choice(WRAPPINGS)),
    )


def _random_operation(
    random: np.random.Generator, known: Sequence[Shape], *, spreads: bool
) -> Operation:
    """An operation that reads earlier values, the last ones more often."""
    weights = [0.45, 0.2, 0.12, 0.15, 0.08]
    family = (UNARY, BINARY, MANY, SPECIAL, CONTROL)[int(random.choice(len(weights), p=weights))]
    kind = str(random.choice(sorted(family)))
    first = _pick(random, len(known))
    inputs = [first]
    alike = [number for number, shape in enumerate(known) if shape == known[first]]
    several = int(random.integers(1, 4))
    more = 1 if family is BINARY else several if family is MANY else 0
    inputs += [int(random.choice(alike)) for _ in range(more)]
    device = int(random.integers(2)) if spreads else 0
    return Operation(kind, tuple(inputs), int(random.integers(1 << 16)), device)


def _pick(random: np.random.Generator, count: int) -> int:
    back = int(random.geometric(0.35))
    return count - back if back <= count else int(random.integers(count))


def result_shape(operation: Operation, known: Sequence[Shape]) -> Shape:
    """The shape of what an operation makes."""
    rows, width = known[operation.inputs[0]]
    if operation.kind in SPECIAL:
        return (rows, SPECIAL[operation.kind].width(width, operation.number))
    return (rows, width)


def smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with a little less, the least first."""
    for keep in range(1, len(recipe.operations)):
        yield _first_operations(recipe, keep)
    for number in reversed(range(len(recipe.operations))):
        yield from _without(recipe, number)
    for loss in recipe.losses:
        if len(recipe.losses) > 1:
            yield replace(recipe, losses=tuple(one for one in recipe.losses if one != loss))
    if recipe.wrapping != "plain":
        yield replace(recipe, wrapping="plain")
    if recipe.optimizer != "descent":
        yield replace(recipe, optimizer="descent")


def _first_operations(recipe: Recipe, count: int) -> Recipe:
    """The first operations, of which the last is the loss."""
    last = len(recipe.shapes) + count - 1
    return replace(recipe, operations=recipe.operations[:count], losses=(last,))


def _without(recipe: Recipe, number: int) -> Iterator[Recipe]:
    """Without an operation; who reads it reads an input of it, if that is of its shape."""
    place = len(recipe.shapes) + number
    known = list(recipe.shapes)
    for operation in recipe.operations:
        known.append(result_shape(operation, known))
    for stand_in in recipe.operations[number].inputs:
        if known[stand_in] != known[place]:
            continue

        def moved(value: int, stand_in: int = stand_in) -> int:
            value = stand_in if value == place else value
            return value - (value > place)

        operations = [
            replace(operation, inputs=tuple(map(moved, operation.inputs)))
            for each, operation in enumerate(recipe.operations)
            if each != number
        ]
        losses = tuple(sorted({moved(loss) for loss in recipe.losses}))
        if operations and max(losses) >= len(recipe.shapes):
            yield replace(recipe, operations=tuple(operations), losses=losses)
