"""At the door of a direct landing: what could not end well is refused with the remedy, and no wait is without end."""

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from runplan.adapters.git import remote
from runplan.adapters.git.command import CALLS, Git
from runplan.domain.errors import RefusedEarly, Unreachable
from tests.support.dispatching import gone, pid_in, until
from tests.support.landings import leftovers, snapshot
from tests.support.repos import MAIN, TRACKED, Pair, make_pair
from tests.support.tools import write_script


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path, **{"a.txt": "a\n"})


def require(pair: Pair, caller: Mapping[str, str] | None = None, name: str = "origin", timeout_s: float = 20.0) -> str:
    env = pair.here.env | dict(caller or {})
    with Git(pair.here.path, env=env) as git:
        common = Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir"))
        there = remote.Remote(git, name=name, branch="main", common_dir=common, caller=env, timeout_s=timeout_s)
        return remote.require(there)


def fake_ssh(pair: Pair, tmp_path: Path, words: str) -> Path:
    """Something that says how it was called, and an origin that is reached by it."""
    script = write_script(tmp_path / "ssh", f'echo "$0 $@" >>{tmp_path}/called\n{words}')
    pair.here.git("remote", "set-url", "origin", "ssh://example.org/there.git")
    return script


# --- fit to land on -------------------------------------------------------------------------------------


def test_a_usable_remote_gives_its_current_tip_also_without_a_local_branch(pair: Pair) -> None:
    ottos = pair.elsewhere(**{"c.txt": "c\n"})
    before = snapshot(pair.here)
    assert require(pair) == ottos
    after = snapshot(pair.here)
    assert after.refs == before.refs | {TRACKED: ottos}
    assert (after.files, after.index, after.leftovers) == (before.files, before.index, ())
    pair.here.git("switch", "-q", "--detach")
    pair.here.git("branch", "-qD", "main")
    assert require(pair) == ottos


def test_the_remote_is_found_from_a_linked_worktree(pair: Pair, tmp_path: Path) -> None:
    pair.here.git("worktree", "add", "-q", "-b", "work", str(tmp_path / "wt"))
    linked = Pair(here=pair.here.at(tmp_path / "wt"), there=pair.there)
    assert require(linked) == pair.there.head(MAIN)
    assert leftovers(pair.here) == ()


# --- refused --------------------------------------------------------------------------------------------


def test_a_remote_that_is_not_configured_is_refused_with_those_that_are(pair: Pair) -> None:
    pair.here.git("remote", "add", "Up.stream", "/nowhere")
    with pytest.raises(RefusedEarly) as refused:
        require(pair, name="upstream")
    assert str(refused.value) == (
        "there is no remote upstream here; "
        "set run.remote to one of Up.stream, origin, or run: git remote add upstream URL"
    )


def test_commits_that_are_not_pushed_are_refused_and_stay(pair: Pair) -> None:
    pair.here.commit("Mine", **{"mine.txt": "m\n"})
    with pytest.raises(RefusedEarly, match=r"^main has commits that origin/main lacks; .*: git push origin main$"):
        require(pair)
    own = pair.here.commit("Mine too", **{"mine.txt": "m2\n"})
    pair.elsewhere(**{"c.txt": "c\n"})
    with pytest.raises(RefusedEarly) as refused:
        require(pair)
    assert str(refused.value) == (
        "main has commits that origin/main lacks; push first, or keep them on another branch: "
        f"git -C {pair.here.path} pull --rebase origin main && git push origin main"
    )
    pair.here.git("switch", "-qc", "elsewhere", "HEAD~2")
    with pytest.raises(RefusedEarly, match="git switch main && git pull --rebase origin main && git push origin main"):
        require(pair)
    assert pair.here.head(MAIN) == own


@pytest.mark.parametrize("key", ["remote.origin.pushurl", "url./elsewhere/.pushInsteadOf", "remote.origin.url"])
def test_a_remote_that_pushes_elsewhere_than_it_fetches_from_is_refused(pair: Pair, key: str) -> None:
    there = pair.there.path
    value = f"{there.parent}/" if key.endswith("pushInsteadOf") else "/elsewhere/there.git"
    pair.here.git("config", "--add", key, value)
    with pytest.raises(RefusedEarly) as refused:
        require(pair)
    assert str(refused.value).startswith(f"origin is fetched from {there} and pushed to /elsewhere/there.git, ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://example.org/a/b.git", "git@example.org:a/b.git"),
        ("https://example.org/a/b", "ssh://git@Example.org:22/a/b.git"),
    ],
)
def test_two_ways_to_one_repository_are_one_address(pair: Pair, one: str, other: str) -> None:
    pair.here.git("config", "remote.origin.url", one)
    pair.here.git("config", "remote.origin.pushurl", other)
    with pytest.raises(Unreachable):  # it comes as far as asking
        require(pair, {"GIT_PROXY_COMMAND": "false", "https_proxy": "http://127.0.0.1:9", "GIT_SSH": "false"})
    pair.here.git("config", "remote.origin.pushurl", other.replace("/b", "/c"))
    with pytest.raises(RefusedEarly, match="cannot be seen"):
        require(pair)


@pytest.mark.parametrize("file", [".gitattributes", "art/deep/.gitattributes"])
def test_files_in_lfs_are_refused(pair: Pair, file: str) -> None:
    pair.elsewhere(**{file: "# images\n*.png filter=lfs diff=lfs merge=lfs -text\n"})
    with pytest.raises(RefusedEarly) as refused:
        require(pair)
    assert str(refused.value) == (
        f"{file} keeps files in git LFS, which a direct landing would not upload; "
        "land by cherry-pick, then: git push origin main"
    )


def test_attributes_that_merely_mention_lfs_are_no_reason(pair: Pair) -> None:
    pair.elsewhere(**{".gitattributes": "# no filter=lfs here\n*.txt text\n", "notes.txt": "*.x filter=lfs\n"})
    require(pair)


# --- out of reach ---------------------------------------------------------------------------------------


def test_a_remote_that_is_not_there_is_unreachable(pair: Pair) -> None:
    pair.here.git("remote", "set-url", "origin", "/nowhere")
    with pytest.raises(Unreachable) as error:
        require(pair)
    assert str(error.value) == (
        "cannot fetch main from origin: fatal: '/nowhere' does not appear to be a git repository / "
        "fatal: Could not read from remote repository."
    )


def test_a_remote_that_does_not_answer_is_given_up(pair: Pair, tmp_path: Path) -> None:
    script = write_script(tmp_path / "upload-pack", "exec cat >/dev/null")
    pair.here.git("config", "remote.origin.uploadpack", str(script))
    with pytest.raises(Unreachable, match="git fetch did not finish within"):
        require(pair, timeout_s=0.3)


def test_a_remote_operation_can_be_ended_from_another_thread(pair: Pair, tmp_path: Path) -> None:
    pid = tmp_path / "ssh.pid"
    script = fake_ssh(pair, tmp_path, f"echo $$ >{pid}; exec sleep 60")
    ended = threading.Event()

    def end() -> None:
        pid_in(pid)
        while not ended.wait(0.05):  # the ssh may run before its call counts as running
            CALLS.end()

    other = threading.Thread(target=end)
    other.start()
    with pytest.raises(Unreachable, match=r"git ended with code -9|Could not read from remote"):  # its ssh goes, too
        require(pair, {"GIT_SSH_COMMAND": str(script)}, timeout_s=100)
    ended.set()
    other.join()
    until(lambda: gone(pid_in(pid)))


def test_a_missing_ssh_key_is_reported(pair: Pair, tmp_path: Path) -> None:
    script = fake_ssh(pair, tmp_path, "echo 'git@example.org: Permission denied (publickey).' >&2; exit 255")
    with pytest.raises(Unreachable, match=r"Permission denied \(publickey\).*; runplan cannot type a password"):
        require(pair, {"GIT_SSH_COMMAND": str(script)})


# --- how it is reached ----------------------------------------------------------------------------------


def test_ssh_of_the_path_runs_in_batch_mode(pair: Pair, tmp_path: Path) -> None:
    fake_ssh(pair, tmp_path, f"exec git-upload-pack {pair.there.path}")
    pair.here.env["PATH"] = f"{tmp_path}:{pair.here.env['PATH']}"
    assert require(pair) == pair.there.head(MAIN)
    assert "-o BatchMode=yes" in (tmp_path / "called").read_text()


@pytest.mark.parametrize("how", ["GIT_SSH_COMMAND", "GIT_SSH", "core.sshCommand"])
def test_the_users_own_ssh_is_left_as_it_is(pair: Pair, tmp_path: Path, how: str) -> None:
    script = fake_ssh(pair, tmp_path, f"exec git-upload-pack {pair.there.path}")
    caller = {how: str(script)} if how.startswith("GIT") else {}
    if not caller:
        pair.here.git("config", how, str(script))
    assert require(pair, caller) == pair.there.head(MAIN)
    called = (tmp_path / "called").read_text()
    assert str(script) in called
    assert "BatchMode" not in called


def test_variables_that_turn_git_elsewhere_are_not_passed_on(pair: Pair) -> None:
    caller = {"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "GIT_CONFIG_COUNT": "x", "GIT_TERMINAL_PROMPT": "1"}
    assert require(pair, caller) == pair.there.head(MAIN)


def test_a_daemon_of_a_fetch_blocks_no_further_one(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a credential cache: it inherits the open files of git."""
    script = write_script(
        tmp_path / "upload-pack",
        f'sleep 5 </dev/null >/dev/null 2>&1 &\necho $! >{tmp_path}/pid\nexec git-upload-pack "$@"',
    )
    pair.here.git("config", "remote.origin.uploadpack", str(script))
    monkeypatch.setattr(remote, "PATIENCE_S", 0.1)
    assert require(pair) == require(pair) == pair.there.head(MAIN)
    assert not gone(pid_in(tmp_path / "pid"))
