"""The inspection of real repositories with GitPython."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runplan.adapters.git.objects import KEEPER, Candidates
from runplan.app.views.diffs import parse_diff
from runplan.app.views.inspection import (
    RepositoryFacts,
    compare_commits,
    describe_commits,
    inspect_repository,
    read_short_diffs,
)
from runplan.domain.gitfacts import Identity
from runplan.domain.settings.schema import Settings
from runplan.engine.loop.context import RepositoryContext, context_at
from tests.support.repos import USER_EMAIL, USER_NAME, Repo, init_repo, install_signer, isolated_env, make_repo
from tests.support.tools import write_script


@contextmanager
def opened(path: Path, **env: str) -> Iterator[RepositoryContext]:
    with context_at(path, isolated_env(**env), lambda _root, _env: Settings()) as context:
        yield context


def seen(path: Path, **env: str) -> RepositoryFacts:
    with opened(path, **env) as context:
        return inspect_repository(context)


def program(directory: Path, name: str) -> Path:
    return write_script(directory / name, "")


@pytest.mark.parametrize("ids", ["sha1", "sha256"])
def test_a_repository_is_seen_whole_from_any_directory_in_it(tmp_path: Path, ids: str) -> None:
    repo = init_repo(tmp_path / "app", f"--object-format={ids}")
    repo.commit("Start", **{"Makefile": "test:\n\ttrue\n", "src/deep/x.py": ""})
    repo.git("remote", "add", "upstream", "https://example.org/x.git")
    facts = seen(tmp_path / "app" / "src" / "deep")
    assert facts.root == str(repo.path)
    assert facts.default_branch == "main"
    assert facts.identity == Identity(name=USER_NAME, email=USER_EMAIL)
    assert facts.toolchain.tests == "make test"
    assert facts.remotes == ("upstream",)


@pytest.mark.parametrize(
    ("branches", "remote_head", "expected"),
    [
        (("work", "main"), "", "main"),
        (("work", "master"), "", "master"),
        (("work", "main", "dev"), "dev", "dev"),
        (("work", "main"), "gone", "main"),
        (("work",), "", "work"),
    ],
)
def test_the_default_branch_is_the_remotes_else_the_usual_else_the_current(
    tmp_path: Path, branches: tuple[str, ...], remote_head: str, expected: str
) -> None:
    repo = make_repo(tmp_path / "app")
    repo.git("branch", "-m", branches[0])
    for name in branches[1:]:
        repo.git("branch", name)
    if remote_head:
        repo.git("symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{remote_head}")
    assert seen(repo.path).default_branch == expected
    repo.git("checkout", "-q", "--detach")
    assert seen(repo.path).default_branch == expected


def test_only_a_configured_identity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git would guess one, or take one from variables, which a run does not get."""
    monkeypatch.setenv("EMAIL", "guess@example.org")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Env")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "env@example.org")
    repo = make_repo(tmp_path / "app")
    assert seen(repo.path).identity == Identity(name=USER_NAME, email=USER_EMAIL)
    repo.git("config", "--remove-section", "user")
    assert seen(repo.path).identity is None


def test_the_repository_of_a_callers_git_dir_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path / "app")
    other = make_repo(tmp_path / "other")
    other.git("branch", "-m", "theirs")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    repo.write("tests/new.py", "")
    facts = seen(repo.path)
    assert (facts.default_branch, facts.toolchain.shown_by) == ("main", "tests/new.py")


def test_the_messages_of_all_commits_are_read_whole(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    old = repo.head()
    for number in (1, 2):
        repo.commit(f"Write {number}\n\nSigned-off-by: Mallory", **{"a.txt": str(number)})
    with opened(repo.path) as context:
        shown, _ = compare_commits(context, old, repo.head())
    assert shown.split() == ["Write", "1", "Signed-off-by:", "Mallory", "Write", "2", "Signed-off-by:", "Mallory"]


def test_no_setting_hides_a_submodule_that_moved(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    places = []
    for _ in range(2):
        repo.git("update-index", "--add", "--cacheinfo", f"160000,{repo.head()},sub")
        repo.git("commit", "-qm", "Move the submodule")
        places.append(repo.head())
    repo.git("config", "diff.ignoreSubmodules", "all")
    with opened(repo.path) as context:
        assert "+Subproject commit " in compare_commits(context, *places)[1]


def test_neither_odd_bytes_nor_an_attribute_nor_a_setting_hide_a_text(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app", **{".gitattributes": "*.py binary\n"})
    repo.git("config", "diff.noprefix", "true")
    old = repo.head()
    repo.write("a.py", "print('seen')\n")
    (repo.path / "b.sh").write_bytes(b"echo one\n: \0 \xff\n" + b"echo two\n" * 9)
    (repo.path / "c.png").write_bytes(b"\x89PNG\r\n\0\0rest\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "Change")
    with opened(repo.path) as context:
        _, shown = compare_commits(context, old, repo.head())
        (in_report,) = read_short_diffs(context, [repo.head()]).values()
    assert "+print('seen')\n" in shown
    assert "+print('seen')\n" in in_report
    assert "+echo one\n+: \\x00 \\xff\n" in in_report
    assert "Binary files differ" in in_report
    assert "+echo one\n+: \0 \\xff\n" in shown
    assert {file.path: file.is_binary for file in parse_diff(shown)} == {"a.py": False, "b.sh": False, "c.png": True}


def test_no_configured_program_runs(tmp_path: Path) -> None:
    """An agent without a sandbox can write the configuration of the user's repository."""
    repo = make_repo(tmp_path / "app", **{".gitattributes": "* diff=odd filter=odd\n", "a.txt": "a\n"})
    install_signer(repo, tmp_path)
    repo.write("a.txt", "b\n")
    repo.git("commit", "-qaS", "-m", "Change")
    new = repo.head()
    odd = program(tmp_path, "odd")
    odd.write_text(f"#!/bin/sh\necho $0 $* >>{tmp_path}/ran\ncat\n", encoding="utf-8")
    keys = ("core.fsmonitor", "core.pager", "diff.external", "diff.odd.command", "diff.odd.textconv", "gpg.program")
    for key in (*keys, "filter.odd.clean", "filter.odd.smudge", "filter.odd.process"):
        repo.git("config", key, str(odd))
    repo.git("config", "log.showSignature", "true")
    (repo.path / ".git/hooks").mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "pre-commit"):
        (repo.path / ".git/hooks" / name).symlink_to(odd)
    repo.write("a.txt", "edited\n")
    with opened(repo.path) as context:
        inspect_repository(context)
        assert describe_commits(context, [new])[new].endswith(" Change")
        assert "\n-a\n+b" in read_short_diffs(context, [new])[new]
        assert "\n-a\n+b\n" in compare_commits(context, f"{new}^", new)[1]
    assert not (tmp_path / "ran").exists()


def test_files_not_yet_committed_count_and_ignored_ones_do_not(tmp_path: Path) -> None:
    repo: Repo = make_repo(tmp_path / "app", **{".gitignore": "tests/ignored.py\n"})
    repo.write("tests/ignored.py", "")
    assert not seen(repo.path).toolchain.shown_by
    repo.write("tests/new.py", "")
    assert seen(repo.path).toolchain.shown_by == "tests/new.py"


def test_a_commit_that_only_keeps_files_is_described_without_a_date(tmp_path: Path) -> None:
    with opened(make_repo(tmp_path / "app").path) as context:
        tip = context.tip()
        kept = Candidates(context.git).commit(context.git.commit(tip).tree, onto=tip, message="Kept\n", by=KEEPER)
        assert describe_commits(context, [kept]) == {kept: "Kept"}
