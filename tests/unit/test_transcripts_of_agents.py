"""The output of agents as `logs --agent` prints it."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.store.outputs import Outputs
from runplan.adapters.supervise.output import DispatchFiles, ShimRecord
from runplan.app.views.transcript import Transcript, read_process
from runplan.domain.decoding import to_json
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.events import DispatchEnded, DispatchStarted, Event
from runplan.domain.run.kinds import Role, RunStatus
from runplan.domain.run.rows import EventRow, RunRow
from runplan.interfaces.cli.show.journal import Transcripts
from tests.support.samples import SAMPLES

AT = "2026-01-01T12:00:00Z"
RUN = RunRow(id="r1", plan="plans/x.md", started=AT, since=AT, state=RunStatus.RUNNING, landing="cherry-pick")
STARTED = DispatchStarted(id="r1.1", role=Role.IMPLEMENT, agent="robot", phase="1", cycle=1, at=AT)
COMMIT = "git add -A && git commit -qm 'phase 1: add file' && git log -1 --format=%s"
PRINTED = "    phase 1: add file"
BEGUN = "Creating the file."
DONE = ("Phase 1 is done.", "-- finished")


def a_dispatch(place: Path, kind: str) -> DispatchFiles:
    place.mkdir(exist_ok=True)
    files = DispatchFiles(place)
    files.shim_file.write_text(to_json(ShimRecord(identity="1:1:x", reader=kind)))
    return files


def written(tool: str) -> str:
    return f"> {tool} $RIG/tree/phase1.txt"


#: The transcripts of the same work by real programs. What else they print differs between versions.
SHOWN = {
    "claude": [BEGUN, written("Write"), f"> Bash {COMMIT}", PRINTED, *DONE],
    "codex": [BEGUN, written("file_change"), f"> command {COMMIT}", PRINTED, "    exit code 0", *DONE],
    "gemini": ["-- auto", BEGUN, written("write_file"), f"> run_shell_command {COMMIT}", PRINTED, *DONE],
    "opencode": [BEGUN, written("write"), f"> bash {COMMIT}", PRINTED, "    exit code 0", *DONE],
    "qwen": [BEGUN, written("write_file"), f"> run_shell_command {COMMIT}", *DONE],
    "mini": ["mini-swe-agent (step 1, $0.00):", BEGUN, "```"],
}


@pytest.mark.parametrize("kind", SHOWN)
def test_a_real_stream_shows_messages_commands_and_paths_but_not_the_prompt(tmp_path: Path, kind: str) -> None:
    sample = next(path for path in sorted((SAMPLES / kind).glob("success.*")) if path.suffix in (".jsonl", ".txt"))
    shutil.copy(sample, a_dispatch(tmp_path / STARTED.id, kind).out)
    _, *shown = Transcript(Outputs(tmp_path, None), STARTED).read_new(is_last=True)
    first = 0 if kind in ("codex", "opencode", "gemini", "mini") else 1  # the model and the version
    assert shown[first : first + len(SHOWN[kind])] == SHOWN[kind]


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("codex/failing_command", ["> command echo boom >&2; exit 3", "    boom", "    exit code 3"]),
        ("codex/sigint", ["> command python3 -c 'import time; time.sleep(600)'"]),
        ("gemini/plan_mode", ["    failed"]),
        ("claude/plan_mode", ["    Cannot write to $RIG/tree/phase1.txt while in plan mode.", "    failed"]),
    ],
)
def test_a_command_is_shown_as_it_begins_and_ends(tmp_path: Path, sample: str, expected: list[str]) -> None:
    kind = sample.partition("/")[0]
    shutil.copy(SAMPLES / f"{sample}.jsonl", a_dispatch(tmp_path / STARTED.id, kind).out)
    shown = "\n".join(Transcript(Outputs(tmp_path, None), STARTED).read_new(is_last=True))
    assert "\n".join(expected) in shown


def test_chunks_of_a_message_are_joined_to_whole_lines(tmp_path: Path) -> None:
    files = a_dispatch(tmp_path / STARTED.id, "gemini")
    transcript = Transcript(Outputs(tmp_path, None), STARTED)
    shown = []
    for content in ("I will cre", "ate a fi", "le.\nAnd ", "commit it."):
        event = {"type": "message", "role": "assistant", "content": content, "delta": True}
        with files.out.open("a") as log:
            log.write(json.dumps(event) + "\n")
        shown.append(list(transcript.read_new(is_last=False)))
    transcript.ended = DispatchEnded(id=STARTED.id, role=Role.IMPLEMENT, ending=Ending.EXITED, code=0, seconds=125.0)
    assert shown[1:] == [[], ["I will create a file."], []]
    end = "== implement by robot ended after 2m05s"
    assert list(transcript.read_new(is_last=False)) == ["And commit it.", end]


def test_the_tail_of_a_long_output_begins_with_a_whole_line(tmp_path: Path) -> None:
    files = a_dispatch(tmp_path / STARTED.id, "unknown")
    files.out.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert read_process(Outputs(tmp_path, None), STARTED, most_bytes=25) == ["line 9998", "line 9999"]
    assert read_process(Outputs(tmp_path, None), STARTED)[1] == "line 0"


def test_the_output_of_checks_that_run_at_once_is_shown_one_after_the_other(tmp_path: Path) -> None:
    checks = DispatchStarted(id="r1.1", role=Role.GATE, gates=("lint", "tests"), cycle=1, at=AT)
    a_dispatch(tmp_path / checks.id, "unknown")
    (tmp_path / checks.id / "gate-lint.log").write_text("clean\x1b[0m\n")
    (tmp_path / checks.id / "gate-tests.log").write_text("1 passed\n")
    expected = ["== gate-lint.log", "clean", "== gate-tests.log", "1 passed"]
    assert read_process(Outputs(tmp_path, None), checks) == expected


def a_row(event: Event) -> EventRow:
    return EventRow(seq=1, run="r1", at=AT, type=type(event).__name__, body=to_json(event))


def an_end(id_: str, seconds: float, code: int = 0) -> EventRow:
    return a_row(DispatchEnded(id=id_, role=Role.IMPLEMENT, ending=Ending.EXITED, code=code, seconds=seconds))


def test_every_agent_is_shown_with_its_lane(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Transcripts(RUN, partial(Transcript, Outputs(tmp_path, None)))
    for id_, lane in (("r1.1", ""), ("r1.2", "b"), ("r1.3", "c")):
        a_dispatch(tmp_path / id_, "command").out.write_text(f"hello from {id_}\n")
        log.add(a_row(replace(STARTED, id=id_, lane=lane, phase="2")))
    log.add(an_end("r1.1", 3.0))
    log.look(is_last=False)
    log.add(an_end("r1.2", 60.0, code=3))
    a_dispatch(tmp_path / "r1.4", "command").out.write_text("all fine\n")
    log.add(a_row(replace(STARTED, id="r1.4", role=Role.VERIFY, scope="final")))
    log.look(is_last=True)
    shown = [line.partition(", since")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        *("== implement by robot, phase 2", "hello from r1.1", "== implement by robot ended after 3s"),
        *("[b] == implement by robot, phase 2", "[b] hello from r1.2"),
        *("[c] == implement by robot, phase 2", "[c] hello from r1.3"),
        "[b] == implement by robot ended after 1m00s: the implement command exited with code 3",
        *("== final verification by robot, all phases", "all fine"),
    ]
