"""What a worker's process runs: orders, one after another, until nobody asks any more.

Started as `python -m memopt.workers.worker FOLDER`.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import TYPE_CHECKING, Any

from memopt.errors import MemoptError
from memopt.runtime.worker import message_of
from memopt.workers.orders import REFUSED, TaskError, order_in
from memopt.workers.surroundings import versions

if TYPE_CHECKING:
    from typing import TextIO

ERROR, OTHER_VERSIONS = "error", "versions"


def serve(answers: TextIO) -> None:
    """Answer the orders on the standard input, each in a line of JSON."""
    import tensorflow  # noqa: F401, ICN001 - before it says that it is ready: a task's time is its own

    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    _say(answers, {"ready": os.getpid()})
    while True:
        _say(answers, answer_to(json.loads(orders.get())))


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """What came of one request.

    Returns:
        `{"done": ...}`, or `{"failed": {"kind": ..., "reason": ..., "functions": ...}}`.
    """
    try:
        _check_versions(request["versions"])
        return {"done": order_in(request).perform()}
    except TaskError as error:
        return failed(error.kind, str(error), error.figures)
    except MemoptError as error:
        return failed(REFUSED, str(error))
    except MemoryError:
        return failed("memory", "Python ran out of memory")
    except Exception as error:  # noqa: BLE001 - whatever fails, other tasks are to be done
        return failed(ERROR, message_of(error))


def failed(kind: str, reason: str, figures: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The answer that says that a task failed."""
    line = " ".join(reason.split())
    return {"failed": {"kind": kind, "reason": line, "functions": figures or []}}


def _check_versions(expected: dict[str, str]) -> None:
    """Refuse to make what another process would make differently.

    Raises:
        TaskError: A package is another one here.
    """
    for name, version in expected.items():
        if versions()[name] != version:
            raise TaskError(
                OTHER_VERSIONS,
                f"{os.uname().nodename} has {name} {versions()[name]}, and what asked "
                f"was started with {version}: results would differ",
            )


def _listen(orders: queue.SimpleQueue[str]) -> None:
    """Hand over what is asked; this process ends with whoever asks, in the middle of a task too."""
    for line in sys.stdin:
        orders.put(line)
    os._exit(1)


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main() -> None:
    """Serve whoever started this process."""
    # Whoever ends this process ends what it started too.
    os.setsid()
    # TensorFlow prints to the standard output; the answers get a channel of their own.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(answers)


if __name__ == "__main__":
    main()
