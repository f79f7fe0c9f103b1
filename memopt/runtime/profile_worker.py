"""The process that profiles a step: `python -m memopt.runtime.profile_worker DIRECTORY`."""

from __future__ import annotations

import json
from pathlib import Path

from memopt.runtime.profiling import profile
from memopt.runtime.program import Program
from memopt.runtime.settings import SETTINGS_FILE, Settings
from memopt.runtime.worker import main


class ProfileWorker:
    """A step in this process whose operations are timed by TensorFlow.

    Args:
        directory: Where the program and the settings are.
    """

    def __init__(self, directory: Path) -> None:
        settings = Settings.from_json(json.loads((directory / SETTINGS_FILE).read_text("utf-8")))
        settings.configure_tensorflow()
        self._program = Program.load(directory)

    def profile(self, steps: int, directory: str) -> list[str]:
        """Run steps; TensorFlow's statistics of each go to a file of its own in `directory`."""
        paths = []
        for number, message in enumerate(profile(self._program, steps=steps)):
            path = Path(directory) / f"{number}.pb"
            path.write_bytes(message.SerializeToString())
            paths.append(str(path))
        return paths


if __name__ == "__main__":
    main(ProfileWorker)
