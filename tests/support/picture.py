"""Draws the session of the README: its commands in a terminal, with Claude Code and Codex and a scripted model.

`python -m tests.support.picture` (`make picture`) needs both programs: `make install-agents ONLY="claude codex"`. It
writes `docs/session.svg` and the figures of the same session into the README. What was printed, and in which order, is
what happened; pauses are shortened.
"""

import codecs
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tests.agents.clis import BIN, CLIS, FIX, VERIFY, fenced
from tests.agents.modelserver import ModelServer
from tests.agents.scenario import Judge, Read, Say, Scenario, Turn, Write
from tests.support.documents import ROOT, read
from tests.support.environment import own_environment
from tests.support.transcripts import PAGES, WORK, Stage, a_stage, captured, play_commands

PICTURE = ROOT / "docs/session.svg"
MOST_BYTES = 300_000
COLUMNS = 116
ROWS = 30
LONGEST_PAUSE_S = 0.7
AFTER_A_COMMAND_S = 1.5
AT_THE_END_S = 6.0
#: A colour, or what moves the cursor within the line: the rest of what a terminal can do is not used.
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([mK])|\x1b\[[0-?]*[ -/]*[@-~]|\r\n|[\r\n]|[^\x1b\r\n]+|\x1b")
STYLES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}

Cells = tuple[tuple[str, str], ...]  #: characters with the classes of their styles


@dataclass
class Screen:
    """The lines of a terminal and when each of them changed."""

    now: float = 0.0
    lines: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])
    changes: list[tuple[float, int, Cells]] = field(default_factory=list)
    _column: int = 0
    _style: str = ""

    def print(self, text: str) -> None:
        for match in SEQUENCE.finditer(text):
            if match[2] == "m":
                self._style = " ".join(STYLES[code] for code in match[1].split(";") if code in STYLES)
            elif match[2] == "K":
                del self.lines[-1][self._column :]
            elif match[0] == "\r":
                self._column = 0
            elif match[0].endswith("\n"):
                self._start_line()
            elif not match[0].startswith("\x1b"):
                for character in match[0]:
                    self._put(character)
        self._note()

    def _put(self, character: str) -> None:
        if self._column == COLUMNS:
            self._start_line()
        self.lines[-1][self._column : self._column + 1] = [(character, self._style)]
        self._column += 1

    def _start_line(self) -> None:
        self._note()
        self.lines.append([])
        self._column = 0

    def _note(self) -> None:
        """Remember the last line if it changed."""
        number = len(self.lines) - 1
        cells = tuple(self.lines[-1])
        last = next((shown for _, line, shown in reversed(self.changes) if line == number), None)
        if cells != last:
            self.changes.append((self.now, number, cells))


@dataclass
class Terminal(Stage):
    """A person's home whose commands run in a terminal that is recorded."""

    screen: Screen = field(default_factory=Screen)

    def run(self, command: str) -> tuple[str, ...]:
        screen = self.screen
        screen.print("\x1b[36m$\x1b[m ")
        for word in re.findall(r"\S+\s*", command):
            screen.now += 0.18
            screen.print(f"\x1b[1m{word}\x1b[m")
        screen.now += 0.4
        screen.print("\r\n")
        first = len(screen.lines) - 1
        for pause, text in self._outputs(command):
            screen.now += min(pause, LONGEST_PAUSE_S)
            screen.print(text.replace(str(self.home), "/home/uma"))
        screen.now += AFTER_A_COMMAND_S
        return tuple("".join(character for character, _ in line).rstrip() for line in screen.lines[first:-1])

    def _outputs(self, command: str) -> Iterator[tuple[float, str]]:
        """What the command writes to the terminal, each piece after its pause in seconds."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        env = {**self.env, "TERM": "xterm-256color", "PAGER": "cat"}
        decoder = codecs.getincrementaldecoder("utf-8")()
        with subprocess.Popen(["sh", "-c", command], cwd=self.cwd, env=env, stdin=subprocess.DEVNULL,
                              stdout=theirs, stderr=theirs) as process:  # fmt: skip
            os.close(theirs)
            before = time.monotonic()
            while data := _read(ours, process):
                yield time.monotonic() - before, decoder.decode(data)
                before = time.monotonic()
        os.close(ours)


def _read(terminal: int, process: subprocess.Popen[bytes]) -> bytes:
    """The next output; nothing after the end of the command, although its daemon may keep the terminal open."""
    while not select.select([terminal], [], [], 0.1)[0]:
        if process.poll() is not None:
            return b""
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux: nobody has it open any more
        return b""


def scripted() -> Scenario:
    """A model that does the work of the stage's agents."""

    def writes(step: str) -> tuple[Turn, ...]:
        turns: list[Turn] = []
        for name, text in WORK[step].items():
            turns += [Read(name)] if step != "implement 1" else []
            turns.append(Write(name, text))
        return (*turns, Say("Done, and the tests pass."))

    def passes(*names: str) -> str:
        items = [{"item": name, "result": "pass", "evidence": "test_greeting.py"} for name in names]
        return fenced({"status": "done", "summary": "", "items": items})

    verdict = Judge(fault="## Phase 2", found=passes("W1"), missed=passes("W1", "W2"))
    parts: dict[str, tuple[Turn, ...]] = {
        "# Verify the whole plan": (Say(passes("F1", "F2")),),
        VERIFY: (verdict,),
        FIX: writes("fix 2"),
    }
    phases = {f"## Phase {phase}": writes(f"implement {phase}") for phase in ("2", "1")}
    return Scenario(parts={**parts, **phases})


def use_real_agents(stage: Stage, server: ModelServer) -> None:
    for name in ("claude", "codex"):
        if missing := CLIS[name].missing:
            raise SystemExit(missing)
        (stage.home / "bin" / name).unlink()
        (stage.home / "bin" / name).symlink_to(BIN / name)
        stage.env.update(CLIS[name].environment(server))
    (stage.home / "bin/node").symlink_to(shutil.which("node") or "node")


# --- drawing ------------------------------------------------------------------------------------------

WIDE, HIGH, EDGE = 7.83, 18, 16  #: a character's width and height, and the margin, in pixels
STYLE = """\
svg{--paper:#fff;--ink:#1f2328;--edge:#d0d7de;--d:#656d76;--r:#c0272d;--g:#116329;--y:#7d4e00;--c:#0a6a75}
@media(prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--edge:#30363d;--d:#8b949e;--r:#ff7b72;--g:#56d364;\
--y:#e3b341;--c:#56d4dd}}
.p{fill:var(--paper);stroke:var(--edge)}
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink);white-space:pre}
.b{font-weight:bold}.d{fill:var(--d)}.r{fill:var(--r)}.g{fill:var(--g)}.y{fill:var(--y)}.c{fill:var(--c)}
.s,.l{animation-duration:TOTALs;animation-timing-function:step-end;animation-iteration-count:infinite}
.gone{visibility:hidden}
@media(prefers-reduced-motion:reduce){.s,.l{animation:none!important}}
"""


def draw(screen: Screen) -> str:
    """The recording as an image that plays by itself; without motion it shows the end."""
    total = screen.now + AT_THE_END_S
    styles: list[str] = []
    body: list[str] = []
    for position, (start, line, cells) in enumerate(screen.changes):
        if not cells:
            continue
        end = next((later for later, other, _ in screen.changes[position + 1 :] if other == line), None)
        frames = f"0%{{visibility:hidden}}{start / total:.3%}{{visibility:visible}}"
        if end is not None:
            frames += f"{end / total:.3%}{{visibility:hidden}}"
        styles.append(f"@keyframes k{position}{{{frames}}}")
        gone = "" if end is None else " gone"
        spans = "".join(draw_runs(cells))
        body.append(f'<text class="l{gone}" style="animation-name:k{position}" y="{line * HIGH + 13}">{spans}</text>')
    shifts = {0.0: 0}
    for start, line, _ in screen.changes:
        shifts[start] = max(0, line + 1 - ROWS) * HIGH
    scroll = "".join(f"{start / total:.3%}{{transform:translateY(-{shift}px)}}" for start, shift in shifts.items())
    styles.append(f"@keyframes scroll{{{scroll}}}")
    last = max(shifts.values())
    wide, high = round(COLUMNS * WIDE + 2 * EDGE), ROWS * HIGH + 2 * EDGE
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img">
<title>A session with runplan, from init to the report</title>
<style>
{STYLE.replace("TOTAL", f"{total:.1f}")}{"".join(styles)}
</style>
<rect class="p" x=".5" y=".5" width="{wide - 1}" height="{high - 1}" rx="8"/>
<svg x="{EDGE}" y="{EDGE}" width="{wide - 2 * EDGE}" height="{high - 2 * EDGE}">
<g class="s" style="animation-name:scroll;transform:translateY(-{last}px)">
{chr(10).join(body)}
</g></svg></svg>
"""


def draw_runs(cells: Cells) -> Iterator[str]:
    """The characters of one style each, at their column."""
    start = 0
    for column in range(1, len(cells) + 1):
        if column == len(cells) or cells[column][1] != cells[start][1]:
            text = "".join(character for character, _ in cells[start:column])
            style = f' class="{cells[start][1]}"' if cells[start][1] else ""
            yield f'<tspan x="{start * WIDE:.1f}"{style}>{escape(text, quote=False)}</tspan>'
            start = column


def main() -> None:
    text = read("README.md")
    with (
        own_environment(),
        tempfile.TemporaryDirectory() as place,
        ModelServer(scripted()) as server,
        a_stage(Path(place) / "uma") as stage,
    ):
        use_real_agents(stage, server)
        PAGES["README.md"](stage)
        terminal = Terminal(**vars(stage))
        played = play_commands(text, terminal)
    picture = draw(terminal.screen)
    assert len(picture.encode()) <= MOST_BYTES, f"{len(picture.encode())} bytes: make it smaller"
    (ROOT / "README.md").write_text(captured(text, played, figures=True), encoding="utf-8")
    PICTURE.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
