"""Runs that wait for a person, are rejected or are interrupted: nothing is lost, and the printed command continues."""

import contextlib
import os
import pty
import signal
import subprocess

import pytest

from runplan.adapters.notify.links import is_used
from runplan.adapters.store.protocol import open_store
from tests.support.cli import RUNPLAN, Meanwhile, Project, ended, fix, processes_of, set_up, work, writes
from tests.support.forks import Process

# --- approval -----------------------------------------------------------------------------------------


@pytest.mark.promise
def test_without_auto_each_change_waits_for_approval(project: Project) -> None:
    before = project.repo.head("main")
    waits = project.start("finish").exits(4)
    diff, approve, reject = (f"runplan {verb} plans/X.md 1" for verb in ("diff", "approve", "reject"))
    answers = f"Request changes: {reject} -m TEXT; Reject: {reject}"
    assert waits.last == f"runplan: Review: {diff}; Approve: {approve}; {answers}"
    assert project.repo.head("main") == before
    view = project.runplan("status", "X", "--json").json
    run = view["run"]
    assert (run["state"], run["phase"], run["waiting_for"], run["outcome"]) == ("waiting", "1", "approval", None)
    assert view["phases"][0]["status"] == "in-progress"
    assert "for approval" in project.runplan("status", "X").out

    onward = project.go_on(waits).exits(4)
    assert project.landed() == ["1"]
    assert project.go_on(onward).code == 0
    assert project.landed() == ["1", "2"]
    assert project.leftovers() == []
    none = project.runplan("approve", "X").exits(3)
    assert none.err == "runplan: no change of plans/X.md waits for you; see: runplan status plans/X.md\n"


@pytest.mark.promise
def test_a_rejection_with_words_has_a_fixer_change_the_work_at_once_and_asks_again(project: Project) -> None:
    agent = writes("1", "2") + fix('append = "1.txt"\ntext = "more\\n"')
    set_up(project, agent=agent, settings="[run]\nmax_fix_cycles = 0\n")
    assert project.start("1").code == 4
    trees = [project.runplan("diff", "X", "--json").json["tree"]]
    for why in ("the file needs a head", "and a foot\n1.txt:1: a word, please"):
        project.runplan("reject", "X", "-m", why).exits(
            4, "; an agent gets your words\n", "phase 1 passed all checks and needs your approval"
        )
        trees.append(project.runplan("diff", "X", "--json").json["tree"])
    assert len(set(trees)) == 3
    judged = project.runplan("diff", "X", "--json").json["verdict"]["items"]
    commented = next(item for item in judged if item["item"] == "R1")
    words = "Uma User (terminal) on 1.txt:1 asks: a word, please"
    assert (commented["text"], commented["result"]) == (words, "pass")
    assert project.runplan("approve", "X").code == 0
    assert project.show("main:1.txt") == "1\nmore\nmore"
    assert "the change was rejected by Uma User (terminal): the file needs a head" in project.runplan("report", "X").out
    assert len(project.rows("SELECT id FROM runs")) == 1
    assert project.start("finish", "auto").code == 0
    first, second, third, other = project.prompts("implement", "fix")
    assert "rejected" not in first
    assert ("the file needs a head" in second, "and a foot" in second) == (True, False)
    assert ("the file needs a head" in third, "and a foot" in third) == (True, True)
    assert ("- R1: " in second, f"- R1: {words}" in third) == (False, True)
    before, lessons = other.split("=== begin of lessons ===")
    assert ("needs a head" in before, "needs a head" in lessons) == (False, True), "another phase, of a later run"


def test_an_answer_with_a_tree_is_only_for_the_change_that_was_shown(project: Project) -> None:
    set_up(project, agent=writes("1", "2") + fix('append = "1.txt"\ntext = "more\\n"'))
    assert project.start("1").code == 4
    shown = project.runplan("diff", "X", "--json").json["tree"]
    via = ("--via", "link 1a2b")
    assert project.runplan("reject", "X", "-m", "longer", "--tree", shown, *via).code == 4

    for verb in ("approve", "reject"):
        project.runplan(verb, "X", "1", "--tree", shown).exits(
            4, "See: runplan diff plans/X.md 1\n", f"the change was replaced: tree {shown[:12]} does not wait any more"
        )
    new = project.runplan("diff", "X", "--json").json["tree"]
    assert project.runplan("approve", "--tree", new[:11]).code == 2, "too short to name a tree"
    assert project.runplan("approve", "--tree", new[:12], *via).code == 0

    answers = project.bodies("Answered")
    assert [(body["tree"], body["approved"], body["by"]) for body in answers] == [
        (shown, False, "link 1a2b"),
        (new, True, "link 1a2b"),
    ]
    with contextlib.closing(open_store(project.path / ".git/runplan")) as store:
        assert [is_used(store, nonce) for nonce in ("1a2b", "1a2", "")] == [True, False, False]
    assert "by link 1a2b; then: " in project.runplan("explain", "X").out
    logs = project.runplan("logs", "X").out
    assert ("rejected by link 1a2b" in logs, "approved by link 1a2b" in logs) == (True, True)


ASKS = "land phase {}? y(es), n(o), d(iff), r(eject): "


def answering(project: Project, how: str, *turns: tuple[str, str], early: bytes = b"") -> tuple[int, str]:
    """Exit code and output of `start X finish` on a terminal; each turn is a prompt and the line that is typed.

    `early` is typed before any prompt.
    """
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [RUNPLAN, "start", "X", "finish", how],
        cwd=project.path,
        env={**project.env, "PAGER": "cat", "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, early)
    seen = ""
    with contextlib.suppress(OSError):  # the terminal is closed when the process ends
        for prompt, line in turns:
            start = len(seen)
            while prompt not in seen[start:]:
                seen += os.read(ours, 65536).decode()
            os.write(ours, f"{line}\n".encode())
        while True:
            seen += os.read(ours, 65536).decode()
    os.close(ours)
    return running.wait(timeout=60), seen


@pytest.mark.parametrize("how", ["--foreground", "--wait"])
def test_a_followed_run_asks_about_each_change_on_a_terminal(project: Project, how: str) -> None:
    """Keys that were pressed before the question answer nothing."""
    set_up(project, agent=writes("1", "2") + fix('append = "1.txt"\ntext = "more\\n"'))
    first = ASKS.format(1)
    words = ((first, "r"), ("what has to change?: ", ""), (first, "r"), ("what has to change?: ", "add more"))
    turns = ((first, "d"), (first, "what?"), *words, (first, "y"), (ASKS.format(2), "n"))
    code, seen = answering(project, how, *turns, early=b"y\n")
    assert code == 4, seen
    assert "+++ b/1.txt" in seen
    assert set(project.landed()) == {"1"}
    assert project.show("main:1.txt") == "1\nmore"
    assert [body["approved"] for body in project.bodies("Answered")] == [False, True]
    assert project.runplan("status", "X", "--json").json["run"]["waiting_for"] == "approval"
    assert project.runplan("approve", "X").code == 0


@pytest.mark.promise
def test_diff_shows_the_pending_change_and_its_evidence(project: Project) -> None:
    project.settings('[tests]\ncommand = "echo checked"\n')
    project.runplan("diff", "X").ends(
        3, "runplan: no change of plans/X.md waits for you; see: runplan status plans/X.md"
    )
    assert project.start("1").code == 4
    seen = project.runplan("diff", "X").out
    waits = project.runplan("diff", "X", "1", "--json").json
    assert waits["waiting_for"] == "approval"
    assert (waits["plan"], waits["phase"]) == ("plans/X.md", "1")
    assert waits["tree"] == project.repo.git(
        "--git-dir=.git/runplan/tool.git", "rev-parse", f"{waits['commit']}^{{tree}}"
    )
    assert [(gate["command"], gate["exit_code"], gate["tree"]) for gate in waits["gates"]] == [
        ("echo checked", 0, waits["tree"])
    ]
    assert waits["verdict"]["passed"]
    assert all(item["result"] == "pass" and item["evidence"] for item in waits["verdict"]["items"])
    assert "+++ b/1.txt\n@@ -0,0 +1 @@\n+1\n" in waits["diff"]
    assert waits["diff"] in seen
    for word in (waits["commit"][:12], waits["tree"][:12], "echo checked", waits["verdict"]["items"][0]["evidence"]):
        assert word in seen
    assert "runplan approve plans/X.md" in seen
    assert project.runplan("diff", "X", "2").code == 3
    yes = project.runplan("approve", "X").exits(0)
    named = f"runplan: approving phase 1 of plans/X.md: commit {waits['commit'][:12]}, tree {waits['tree'][:12]}\n"
    assert named in yes.err


def test_a_pending_change_survives_a_new_start_and_a_moved_target_and_lands_with_auto(project: Project) -> None:
    """After a move of the target the new candidate is shown, and asked about again: an approval is for one tree."""
    waits = project.start("1")
    again = project.start("1")
    assert (again.code, "implement" in again.err) == (4, False), "the same candidate waits"
    project.repo.commit("Meanwhile", **{"other.txt": "other\n"})
    moved = project.go_on(waits)
    assert (moved.code, "the target moved to" in moved.err, project.landed()) == (4, True, []), moved.err
    assert project.start("finish", "auto", "--model", "small").code == 0
    assert project.landed() == ["1", "2"]
    models = [body["model"] for body in project.bodies("DispatchStarted") if body["role"] == "implement"]
    assert models == ["", "small"], "the waiting run takes the options of the new start"


# --- interruptions ------------------------------------------------------------------------------------


def heard(running: Process) -> None:
    """The message is printed once."""
    assert running.stderr is not None
    assert any(
        line == b"runplan: agents have 30s to finish; press Ctrl-C again to end them now\n" for line in running.stderr
    )


def test_a_second_interrupt_ends_the_agents_and_a_start_continues(project: Project, meanwhile: Meanwhile) -> None:
    set_up(project, agent=work(*meanwhile.pause("implement")))
    running = subprocess.Popen(
        [RUNPLAN, "start", "X", "1", "auto", "--foreground"],
        cwd=project.path,
        env=project.env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    meanwhile.reached("implement")
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: everybody in the foreground hears it
    heard(running)
    os.killpg(running.pid, signal.SIGINT)
    stopped = ended(running).exits(130)
    assert stopped.last == ("runplan: interrupted; all agents are stopped. Continue with: runplan retry plans/X.md")
    endings = [body["ending"] for body in project.bodies("DispatchEnded")]
    assert endings == ["ended"], "no failure is recorded"
    assert processes_of(project.home) == []
    assert "interrupted; no process is working on it" in project.runplan("status", "X").out
    meanwhile.let_on("implement")

    project.go_on(stopped).exits(0)
    assert project.landed() == ["1"]
    assert project.leftovers() == []


@pytest.mark.promise
def test_a_first_interrupt_lets_the_agent_finish_and_starts_nothing_new(project: Project, meanwhile: Meanwhile) -> None:
    set_up(project, agent=work(*meanwhile.pause("implement")))
    running = meanwhile.begin(project, "implement", "start", "X", "1", "auto", "--foreground")
    running.send_signal(signal.SIGINT)
    heard(running)
    stopped = meanwhile.finish(running, "implement").exits(130)
    assert "WorkTaken" in [kind for kind, _ in project.events()], "what it did is taken"
    assert project.dispatched() == ["implement"]
    project.go_on(stopped).exits(0)
    assert project.dispatched() == ["implement", "verify"]
    assert project.landed() == ["1"]
