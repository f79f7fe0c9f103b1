"""A worker of a fleet that misbehaves as it is told, without TensorFlow: it starts at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

HELD: list[bytes] = []
MEBIBYTES = 1 << 20


def obey(order: str) -> None:
    """Do what the order says, which may be the end."""
    what, _, number = order.partition(" ")
    if what == "hang":
        time.sleep(60)
    if what == "die":
        sys.stderr.write("what it last said\n")
        sys.stderr.flush()
        os.abort()
    if what == "keep":
        HELD.append(b"x" * (int(number) * MEBIBYTES))
        # So long that who watches looks once.
        time.sleep(0.3)
    if what == "eat":
        eaten = b"x" * (int(number) * MEBIBYTES)
        time.sleep(60)
        del eaten
    if what == "let":
        # What it starts has memory too.
        source = f"held = b'x' * ({number} << 20); import time; time.sleep(60)"
        subprocess.run([sys.executable, "-c", source], check=False)


def say(answer: object) -> None:
    """Answer in a line of JSON."""
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


os.setsid()
say({"ready": os.getpid()})
for line in sys.stdin:
    obey(json.loads(line)["order"])
    say({"done": {"pid": os.getpid()}})
