"""Shows a run while it works and when it ends: one line per fact, and a live line on a terminal. On standard error."""

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Iterator

from runplan.app.views.journal import describe_duration, describe_event, lane_of
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.text import elapsed, plain
from runplan.interfaces.cli.terminal import Style

_COLOURS = {"landed": "green", "failed": "red", "verdict": "bold"}
_COLOURS |= dict.fromkeys(("waiting", "approval", "question"), "yellow")
_NEWEST: dict[str, str] = {}  #: of each lane: a wait that goes on is shown once


def show_event(event: e.Event) -> None:
    lane = lane_of(event)
    text = _LIVE.note(lane, event) or describe_event(event)
    is_live = isinstance(event, e.DispatchStarted) and sys.stderr.isatty() and not event.again
    if text and not is_live and _NEWEST.get(lane) != text:
        _NEWEST[lane] = text
        write_line(text, lane)


@functools.cache
def warn(text: str) -> None:
    """Print the warning once: a command and the daemon can find the same."""
    say(f"warning: {text}")


def say(text: str) -> None:
    write_line(f"runplan: {text}")


def write_line(text: str, lane: str = "") -> None:
    """Print the text over the live line; a closed pipe does not end a run."""
    with contextlib.suppress(OSError, ValueError), _LIVE.lock:
        style = Style.of(sys.stderr)
        lines = [paint_line(line, style, lane) for line in text.split("\n") if line or not lane]
        _LIVE.clear()
        print("\n".join(lines), file=sys.stderr, flush=True)


def paint_line(line: str, style: Style, before: str = "") -> str:
    """The line in colours, wrapped below its words; `before` is a time or a lane."""
    line = plain(line)
    indent = 13 if line.startswith("  ") else 9 if line.startswith("runplan: ") else 0
    word = line.strip().partition(" ")[0]
    colour = "bold" if line.startswith(("phase ", "undo phase ")) else _COLOURS.get(word, "")
    text = style.wrap(f"{before}{line}", " " * (len(before) + indent))
    return text[: len(before)] + text[len(before) :].replace(word, style.paint(word, colour), 1) if colour else text


class LiveLine:
    """The last line of a terminal: the running processes and their elapsed time, refreshed each second."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._running: dict[str, tuple[str, str, float]] = {}  #: by lane and dispatch: role, agent, start
        self._is_shown = False
        self._is_refreshed = False  #: by a thread

    def note(self, lane: str, event: e.Event) -> str:
        """Follow the processes; the line for one that has ended."""
        with self.lock:
            match event:
                case e.DispatchStarted(id=id_, role=role, agent=agent) if sys.stderr.isatty():
                    self._running[lane + id_] = (f"{lane}{role}", agent, time.monotonic())
                    if not self._is_refreshed:
                        self._is_refreshed = True
                        threading.Thread(target=self._refresh_regularly, daemon=True).start()
                case e.DispatchEnded(id=id_) if (process := self._running.pop(lane + id_, None)) is not None:
                    if event.ending is Ending.EXITED:
                        return describe_duration(event, time.monotonic() - process[2])
        return ""

    def _refresh_regularly(self) -> None:
        while True:
            time.sleep(1.0)
            with self.lock, contextlib.suppress(OSError, ValueError):
                if not self._running:
                    self._is_refreshed = False
                    self.clear()
                    return
                now = time.monotonic()
                style = Style.of(sys.stderr)
                running = self._running.values()
                parts = [f"{role:<10} {agent or 'runs'}, {elapsed(now - began)}" for role, agent, began in running]
                text = f"  {' · '.join(parts)}"[: (style.width or 80) - 1]
                print(f"\r{style.paint(text, 'dim')}\x1b[K", end="", file=sys.stderr, flush=True)
                self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_shown = False

    def stop(self) -> None:
        with self.lock, contextlib.suppress(OSError, ValueError):
            self._running.clear()
            self.clear()


_LIVE = LiveLine()


@contextlib.contextmanager
def live_line() -> Iterator[None]:
    """Remove the live line at the end, also after an error."""
    try:
        yield
    finally:
        _LIVE.stop()
