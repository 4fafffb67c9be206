"""A push dies while the server works: the landing is on the remote once, the checkout whole.

The kill matrix covers the moments between the calls of a lander.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import to_builtins

from runplan.adapters.git import remote
from runplan.domain.errors import Unreachable
from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.lander import Landed
from tests.support import landings
from tests.support.landings import candidate, files_of, leftovers
from tests.support.repos import MAIN, TRACKED, Pair, make_pair
from tests.support.tools import write_script

pytestmark = pytest.mark.rest

_UP = "cut -d' ' -f4 /proc/$pid/stat"
#: For a script that git runs at the other end: kill the git that the lander has started.
KILL_GIT = f"pid=$PPID; until [ $({_UP}) = $LANDER ]; do pid=$({_UP}); done; kill -9 $pid"


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A checkout in which the user has edits of their own."""
    pair = make_pair(tmp_path, **{"a.txt": "a\n", "b.txt": "b\n"})
    pair.here.write("b.txt", "edited\n")
    pair.here.write("mine.txt", "untracked\n")
    return pair


def intent(pair: Pair) -> LandingStarted:
    return pair.intent(candidate(pair.here, {"a.txt": "a2\n", "new/n.txt": "n\n"}))


def die(pair: Pair, landing: LandingStarted, point: str, *, who: str = "all", verb: str = "land") -> None:
    """Run a lander that is dead when this returns."""
    words = [str(pair.here.path), point, who, verb, json.dumps(to_builtins(landing))]
    done = subprocess.run(
        [sys.executable, landings.__file__, "die", *words],
        env=pair.here.env | {"PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def comes_to_its_end(pair: Pair, landing: LandingStarted, *, pushed: bool | None) -> None:
    """Recover asks the remote which end it is, and landing again makes it landed, once."""
    with pair.lander() as lander:
        lander.recover(landing)
        seen = lander.observe(landing)
        if pushed is not None:
            assert seen == (Landed(tip=landing.new) if pushed else None)
        assert lander.land(landing) == Landed(tip=landing.new)
    assert pair.landed() == 1
    assert pair.there.head(MAIN) == pair.here.head(MAIN) == pair.here.head(TRACKED) == landing.new
    assert pair.here.status() == " M b.txt\n?? mine.txt"
    texts = {"a.txt": "a2\n", "b.txt": "edited\n", "mine.txt": "untracked\n", "new/n.txt": "n\n"}
    assert {name: text.decode() for name, (_, text) in files_of(pair.here.path).items()} == texts
    assert leftovers(pair.here) == ()


@pytest.mark.parametrize(
    ("hook", "words", "pushed"),
    [
        ("pre-receive", "kill -9 $LANDER 0", False),
        ("reference-transaction", '[ "$1" != prepared ] || kill -9 $LANDER 0', False),
        ("reference-transaction", '[ "$1" != committed ] || kill -9 $LANDER 0', True),
        ("post-receive", "kill -9 $LANDER 0", True),
    ],
)
def test_everything_is_killed_while_the_server_works(pair: Pair, hook: str, words: str, pushed: bool) -> None:
    landing = intent(pair)
    script = pair.hook(hook, words)
    die(pair, landing, "nowhere")
    script.unlink()
    for lock in pair.there.path.rglob("*.lock"):
        lock.unlink()  # the server's own, for its people to remove
    comes_to_its_end(pair, landing, pushed=pushed)


def test_the_wait_for_a_hanging_server_is_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    landing = intent(pair)
    go = tmp_path / "go"
    pair.hook("pre-receive", f'kill -9 $LANDER; until [ -e {go} ]; do sleep 0.02; done; rm "$0"')
    die(pair, landing, "nowhere", who="alone")
    monkeypatch.setattr(remote, "PATIENCE_S", 0.1)
    with pair.lander() as lander, pytest.raises(Unreachable, match=r"has not ended in 0 s; .* end it: fuser -k"):
        lander.land(landing)
    go.touch()
    monkeypatch.undo()
    comes_to_its_end(pair, landing, pushed=True)


def test_only_git_is_killed_in_the_middle_of_the_push(pair: Pair) -> None:
    """The lander lives, finds the server still at it, and sees the landing arrive."""
    landing = intent(pair)
    pair.hook("pre-receive", f'{KILL_GIT}; sleep 0.1; rm "$0"')
    pair.here.env["LANDER"] = str(os.getpid())
    with pair.lander() as lander:
        assert lander.land(landing) == Landed(tip=landing.new)
    comes_to_its_end(pair, landing, pushed=True)


def fetches_by(pair: Pair, tmp_path: Path, content: str, words: str) -> Path:
    """Let every fetch write this into the lock of the tracking ref, which is returned, and then do `words`."""
    lock = pair.here.path / ".git" / f"{TRACKED}.lock"
    script = write_script(tmp_path / "upload-pack", f"printf '{content.strip()}' >{lock}\n{words}")
    pair.here.git("config", "remote.origin.uploadpack", str(script))
    return lock


def test_a_lock_that_a_killed_fetch_left_to_a_living_lander_is_taken_away(pair: Pair, tmp_path: Path) -> None:
    landing = intent(pair)
    lock = fetches_by(pair, tmp_path, "", KILL_GIT)
    pair.here.env["LANDER"] = str(os.getpid())
    with pair.lander() as lander:
        with pytest.raises(Unreachable, match="git ended with code -9"):
            lander.land(landing)
        assert lock.exists()
        pair.here.git("config", "--unset", "remote.origin.uploadpack")
        ottos = pair.elsewhere()
        assert lander.tip() == ottos
    assert leftovers(pair.here) == ()


@pytest.mark.parametrize(("content", "verb"), [("", "tip"), ("f" * 40 + "\n", "land")])
def test_a_lock_that_a_dead_fetch_of_ours_left_is_removed(pair: Pair, content: str, verb: str, tmp_path: Path) -> None:
    landing = intent(pair)
    lock = fetches_by(pair, tmp_path, content, "kill -9 $LANDER 0")
    die(pair, landing, "nowhere", verb=verb)
    pair.here.git("config", "--unset", "remote.origin.uploadpack")
    assert lock.exists()
    comes_to_its_end(pair, landing, pushed=False)


@pytest.mark.parametrize("killed", [True, False])
def test_a_lock_that_is_not_ours_is_left_and_named(pair: Pair, killed: bool) -> None:
    landing = intent(pair)
    lock = pair.here.path / ".git" / f"{TRACKED}.lock"
    lock.touch()
    os.utime(lock, (time.time() - 60,) * 2)
    pair.elsewhere()  # else git has nothing to write
    if killed:
        note = pair.here.path / ".git" / remote.LOCK
        note.parent.mkdir(exist_ok=True)
        note.write_text("running\n")  # by a command that was killed since
    with pair.lander() as lander, pytest.raises(Unreachable, match=r"main\.lock': File exists"):
        lander.recover(landing)
    assert lock.exists()
