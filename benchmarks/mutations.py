"""Changes the core a little in sixty places, one at a time, and counts what the tests notice.

The places are drawn by a seed from all comparisons, junctions, negations, sums, numbers and calls
of min, max, any, all in the code that decides about graphs; three that tests once missed are always
among them. Of each place the fast tests of its folder run in a copy of the repository, those that
are named like the changed module first, until one fails. Prints a line for each place and the share
that was noticed; ends with 1 if that is less than `--least`.

    python benchmarks/mutations.py [--places N] [--seed N] [--jobs N] [--least SHARE]
        [--root FOLDER] [--json FILE] [--again FILE]

`--root` is another checkout, such as one of an earlier commit: the same changes are looked for
there by function and statement, wherever it lies. `--again` runs those alone that a file of
`--json` has as missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from queue import Queue
from typing import Any, Literal

from machine import describe_machine
from mutation_points import Point, points_of

ROOT = Path(__file__).resolve().parents[1]
CORE = {
    "memopt/passes": ("tests/passes/test_*.py",),
    "memopt/swapping": ("tests/swapping/test_*.py", "tests/passes/test_swapping*.py"),
    "memopt/accumulation": ("tests/passes/test_addn*.py", "tests/passes/test_running_sums*.py"),
    "memopt/control_dependencies": (
        "tests/control_dependencies/test_*.py",
        "tests/passes/test_bypass_barriers*.py",
    ),
    "memopt/rematerialization": (
        "tests/rematerialization/test_*.py",
        "tests/passes/test_remat*.py",
        "tests/passes/test_scope_budgets.py",
    ),
    "memopt/sequencing": ("tests/sequencing/test_*.py", "tests/passes/test_ordering*.py"),
    "memopt/buffers": ("tests/buffers/test_*.py", "tests/sequencing/test_*.py"),
    "memopt/simulation": ("tests/simulation/test_*.py",),
    "memopt/planning/checker.py": ("tests/planning/test_*.py",),
    "memopt/plugin/policy.py": ("tests/test_signatures.py", "tests/plugin/test_*.py"),
    "memopt/graph/onednn_fusions.py": ("tests/graph/test_*.py",),
    "memopt/saved_model/assembly.py": ("tests/saved_model/test_rewriting.py",),
    "memopt/saved_model/bodies.py": ("tests/saved_model/test_rewriting.py",),
    "memopt/saved_model/functions.py": ("tests/saved_model/test_rewriting.py",),
}
"""What is changed, and the tests that are to notice it."""

KNOWN = (
    ("", "SMALLEST_BYTES = 1024", "1024 -> 2048"),
    ("", "touched = [buffer for buffer in touched if buffer not in handed_on[place]]", "not in"),
    ("_reader", "return next((user for user, where in uses", " and "),
)
"""Function, how the statement begins, what is in the change: what tests once missed."""

Verdict = Literal["noticed", "missed", "not there"]
_TIMEOUT_S = 600
_LEAST_OF_A_PART = 2
_COPIED = ("memopt", "models", "tests", "pyproject.toml", "README.md", "docs", "Makefile")


@dataclass(frozen=True)
class Outcome:
    """What the tests said of one change.

    Attributes:
        point: The change.
        verdict: Whether a test failed; "not there" if this checkout has no such place.
        by: The test that noticed it.
        seconds: How long that took.
    """

    point: Point
    verdict: Verdict
    by: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "key": self.point.key,
            "path": self.point.path,
            "line": self.point.line,
            "verdict": self.verdict,
            "by": self.by,
            "seconds": round(self.seconds, 1),
        }


def main() -> None:
    """Choose, run, print."""
    arguments = parsed()
    chosen = sample(list(points_of(ROOT, core_files(ROOT))), arguments.places, arguments.seed)
    if arguments.again:
        earlier = json.loads(Path(arguments.again).read_text())["outcomes"]
        missed = {each["key"] for each in earlier if each["verdict"] == "missed"}
        chosen = [point for point in chosen if point.key in missed]
    if arguments.list:
        print("\n".join(f"{point.path}:{point.line}  {point.change}" for point in chosen))
        return
    outcomes = run_all(chosen, arguments.root.resolve(), arguments.jobs)
    tried = [outcome for outcome in outcomes if outcome.verdict != "not there"]
    share = sum(outcome.verdict == "noticed" for outcome in tried) / max(1, len(tried))
    print(f"{describe_machine()}: {share:.1%} of {len(tried)} changes were noticed")
    if arguments.json:
        plain = {
            "machine": describe_machine(),
            "share": share,
            "outcomes": [outcome.to_json() for outcome in outcomes],
        }
        Path(arguments.json).write_text(json.dumps(plain, indent=1) + "\n")
    sys.exit(share < arguments.least)


def parsed() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--places", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument("--least", type=float, default=0.9, help="share that must be noticed")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that is changed")
    parser.add_argument("--json", help="where to write the outcomes")
    parser.add_argument("--again", help="outcomes, of which what was missed runs again")
    parser.add_argument("--list", action="store_true", help="only print the places")
    return parser.parse_args()


def core_files(root: Path) -> list[Path]:
    """The source files of the core, in order."""
    found: set[Path] = set()
    for name in CORE:
        path = root / name
        found.update([path] if path.suffix else path.rglob("*.py"))
    return sorted(path for path in found if path.exists())


def sample(points: list[Point], places: int, seed: int) -> list[Point]:
    """The known places, and as many others as are wanted, the same ones for the same seed."""
    known = [point for point in points if is_known(point)]
    drawn = sorted(points, key=lambda point: point.rank(seed))
    firsts = (
        [point for point in drawn if point.path.startswith(part)][:_LEAST_OF_A_PART]
        for part in CORE
    )
    # Of one statement one change: more of them show the same.
    chosen: dict[tuple[str, str], Point] = {}
    for point in (*known, *chain.from_iterable(firsts), *drawn):
        if len(chosen) < places:
            chosen.setdefault((point.scope, point.statement), point)
    return list(chosen.values())


def is_known(point: Point) -> bool:
    """Whether tests once missed it."""
    return any(
        function in point.scope and point.statement.startswith(begin) and change in point.change
        for function, begin, change in KNOWN
    )


def run_all(points: list[Point], root: Path, jobs: int) -> list[Outcome]:
    """Run the tests against each change, some at a time, each in a copy of its own."""
    there = {point.key: point for point in points_of(root, sorted((root / "memopt").rglob("*.py")))}
    with tempfile.TemporaryDirectory() as name:
        copies: Queue[Path] = Queue()
        for number in range(jobs):
            copies.put(copy_of(root, Path(name, str(number))))

        def run(point: Point) -> Outcome:
            if point.key not in there:
                return Outcome(point, "not there", "", 0.0)
            place = copies.get()
            try:
                return outcome_of(there[point.key], point, place)
            finally:
                copies.put(place)

        with ThreadPoolExecutor(jobs) as pool:
            outcomes = []
            for outcome in pool.map(run, points):
                outcomes.append(outcome)
                print(line_of(outcome), flush=True)
        return outcomes


def copy_of(root: Path, place: Path) -> Path:
    """What the tests need, in a place where it may be changed."""
    place.mkdir()
    for name in _COPIED:
        source = root / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.nbc", "*.nbi")
            shutil.copytree(source, place / name, symlinks=True, ignore=ignored)
        elif source.exists():
            shutil.copy(source, place / name)
    return place


def outcome_of(there: Point, point: Point, place: Path) -> Outcome:
    """Change a file of the copy, run the tests, change it back.

    Args:
        there: The change as the copied checkout has it.
        point: The same change here, which says what tests are to notice it.
        place: The copy.
    """
    path = place / there.path
    original = path.read_text()
    path.write_text(there.source)
    started = time.monotonic()
    try:
        by = first_failure(place, tests_for(point, place))
    finally:
        path.write_text(original)
    return Outcome(point, "noticed" if by else "missed", by, time.monotonic() - started)


def tests_for(point: Point, place: Path) -> list[str]:
    """The test files of a place's folder that this checkout has; those named like it first."""
    patterns = next(tests for part, tests in CORE.items() if point.path.startswith(part))
    found = dict.fromkeys(path for each in patterns for path in sorted(place.glob(each)))
    words = {*Path(point.path).with_suffix("").parts} - {"memopt", "algorithm", "__init__"}
    files = sorted(found, key=lambda path: not any(word in path.stem for word in words))
    return [str(path.relative_to(place)) for path in files]


def first_failure(place: Path, tests: list[str]) -> str:
    """The test that fails, "" if all pass; what takes forever, or cannot be imported, fails too."""
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = (sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-rfE")
    options = ("-p", "no:cacheprovider", "--no-header", "--tb=no")
    try:
        ended = subprocess.run(  # noqa: S603 - this program's own words
            [*command, *options, *tests],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the time limit"
    if ended.returncode == 0:
        return ""
    words = ("FAILED ", "ERROR ")
    lines = [line for line in ended.stdout.splitlines() if line.startswith(words)]
    return lines[0].split(" ")[1] if lines else f"pytest ended with {ended.returncode}"


def line_of(outcome: Outcome) -> str:
    """An outcome for people."""
    point = outcome.point
    by = f" by {outcome.by}" if outcome.by else ""
    where = f"{point.path}:{point.line}"
    return f"{outcome.verdict:9} {outcome.seconds:6.0f} s  {where}  {point.change}{by}"


if __name__ == "__main__":
    main()
