"""The board of `watch`: its lines on a terminal, and the meaning of its keys. Values in, values out."""

import re
import textwrap
from datetime import datetime
from enum import Enum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.app.views.board import GROUPS, Board, Card
from runplan.app.views.status import PlanState, describe_schedule
from runplan.domain.text import count_cells, counted, cut_cells, elapsed, fit_cells, in_words, plain_line

#: Parts of a line with their colours.
Line: TypeAlias = tuple[tuple[str, str], ...]
KEYS = "d diff  a approve  r reject  l logs  s stop  Enter details  ? help  q quit"
NARROWEST = 20
SMALL = 4  #: fewer lines show nothing but plans
BAR = 8  #: cells


class KeyTask(Enum):
    """What a key asks for. The value says it to a person."""

    DIFF = "see the change that waits, or the kept work of a failed phase"
    APPROVE = "see the change, then y approves it; or answer a question"
    REJECT = "reject with words: an agent changes the work"
    LOGS = "follow the log; q or Ctrl-C returns"
    STOP = "stop the plan's run and schedule, after y"
    DETAILS = "see all phases of the plan"
    HELP = "show or hide this help"
    QUIT = "quit"


class Screen(Struct, frozen=True, kw_only=True):
    board: Board = Board(cards=())
    selected: str = ""  #: the id of a card
    is_help: bool = False
    message: str = ""  #: why the last key did nothing

    @property
    def rows(self) -> list[Card]:
        """The cards that can be selected, from top to bottom; finished plans are only counted."""
        return [card for group in GROUPS if group is not PlanState.DONE for card in self.board.list_group(group)]

    @property
    def card(self) -> Card | None:
        return next((card for card in self.rows if card.id == self.selected), None)

    @property
    def place(self) -> int:
        """Of the selected card among the rows."""
        return next((place for place, card in enumerate(self.rows) if card.id == self.selected), 0)


def replace_board(screen: Screen, board: Board) -> Screen:
    """The screen with another board. A plan that is still there stays selected, else the one in its place."""
    changed = replace(screen, board=board)
    return changed if changed.card else _select(changed, screen.place)


def _select(screen: Screen, place: int) -> Screen:
    rows = screen.rows
    return replace(screen, selected=rows[max(0, min(place, len(rows) - 1))].id if rows else "")


KEY = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)  #: as a terminal sends it
_SEQUENCES = {"\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\r": "enter", "\n": "enter"}
_MOVES = {"j": 1, "down": 1, "k": -1, "up": -1, "g": -1_000_000, "G": 1_000_000}
TASKS = dict(zip(("d", "a", "r", "l", "s", "enter", "?", "q"), KeyTask, strict=True))
_CHANGES = {KeyTask.DIFF: ("diff", "retry"), KeyTask.APPROVE: ("diff", "answer"), KeyTask.REJECT: ("diff",)}


def press_key(screen: Screen, key: str) -> tuple[Screen, KeyTask | None]:
    """The screen after a key, and what the caller does for the selected plan."""
    key = _SEQUENCES.get(key, key)
    task = TASKS.get(key)
    screen = replace(screen, message="")
    if screen.is_help or task is KeyTask.HELP:
        return replace(screen, is_help=not screen.is_help), KeyTask.QUIT if key == "q" else None
    if key in _MOVES:
        return _select(screen, screen.place + _MOVES[key]), None
    card = screen.card
    if task is None or task is KeyTask.QUIT:
        return screen, task
    if card is None:
        return replace(screen, message="no plan is selected"), None
    verbs = [action.verb for action in card.view.actions]
    if task in _CHANGES and not any(verb in _CHANGES[task] for verb in verbs):
        return replace(screen, message=f"{card.view.plan}: no change waits for you"), None
    return screen, task


_LEVELS = {"fine": "", "slow": "yellow", "look": "red"}
_COLOURS = {PlanState.WAITING: "yellow bold", PlanState.RUNNING: "cyan bold"}


def lay_out(screen: Screen, *, width: int, height: int, now: datetime) -> list[Line]:
    """The lines for a terminal: exactly `height` of them, none wider than `width` cells."""
    width = max(width, NARROWEST)
    if screen.is_help:
        tasks = [(key.capitalize() if len(key) > 1 else key, task.value) for key, task in TASKS.items()]
        keys = [((f"  {key:<14}", "bold"), (words, "")) for key, words in [("j, k, arrows", "move"), *tasks]]
        lines: list[Line] = [(("runplan watch", "bold"),), (), *keys]
    else:
        counts = [(len(screen.board.list_group(group)), word.replace("-", " ")) for group, (word, _) in GROUPS.items()]
        groups = ", ".join(f"{count} {words}" for count, words in counts if count) or "no plans yet"
        head: list[Line] = [(("runplan watch  ", "bold"), (groups, ""))]
        last: list[Line] = [((screen.message, "yellow"),) if screen.message else ((KEYS, "dim"),)]
        detail: list[Line] = []
        if (card := screen.card) is not None:
            view = card.view
            phases = f"{view.done} of {counted(len(view.phases), 'phase')} done" if view.phases else ""
            facts = [phases, card.usage.words, describe_schedule(view.schedule, now=now) if view.schedule else ""]
            about = ", ".join(filter(None, [*facts, f"queued: {view.queued}" if view.queued else ""]))
            sentence = textwrap.wrap(plain_line(view.words), width, max_lines=3, placeholder=" …")
            place = f"  {plain_line(f'{view.plan} in {card.repository}')}"
            detail = [(("─" * width, "dim"),), ((plain_line(view.title), "bold"), (place, ""))]
            detail += [((line, _LEVELS.get(card.level, "")),) for line in sentence]
            detail += [((plain_line(about), ""),)] if about else []
            detail = detail[: max(0, (height - 2) // 3)]
        if height < SMALL:
            head, last, detail = [], [], []
        body_height = height - len(head) - len(detail) - len(last)
        body, selection = _lay_out_body(screen, width, now)
        start = max(0, min(selection.start, selection.stop - body_height))
        body = body[start : start + body_height]
        lines = [*head, *body, *[()] * (body_height - len(body)), *detail, *last]
    fitted: list[Line] = []
    for line in lines[:height]:
        parts = []
        left = width
        for text, colours in line:
            cut = cut_cells(text, left)
            left -= count_cells(cut)
            parts.append((cut, colours))
            if cut != text:
                break
        fitted.append(tuple(parts))
    return fitted + [()] * (height - len(lines))


def _lay_out_body(screen: Screen, width: int, now: datetime) -> tuple[list[Line], range]:
    """All lines between head and detail, and the place of the selected plan among them."""
    repositories = {plain_line(card.repository) for card in screen.board.cards}
    most = min(max(map(count_cells, repositories), default=0), width // 6)
    name_width = most if len(repositories) > 1 else 0  # one repository needs no name
    titles = [count_cells(plain_line(card.view.title)) for card in screen.rows]
    title_width = max(min(max(titles, default=0), width - name_width - 40), 8)
    missing = (f"{repository.root}: {error}" for repository, error in screen.board.missing)
    lines: list[Line] = [((plain_line(note), "red"),) for note in (*missing, *screen.board.notes)]
    selection = range(len(lines))
    for group, (_, heading) in GROUPS.items():
        cards = screen.board.list_group(group)
        names = ", ".join(plain_line(card.view.title) for card in cards)
        finished: Line = ((f"  {names}", "dim"),) if group is PlanState.DONE else ()
        if cards:
            lines += [(), ((f"{heading} ({len(cards)})", _COLOURS.get(group, "bold")), *finished)]
        for card in cards if group is not PlanState.DONE else ():
            is_selected = card.id == screen.selected
            start = len(lines)
            view = card.view
            total = len(view.phases)
            bar = ("█" * (view.done * BAR // total)).ljust(BAR, "░") if total else " " * BAR
            count = f"{view.done}/{total}" if total else ""
            title = f"{'>' if is_selected else ' '} {fit_cells(plain_line(view.title), title_width)}  "
            title += f"{fit_cells(plain_line(card.repository), name_width)}  " if name_width else ""
            age = ""
            if card.current and card.since:
                seconds = (now - datetime.fromisoformat(card.since)).total_seconds()
                age = elapsed(seconds) if group is PlanState.RUNNING else in_words(seconds)
            limit = f"/{card.most_usd:.2f}" if card.most_usd else ""
            cost = f"{card.usage.cost if card.usage.usd else '$0.00'}{limit}" if card.usage.usd or limit else ""
            lines.append(((f"{title}{bar} {count:<5} {cost:<11} {age:>7}", "reverse" if is_selected else ""),))
            label = f"{card.action.label}: " if card.action and group is PlanState.WAITING else ""
            about = plain_line(f"{label}{card.current or view.words}") if group is not PlanState.OPEN else ""
            if group is PlanState.SCHEDULED and view.schedule:
                about = describe_schedule(view.schedule, now=now)
            lines += [((f"    {about}", _LEVELS.get(card.level, "")),)] if about else []
            selection = range(start, len(lines)) if is_selected else selection
    return lines, selection
