"""What a process is to run of a SavedModel: a signature, a loader, and what it is given."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memopt.runtime.process import StepProcess
from memopt.runtime.settings import SETTINGS_FILE
from memopt.runtime.values import load_values, save_values
from memopt.runtime.worker_process import ending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from memopt.runtime.settings import Settings

Loader = Literal["python", "session"]

_WORKER = "memopt.saved_model.worker"
_JOB_FILE, _INPUTS_FILE = "saved_model.json", "inputs.npz"


@dataclass(frozen=True)
class Job:
    """A signature of a SavedModel to run.

    Attributes:
        path: The folder of the SavedModel.
        tags: Those of the graph.
        signature: The key.
        loader: "python" for `tf.saved_model.load`, "session" for TensorFlow's C++ loader and the
            session that it makes, without a graph of Python's.
        names: The outputs, in order.
    """

    path: str
    tags: tuple[str, ...]
    signature: str
    loader: Loader
    names: tuple[str, ...]

    @classmethod
    def load(cls, directory: Path) -> tuple[Job, dict[str, npt.NDArray[Any]]]:
        """The job in a directory, and the values of its inputs."""
        plain = json.loads((directory / _JOB_FILE).read_text("utf-8"))
        plain |= {key: tuple(plain[key]) for key in ("tags", "names")}
        return cls(**plain), load_values(directory / _INPUTS_FILE)

    @contextmanager
    def process(
        self, inputs: Mapping[str, npt.NDArray[Any]], settings: Settings
    ) -> Iterator[StepProcess]:
        """A fresh process that does the job; it ends, and its files go, with the context."""
        with tempfile.TemporaryDirectory(prefix="memopt-saved-model-") as name:
            directory = Path(name)
            plain = json.dumps(dataclasses.asdict(self))
            (directory / _JOB_FILE).write_text(plain, encoding="utf-8")
            save_values(directory / _INPUTS_FILE, inputs)
            (directory / SETTINGS_FILE).write_text(json.dumps(settings.to_json()), encoding="utf-8")
            with ending(StepProcess(directory, settings, _WORKER)) as process:
                yield process
