"""The process that runs a signature: `python -m memopt.saved_model.worker DIRECTORY`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.errors import ExecutionError
from memopt.runtime.values import copy_of
from memopt.runtime.worker import Worker, main
from memopt.saved_model.job import Job
from memopt.saved_model.session import LoadedSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from memopt.runtime.replay import Buffer
    from memopt.runtime.runners import Runner
    from memopt.runtime.settings import Settings

    Array = npt.NDArray[Any]


class SavedModelWorker(Worker):
    """A signature of a SavedModel in this process."""

    @staticmethod
    def prepare(directory: Path, settings: Settings) -> tuple[Sequence[str], Runner]:
        """What runs the signature, and the names of its outputs."""
        job, inputs = Job.load(directory)
        if job.loader == "python":
            return job.names, _LoadedFunction(job, inputs)
        return job.names, LoadedSession(job, inputs, settings.session_config())


class _LoadedFunction:
    """A signature as Python's loader gives it.

    Raises:
        ExecutionError: TensorFlow does not load the model, or it has no such signature.
    """

    outside: Sequence[Buffer] = ()

    def __init__(self, job: Job, inputs: Mapping[str, Array]) -> None:
        import tensorflow as tf

        # The objects of the model live as long as it does.
        self._model = tf.saved_model.load(job.path, tags=list(job.tags))
        if job.signature not in self._model.signatures:
            raise ExecutionError(f"{job.path}: tf.saved_model.load gives no {job.signature!r}")
        self._function = self._model.signatures[job.signature]
        self._names = job.names
        self.feed(inputs)

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Have steps from now on run with values of the inputs, by name of the signature's."""
        import tensorflow as tf

        self._inputs = {name: tf.constant(value) for name, value in inputs.items()}

    def step(self) -> Sequence[Any]:
        """Run once and wait for the end."""
        import tensorflow as tf

        outputs = self._function(**self._inputs)
        tf.test.experimental.sync_devices()
        return [outputs[name] for name in self._names]

    def variables(self) -> dict[str, Array]:
        """Copies of the values of all variables that the signature uses."""
        return {
            f"{number}: {variable.name}": copy_of(variable)
            for number, variable in enumerate(self._function.variables)
        }


if __name__ == "__main__":
    main(SavedModelWorker)
