"""Many random programs and damaged files: `make fuzz N=10000 FILES=1000`.

    python benchmarks/fuzz.py [--programs N] [--files N] [--seed N] [--jobs N] [--cases FOLDER]
        [--replay CASE ...]

Every program is made from a seed, rewritten at every level and within three budgets, run for real,
and compared bit for bit and with what was predicted. What fails is shrunk and kept as a case, which
the tests run from then on; wrong predictions are told, and kept by whoever looks into them. Every
file is a graph, a plan, a profile or a table with random damage: commands say in one line what is
wrong with it, or do their work.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "fuzzing" / "cases"
_BATCH = 25
_TIMEOUT_S = 900
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "ABSL_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_CPU_ALLOCATOR_USE_BFC": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
}


def main() -> None:
    """Run, print, keep what fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--replay", nargs="*", default=[], help="run these cases, nothing else")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        kind, numbers = arguments.worker
        work(kind, numbers.split(","))
        return
    if arguments.replay:
        sys.exit(1 if run("cases", arguments.replay, arguments.jobs, arguments.cases) else 0)
    failures = 0
    for kind, count in (("programs", arguments.programs), ("files", arguments.files)):
        if count:
            seeds = range(arguments.seed, arguments.seed + count)
            failures += run(kind, seeds, arguments.jobs, arguments.cases)
    sys.exit(1 if failures else 0)


def run(kind: str, seeds: Sequence[Any], jobs: int, cases: Path) -> int:
    """Run all seeds, or cases, in processes of their own, and print what came of them."""
    started = time.monotonic()
    batches = [seeds[place : place + _BATCH] for place in range(0, len(seeds), _BATCH)]
    counts: Counter[str] = Counter()
    failures = 0
    with ThreadPoolExecutor(jobs) as pool:
        for answers in pool.map(lambda batch: run_batch(kind, batch), batches):
            for answer in answers:
                counts.update(answer["counts"])
                for finding in answer["findings"]:
                    print(f"{kind} {answer['seed']}: {finding}", flush=True)
                failures += answer["case"] is not None
                if answer["case"] is not None and kind != "cases":
                    cases.mkdir(parents=True, exist_ok=True)
                    text = json.dumps(answer["case"], indent=1) + "\n"
                    (cases / f"{kind}_{answer['seed']}.json").write_text(text, encoding="utf-8")
    seconds = time.monotonic() - started
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print(f"{len(seeds):,} {kind} in {seconds:,.0f} s: {told}; {failures} failed", flush=True)
    return failures


def run_batch(kind: str, seeds: Sequence[Any]) -> list[dict[str, Any]]:
    """What came of some seeds; one that ends its process is told, and the others go on."""
    answers: list[dict[str, Any]] = []
    left = list(seeds)
    while left:
        numbers = ",".join(map(str, left))
        command = [sys.executable, __file__, "--worker", kind, numbers]
        environment = {**os.environ, **_ENVIRONMENT}
        process = subprocess.Popen(  # noqa: S603 - this interpreter, this script
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        answers += found
        left = left[len(found) :]
        if left:
            finding = f"the process ended with {process.returncode}"
            answers.append(_answer(left.pop(0), Counter(), [finding], {"kind": kind}))
    return answers


def work(kind: str, seeds: list[str]) -> None:
    """Run seeds, or cases, in this process; a line of JSON for each."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if kind == "files":
        from fuzzing.files import check_file

        for seed in seeds:
            found = check_file(int(seed))
            case = {"seed": seed, "findings": found.findings} if found.findings else None
            _tell(channel, _answer(seed, Counter(found.counts), found.findings, case))
        return
    from fuzzing.programs import check, shrink, start
    from fuzzing.recipes import Recipe, random_recipe

    start()
    for seed in seeds:
        if kind == "cases":
            plain = json.loads(Path(seed).read_text(encoding="utf-8"))
            outcome = check(Recipe.from_json(plain), [plain["way"]])
        else:
            outcome = check(random_recipe(int(seed)))
        counts = Counter(
            repeatable=int(outcome.repeatable),
            rewritten=outcome.rewritten,
            predicted=outcome.predicted,
            mispredicted=sum(finding.kind == "prediction" for finding in outcome.findings),
        )
        case = None
        if kind == "cases" and outcome.findings:
            # What was wrong once, be it only predicted wrongly, stays right.
            case = plain
        elif outcome.failures:
            outcome.findings = outcome.failures
            case = {**shrink(outcome).to_json(), "way": outcome.findings[0].way}
        findings = [f"{each.way}: {each.kind}: {each.what}" for each in outcome.findings]
        _tell(channel, _answer(seed, counts, findings, case))


def _answer(
    seed: Any, counts: Counter[str], findings: list[str], case: dict[str, Any] | None
) -> dict[str, Any]:
    return {"seed": seed, "counts": dict(counts), "findings": findings, "case": case}


def _tell(channel: Any, answer: dict[str, Any]) -> None:
    channel.write(json.dumps(answer) + "\n")
    channel.flush()


if __name__ == "__main__":
    main()
