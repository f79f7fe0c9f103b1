"""Traces and runs functions of all kinds in many threads at once, for some seconds."""

from __future__ import annotations

import threading
import time
from typing import Any

import memopt
from support.programs.steps import KINDS, Net, make_data

THREADS = 8


def main(seconds: str, *kinds: str) -> dict[str, Any]:
    """How often each kind ran, and what went wrong."""
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(1)
    expected = {name: KINDS[name]() for name in kinds}
    memopt.enable(budget="60%")
    end = time.monotonic() + float(seconds)
    wrong: list[str] = []
    count = [0] * THREADS

    def work(number: int) -> None:
        names = [*kinds[number % len(kinds) :], *kinds]
        while time.monotonic() < end:
            name = names[count[number] % len(names)]
            try:
                if KINDS[name]() != expected[name]:
                    wrong.append(f"{name}: another result")
                data = tf.data.Dataset.range(20).map(lambda value: value * 2).batch(4)
                if sum(int(tf.reduce_sum(batch)) for batch in data) != 380:
                    wrong.append("tf.data: another result")
                eager = Net()
                eager.train(*make_data())
            except Exception as error:  # noqa: BLE001 - all threads are to be heard
                wrong.append(f"{name}: {type(error).__name__}: {error}")
            count[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = memopt.last_reports()
    return {
        "wrong": wrong,
        "ran": sum(count),
        "rewritten": sum(record.outcome == "rewritten" for record in done),
        "failed": sorted({record.error for record in done if record.error}),
    }
