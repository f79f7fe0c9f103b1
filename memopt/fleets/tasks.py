"""What a fleet works on: models, budgets and shapes, and names for what comes out of them."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import OptionsError
from memopt.files.file_systems import is_remote
from memopt.io import GRAPH_SUFFIXES
from memopt.options import Budget, as_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
_DIGEST_LENGTH = 8
_UNITS = tuple((1 << 10 * power, unit) for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB")))


@dataclass(frozen=True)
class FleetOptions:
    """What holds for all tasks of a fleet; as for `optimize` and `optimize_saved_model`.

    Attributes:
        verify: Whether both are run for real, and nothing is written that computes something else.
        algorithm: How a budget is kept; `None` for the best of all.
        fix_shapes: Of SavedModels: accept functions that take the given shapes and no others.
        every: Of SavedModels: rewrite what computes no gradients as well.
        after_grappler: Whether Grappler works first; `None` for what is usual for the kind.
        pass_options: Options of passes.
    """

    verify: bool = False
    algorithm: str | None = None
    fix_shapes: bool = False
    every: bool = False
    after_grappler: bool | None = None
    pass_options: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"pass_options": list(self.pass_options)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> FleetOptions:
        """The options that `to_json` described."""
        return cls(**dict(plain) | {"pass_options": tuple(plain["pass_options"])})


@dataclass(frozen=True)
class Model:
    """A model that a user named.

    Attributes:
        path: As it was named.
        name: What its results are called: a name that no other model of the fleet has.
    """

    path: str
    name: str

    @property
    def is_remote(self) -> bool:
        """Whether it is in another file system than this machine's own."""
        return is_remote(self.path)


@dataclass(frozen=True)
class Task:
    """One model within one budget.

    Attributes:
        model: The model.
        budget: The budget.
        shapes: Shapes to plan with, by name of an argument; empty for those that the model says.
    """

    model: Model
    budget: Budget
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def name(self) -> str:
        """The place of its result below the fleet's folder, without a suffix."""
        parts = [_budget_name(self.budget)]
        parts += [f"{fit(name)}-{'x'.join(map(str, sizes))}" for name, sizes in self.shapes]
        variant = "_".join(parts)
        if len(variant) > _LONGEST_NAME:
            variant = f"{variant[: _LONGEST_NAME - _DIGEST_LENGTH - 1]}-{_digest(variant)}"
        return f"{self.model.name}/{variant}"

    @property
    def shapes_text(self) -> str:
        """The shapes as people write them; "" for none."""
        return ";".join(f"{name}={','.join(map(str, sizes))}" for name, sizes in self.shapes)


def find_models(paths: Iterable[str | os.PathLike[str]]) -> tuple[Model, ...]:
    """The models that paths name, each once, under names without collisions.

    A name is the last part of the path, without what file systems do not take everywhere. Models
    whose names would be the same, in any case, get the digest of their path behind it.

    Raises:
        OptionsError: There are none.
    """
    spelled = dict.fromkeys(_spelled(path) for path in paths)
    if not spelled:
        raise OptionsError("a fleet needs a model: the folder of a SavedModel, or a graph file")
    names = {path: _model_name(path) for path in spelled}
    taken = Counter(name.casefold() for name in names.values())
    return tuple(
        Model(path, name if taken[name.casefold()] == 1 else f"{name}-{_digest(path)}")
        for path, name in names.items()
    )


def find_tasks(
    models: Sequence[Model],
    budgets: Iterable[Budget | int | str],
    shapes: Sequence[Mapping[str, Iterable[int]]] = (),
) -> tuple[Task, ...]:
    """Every model within every budget at every set of shapes, model by model.

    Raises:
        OptionsError: There is no budget, or one that means nothing here.
    """
    known = _budgets(budgets)
    sets = [tuple(sorted((n, tuple(s)) for n, s in one.items())) for one in shapes] or [()]
    distinct = dict.fromkeys(sets)
    return tuple(Task(*one) for one in product(models, known, distinct))


def parse_budgets(texts: Iterable[str]) -> Iterator[str]:
    """Budgets as people list them: "50%,70%"; one with "=" is a single one of several devices."""
    for text in as_texts("budgets", tuple(texts)):
        yield from ([text] if "=" in text else text.split(","))


def parse_shape_set(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes that go together: "x=64,16;y=64".

    Raises:
        OptionsError: One is none.
    """
    from memopt.saved_model.entry import parse_shape

    return dict(parse_shape(part) for part in text.split(";"))


def fit(text: str) -> str:
    """A part of a path without what file systems do not take everywhere, and without "..".

    "" where nothing is left.
    """
    return _UNFIT.sub("-", text).strip("-.")[:_LONGEST_NAME].rstrip("-.")


def _spelled(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if "\0" in text or not text:
        raise OptionsError(f"{text!r}: is no path of a model")
    return text if is_remote(text) else str(Path(text).absolute())


def _model_name(path: str) -> str:
    last = path.rstrip("/\\").rpartition("/")[2]
    if last in ("", ".", ".."):
        last = Path(path).resolve().name
    lowered = last.lower()
    suffix = next((each for each in GRAPH_SUFFIXES if lowered.endswith(each)), "")
    return fit(last[: len(last) - len(suffix)]) or f"model-{_digest(path)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]


def _budgets(budgets: Iterable[Budget | int | str]) -> tuple[Budget, ...]:
    # A single text would be taken letter by letter.
    listed = (budgets,) if isinstance(budgets, str | int | Budget) else tuple(budgets)
    parsed = []
    for one in listed:
        texts = parse_budgets([one]) if isinstance(one, str) else [one]
        parsed += [Budget.parse(text) for text in texts]
    if not parsed:
        raise OptionsError("a fleet needs a budget, such as 60%")
    if any(one.of_device for one in parsed):
        raise OptionsError('the budget "device" is known where a step runs: give bytes or a share')
    return tuple(dict.fromkeys(parsed))


def _budget_name(budget: Budget) -> str:
    if budget.percent:
        return f"{budget.percent.normalize():f}pct"
    if budget.devices:
        return "_".join(f"{fit(name)}-{_budget_name(one)}" for name, one in budget.devices)
    for size_bytes, unit in _UNITS:
        if budget.size_bytes % size_bytes == 0:
            return f"{budget.size_bytes // size_bytes}{unit}"
    return f"{budget.size_bytes}B"
