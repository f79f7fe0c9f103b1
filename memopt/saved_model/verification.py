"""Two SavedModels run for real, each signature in fresh processes by each loader, and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memopt.display import Displayed, Overview, Paged, Table, change_text, count_text
from memopt.errors import InvalidGraphError, OptionsError
from memopt.progress import task
from memopt.runtime.comparison import compare_values
from memopt.runtime.settings import Settings, is_deterministic_here
from memopt.runtime.step_graph import TensorSpec
from memopt.runtime.synthesis import complete_values
from memopt.runtime.values import load_values
from memopt.runtime.verification import Verification, time_in_turns
from memopt.saved_model.files import read_saved_model
from memopt.saved_model.functions import INIT_SIGNATURE, signatures_in_graph
from memopt.saved_model.job import Job
from memopt.saved_model.main_graph import find_uses
from memopt.saved_model.remote import at_hand

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from memopt.runtime.comparison import Difference
    from memopt.runtime.process import StepProcess
    from memopt.runtime.settings import Mode
    from memopt.saved_model.job import Loader

    Values = Mapping[str, npt.NDArray[Any]]

LOADERS: tuple[Loader, ...] = ("python", "session")


@dataclass(frozen=True, repr=False)
class SignatureVerification(Displayed):
    """What running one signature of both SavedModels showed.

    Attributes:
        signature: The key.
        loader: "python" for `tf.saved_model.load`, "session" for TensorFlow's C++ loader.
        verification: What was measured and compared.
        as_in_python: Whether the rewritten signature, in a session, gives in every step the bits
            that the original gives by Python's loader; looked at where the original gives others in
            a session. Variables, which the loaders call differently, are not compared then. Of a
            signature of the main graph, as in TensorFlow 1, it is the other way round: by Python's
            loader it may give the bits that the original gives in a session.
    """

    signature: str
    loader: Loader
    verification: Verification
    as_in_python: bool = False

    @property
    def equal(self) -> bool:
        """Whether every output of every step and every variable is the same to the bit.

        In a session Grappler may do something else to the original than under Python's loader; what
        it made of it there, at the time of the rewriting, is what the rewritten one computes.
        """
        return self.verification.equal or self.as_in_python

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "signature": self.signature,
            "loader": self.loader,
            "equal": self.equal,
            "as_in_python": self.as_in_python,
            "verification": self.verification.to_json(),
        }

    def row(self) -> tuple[str, ...]:
        """The cells of a table with the columns `COLUMNS`."""
        found = self.verification
        verdict = "equal, bit for bit" if found.equal else "NOT EQUAL"
        if self.as_in_python and not found.equal:
            other = "by Python's loader" if self.loader == "session" else "in a session"
            verdict = f"equal to the original {other}"
        own = change_text(found.original.step_peak_bytes, found.rewritten.step_peak_bytes)
        ratio = "" if found.time_ratio is None else f"x{found.time_ratio:.2f}"
        return self.signature, self.loader, verdict, own, ratio

    def _overview(self) -> Overview:
        notes = tuple(map(str, self.verification.differences))
        return Overview("SignatureVerification", "", (Table(COLUMNS, (self.row(),)),), notes)


COLUMNS = ("signature", "loader", "results", "measured peak of the step's own", "time")


@dataclass(frozen=True, repr=False)
class SavedModelVerification(Paged):
    """What running two SavedModels showed.

    Attributes:
        signatures: Each signature by each loader.
        skipped: What was not run, and why.
    """

    signatures: tuple[SignatureVerification, ...]
    skipped: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all of them compute the same; see `SignatureVerification.equal`."""
        return all(one.equal for one in self.signatures)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "equal": self.equal,
            "signatures": [one.to_json() for one in self.signatures],
            "skipped": list(self.skipped),
        }

    def _overview(self) -> Overview:
        number = count_text(len(self.signatures), "run")
        outcome = f"{'equal' if self.equal else 'NOT EQUAL'}, {number} compared"
        table = Table.of(COLUMNS, self.signatures, SignatureVerification.row)
        notes = [str(d) for one in self.signatures for d in one.verification.differences]
        return Overview("SavedModelVerification", outcome, (table,), (*self.skipped, *notes))


def verify_saved_models(  # noqa: PLR0913 - keywords, each with a default
    original: str | os.PathLike[str],
    rewritten: str | os.PathLike[str],
    *,
    signatures: Sequence[str] = (),
    loaders: Sequence[Loader] = LOADERS,
    inputs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Iterable[int]] | None = None,
    steps: int = 3,
    mode: Mode = "as-is",
    timing_rounds: int = 3,
    seed: int = 0,
) -> SavedModelVerification:
    """Run signatures of two SavedModels, each in fresh processes, and compare all they compute.

    Every output of every step is compared bit for bit, and every variable that the signature uses
    afterwards. Each step starts from where the last one left the variables.

    Args:
        original: The folder of the SavedModel before.
        rewritten: The folder of the one after.
        signatures: Keys; all that both have if none is given.
        loaders: "python" for `tf.saved_model.load`, "session" for TensorFlow's C++ loader.
        inputs: Values by name of an input; what is missing is made up from the seed.
        shapes: Shapes of made-up values where dimensions are open, by name of an input.
        steps: How many steps to run.
        mode: "as-is" runs as TensorFlow does by default, "exact" with everything off that may
            change the last bits (oneDNN, Grappler, several operations at once).
        timing_rounds: How often to time both in turns; 0 for not at all.
        seed: What made-up values come from.

    Raises:
        FileError: One of them cannot be read.
        OptionsError: A signature is not there, or a value cannot be made up.
        InvalidGraphError: A signature does not take and give the same in both.
        ExecutionError: A run failed.
    """
    if steps < 1:
        raise OptionsError(f"at least 1 step must be run, not {steps}")
    settings = Settings(mode=mode, deterministic=is_deterministic_here())
    with at_hand(original) as first, at_hand(rewritten) as second:
        compare = _Comparison(str(first), str(second), settings, steps, timing_rounds)
        return _compare(compare, signatures, loaders, inputs or {}, shapes or {}, seed)


def _compare(
    compare: _Comparison,
    signatures: Sequence[str],
    loaders: Sequence[Loader],
    inputs: Mapping[str, Any],
    shapes: Mapping[str, Iterable[int]],
    seed: int,
) -> SavedModelVerification:
    before, after = read_saved_model(compare.original), read_saved_model(compare.rewritten)
    found: list[SignatureVerification] = []
    skipped = [
        "what the collection train_op names is not run: no signature runs it"
        for meta_graph in before.meta_graphs
        if any(not one.signatures for one in find_uses(meta_graph))
    ]
    chosen = _signatures(before, after, signatures)
    with task("signatures", len(chosen) * len(loaders)) as under_way:
        for tags, key, meta_graph in chosen:
            given = _inputs(meta_graph, key, inputs, shapes, seed)
            names = tuple(sorted(meta_graph.signature_def[key].outputs))
            in_graph = key in signatures_in_graph(meta_graph)
            for loader in loaders:
                under_way.say(f"{key} ({loader})")
                if loader == "session" and _has_texts(meta_graph, key):
                    skipped.append(f"signature {key!r} is not run in a session: it has texts")
                else:
                    job = Job(compare.original, tags, key, loader, names)
                    settled_for: Loader = "session" if in_graph else "python"
                    found.append(compare.run(job, given, settled_for))
                under_way.advance()
    return SavedModelVerification(tuple(found), tuple(skipped))


@dataclass(frozen=True)
class _Results:
    """What a signature computed."""

    outputs: Sequence[Values]
    variables: Values

    def differences(self, other: _Results) -> list[Difference]:
        """What another run computed differently."""
        found = []
        for step, (mine, others) in enumerate(zip(self.outputs, other.outputs, strict=True)):
            found += compare_values("output", step, mine, others)
        return found + compare_values(
            "variable", len(self.outputs), self.variables, other.variables
        )


@dataclass(frozen=True)
class _Comparison:
    """How two SavedModels are compared."""

    original: str
    rewritten: str
    settings: Settings
    steps: int
    timing_rounds: int

    def run(self, job: Job, inputs: Values, settled_for: Loader) -> SignatureVerification:
        """Run both and compare them.

        Args:
            job: What of the original is run.
            inputs: What it is given.
            settled_for: The loader that Grappler worked for when the other was made.
        """
        other = replace(job, path=self.rewritten)
        with (
            job.process(inputs, self.settings) as first,
            other.process(inputs, self.settings) as second,
        ):
            expected, computed = self._results(first), self._results(second)
            differences = expected.differences(computed)
            verification = Verification(
                tuple(differences),
                first.measure(),
                second.measure(),
                time_in_turns(first, second, self.timing_rounds),
                self.settings.mode,
                self.steps,
                own_changes=tuple(self._own_changes(job, inputs, expected, differences)),
            )
        as_in_python = False
        if differences and job.loader != settled_for:
            as_in_python = self._is_as_elsewhere(job, inputs, computed, settled_for)
        return SignatureVerification(job.signature, job.loader, verification, as_in_python)

    def _results(self, process: StepProcess) -> _Results:
        outputs = [load_values(path) for path in process.run(self.steps)]
        return _Results(outputs, process.variables())

    def _own_changes(
        self, job: Job, inputs: Values, expected: _Results, differences: Sequence[Difference]
    ) -> list[Difference]:
        """How the original differs from itself, where that may be why the two differ."""
        if not differences:
            return []
        with job.process(inputs, self.settings) as process:
            return expected.differences(self._results(process))

    def _is_as_elsewhere(
        self, job: Job, inputs: Values, computed: _Results, loader: Loader
    ) -> bool:
        """Whether outputs are those that the original has by another loader."""
        with replace(job, loader=loader).process(inputs, self.settings) as process:
            expected = self._results(process)
        return not _Results(expected.outputs, {}).differences(_Results(computed.outputs, {}))


def _signatures(
    before: SavedModel, after: SavedModel, wanted: Sequence[str]
) -> list[tuple[tuple[str, ...], str, MetaGraphDef]]:
    """The signatures that are compared, with the tags of their graphs, and the graphs.

    Raises:
        OptionsError: One that is wanted is not there, or there is none.
        InvalidGraphError: The two do not take and give the same.
    """
    others = {tuple(one.meta_info_def.tags): one for one in after.meta_graphs}
    found = []
    for meta_graph in before.meta_graphs:
        tags = tuple(meta_graph.meta_info_def.tags)
        for key in sorted(meta_graph.signature_def):
            signature = meta_graph.signature_def[key]
            if key == INIT_SIGNATURE or not signature.outputs or (wanted and key not in wanted):
                continue
            other = others.get(tags)
            if other is None or key not in other.signature_def:
                raise InvalidGraphError(f"the other SavedModel has no signature {key!r}")
            if other.signature_def[key] != signature:
                raise InvalidGraphError(f"signature {key!r} takes or gives something else")
            found.append((tags, key, meta_graph))
    missing = sorted(set(wanted) - {key for _, key, _ in found})
    if missing or not found:
        keys = sorted({key for one in before.meta_graphs for key in one.signature_def})
        raise OptionsError(
            f"there is no signature {missing[0] if missing else ''!r} to run; there are: "
            f"{', '.join(key for key in keys if key != INIT_SIGNATURE) or 'none'}"
        )
    return found


def _inputs(
    meta_graph: MetaGraphDef,
    key: str,
    given: Mapping[str, Any],
    shapes: Mapping[str, Iterable[int]],
    seed: int,
) -> Values:
    """A value for each input of a signature."""
    specs = {}
    for name, info in sorted(meta_graph.signature_def[key].inputs.items()):
        known = info.tensor_shape
        shape = None if known.unknown_rank else tuple(int(one.size) for one in known.dim)
        if name in shapes and (shape is None or -1 in shape):
            shape = tuple(shapes[name])
        specs[name] = TensorSpec(info.dtype, shape)
    here = {name: value for name, value in given.items() if name in specs}
    return complete_values("input", specs, here, seed)


def _has_texts(meta_graph: MetaGraphDef, key: str) -> bool:
    from tensorflow.core.framework import types_pb2

    signature = meta_graph.signature_def[key]
    infos = (*signature.inputs.values(), *signature.outputs.values())
    return any(info.dtype == types_pb2.DT_STRING for info in infos)
