"""Progress: who is told, what is shown in each mode, and what Ctrl-C leaves."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from support.commands import run
from support.layered_graphs import layered_graph

from memopt import progress
from memopt.cli import main
from memopt.planning.annealing import Schedule, anneal, new_best
from memopt.planning.checker import judge
from memopt.planning.cost_graph import CostGraph
from memopt.planning.planner import Planner
from memopt.planning.problem import problem_of
from memopt.planning.search_effort import Effort
from memopt.progress import Task, duration_text, listening, task
from memopt.terminal.progress_display import Bars, Lines, Silent, display_for, line_of

ROOT = Path(__file__).resolve().parents[1]


class Notes(Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, float]] = []

    def began(self, task: Task) -> None:
        self.told.append(("began", task.what, task.total))

    def changed(self, task: Task) -> None:
        self.told.append((task.what, task.note, task.done))

    def ended(self, task: Task) -> None:
        self.told.append(("ended", task.what, task.done))


def chain(length: int) -> dict[str, object]:
    """A step forward and back: each operation of the second half reads one of the first."""
    edges = [[node - 1, node] for node in range(1, length)]
    edges += [[length - node, node] for node in range(length // 2 + 1, length)]
    nodes = [{"id": node, "cost": 1 + node % 7, "size": 1 + node % 50} for node in range(length)]
    return {"nodes": nodes, "edges": edges, "order": list(range(length))}


def test_who_listens_is_told_and_nobody_else_is() -> None:
    notes = Notes()
    with listening(notes), task("outer", 2) as outer:
        outer.advance(note="half")
        with task("inner"):
            pass
    with task("unheard") as unheard:
        unheard.advance()
    assert notes.told == [
        ("began", "outer", 2),
        ("outer", "half", 1),
        ("began", "inner", 0),
        ("ended", "inner", 0),
        ("ended", "outer", 1),
    ]
    assert progress.listener() is None


def test_a_task_ends_where_the_work_fails() -> None:
    notes = Notes()
    with pytest.raises(ValueError, match="no"), listening(notes), task("failing"):
        raise ValueError("no")
    assert notes.told[-1][:2] == ("ended", "failing")


def test_the_time_left_follows_pace_and_limit() -> None:
    under_way = Task("", total=10, started_s=time.monotonic() - 4)
    assert under_way.left_s is None
    under_way.update(4)
    assert under_way.left_s == pytest.approx(6, abs=0.5)
    limited = Task("", total=10, most_s=5, done=4, started_s=time.monotonic() - 4)
    assert limited.left_s == pytest.approx(1, abs=0.5)
    assert Task("").left_s is None
    uneven = Task("", total=10, is_even=False, done=4, started_s=time.monotonic() - 4)
    assert uneven.left_s is None
    over = Task("", most_s=1, started_s=time.monotonic() - 4)
    assert over.left_s == 0


def test_no_more_is_done_than_there_is() -> None:
    under_way = Task("", total=3)
    under_way.advance(7)
    assert under_way.share == 1


def test_what_need_not_be_done_says_nothing_of_the_pace() -> None:
    under_way = Task("", total=10, started_s=time.monotonic() - 4)
    under_way.skip(8, "was done")
    assert (under_way.left_s, under_way.note) == (None, "was done")
    under_way.advance()
    assert under_way.left_s == pytest.approx(4, abs=0.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.71, "0.7 s"),
        (12.2, "12 s"),
        (59.6, "1 min"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (7805, "2 h 10 min"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_lines_come_after_a_second_and_then_seldom() -> None:
    written = io.StringIO()
    lines = Lines(written, first_s=0.05, every_s=0.2)
    with listening(lines), task("quick"):
        pass
    assert not written.getvalue()
    with listening(lines), task("outer", 2) as outer:
        outer.advance(note="first")
        with task("in\x1bner"):
            time.sleep(0.5)
    first, *_, last = written.getvalue().splitlines()
    assert re.fullmatch(r"outer 50%: first, in\\x1bner; 0\.\d s so far, about 0\.\d s left", first)
    assert re.fullmatch(r"outer: 0\.\d s", last)
    assert 3 <= len(written.getvalue().splitlines()) <= 5


def test_what_is_left_of_a_part_is_said_to_be_so() -> None:
    inner = Task("search", total=4, done=2, started_s=time.monotonic() - 3)
    line = line_of([Task("planning"), inner])
    assert line.startswith("planning, search 50%; 0.0 s so far, about 3 s left for search")


def test_bars_come_and_go() -> None:
    written = io.StringIO()
    bars = Bars(Console(file=written, force_terminal=True, width=100))
    with listening(bars), task("outer [bold]", 2) as outer:
        outer.advance(note="a/b")
        with task("inner"):
            assert bars._progress is not None
            descriptions = [each.description for each in bars._progress.tasks]
            assert descriptions == ["outer [bold]: a/b", "  inner ..."]
            bars._progress.refresh()
    assert "outer [bold]: a/b" in written.getvalue()
    assert bars._progress is None


@pytest.mark.parametrize(
    ("mode", "kind"), [("auto", Silent), ("none", Silent), ("plain", Lines), ("bars", Bars)]
)
def test_in_a_pipe_nothing_is_shown_unless_asked_for(mode: str, kind: type[Silent]) -> None:
    assert type(display_for(mode, io.StringIO())) is kind  # type: ignore[arg-type]  # one of MODES


def test_with_time_a_search_goes_on_and_says_what_it_finds() -> None:
    graph = layered_graph(60, seed=1)
    effort = Effort.of(graph.operation_count, rounds=1, edits_per_operation=3_000)
    budget = int(judge(graph, graph.order.tolist()).peak_bytes * 0.8)
    first = Planner(graph, effort=effort).plan(budget)
    assert first.status == "feasible"
    notes = Notes()
    with listening(notes):
        # There is a plan that costs as little as any can: there it ends.
        further = Planner(graph, time_limit_s=600, effort=effort).plan(budget)
    assert further.status == "optimal"
    assert further.cost < first.cost
    share = further.cost / further.base_cost
    assert notes.last_found.endswith(f"costs x{share:.3f} of computing everything once")


def test_a_search_says_how_far_it_is_and_its_plan_is_the_same() -> None:
    graph = CostGraph.from_json(chain(60))
    effort = Effort.of(graph.operation_count, rounds=1, edits_per_operation=2_000)
    budget = int(judge(graph, graph.order.tolist()).peak_bytes * 0.7)
    notes = Notes()
    with listening(notes):
        told = Planner(graph, effort=effort).plan(budget)
    assert told.sequence == Planner(graph, effort=effort).plan(budget).sequence
    (total,) = (each[2] for each in notes.told if each[:2] == ("began", "searching"))
    steps = [each[2] for each in notes.told if each[0] == "searching"]
    assert steps == sorted(steps)
    assert 0 < steps[-1] <= total
    assert "within the budget costs x" in notes.last_found


def test_slices_by_the_clock_do_not_change_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = CostGraph.from_json(chain(60))
    problem = problem_of(graph)
    schedule = Schedule(100_000)
    found = []
    for slow in (False, True):
        if slow:
            monkeypatch.setattr("memopt.planning.annealing._SLICE_S", 0.0)
        state = _started(graph, 800)
        best = new_best(state)
        anneal(problem, state, best, schedule)
        found.append((best.operations.tolist(), best.numbers.tolist()))
    assert found[0] == found[1]


def _started(graph: CostGraph, room: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a state
    from memopt.planning.initial_plans import unchanged
    from memopt.planning.sequence_state import fill, new_state

    problem = problem_of(graph)
    state = new_state(problem, room, 0)
    fill(problem, state, *unchanged(graph.order))
    return state


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(chain(3000)))
    return path


def _wait_for(word: str, file: Path, process: subprocess.Popen[bytes]) -> None:
    """Until a process has written a word."""
    for _ in range(2400):
        if word in file.read_text():
            return
        assert process.poll() is None, file.read_text()
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"{word!r} did not come: {file.read_text()}")


def _hear_ctrl_c() -> None:
    """What a shell starts in the background does not hear it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_at_once_with_one_line_and_nothing_written(
    large: Path, tmp_path: Path
) -> None:
    errors = tmp_path / "errors.txt"
    command = [sys.executable, "-m", "memopt", "plan", str(large), "--budget", "0.6"]
    command += ["-o", str(tmp_path / "plan.json"), "--progress", "plain"]
    # It searches on as long: it cannot end before it has told that it searches.
    command += ["--time-limit", "100"]
    with errors.open("w") as stream:
        process = subprocess.Popen(
            command,
            stderr=stream,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - no threads fork
        )
        _wait_for("searching", errors, process)
        sent_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    # A tenth of a second for the search, the rest for a machine that is busy.
    assert time.monotonic() - sent_s < 15
    assert output == b""
    *lines, last = errors.read_text().splitlines()
    assert last.startswith("memopt: interrupted")
    assert all(line.startswith("planning ") for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["errors.txt", "graph.json"]


@pytest.mark.slow
def test_a_terminal_shows_bars_and_is_left_clean(large: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "memopt", "plan", str(large), "--budget", "0.6"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        command,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment,
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 - no threads here
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        was_shown = b"left" in shown
        shown += part
        if b"left" in shown and not was_shown:
            process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    text = shown.decode(errors="replace")
    assert "searching" in text
    assert "left" in text
    # The cursor is there again.
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.fixture
def cost_graph_file(tmp_path: Path) -> str:
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(layered_graph(20, seed=1).to_json()), encoding="utf-8")
    return str(path)


def test_an_interruption_says_what_was_found(
    monkeypatch: pytest.MonkeyPatch, cost_graph_file: str
) -> None:
    def stop(*_: object, **__: object) -> None:
        progress.found("size 96 fits, the largest planned so far")
        raise KeyboardInterrupt

    monkeypatch.setattr("memopt.plans.plan", stop)
    ended = run("plan", cost_graph_file, "--budget", "0.8")
    assert (ended.status, ended.output) == (130, "")
    assert ended.errors == (
        "memopt: interrupted; so far: size 96 fits, the largest planned so far\n"
    )


def test_the_program_is_not_taken_down_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cost_graph_file: str
) -> None:
    """What is to be done at its end is, and then it is gone: TensorFlow would take seconds."""
    done: list[object] = []

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def leave(status: int) -> None:
        done.append(status)
        raise SystemExit(status)

    monkeypatch.setattr("memopt.plans.plan", stop)
    monkeypatch.setattr("atexit._run_exitfuncs", lambda: done.append("at its end"))
    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit) as ended:
        main(["plan", cost_graph_file, "--budget", "0.8"])
    assert ended.value.code == 130
    assert done == ["at its end", 130]
    assert capsys.readouterr().err == "memopt: interrupted\n"
    with pytest.raises(SystemExit):
        main(["plan", "graph.json"])
    assert len(done) == 2


@pytest.mark.parametrize("option", [("-q",), ("--quiet",), ("--progress", "none")])
def test_quiet_is_quiet(option: tuple[str, ...], large: Path) -> None:
    ended = run("plan", large, "--budget", "1.0", *option)
    assert (ended.status, ended.errors) == (0, "")
