"""Files with random damage: commands say in one line what is wrong, or do their work."""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from support.commands import run
from support.steps import tiny_step

import memopt
from memopt.buffers.kernel_call import KernelMemory, Placement, Runtime
from memopt.graph.graphdef import from_graph_def
from memopt.io import as_item
from memopt.kernels.table import Environment, KernelTable, MeasuredKernel
from memopt.runtime.profiling import profile

_MODEL = "mlp"
_LONGEST_S = 60.0
_MOST_GROWTH_KIB = 3 << 20
_MOST_DAMAGE = 4
_ODD_NUMBERS = ("-1", "0", "1e308", "9" * 40, "0.5", "NaN", "true", "null", '"x"', "[]", "{}")


class Checked(NamedTuple):
    """What came of a damaged file.

    Attributes:
        findings: What should not be, in words.
        counts: Whether it was refused.
    """

    findings: list[str]
    counts: dict[str, int]


class _Sound(NamedTuple):
    """A file without damage.

    Attributes:
        content: What it holds.
        commands: What reads it; "FILE" and "OUT" stand for it and for what is written.
    """

    content: bytes
    commands: tuple[tuple[str, ...], ...]


def check_file(seed: int) -> Checked:
    """Damage a file and give it to a command."""
    chance = random.Random(seed)
    sound = _sound_files()
    name = chance.choice(sorted(sound))
    content = damaged(sound[name].content, chance, is_json=name.endswith(".json"))
    command = chance.choice(sound[name].commands)
    with tempfile.TemporaryDirectory(prefix="memopt-fuzz-") as folder:
        path, out = Path(folder) / f"damaged_{name}", Path(folder) / "out.pb"
        path.write_bytes(content)
        words = [{"FILE": str(path), "OUT": str(out)}.get(word, word) for word in command]
        return _checked(words, out, f"{command[0]} {name}")


def _checked(words: list[str], out: Path, what: str) -> Checked:
    started = time.monotonic()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        ended = run(*words)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Checked([f"{what}: {type(error).__name__}: {str(error)[:300]}"], {"refused": 0})
    findings = []
    seconds = time.monotonic() - started
    if seconds > _LONGEST_S:
        findings.append(f"{what}: took {seconds:.0f} s")
    growth_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    if growth_kib > _MOST_GROWTH_KIB:
        findings.append(f"{what}: took {growth_kib >> 10} MiB")
    if ended.status not in (0, 1):
        findings.append(f"{what}: ended with status {ended.status}")
    if ended.status == 1:
        lines = ended.errors.splitlines()
        if len(lines) != 1 or not lines[0].startswith("memopt: ") or ended.output:
            findings.append(f"{what}: said {ended.errors[:300]!r} and {ended.output[:100]!r}")
        if out.exists():
            findings.append(f"{what}: wrote what it refused")
    return Checked(findings, {"refused": int(ended.status == 1)})


def damaged(content: bytes, chance: random.Random, *, is_json: bool = False) -> bytes:
    """Some content with a few places changed."""
    for _ in range(chance.randint(1, _MOST_DAMAGE)):
        if not content:
            return content
        ways = _TEXT_DAMAGE if is_json and chance.random() < 0.7 else _DAMAGE
        content = chance.choice(ways)(content, chance)
    return content


def _flip(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    changed = content[place] ^ (1 << chance.randrange(8))
    return content[:place] + bytes([changed]) + content[place + 1 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _remove(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    return content[:start] + content[start + chance.randint(1, 64) :]


def _repeat(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    piece = content[start : start + chance.randint(1, 256)]
    return content[:start] + piece * chance.randint(2, 5) + content[start:]


def _insert(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + chance.randbytes(chance.randint(1, 16)) + content[place:]


def _move(content: bytes, chance: random.Random) -> bytes:
    start, place = chance.randrange(len(content)), chance.randrange(len(content))
    piece = content[start : start + chance.randint(1, 128)]
    return content[:place] + piece + content[place + len(piece) :]


def _number(content: bytes, chance: random.Random) -> bytes:
    """Another value in place of a number of a JSON text."""
    digits = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if not digits:
        return _flip(content, chance)
    start = end = chance.choice(digits)
    while end < len(content) and 48 <= content[end] <= 57:
        end += 1
    return content[:start] + chance.choice(_ODD_NUMBERS).encode() + content[end:]


def _nest(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + b"[" * chance.choice((1, 100, 100_000)) + content[place:]


_Damage = Callable[[bytes, random.Random], bytes]
_DAMAGE: tuple[_Damage, ...] = (_flip, _flip, _cut, _remove, _repeat, _insert, _move)
_TEXT_DAMAGE: tuple[_Damage, ...] = (_number, _number, _number, _nest, _remove, _repeat)


@cache
def _sound_files() -> dict[str, _Sound]:
    """Files of every kind that commands read, by name."""
    from google.protobuf import text_format

    step = tiny_step(_MODEL).function
    item = as_item(step)
    folder = Path(tempfile.mkdtemp(prefix="memopt-fuzz-sound-"))
    good = folder / "good.pb"
    good.write_bytes(item.graph_def.SerializeToString())
    memopt.save(step, folder / "meta.pb")
    reading: tuple[tuple[str, ...], ...] = (
        ("optimize", "FILE", "-o", "OUT"),
        ("optimize", "FILE", "-o", "OUT", "--level", "ordered"),
        ("optimize", "FILE", "-o", "OUT", "--budget", "80%"),
        ("analyze", "FILE"),
    )
    costs = (("optimize", str(good), "-o", "OUT", "--costs", "FILE"),)
    kernels = (("optimize", str(good), "-o", "OUT", "--level", "ordered", "--kernels", "FILE"),)
    (metadata,) = profile(step, steps=1)
    return {
        "graph.pb": _Sound(good.read_bytes(), reading),
        "graph.pbtxt": _Sound(text_format.MessageToString(item.graph_def).encode(), reading),
        "meta.pb": _Sound((folder / "meta.pb").read_bytes(), reading),
        "cost_graph.json": _Sound(
            _cost_graph(), (("plan", "FILE", "--budget", "0.8", "--time-limit", "5", "-o", "OUT"),)
        ),
        "costs.json": _Sound(_costs(step), costs),
        "profile.pb": _Sound(metadata.SerializeToString(), costs),
        "kernels.json": _Sound(_kernels(folder), kernels),
    }


def _cost_graph() -> bytes:
    count = 20
    nodes = [{"id": n, "cost": 10 + n % 3, "size": 100 + n} for n in range(count)]
    edges = [[n - back, n] for n in range(count) for back in (1, 4) if n >= back]
    plain = {"name": "chain", "nodes": nodes, "edges": edges, "order": list(range(count))}
    return json.dumps(plain).encode()


def _costs(step: Any) -> bytes:
    nodes = {node.name: 1000 for node in from_graph_def(as_item(step).graph_def)}
    return json.dumps({"nodes": nodes, "ops": {"MatMul": 5000}}).encode()


def _kernels(folder: Path) -> bytes:
    kernels = {
        f"{number:032x}": MeasuredKernel("Relu()", KernelMemory((Placement(-1, (0,)),), 64), 900)
        for number in range(8)
    }
    path = folder / "kernels.json"
    KernelTable({Environment.of(Runtime()): kernels}).save(str(path))
    return path.read_bytes()
