"""runplan watch: the board in a terminal, redrawn in place, with keys that run the other commands."""

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runplan.app.operations.model import Caller, Where
from runplan.app.operations.requests import AnswerRequest, ApproveRequest, RejectRequest, StopRequest
from runplan.app.operations.table import try_operation
from runplan.app.views.board import Card, read_board
from runplan.app.views.changes import find_change, view_change
from runplan.app.views.repositories import list_with_current, open_known
from runplan.app.views.status import PlanState
from runplan.app.watch import Topic, Watch
from runplan.domain.errors import RunplanError, Unreachable, UsageError
from runplan.domain.text import command, plain
from runplan.interfaces.cli.show.screen import KEY, KeyTask, Screen, lay_out, press_key, replace_board
from runplan.interfaces.cli.terminal import Style

LIMIT_S = 20.0  #: for an answer of the daemon
LOOK_S = 0.5  #: between two looks at the journals
RUNNING_S = 2.0  #: until the board is read again for its times while an agent works
IDLE_S = 30.0  #: and else
SHORT = 12  #: digits of a tree
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  #: the alternate screen, without cursor, without wrapped lines
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"


def run_watch(_: argparse.Namespace) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or Caller().env.get("TERM", "dumb") == "dumb":
        raise UsageError("watch needs a terminal; without one: runplan logs -f")
    with Terminal() as terminal, contextlib.suppress(KeyboardInterrupt):
        BoardLoop(terminal).run()


class Terminal:
    """The terminal while the board is shown. It is restored at the end, and while a command uses it."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._modes = termios.tcgetattr(self._input)
        self._shown: list[str] = []  #: the lines on the screen
        self._style = Style.of(sys.stdout)
        self._woken, self._wake = os.pipe()

    def __enter__(self) -> "Terminal":
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (signal.SIGWINCH, signal.SIGTSTP):  # they only wake `read_keys`: one may interrupt a write
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()

    def _take(self) -> None:
        tty.setcbreak(self._input)
        self._shown = []
        _write(ENTER)

    def _give_back(self) -> None:
        _write(LEAVE)
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._modes)

    @contextlib.contextmanager
    def handed_over(self) -> Iterator[None]:
        """The terminal as it was, for commands and questions. Ctrl-C and Ctrl-Z are for the command."""
        self._give_back()
        try:
            with _handled(signal.SIGTSTP, signal.SIG_DFL), _handled(signal.SIGINT, lambda *_: None):
                yield
        finally:
            self._take()

    def read_keys(self, timeout_s: float | None) -> str:
        """What was typed until then; "" also when the window has another size."""
        ready, _, _ = select.select([self._input, self._woken], [], [], timeout_s)
        signals = os.read(self._woken, 1024) if self._woken in ready else b""
        if signal.SIGTSTP in signals:  # stop with the terminal restored; take it again when the process is continued
            self._give_back()
            with _handled(signal.SIGTSTP, signal.SIG_DFL):
                os.kill(os.getpid(), signal.SIGTSTP)
            self._take()
            return ""
        if self._input not in ready:
            return ""
        typed = os.read(self._input, 1024)
        if not typed:
            raise KeyboardInterrupt  # the terminal is gone
        return typed.decode("utf-8", "replace")

    def ask_key(self, question: str) -> str:
        """One key, in a terminal that was handed over; "" for Ctrl-C."""
        tty.setcbreak(self._input)  # drops keys that were meant for the command
        _write(plain(question))
        try:
            with _handled(signal.SIGINT, signal.default_int_handler), contextlib.suppress(KeyboardInterrupt):
                while not (typed := self.read_keys(None)):
                    pass
                return typed
            return ""
        finally:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._modes)
            _write("\n")

    def ask_line(self, question: str) -> str:
        """A line of text; "" for Ctrl-C."""
        with _handled(signal.SIGINT, signal.default_int_handler), contextlib.suppress(KeyboardInterrupt, EOFError):
            return input(plain(question)).strip()
        return ""

    def follow(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for a command that reads no keys; whether q or Ctrl-C has ended it."""
        tty.setcbreak(self._input)
        endings: list[int] = []
        with _handled(signal.SIGINT, lambda number, _: endings.append(number)):  # the command gets it as well
            while not endings and process.poll() is None:
                if "q" in self.read_keys(LOOK_S):
                    process.send_signal(signal.SIGINT)
                    endings.append(signal.SIGINT)
        return bool(endings)

    def draw(self, screen: Screen) -> None:
        """Write the lines that have changed, all at once."""
        width, height = os.get_terminal_size(sys.stdout.fileno())
        lines = lay_out(screen, width=width, height=height, now=datetime.now(UTC))
        painted = ["".join(self._style.paint(text, colours) for text, colours in line) for line in lines]
        before = self._shown if len(self._shown) == len(painted) else [None] * len(painted)
        changed = [number for number, line in enumerate(painted) if line != before[number]]
        _write("".join(f"\x1b[{number + 1};1H{painted[number]}\x1b[K" for number in changed))
        self._shown = painted


@contextlib.contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class BoardLoop:
    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._screen = Screen()
        self._env = Caller().env
        self._files = Watch(Caller(), Topic())
        self._next_s = 0.0  #: when the times that the board shows are out of date
        self._known = {known.key: known for known in list_with_current(self._env)}

    def run(self) -> None:
        while True:
            if self._files.look() or time.monotonic() >= self._next_s:
                self._known = {known.key: known for known in list_with_current(self._env)}
                board = read_board(list(self._known.values()), datetime.now(UTC))
                is_running = any(card.group is PlanState.RUNNING for card in board.cards)
                self._next_s = time.monotonic() + (RUNNING_S if is_running else IDLE_S)
                self._screen = replace_board(self._screen, board)
            self._terminal.draw(self._screen)
            for key in KEY.findall(self._terminal.read_keys(LOOK_S)):
                self._screen, task = press_key(self._screen, key)
                if task is KeyTask.QUIT:
                    return
                if task is not None and self._screen.card is not None:
                    with self._terminal.handed_over():
                        try:
                            self._do(task, self._screen.card)
                        except RunplanError as error:  # such as a repository that is gone
                            self._terminal.ask_key(f"\n{error}\nPress a key. ")
                    break  # further keys were typed for another screen

    def _do(self, task: KeyTask, card: Card) -> None:
        plan = card.view.plan
        match task:
            case KeyTask.DIFF:
                self._run(card, "diff", plan, *_phase_of(card))
            case KeyTask.APPROVE if card.action is not None and card.action.verb == "answer":
                if text := self._terminal.ask_line(f"\n{card.view.words}\nYour answer (empty: none): "):
                    self._submit(card, "answer", AnswerRequest(id=plan, text=text))
            case KeyTask.APPROVE:
                self._answer(card, "approve")
            case KeyTask.REJECT:
                self._answer(card, "reject")
            case KeyTask.LOGS:
                self._run(card, "logs", plan, "-f")
            case KeyTask.STOP:
                if self._terminal.ask_key(f"\nStop {plan} in {self._root_of(card)}? y/n ") == "y":
                    self._submit(card, "stop", StopRequest(plan=plan))
            case _:
                self._run(card, "status", plan)

    def _answer(self, card: Card, verb: str) -> None:
        """Approve the change that is shown, or reject it with words. Another one that replaces it gets no answer."""
        plan = card.view.plan
        phase = next(iter(_phase_of(card)), "")
        with open_known(self._known[card.repo], warn=lambda _: None) as context:
            tree = view_change(context, find_change(context, plan, phase or None)).tree
        about = f"{' '.join(filter(None, (plan, phase)))}, {tree[:SHORT]}"
        if verb == "reject":
            if why := self._terminal.ask_line(f"\nReject {about}. What is to change? (empty: nothing) "):
                self._submit(card, verb, RejectRequest(plan=plan, phase=phase, tree=tree, why=why))
            return
        self._call(card, "diff", plan, *_phase_of(card))
        if self._terminal.ask_key(f"\nApprove {about}? y/n ") == "y":
            self._submit(card, verb, ApproveRequest(plan=plan, phase=phase, tree=tree))

    def _submit(self, card: Card, verb: str, request: object) -> None:
        """Have the daemon do it, as on the page; what it says stays until a key."""
        _write("\n")
        caller = Caller(
            cwd=self._root_of(card),
            env=self._env,
            by="terminal",
            say=lambda text: _write(f"{plain(text)}\n"),
            where=Where.DAEMON,
            limit_s=LIMIT_S,
        )
        try:
            with _handled(signal.SIGINT, signal.default_int_handler):
                result = try_operation(verb, caller, request)
        except KeyboardInterrupt:  # what was queued is carried out
            return
        if result.answer is None:
            _write(f"{result.why}\n")
        self._terminal.ask_key(f"\nExit code {int(result.code)}. Press a key. ")

    def _run(self, card: Card, *words: str) -> None:
        """Run a command; its output stays until a key, unless the person has just ended it."""
        code = self._call(card, *words)
        if code is not None:
            self._terminal.ask_key(f"\nExit code {code}. Press a key. ")

    def _call(self, card: Card, *words: str) -> int | None:
        """The exit code of a command in the foreground; None where a person has ended it."""
        _write(f"\n$ {plain(command('runplan', *words))}\n")
        is_log = words[0] == "logs"  # the keys are for the board
        argv = [sys.executable, "-P", "-m", "runplan", *words]  # -P: no module of the repository is imported
        root = self._root_of(card)
        try:
            process = subprocess.Popen(argv, cwd=root, stdin=subprocess.DEVNULL if is_log else None)
        except OSError as error:
            raise Unreachable(f"{root} cannot be used: {error.strerror}") from None
        try:
            is_left = is_log and self._terminal.follow(process)
            code = process.wait()
        except SystemExit:  # by SIGTERM
            process.terminate()
            raise
        return None if is_left else code

    def _root_of(self, card: Card) -> Path:
        return Path(self._known[card.repo].root)


def _phase_of(card: Card) -> list[str]:
    return [card.action.phase] if card.action is not None and card.action.phase else []
