"""Who did it: the rules of attribution, without a repository."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from runplan.core.dispatch import ToolUsed
from runplan.core.findings import compare, obeyed_words
from runplan.core.gitconfig import summary
from runplan.core.gitfacts import Finding, Identity
from runplan.core.gitwords import GitCommand, git_commands
from runplan.core.guard import (
    AGENT,
    Evidence,
    FileStamp,
    Logged,
    Stamp,
    made_there,
    read_log,
    signing,
    since,
    spelled,
    unspelled,
    written_files,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

UMA = Identity(name="Uma User", email="uma@example.org")
A, B, C, ZERO = "a" * 40, "b" * 40, "c" * 40, "0" * 40
EMPTY = Stamp(refs={}, head="ref: refs/heads/main", stashes=(), files={})


def logged(who: Identity, old: str = A, new: str = B, message: str = "commit: x") -> Logged:
    return Logged(old=old, new=new, who=who, message=message)


def evidence(
    *entries: Logged, tagger: Identity | None = None, committer: Identity | None = None, **more: object
) -> Evidence:
    def entries_of(ref: str, old: str) -> Sequence[Logged]:
        return entries

    blank = Evidence(entries=entries_of, tagger=lambda oid: tagger, committer=lambda oid: committer)
    return replace(blank, **more)  # type: ignore[arg-type]


def moved(ref: str, old: str, new: str, proof: Evidence, own: tuple[str, ...] = ()) -> tuple[Finding, ...]:
    before = replace(EMPTY, refs={ref: old} if old else {})
    after = replace(EMPTY, refs={ref: new} if new else {})
    return compare(before, after, proof, own=own)


def ran(*lines: str) -> list[ToolUsed]:
    return [ToolUsed(tool="git", path=line) for line in lines]


# --- refs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "accused", "safe"),
    [
        pytest.param([logged(AGENT)], True, True, id="the agent alone"),
        pytest.param([logged(AGENT), logged(UMA, B, C)], True, False, id="the user on top"),
        pytest.param([logged(UMA), logged(AGENT, B, C)], True, False, id="the user below"),
    ],
)
def test_a_reflog_entry_says_who_moved_a_ref(entries: list[Logged], accused: bool, safe: bool) -> None:
    (found,) = moved("refs/heads/main", A, C, evidence(*entries))
    assert (found.by_agent, found.safe) == (accused, safe)


def test_a_ref_moved_by_anybody_else_is_no_finding() -> None:
    assert moved("refs/heads/main", A, B, evidence(logged(UMA))) == ()


@pytest.mark.parametrize(
    ("proof", "accused"),
    [
        pytest.param(evidence(logged(UMA, A, C)), False, id="the log tells of another value"),
        pytest.param(evidence(logged(UMA, A, C), committer=AGENT), True, id="and the agent made the commit"),
        pytest.param(evidence(committer=AGENT), True, id="no log, the agent made the commit"),
        pytest.param(evidence(made={B}), True, id="no log, it was committed in its worktree"),
        pytest.param(evidence(heads={B}), False, id="no log, its head, but a commit of the user's"),
        pytest.param(evidence(heads={B}, committer=signing("r1.1")), True, id="no log, its head, which an agent made"),
        pytest.param(evidence(committer=signing("r1.1")), False, id="no log, by the agent of another dispatch"),
    ],
)
def test_a_log_that_does_not_lead_to_where_a_ref_stands_tells_nothing(proof: Evidence, accused: bool) -> None:
    (found,) = moved("refs/heads/main", A, B, proof)
    assert (found.by_agent, found.safe) == (accused, True)


@pytest.mark.parametrize(
    ("entries", "made", "expected"),
    [
        pytest.param([logged(UMA)], {B}, (True, True), id="straight to it"),
        pytest.param([logged(UMA), logged(UMA, B, C)], {B}, (True, False), id="built upon"),
        pytest.param([logged(UMA, B, C)], {B}, (True, False), id="put there without a word, and built upon"),
        pytest.param([logged(UMA, A, C)], {A}, None, id="away from it"),
        pytest.param([logged(UMA, A, C)], {B}, None, id="elsewhere"),
    ],
)
def test_whoever_signed_the_log_a_ref_that_came_to_the_agents_commit_is_its_doing(
    entries: list[Logged], made: set[str], expected: tuple[bool, bool] | None
) -> None:
    found = moved("refs/heads/main", A, entries[-1].new, evidence(*entries, made=made))
    assert [(one.by_agent, one.safe) for one in found] == ([expected] if expected else [])
    assert moved("refs/heads/fresh", "", B, evidence(logged(UMA, ZERO, B), made={B})) == (), "a branch made from it"
    remote = moved("refs/remotes/origin/x", A, B, evidence(logged(UMA, message="update by push"), made={B}))
    assert remote == (), "a push of the user's"


BY_UMA = evidence(logged(UMA))


@pytest.mark.parametrize(
    ("proof", "expected"),
    [
        pytest.param(replace(BY_UMA, tools=ran("git update-ref refs/heads/main HEAD")), (True, True), id="named"),
        pytest.param(replace(BY_UMA, tools=ran("git branch -f main x")), (True, True), id="by its short name"),
        pytest.param(replace(BY_UMA, tools=ran("git checkout main", "git branch x main")), None, id="only looked at"),
        pytest.param(
            replace(BY_UMA, tools=[ToolUsed(tool="move_ref", path="refs/heads/main")]), (True, True), id="told"
        ),
        pytest.param(
            evidence(logged(UMA), logged(UMA, B, B), tools=ran("git update-ref refs/heads/main HEAD")),
            (True, False),
            id="and the user moved it besides",
        ),
        pytest.param(replace(BY_UMA, tools=ran("git update-ref --stdin")), (True, False), id="whichever it named"),
        pytest.param(
            replace(BY_UMA, in_checkout=ran("git commit -m x"), checked_out="refs/heads/main"),
            (True, True),
            id="on it in the user's checkout",
        ),
        pytest.param(
            replace(BY_UMA, in_checkout=ran("git commit -m x"), checked_out="refs/heads/topic"),
            None,
            id="in the user's checkout, on another",
        ),
        pytest.param(
            replace(BY_UMA, in_checkout=ran("git status"), checked_out="refs/heads/main"),
            None,
            id="looked around there",
        ),
    ],
)
def test_a_command_that_git_wrote_down_weighs_more_than_the_name_in_a_log(
    proof: Evidence, expected: tuple[bool, bool] | None
) -> None:
    found = moved("refs/heads/main", A, B, proof)
    assert [(one.by_agent, one.safe) for one in found] == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("message", "line", "accused"),
    [
        ("update by push", "git push origin HEAD:main", True),
        ("update by push", "git fetch origin", False),
        ("fetch origin: fast-forward", "git push origin HEAD:main", False),
    ],
)
def test_a_push_under_another_name_is_told_by_the_command(message: str, line: str, accused: bool) -> None:
    proof = evidence(logged(UMA, message=message), tools=ran(line))
    assert bool(moved("refs/remotes/origin/main", A, B, proof)) is accused


OWN_REF = "refs/heads/runplan/x/1"


@pytest.mark.parametrize(
    ("proof", "hid"),
    [
        pytest.param(evidence(traced=(), own_entries=[logged(AGENT)]), True, id="its log says it ran git"),
        pytest.param(evidence(traced=ran("git status"), own_entries=[logged(AGENT)]), True, id="and not only this"),
        pytest.param(evidence(traced=ran("git commit -m x"), own_entries=[logged(AGENT)]), False, id="written down"),
        pytest.param(evidence(traced=ran("git history reword"), own_entries=[logged(AGENT)]), False, id="unknown"),
        pytest.param(evidence(own_entries=[logged(AGENT)]), False, id="nobody would have written it down"),
        pytest.param(evidence(traced=()), False, id="it ran none"),
        pytest.param(evidence(traced=(), own_entries=[logged(UMA)]), False, id="one that gets no environment"),
    ],
)
def test_who_ran_git_and_left_no_record_of_it_hid_what_it_did(proof: Evidence, hid: bool) -> None:
    found = compare(EMPTY, EMPTY, proof, own=())
    assert [(one.kind, one.by_agent, one.safe) for one in found] == ([("record", True, False)] if hid else [])
    on_branch = replace(proof, own_entries=(), entries=lambda ref, old: proof.own_entries)
    before, after = replace(EMPTY, refs={OWN_REF: A}), replace(EMPTY, refs={OWN_REF: B})
    assert bool(compare(before, after, on_branch, own=(OWN_REF,))) is hid, "by the log of its branch"


@pytest.mark.parametrize("ref", ["refs/heads/own", "refs/runplan/candidate/r", "refs/remotes/origin/HEAD"])
def test_some_refs_may_move_whoever_moves_them(ref: str) -> None:
    assert moved(ref, A, B, evidence(logged(AGENT)), own=("refs/heads/own",)) == ()


@pytest.mark.parametrize(
    ("old", "new", "proof", "expected"),
    [
        pytest.param(A, "", evidence(), False, id="deleted, nobody known: a warning"),
        pytest.param(A, B, evidence(), False, id="moved without a log: a warning"),
        pytest.param("", B, evidence(), None, id="new without a log: nothing was lost"),
        pytest.param("", B, evidence(tagger=AGENT), True, id="a tag the agent signed its name to"),
        pytest.param("", B, evidence(tagger=UMA), None, id="the user's tag"),
        pytest.param(A, "", evidence(tools=[ToolUsed(tool="move_ref", path="refs/tags/v1")]), True, id="told"),
        pytest.param(A, "", evidence(tools=[ToolUsed(tool="Bash", path="git tag -d v1")]), True, id="by command"),
        pytest.param(A, "", evidence(tools=[ToolUsed(tool="Bash", path="git log v1")]), False, id="only looked"),
    ],
)
def test_without_a_log_other_evidence_is_needed(old: str, new: str, proof: Evidence, expected: bool | None) -> None:
    found = moved("refs/tags/v1", old, new, proof)
    assert [one.by_agent for one in found] == ([] if expected is None else [expected])


PARKED, BRANCH = "refs/runplan/parked/x/1/1", "refs/heads/runplan/y/1"


@pytest.mark.parametrize(
    ("ref", "new", "proof", "expected"),
    [
        pytest.param(BRANCH, "", evidence(), None, id="a run that lands removes its branch"),
        pytest.param(BRANCH, "", evidence(beside=lambda: False), False, id="but there is no other run"),
        pytest.param(BRANCH, "", evidence(logged(UMA)), False, id="and git removes its log as well"),
        pytest.param(BRANCH, "", evidence(tools=ran("git branch -D runplan/y/1")), True, id="by command"),
        pytest.param(PARKED, "", evidence(), False, id="what is parked stays"),
        pytest.param(PARKED, "", evidence(tools=ran(f"git update-ref -d {PARKED}")), True, id="parked, by command"),
        pytest.param(PARKED, "", evidence(tools=ran("git update-ref --stdin")), True, id="parked, without its name"),
        pytest.param(PARKED, B, evidence(), False, id="and where it is"),
        pytest.param("refs/runplan/candidate/r", "", evidence(), None, id="a candidate is what a run makes of it"),
    ],
)
def test_work_that_is_kept_is_not_taken_away_without_a_word(
    ref: str, new: str, proof: Evidence, expected: bool | None
) -> None:
    found = moved(ref, A, new, replace(proof, prefix="refs/heads/runplan/"))
    assert [(one.kind, one.by_agent) for one in found] == ([] if expected is None else [("kept ref", expected)])
    assert moved(PARKED, "", A, proof) == (), "whoever parks something loses nothing"


def test_what_the_agent_of_another_dispatch_moves_is_judged_there() -> None:
    proof = evidence(logged(signing("r2.1")), agent=signing("r1.1"))
    assert moved("refs/heads/main", A, B, proof) == ()
    (found,) = moved("refs/heads/main", A, B, replace(proof, agent=signing("r2.1")))
    assert found.by_agent


@pytest.mark.parametrize(
    ("message", "accused"), [("fetch origin: fast-forward", False), ("pull: ff", False), ("update by push", True)]
)
def test_an_agent_may_fetch_but_not_push(message: str, accused: bool) -> None:
    found = moved("refs/remotes/origin/main", A, B, evidence(logged(AGENT, message=message)))
    assert bool(found) is accused


# --- HEAD, stash, files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([logged(UMA, A, A)], None, id="the user switched"),
        pytest.param([logged(AGENT, A, A)], (True, True), id="the agent switched, same commit"),
        pytest.param([logged(AGENT, A, B)], (True, False), id="to another commit"),
        pytest.param([logged(AGENT, A, A), logged(UMA, A, A)], (True, False), id="the user went on"),
    ],
)
def test_head_is_the_agents_doing_only_by_its_log(entries: list[Logged], expected: tuple[bool, bool] | None) -> None:
    found = compare(EMPTY, replace(EMPTY, head="ref: refs/heads/x"), evidence(head_entries=entries), own=())
    assert [(one.by_agent, one.safe) for one in found] == ([expected] if expected else [])


OURS = "ref: refs/heads/runplan/plan/1"


@pytest.mark.parametrize(
    ("was", "now", "entries", "found"),
    [
        pytest.param("ref: refs/heads/main", OURS, [], True, id="written by hand"),
        pytest.param(A, OURS, [], True, id="from no branch"),
        pytest.param("ref: refs/heads/main", "ref: refs/runplan/candidate/r", [], True, id="to another ref of ours"),
        pytest.param("ref: refs/heads/main", OURS, [logged(UMA, A, B)], True, id="something landed meanwhile"),
        pytest.param(
            "ref: refs/heads/main",
            OURS,
            [logged(UMA, A, B, "checkout: moving from main to runplan/plan/1")],
            False,
            id="the user's git led there",
        ),
        pytest.param(OURS, "ref: refs/heads/runplan/plan/2", [], False, id="it stood on one before"),
        pytest.param("ref: refs/heads/main", "ref: refs/heads/topic", [], False, id="to a branch of the user's"),
    ],
)
@pytest.mark.parametrize("name", ["HEAD", "worktrees/mine/HEAD"])
def test_a_head_that_is_led_to_a_branch_of_a_run_needs_no_log(
    name: str, was: str, now: str, entries: list[Logged], found: bool
) -> None:
    before, after = replace(EMPTY, head=was), replace(EMPTY, head=now)
    proof = evidence(prefix="refs/heads/runplan/", head_entries=entries)
    if name != "HEAD":
        before, after = replace(EMPTY, heads={name: was}), replace(EMPTY, heads={name: now})
        proof = evidence(prefix="refs/heads/runplan/", other_heads={name: entries})
    told = [(one.kind, one.name, one.by_agent, one.safe) for one in compare(before, after, proof, own=())]
    assert told == ([("head", name, True, True)] if found else [])


def test_stashes_are_told_apart_one_by_one() -> None:
    before, after = replace(EMPTY, stashes=(A,)), replace(EMPTY, stashes=(B, C))
    proof = evidence(logged(UMA, ZERO, B), logged(AGENT, B, C))
    assert [(one.old, one.new, one.by_agent) for one in compare(before, after, proof, own=())] == [
        ("", C, True),
        (A, "", False),
    ]
    dropped = replace(proof, tools=[ToolUsed(tool="Bash", path="git stash pop")])
    assert [one.by_agent for one in compare(before, after, dropped, own=())] == [True, True]


@pytest.mark.parametrize(
    ("path", "tool", "accused"),
    [
        ("config", ToolUsed(tool="config", path="user.name"), True),
        ("config", ToolUsed(tool="Write", path="/r/.git/config"), True),
        ("config", ToolUsed(tool="Read", path="/r/.git/config"), False),
        ("config", ToolUsed(tool="Bash", path="cd /x && git -C . config user.name x"), True),
        ("config", ToolUsed(tool="Bash", path="git config --global user.name x"), False),
        ("config", ToolUsed(tool="hook", path="/r/.git/hooks/pre-commit"), False),
        ("hooks/pre-commit", ToolUsed(tool="hook", path="/r/.git/hooks/pre-commit"), True),
        ("hooks/pre-commit", ToolUsed(tool="Edit", path="/r/.git/hooks/pre-push"), False),
        ("hooks/pre-commit", ToolUsed(tool="Bash", path="git config x y"), False),
        ("hooks/pre-commit", ToolUsed(tool="Bash", path="echo exit 1 > .git/hooks/pre-commit"), True),
        ("hooks/pre-commit", ToolUsed(tool="shell", path="cp /tmp/x /r/.git/hooks/pre-commit"), True),
        ("hooks/pre-commit", ToolUsed(tool="Bash", path="cat .git/hooks/pre-commit"), False),
        ("hooks/pre-commit", ToolUsed(tool="Bash", path="echo x > notes.txt"), False),
        ("config", ToolUsed(tool="Bash", path="git submodule--helper add --path sub"), True),
        ("info/exclude", ToolUsed(tool="Bash", path="git config x y"), False),
    ],
)
def test_configuration_and_hooks_need_a_tool_that_says_so(path: str, tool: ToolUsed, accused: bool) -> None:
    after = replace(EMPTY, files={path: FileStamp(text="new", mode=0o644)})
    (found,) = compare(EMPTY, after, evidence(tools=[tool]), own=())
    assert (found.name, found.by_agent) == (path, accused)


GLOBAL = "/home/uma/.gitconfig"
FILTER = '[filter "x"]\nsmudge = evil\n'


@pytest.mark.parametrize(
    ("path", "tool", "accused"),
    [
        (GLOBAL, ToolUsed(tool="Write", path=GLOBAL), True),
        (GLOBAL, ToolUsed(tool="Read", path=GLOBAL), False),
        (GLOBAL, ToolUsed(tool="Bash", path="echo x >> ~/.gitconfig"), True),
        (GLOBAL, ToolUsed(tool="Bash", path="cat ~/.gitconfig"), False),
        (GLOBAL, ToolUsed(tool="Bash", path="git config --global user.name x"), True),
        (GLOBAL, ToolUsed(tool="Bash", path="git config --global user.name"), False),
        (GLOBAL, ToolUsed(tool="git", path=f"git config --file {GLOBAL} a.b c"), True),
        (GLOBAL, ToolUsed(tool="git", path="git config a.b c"), False),
        (GLOBAL, ToolUsed(tool="git", path="git lfs install"), True),
        ("/home/uma/.config/git/config", ToolUsed(tool="Bash", path="echo x > /r/.git/config"), False),
    ],
)
def test_the_users_own_configuration_needs_evidence_as_well(path: str, tool: ToolUsed, accused: bool) -> None:
    after = replace(EMPTY, files={path: FileStamp(text=summary(FILTER), mode=0o644)})
    (found,) = compare(EMPTY, after, evidence(tools=[tool]), own=())
    assert (found.by_agent, found.obeyed) == (accused, ("filter.x.smudge",))


@pytest.mark.parametrize(
    ("path", "text", "obeyed"),
    [
        ("config", FILTER, ("filter.x.smudge",)),
        ("config", "[core]\neditor = vi\n", ()),
        ("info/attributes", "*.txt filter=lfs\n", ("a line of it",)),
        ("info/grafts", f"{A} {B}\n", ("a line of it",)),
        ("objects/info/alternates", "/x\n", ("a line of it",)),
        ("info/exclude", "*.o\n", ()),
        ("shallow", f"{A}\n", ()),
        ("hooks/pre-commit", FILTER, ()),
    ],
)
def test_what_git_obeys_is_named_whoever_wrote_it(path: str, text: str, obeyed: tuple[str, ...]) -> None:
    after = replace(EMPTY, files={path: FileStamp(text=text, mode=0o644)})
    (found,) = compare(EMPTY, after, evidence(), own=())
    assert (found.by_agent, found.obeyed) == (False, obeyed)
    assert compare(after, after, evidence(), own=()) == ()


def test_a_replacement_is_found_whoever_made_it() -> None:
    (found,) = moved(f"refs/replace/{A}", "", B, evidence())
    assert (found.by_agent, bool(found.obeyed)) == (False, True)
    (found,) = moved(f"refs/replace/{A}", "", B, evidence(tools=[ToolUsed(tool="git", path="git replace HEAD:a x")]))
    assert found.by_agent
    assert moved(f"refs/replace/{A}", B, "", evidence())[0].obeyed == ()


@pytest.mark.parametrize(
    ("finding", "says"),
    [
        (
            Finding(kind="config", name="config", old="", new="", by_agent=True, obeyed=("filter.x.clean",)),
            " (filter.x",
        ),
        (
            Finding(kind="config", name=GLOBAL, old="", new="", by_agent=False, obeyed=("filter.x.clean",)),
            f"take it out: git config --file {GLOBAL} --unset-all filter.x.clean",
        ),
        (
            Finding(kind="config", name="config", old="", new="", by_agent=False, obeyed=("filter.x.clean",)),
            "if it is not yours, take it out: git config --local --unset-all filter.x.clean",
        ),
        (
            Finding(kind="ref", name=f"refs/replace/{A}", old="", new=B, by_agent=False, obeyed=("x",)),
            f"take it out: git replace -d {A}",
        ),
        (
            Finding(kind="config", name="info/attributes", old="", new="", by_agent=False, obeyed=("a line of it",)),
            "look into that file",
        ),
    ],
)
def test_a_person_is_told_why_nothing_lands_and_what_helps(finding: Finding, says: str) -> None:
    assert says in obeyed_words(finding)
    assert obeyed_words(replace(finding, obeyed=())) == ""


def test_a_file_is_spelled_with_its_mode_and_told_from_none() -> None:
    for kept in (FileStamp(text="", mode=0o644), FileStamp(text="a\nb\n", mode=0o755), None):
        assert unspelled(spelled(kept)) == kept


def test_only_tools_that_write_name_written_files() -> None:
    tools = [ToolUsed(tool=tool, path=f"/{tool}") for tool in ("Read", "Edit", "write", "Grep", "apply_patch")]
    assert written_files([*tools, *tools, ToolUsed(tool="Write")]) == ("/Edit", "/write", "/apply_patch")


# --- reading ------------------------------------------------------------------------------------------


def test_a_log_is_read_line_by_line_and_odd_lines_are_passed_over() -> None:
    text = f"{ZERO} {A} Ü <Ä> Ö <u@x> 1700000000 +0100\tcommit (initial): a <b> 1 +0000\nodd\n{A} {B}  <> 1 -0000\n"
    first, second = read_log(text)
    assert (first.old, first.new, first.who) == (ZERO, A, Identity(name="Ü <Ä> Ö", email="u@x"))
    assert first.message == "commit (initial): a <b> 1 +0000"
    assert (second.who, second.message) == (Identity(name="", email=""), "")


def test_entries_count_back_to_the_value_that_was_stamped() -> None:
    log = [logged(AGENT, ZERO, A), logged(AGENT, A, B), logged(AGENT, B, A), logged(UMA, A, C)]
    assert since(log, A) == (log[3],)
    assert since(log, B) == tuple(log[2:])
    assert since(log, "d" * 40) == tuple(log)
    assert since(log, C) == (), "nothing is said since it came there"
    renamed = [logged(AGENT, ZERO, A), logged(UMA, A, A, "Branch: renamed refs/heads/x to refs/heads/y")]
    assert since(renamed, ZERO) == (renamed[1],)


def test_only_what_was_committed_in_a_worktree_was_made_there() -> None:
    messages = {
        "commit: x": True,
        "commit (amend): x": True,
        "cherry-pick: x": True,
        "cherry-pick: fast-forward": False,
        "checkout: moving from a to main": False,
        "reset: moving to main": False,
        "merge main: Fast-forward": False,
        "": False,
    }
    for message, made in messages.items():
        assert made_there([logged(UMA, message=message)]) == ({B} if made else set()), message


@pytest.mark.parametrize(
    ("line", "verbs"),
    [
        ("git status", ["status"]),
        ("cd a && git -C /b -c x=y --no-pager log; /usr/bin/git tag v1 | cat", ["log", "tag"]),
        ("echo 'git' \"unbalanced", []),
        ("git commit -m 'it''s; fine'", ["commit"]),
        ("(git fetch)\ngit", ["fetch"]),
        ("legit config x y", []),
        ("", []),
    ],
)
def test_calls_of_git_are_found_in_shell_lines(line: str, verbs: list[str]) -> None:
    assert [command.verb for command in git_commands(line)] == verbs


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("config core.hooksPath /x", True),
        ("config --unset core.hooksPath", True),
        ("config --add x.y z", True),
        ("config set x.y z", True),
        ("config user.name", False),
        ("config --get user.name", False),
        ("config --get-all user.name x", False),
        ("config -l", False),
        ("config --file x a.b c", False),
        ("remote add o u", True),
        ("remote -v", False),
        ("remote", False),
        ("push -u origin x", True),
        ("push origin x", False),
        ("branch --set-upstream-to=o/x", True),
        ("commit -m config", False),
    ],
)
def test_commands_that_write_configuration_are_known(line: str, writes: bool) -> None:
    (command,) = git_commands(f"git {line}")
    assert command.writes_config is writes


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("branch -D topic", True),
        ("update-ref -d refs/heads/topic", True),
        ("branch -f heads/topic HEAD", True),
        ("push . +HEAD:topic", True),
        ("fetch . main:refs/heads/topic", True),
        ("branch -D topic2", False),
        ("log topic", False),
        ("branch", False),
    ],
)
def test_commands_that_move_a_ref_name_it(line: str, moves: bool) -> None:
    verb, *words = line.split()
    assert GitCommand(verb=verb, words=tuple(words)).moves("refs/heads/topic") is moves


@pytest.mark.parametrize(
    ("line", "sets"),
    [
        ("update-ref refs/heads/topic HEAD", True),
        ("update-ref -m why refs/heads/topic HEAD", True),
        ("update-ref -d refs/heads/topic", True),
        ("update-ref refs/heads/x refs/heads/topic", False),
        ("branch topic", True),
        ("branch -f topic HEAD", True),
        ("branch -qD topic", True),
        ("branch -f x topic", False),
        ("branch --list topic", False),
        ("branch -m topic other", True),
        ("checkout topic", False),
        ("checkout topic -- file", False),
        ("checkout -B topic", True),
        ("checkout -B x topic", False),
        ("switch -C topic HEAD", True),
        ("switch --force-create=topic", True),
        ("worktree add -B topic ../x", True),
        ("fetch origin topic", False),
        ("fetch . HEAD:topic", True),
        ("push origin HEAD:topic", False),
        ("push . +HEAD:refs/heads/topic", True),
        ("push ../main :topic", True),
        ("rebase topic", False),
        ("rebase main topic", True),
        ("log topic", False),
    ],
)
def test_commands_that_set_a_ref_are_told_from_those_that_only_name_it(line: str, sets: bool) -> None:
    verb, *words = line.split()
    assert GitCommand(verb=verb, words=tuple(words)).sets("refs/heads/topic") is sets


@pytest.mark.parametrize(
    ("line", "named", "head"),
    [
        ("update-ref --stdin", False, False),
        ("fast-import", False, False),
        ("update-ref HEAD x", True, True),
        ("commit -m x", True, True),
        ("reset --hard HEAD~1", True, True),
        ("status", True, False),
    ],
)
def test_some_commands_move_refs_without_naming_them(line: str, named: bool, head: bool) -> None:
    verb, *words = line.split()
    command = GitCommand(verb=verb, words=tuple(words))
    assert (command.moves_any, command.moves_head) == (not named, head)
