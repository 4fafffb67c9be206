"""The candidate: commits replayed on the target and bookkeeping on top, all without a checkout."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.git.objects import Built, Candidates, Conflicted, NothingLeft, Replayed, Signature
from runplan.domain.errors import RefusedEarly
from runplan.domain.gitfacts import Commit, Identity
from tests.support.foreign import read_commit, read_tree
from tests.support.repos import Repo, install_signer, make_repo

USER = Identity(name="Uma User", email="uma@example.org")
WHEN = "1700000000 +0000"
FILES = {"a.txt": "a1\na2\na3\n", "b.txt": "b\n", "dir/c.txt": "c\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo", **FILES)


@pytest.fixture
def candidates(repo: Repo) -> Iterator[Candidates]:
    with repo.adapter() as git:
        yield Candidates(git)


BY = Signature(author=USER, committer=USER, when=WHEN)


def rewritten(commit: Commit) -> tuple[str, Signature]:
    return f"{commit.message}\nRunplan-Run: r1\n", replace(BY, author=commit.author, authored=commit.authored)


def replay(candidates: Candidates, base: str, head: str, onto: str) -> Replayed:
    return candidates.replay(base=base, head=head, onto=onto, rewrite=rewritten)


def built(answer: Replayed) -> Built:
    assert isinstance(answer, Built)
    return answer


def on_branch(repo: Repo, *changes: dict[str, str]) -> tuple[str, str]:
    """Base and head of a branch `work` with one commit for each of `changes`; main is checked out again."""
    base = repo.head()
    repo.git("switch", "-qc", "work")
    for number, files in enumerate(changes, start=1):
        repo.commit(f"Work {number}", **files)
    head = repo.head()
    repo.git("switch", "-q", "main")
    return base, head


# --- whose commits ------------------------------------------------------------------------------------

PARKED = "refs/runplan/parked/x/2/1"
AGENT = {"GIT_COMMITTER_NAME": "runplan agent", "GIT_COMMITTER_EMAIL": "agent+r1.1@runplan.invalid"}


def attempt(repo: Repo, *steps: tuple[str, ...]) -> tuple[str, str]:
    """Base and head of an attempt whose agent made a commit and ran these git commands; others hold `topic`."""
    repo.commit("Unpushed", **{"mine.txt": "x\n"})
    repo.git("update-ref", "refs/remotes/origin/main", "HEAD~1")
    base = repo.head()
    for name in ("refs/heads/topic", PARKED):
        repo.git("update-ref", name, repo.git("commit-tree", "-p", "main", "-m", f"On {name}", "main^{tree}"))
    repo.git("tag", "v1", repo.git("commit-tree", "-p", "main", "-m", "Tagged", "main^{tree}"))
    repo.git("switch", "-qc", "runplan/x/1")
    repo.commit("Work", AGENT, **{"1.txt": "1\n"})
    for step in steps:
        repo.git(*step, env=AGENT)
    head = repo.head()
    repo.git("switch", "-q", "main")
    return base, head


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([], (), id="one commit"),
        pytest.param([("branch", "look")], (), id="held by a branch of the user's"),
        pytest.param([("commit", "-q", "--amend", "-m", "Better")], (), id="its own commit amended"),
        pytest.param([("cherry-pick", "topic~0", "--allow-empty")], (), id="picked"),
        pytest.param([("merge", "-q", "-m", "m", "topic")], ("On refs/heads/topic",), id="merged"),
        pytest.param([("rebase", "-q", "topic")], ("On refs/heads/topic",), id="rebased"),
        pytest.param([("reset", "-q", "--hard", "v1")], ("Tagged",), id="led to a tag"),
        pytest.param([("merge", "-q", "-m", "m", PARKED)], (f"On {PARKED}",), id="the work of another phase"),
        pytest.param([("reset", "-q", "--hard", "origin/main")], None, id="reset"),
        pytest.param([("rebase", "-q", "--onto", "origin/main", "main")], None, id="rebased off its base"),
        pytest.param([("reset", "-q", "--soft", "main~1"), ("commit", "-qm", "All")], None, id="its base squashed"),
    ],
)
def test_foreign_commits_and_a_branch_off_its_base_are_told(
    repo: Repo, candidates: Candidates, steps: list[tuple[str, ...]], expected: tuple[str, ...] | None
) -> None:
    base, head = attempt(repo, *steps)
    found = candidates.foreign(base, head, run="r1")
    assert (None if found is None else tuple(subject for _, subject in found)) == expected


# --- commits and changes ------------------------------------------------------------------------------


def test_commits_come_oldest_first_and_a_merge_or_a_foreign_base_is_no_line(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "1\n"}, {"b.txt": "2\n"})
    line = candidates.commits(base, head)
    assert line is not None
    assert [commit.message for commit in line] == ["Work 1\n", "Work 2\n"]
    assert candidates.commits(base, base) == ()
    elsewhere = repo.commit("Elsewhere", **{"dir/c.txt": "other\n"})
    repo.git("switch", "-q", "work")
    repo.git("merge", "-q", "--no-ff", "-m", "Merge", "main")
    assert candidates.commits(base, repo.head()) is None
    assert candidates.commits(elsewhere, head) is None


def test_changes_name_each_path_with_both_modes_and_contents(repo: Repo, candidates: Candidates) -> None:
    base = repo.head()
    repo.git("rm", "-q", "b.txt")
    repo.write("b.txt/inner", "x\n")
    repo.write("dir/c.txt", "c\n").chmod(0o755)
    (repo.path / "a.txt").unlink()
    (repo.path / "a.txt").symlink_to("dir")
    head = repo.commit("All kinds", **{"dir/new/d.txt": "d\n"})
    found = candidates.changes(base, head)
    raw = repo.git("diff-tree", "-r", "--raw", "--no-renames", "--no-abbrev", base, head)
    ours = [
        f":{one.old_mode} {one.new_mode} {one.old} {one.new} {one.kind}\t{one.path}" for one in found
    ]  # fmt: skip
    assert ours == raw.splitlines()


# --- replay -------------------------------------------------------------------------------------------


def test_on_an_unmoved_target_trees_stay_and_messages_get_trailers(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "1\n"}, {"b.txt": "2\n"})
    answer = built(replay(candidates, base, head, base))
    assert answer.tree == repo.tree("work")
    assert len(answer.commits) == 2
    first, second = (read_commit(repo.path, oid) for oid in answer.commits)
    assert (first.parents, second.parents) == ([base], [answer.commits[0]])
    assert (second.message, second.trailers) == ("Work 2\n\nRunplan-Run: r1\n", [("Runplan-Run", "r1")])
    assert (second.committer, second.committed) == ("Uma User <uma@example.org>", WHEN)


def test_on_a_moved_target_both_sides_are_in_the_tree(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "a1\na2\nmine\n"}, {"new.txt": "n\n"}, {"new.txt": "n2\n"})
    onto = repo.commit("Theirs", **{"a.txt": "theirs\na1\na2\na3\n", "b.txt": "b2\n"})
    answer = built(replay(candidates, base, head, onto))
    assert repo.show(f"{answer.tree}:a.txt") == "theirs\na1\na2\nmine"
    assert repo.show(f"{answer.tree}:b.txt") == "b2"
    assert repo.git("log", "--format=%s", f"{onto}..{answer.commits[-1]}").split("\n") == ["Work 3", "Work 2", "Work 1"]


def test_a_conflict_names_its_paths_and_makes_nothing(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "mine\n", "dir/ü b.txt": "mine\n"})
    onto = repo.commit("Theirs", **{"a.txt": "theirs\n", "dir/ü b.txt": "theirs\n"})
    refs = repo.refs()
    assert replay(candidates, base, head, onto) == Conflicted(paths=("a.txt", "dir/ü b.txt"))
    assert repo.refs() == refs


def test_commits_that_become_empty_are_dropped(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "same\n"}, {}, {"b.txt": "more\n"})
    onto = repo.commit("Theirs", **{"a.txt": "same\n"})
    answer = built(replay(candidates, base, head, onto))
    assert [repo.git("log", "-1", "--format=%s", oid) for oid in answer.commits] == ["Work 3"]
    onto = repo.commit("Theirs, too", **{"b.txt": "more\n"})
    assert replay(candidates, base, head, onto) == replay(candidates, base, base, onto) == NothingLeft()


def test_a_branch_set_back_behind_its_base_lands_as_its_net_diff(repo: Repo, candidates: Candidates) -> None:
    start = repo.head()
    base = repo.commit("Base", **{"b.txt": "b2\n"})
    repo.git("switch", "-qc", "work", start)
    head = repo.commit("Work", **{"a.txt": "mine\n"})
    repo.git("switch", "-q", "main")
    onto = repo.commit("Theirs", **{"dir/c.txt": "c2\n"})
    answer = built(replay(candidates, base, head, onto))
    assert repo.show(f"{answer.tree}:b.txt") == "b"
    assert repo.show(f"{answer.tree}:dir/c.txt") == "c2"


def test_the_patch_stays_when_others_change_other_files_only(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "a1\na2\nmine\n"})
    first = built(replay(candidates, base, head, base))
    elsewhere = built(replay(candidates, base, head, repo.commit("B", **{"b.txt": "b2\n"})))
    same_file = built(replay(candidates, base, head, repo.commit("A", **{"a.txt": "0\na1\na2\na3\n"})))
    assert first.patch == elsewhere.patch
    assert first.tree != elsewhere.tree
    assert first.patch != same_file.patch


def test_odd_authors_dates_and_bytes_come_through(repo: Repo, candidates: Candidates) -> None:
    base = repo.head()
    repo.git("switch", "-qc", "work")
    env = {"GIT_AUTHOR_NAME": "Jörg <x>", "GIT_AUTHOR_EMAIL": "j@x", "GIT_AUTHOR_DATE": "@99 +0130"}
    repo.write("a.txt", "1\n")
    repo.git("commit", "-qa", "-F", "-", env=env, stdin="caf\udce9\n")
    answer = built(replay(candidates, base, repo.head(), base))
    raw = repo.git("cat-file", "commit", answer.commits[0])
    assert "author Jörg x <j@x> 99 +0130" in raw
    assert "café" in raw  # git itself takes such bytes for Latin-1


# --- bookkeeping --------------------------------------------------------------------------------------


def bookkeep(candidates: Candidates, code: str, files: dict[str, bytes]) -> str:
    return candidates.bookkeep(code=code, files=files, message="Mark", by=BY)


def test_bookkeeping_changes_its_files_and_keeps_their_modes(repo: Repo, candidates: Candidates) -> None:
    repo.write("b.txt", "b\n").chmod(0o755)
    code = repo.commit("Executable")
    odd = 'reports/odd "näme"\\.md'
    made = bookkeep(candidates, code, {"b.txt": b"\xff\x00done", odd: b"new\n"})
    files = read_tree(repo.path, made)
    assert (files.pop("b.txt"), files.pop(odd)) == (("100755", b"\xff\x00done"), ("100644", b"new\n"))
    assert files == {name: entry for name, entry in read_tree(repo.path, code).items() if name != "b.txt"}
    commit = read_commit(repo.path, made)
    assert (commit.parents, commit.message, commit.committed) == ([code], "Mark\n", WHEN)
    assert commit.author == commit.committer == "Uma User <uma@example.org>"
    assert repo.status() == ""


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("link", "link is a symbolic link"),
        ("link/report.md", "link is a symbolic link"),
        ("dir", "dir is a directory"),
        ("b.txt/report.md", "b.txt is a file"),
    ],
)
def test_bookkeeping_replaces_no_special_file(repo: Repo, candidates: Candidates, path: str, said: str) -> None:
    (repo.path / "link").symlink_to("dir")
    code = repo.commit("Link")
    with pytest.raises(RefusedEarly, match=said):
        bookkeep(candidates, code, {path: b"x"})


def test_signed_commits_are_signed_all_of_them(repo: Repo, candidates: Candidates, tmp_path: Path) -> None:
    install_signer(repo, tmp_path)
    base, head = on_branch(repo, {"a.txt": "mine\n"})
    by = replace(BY, sign=True)
    answer = built(candidates.replay(base=base, head=head, onto=base, rewrite=lambda one: (one.message, by)))
    made = candidates.bookkeep(code=answer.commits[0], files={"b.txt": b"x"}, message="Mark", by=by)
    for oid in (answer.commits[0], made):
        assert "gpgsig -----BEGIN" in repo.git("cat-file", "commit", oid)


@pytest.mark.parametrize("sign", [False, True])
def test_a_message_in_any_charset_lands_as_text(repo: Repo, candidates: Candidates, tmp_path: Path, sign: bool) -> None:
    install_signer(repo, tmp_path)
    repo.git("config", "i18n.commitEncoding", "ISO-8859-1")
    base, _ = on_branch(repo)
    repo.git("switch", "-q", "work")
    for message in ("café".encode("latin-1"), "Grüße".encode()):  # git takes the bytes as they are
        repo.write("a.txt", f"{message!r}\n")
        (tmp_path / "message").write_bytes(message)
        repo.git("commit", "-qaF", str(tmp_path / "message"))
    by = replace(BY, sign=sign)
    answer = candidates.replay(base=base, head=repo.head(), onto=base, rewrite=lambda commit: (commit.message, by))
    shown = [repo.git("log", "-1", "--encoding=UTF-8", "--format=%s", oid) for oid in built(answer).commits]
    assert shown == ["café", "Grüße"]


# --- a tree without our own files ---------------------------------------------------------------------


def test_the_tree_without_our_files_depends_on_nothing_else_of_them(repo: Repo, candidates: Candidates) -> None:
    ours = dict.fromkeys(["plans/p.md", "reports/plan-p.md"])
    plain = candidates.tree_with(repo.tree(), ours)
    repo.commit("Ours", **{"plans/p.md": "1\n", "reports/plan-p.md": "r\n"})
    assert candidates.tree_with(repo.tree(), ours) == plain
    repo.commit("Beside ours", **{"plans/q.md": "1\n"})
    beside = candidates.tree_with(repo.tree(), ours)
    assert beside != plain
    repo.commit("Ours again", **{"plans/p.md": "2\n"})
    assert candidates.tree_with(repo.tree(), ours) == beside
    repo.commit("Code", **{"dir/c.txt": "c2\n"})
    assert candidates.tree_with(repo.tree(), ours) != beside


def test_building_a_candidate_touches_no_checkout_and_no_ref(repo: Repo, candidates: Candidates) -> None:
    base, head = on_branch(repo, {"a.txt": "mine\n"})
    repo.write("a.txt", "edited by the user\n")
    index = (repo.path / ".git/index").read_bytes()
    refs = repo.refs()
    answer = built(replay(candidates, base, head, base))
    bookkeep(candidates, answer.commits[-1], {"b.txt": b"x"})
    assert repo.refs() == refs
    assert (repo.path / ".git/index").read_bytes() == index
    assert (repo.path / "a.txt").read_text() == "edited by the user\n"
    assert sorted(path.name for path in repo.path.iterdir()) == [".git", "a.txt", "b.txt", "dir"]


def test_a_large_file_is_named_in_the_patch_and_not_read(repo: Repo, candidates: Candidates) -> None:
    old = repo.head("main")
    new = repo.commit("Add", **{"large.txt": "line\n" * 2_000_000, "small.txt": "seen\n", "ours.md": "ours\n"})
    patch = candidates.diff(old, new, without=["ours.md"])
    assert "+seen" in patch
    assert "Binary files /dev/null and b/large.txt differ" in patch
    assert "ours" not in patch


LINES = "".join(f"{n}\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("head\n" + LINES, "head\n" + LINES.replace("20\n", "twenty\n"), True),
        (LINES.replace("21\n", "near\n"), LINES.replace("20\n21\n", "twenty\nnear\n"), True),
        (LINES, LINES.replace("20\n", "zwanzig\n"), False),
        (LINES, LINES.replace("30\n", "twenty\n"), False),
        (LINES, LINES + "\0", False),
    ],
)
def test_a_change_has_the_same_id_on_another_base(
    repo: Repo, candidates: Candidates, before: str, after: str, is_same: bool
) -> None:
    ids = []
    for old, new in ((LINES, LINES.replace("20\n", "twenty\n")), (before, after)):
        base = repo.commit("Before", **{"n.txt": old, "other.txt": repo.head()})
        ids.append(candidates.change_id(base, repo.commit("After", **{"n.txt": new})))
    assert (ids[0] == ids[1]) is is_same


def test_changes_of_a_binary_file_differ_by_its_content(repo: Repo, candidates: Candidates) -> None:
    base = repo.head()
    ids = {candidates.change_id(base, repo.commit("Binary", x=f"\0{n}")) for n in range(3)}
    assert len(ids) == 3
