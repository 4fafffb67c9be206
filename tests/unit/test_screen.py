"""The board of `watch`: its lines at any size, and its keys."""

from typing import Any

import pytest

from runplan.app.views.board import Board, Card
from runplan.app.views.status import view_plan
from runplan.domain.run.kinds import RunStatus
from runplan.domain.run.rows import PlanFacts, RunRow
from runplan.domain.standing.phases import PhaseOutline, PlanOutline
from runplan.domain.standing.usage import AgentUsage
from runplan.domain.text import count_cells, fit_cells
from runplan.interfaces.cli.show.screen import (
    KEY,
    KEYS,
    KeyTask,
    Screen,
    lay_out,
    press_key,
    replace_board,
)
from tests.support.builders import NOW

PHASES = (PhaseOutline("1", "One", "done", None, ()), PhaseOutline("2", "Two", "todo", None, ()))


def a_card(plan: str, facts: PlanFacts | None = None, *, title: str = "", is_done: bool = False, **more: Any) -> Card:
    outline = PlanOutline(title=title or plan.upper(), phases=PHASES, complete=is_done)
    view = view_plan(f"plans/{plan}.md", outline, facts or PlanFacts(), landing="cherry-pick", now=NOW)
    return Card(**{"repo": "a1", "repository": "shop", "view": view, **more})


def a_run(**fields: Any) -> PlanFacts:
    row = RunRow(id="r1", plan="", started="", landing="cherry-pick", phase="2", **fields)
    return PlanFacts(run=row, owner="1:2:3", alive=True)


WAITS = a_run(state=RunStatus.WAITING, step="land", since="2026-01-01T11:00:00Z", waiting_for="approval")
ASKS = a_run(state=RunStatus.WAITING, since="2026-01-01T11:00:00Z", waiting_for="question")
WORKS = a_run(state=RunStatus.RUNNING, step="verify", agent="codex", since="2026-01-01T11:55:48Z")
RUNNING = a_card("b", WORKS, usage=AgentUsage(tokens=1200, usd=0.42), most_usd=5.0)
CARDS = (a_card("d", is_done=True), a_card("c", repository="depot", repo="b2"), RUNNING, a_card("a", WAITS))


def a_screen(*cards: Card, **more: Any) -> Screen:
    return replace_board(Screen(**more), Board(cards=cards or CARDS))


def text(screen: Screen, width: int = 80, height: int = 24) -> list[str]:
    lines = lay_out(screen, width=width, height=height, now=NOW)
    return ["".join(part for part, _ in line).rstrip() for line in lines]


def test_the_board_shows_what_needs_you_first_with_progress_cost_and_elapsed_time() -> None:
    lines = text(a_screen())
    assert lines[0] == "runplan watch  1 needs you, 1 running, 1 ready, 1 finished"
    assert lines[2:12] == [
        *("Needs you (1)", "> A         shop   ████░░░░ 1/2                    1h", "    Review: Phase 2 Two: land"),
        *("", "Running (1)", "  B         shop   ████░░░░ 1/2   $0.42/5.00    4m12s"),
        *("    Phase 2 Two: verify by codex", "", "Ready to start (1)", "  C         depot  ████░░░░ 1/2"),
    ]
    assert lines[13] == "Finished and set aside (1)  D"
    assert lines[-4:] == [
        *("A  plans/a.md in shop", "Needs attention: phase 2, land, waiting 1h for approval"),
        *("1 of 2 phases done", KEYS),
    ]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10), (20, 5), (20, 2), (20, 1)])
def test_the_lines_fit_every_size_and_show_the_selected_plan(width: int, height: int) -> None:
    cards = [a_card(f"p{n:02}-{'long' * 20}", PlanFacts(refused=("", "start", "word " * 60))) for n in range(40)]
    screen = replace_board(Screen(), Board(cards=tuple(cards), notes=("a note " * 30,)))
    for key in ("G", "k", "g", "j"):
        screen, _ = press_key(screen, key)
        lines = text(screen, width, height)
        assert len(lines) == height
        assert max(map(count_cells, lines)) <= width
        assert screen.card is not None
        assert any(line.startswith(f"> {screen.card.view.title[:4]}") for line in lines), lines


def test_a_wide_or_hostile_title_does_not_move_the_columns() -> None:
    titles = ["plain", "日本語のタイトル", "e\u0301te\u0301", "\x1b[2J\x1b[31mred\x07"]
    titles += ["two\nlines\tand\u202e more", "a\udcffb"]
    cards = [a_card(f"p{n}", title=title) for n, title in enumerate(titles)]
    rows = [line for line in text(a_screen(*cards)) if "1/2" in line]
    assert len({count_cells(line[: line.index("█")]) for line in rows}) == 1
    assert "".join(rows).isprintable()
    assert "> plain" in rows[0]
    assert "red" in rows[3]


def test_cells_are_cut_between_wide_characters() -> None:
    assert fit_cells("日本語", 4) == "日… "
    assert fit_cells("日本語", 6) == "日本語"
    assert fit_cells("abc", 2) == "a…"
    assert fit_cells("abc", 0) == ""


def test_keys_move_the_selection_within_the_board() -> None:
    screen = a_screen()
    seen = []
    for key in KEY.findall("k\x1b[Bj\x1bOBk\x1b[A"):
        screen, task = press_key(screen, key)
        assert task is None
        seen.append(screen.card.view.plan if screen.card else "")
    assert seen == [*("plans/a.md", "plans/b.md", "plans/c.md", "plans/c.md", "plans/b.md", "plans/a.md")]


@pytest.mark.parametrize(
    ("key", "task"),
    [
        *(("d", KeyTask.DIFF), ("a", KeyTask.APPROVE), ("r", KeyTask.REJECT), ("l", KeyTask.LOGS)),
        *(("s", KeyTask.STOP), ("enter", KeyTask.DETAILS)),
    ],
)
def test_a_key_acts_on_the_selected_plan_if_that_makes_sense(key: str, task: KeyTask) -> None:
    assert press_key(a_screen(), key)[1] is task
    running, done = press_key(a_screen(RUNNING), key)
    asks = key in ("d", "a", "r")
    assert (done is None, running.message) == (asks, "plans/b.md: no change waits for you" if asks else "")
    nothing, done = press_key(Screen(), key)
    assert (done, nothing.message) == (None, "no plan is selected")


def test_an_answer_to_a_question_is_not_an_approval() -> None:
    asks = a_card("q", ASKS)
    assert press_key(a_screen(asks), "a")[1] is KeyTask.APPROVE
    assert press_key(a_screen(asks), "r")[1] is None


def test_help_is_left_with_any_key_and_names_every_key() -> None:
    screen, task = press_key(a_screen(), "?")
    shown = "\n".join(text(screen))
    assert task is None
    assert all(f"\n  {key}" in shown for key in ("j, k", "d ", "a ", "r ", "l ", "s ", "Enter", "? ", "q "))
    assert press_key(screen, "s") == (a_screen(), None), "a key that hides the help stops nothing"
    assert press_key(screen, "q")[1] is KeyTask.QUIT


def test_the_selected_plan_stays_selected_in_another_group_and_a_neighbour_replaces_it() -> None:
    screen, _ = press_key(a_screen(), "j")
    moved = a_card("b", WAITS)
    assert replace_board(screen, Board(cards=(moved, *CARDS[:2]))).selected == RUNNING.id
    finished = a_card("b", is_done=True)
    assert replace_board(screen, Board(cards=(finished, CARDS[1], CARDS[3]))).selected == CARDS[1].id
    assert replace_board(screen, Board(cards=())).card is None


def test_an_unknown_sequence_is_one_key_without_meaning() -> None:
    assert KEY.findall("\x1b[15~q") == ["\x1b[15~", "q"]
    assert press_key(a_screen(), "\x1b[15~") == (a_screen(), None)
