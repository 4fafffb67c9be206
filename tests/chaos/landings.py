"""Kills landings: before every single call that has an effect, and at random moments while a user works."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from msgspec import to_builtins

from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.lander import Landed, Pending
from runplan.engine.landing.swap import BOX
from tests.support.landings import Snapshot, candidate, files_of, intent, lander, leftovers, snapshot
from tests.support.repos import MAIN, Repo, make_repo

# --- before every single call ---------------------------------------------------------------------------

START = {"a.txt": "old a\n", "b.txt": "b\n", "gone.txt": "gone\n", "dir/x.txt": "x\n", "z.txt": "old z\n"}
PHASE: dict[str, str | None] = {
    "a.txt": "new a\n",
    "dir/x.txt": None,
    "gone.txt": None,
    "gone.txt/inner.txt": "i\n",
    "new/n.txt": "n\n",
    "z.txt": "new z\n",
}
#: C functions that change something outside of the process, or wait for it.
CALLS = frozenset(
    (
        *("rename", "replace", "link", "unlink", "mkdir", "rmdir", "open", "write", "flush", "fsync", "flock"),
        *("fork_exec", "sendfile", "utime", "readline"),
    )
)


class Calls:
    """Counts the calls of this process that have an effect, from outside, and dies before one of them."""

    def __init__(self, die_before: int = 0, *, who: str = "alone") -> None:
        self.count = 0
        self._die_before = die_before
        self._who = who

    def __call__(self, _frame: FrameType, event: str, arg: object) -> None:
        if event == "c_call" and getattr(arg, "__name__", "") in CALLS:
            self.count += 1
            if self.count == self._die_before:
                os.kill(0 if self._who == "all" else os.getpid(), signal.SIGKILL)


@dataclass
class Bench:
    """A repository with a candidate and a user's edits, copied for every kill."""

    place: Path
    model: Repo
    landing: LandingStarted
    checked_out: bool
    kills: int = 0
    wrong: list[str] = field(default_factory=list)
    _number: int = 0

    def copied(self) -> Repo:
        self._number += 1
        repo = Repo(path=self.place / f"{self._number}")
        shutil.copytree(self.model.path, repo.path, symlinks=True)
        repo.git("update-index", "-q", "--refresh", ok=False)  # a copy has other inodes
        return repo

    def calls(self) -> int:
        """How many calls an undisturbed landing makes."""
        repo = self.copied()
        calls = Calls()
        with lander(repo) as cherry_pick:
            sys.setprofile(calls)
            answer = cherry_pick.land(self.landing)
            sys.setprofile(None)
        assert answer == Landed(tip=self.landing.new), answer
        return calls.count

    def kill(self, number: int, who: str, *, then: str = "nothing", again: int = 0) -> None:
        """Land, die before a call, let the user do something; then recover and land."""
        repo = self.copied()
        before = snapshot(repo)
        died = self._die(repo, number, who, verb="land")
        self.kills += died
        USER[then](repo)
        if again:
            self.kills += self._die(repo, again, who, verb="recover")
        self.wrong += [f"call {number} {who}, then {then}: {one}" for one in self._flaws(repo, before, then)]
        shutil.rmtree(repo.path)

    def _die(self, repo: Repo, number: int, who: str, *, verb: str) -> bool:
        pid = os.fork()
        if pid == 0:
            _be_killed(repo, self.landing, number, who, verb)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL

    def _flaws(self, repo: Repo, before: Snapshot, then: str) -> Iterator[str]:
        theirs = files_of(repo.path) if then == "edit" else {}
        tip = repo.head(MAIN)
        with lander(repo) as cherry_pick:
            cherry_pick.recover(self.landing)
            if repo.head(MAIN) != tip:
                yield "recovery has moved the branch"
            seen = cherry_pick.observe(self.landing)
            if then in ("nothing", "unlock") and seen is None and snapshot(repo) != before:
                yield f"not landed, and not as before: {repo.status()!r} {leftovers(repo)}"
            if then == "edit":
                yield from _edits_lost(repo, theirs)
            if then in ("nothing", "unlock"):
                answer = cherry_pick.land(self.landing)
                if answer != Landed(tip=self.landing.new):
                    yield f"does not land: {answer}"
                yield from self._differences(repo)
        if leftovers(repo):
            yield f"left behind: {leftovers(repo)}"

    def _differences(self, repo: Repo) -> Iterator[str]:
        if repo.git("log", "--format=%s", "main").count("Land L1") != 1:
            yield "landed twice, or not at all"
        expected = {name: text for name, text in (START | PHASE).items() if text is not None}
        if not self.checked_out:
            expected = dict(START)
        expected |= {"b.txt": "edited\n", "mine.txt": "untracked\n"}
        if files_of(repo.path) != {name: ("-", text.encode()) for name, text in expected.items()}:
            yield f"other files than expected: {sorted(files_of(repo.path))}"
        if repo.status() != " M b.txt\n?? mine.txt":
            yield f"status {repo.status()!r}"


def _be_killed(repo: Repo, landing: LandingStarted, number: int, who: str, verb: str) -> NoReturn:
    os.setsid()
    try:
        with lander(repo) as cherry_pick:
            sys.setprofile(Calls(number, who=who))
            if verb == "land":
                cherry_pick.land(landing)
            else:
                cherry_pick.recover(landing)
            sys.setprofile(None)
    finally:
        os._exit(0)


def _edits_lost(repo: Repo, theirs: dict[str, tuple[str, bytes]]) -> Iterator[str]:
    now = files_of(repo.path)
    for name in ("a.txt", "new/n.txt"):
        if now.get(name) != theirs[name]:
            yield f"the user's {name} is lost: {now.get(name)}"


def _edit(repo: Repo) -> None:
    repo.write("a.txt", "edited by the user\n")
    repo.write("new/n.txt", "made by the user\n")


def _unlock(repo: Repo) -> None:
    """As git's own message advises."""
    for name in ("index.lock", "HEAD.lock", "refs/heads/main.lock"):
        (repo.path / ".git" / name).unlink(missing_ok=True)


def _git(*words: str) -> Callable[[Repo], None]:
    def run(repo: Repo) -> None:
        _unlock(repo)
        repo.git(*words, ok=False)

    return run


USER: dict[str, Callable[[Repo], None]] = {
    "nothing": lambda _: None,
    "unlock": _unlock,
    "edit": _edit,
    "commit": _git("commit", "-qam", "What lay there"),
    "add": _git("add", "-A"),
    "reset": _git("reset", "-q", "--hard"),
}


def bench(place: Path, *, checked_out: bool = True) -> Bench:
    model = make_repo(place / "model", **START)
    model.write("b.txt", "edited\n")
    model.write("mine.txt", "untracked\n")
    if not checked_out:
        model.git("switch", "-qc", "elsewhere")
    landing = intent(model, candidate(model, PHASE))
    return Bench(place=place, model=model, landing=landing, checked_out=checked_out)


def kill_before_every_call(place: Path, *, step: int = 1, first: int = 1) -> Bench:
    """Every `step`-th call, by the lander alone and with its git; what the user does then goes round."""
    whole = bench(place)
    users = [name for name in USER if name != "nothing"]
    for turn, number in enumerate(range(first, whole.calls() + 1, step)):
        for who in ("alone", "all"):
            whole.kill(number, who)
        whole.kill(number, ("alone", "all")[turn % 2], then=users[turn % len(users)])
        whole.kill(number, ("all", "alone")[turn % 2], again=1 + turn * 7 % 40)
    (place / "ref").mkdir()
    ref = bench(place / "ref", checked_out=False)
    for turn, number in enumerate(range(first, ref.calls() + 1, step)):
        ref.kill(number, ("alone", "all")[turn % 2])
    whole.kills += ref.kills
    whole.wrong += [f"not checked out: {one}" for one in ref.wrong]
    return whole


# --- at random moments, with a user at work -------------------------------------------------------------

SHARED = tuple(f"s{number}.txt" for number in range(6))  #: changed by landings, and by the user at times
OWN = tuple(f"u{number}.txt" for number in range(3))  #: the user's
LONGEST_S = 0.08
#: When to kill: at most so long after this has appeared in the git directory; half of them while files are swapped.
MOMENTS = (("HEAD", LONGEST_S), (BOX, LONGEST_S), (f"{BOX}/plan", 0.02), (f"{BOX}/old", 0.004))
SETTLE_S = 60.0


@dataclass
class Account:
    """A trial and its result."""

    kills: Counter[str] = field(default_factory=Counter)
    landed: int = 0
    commits: int = 0
    saves: int = 0
    switches: int = 0
    refused: int = 0  #: commits of the user that met a lock
    planned: int = 0  #: kills after which there was something to recover
    touched: int = 0  #: of these, kills between the first file and the ref
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} of {who}" for who, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kills}), {self.planned} in the middle of a landing, {self.touched} of them "
            f"with files touched; {self.landed} landings; by the user {self.saves} saves, {self.commits} commits "
            f"({self.refused} met a lock) and {self.switches} switches: "
            f"{len(self.lost)} lost, {len(self.doubled)} landed twice, {len(self.wrong)} otherwise wrong"
        )


def soak(place: Path, *, kills: int, seed: int) -> Account:
    """Kill the lander, its git or both at random moments until that was done so often; then look at what is there."""
    chance = random.Random(seed)
    repo = make_repo(place / "repo", **dict.fromkeys((*SHARED, *OWN), "start\n"))
    repo.git("branch", "topic")
    account = Account()
    user = _forked(lambda: _User(repo, place, random.Random(seed + 1)).work())
    while account.kills.total() < kills:
        worker = _forked(lambda: _land_on(repo, place))
        wanted, longest_s = chance.choice(MOMENTS)
        _await(repo, wanted)
        time.sleep(chance.uniform(0, longest_s))
        victim = chance.choice(("tool", "git", "both"))
        account.kills[victim] += _strike(worker, victim)
        if victim == "git":
            time.sleep(chance.uniform(0, LONGEST_S))
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)  # the next one starts again
        os.waitpid(worker, 0)
        account.planned += (repo.path / ".git" / BOX / "plan").exists()
        account.touched += (repo.path / ".git" / BOX / "old").exists()
    (place / "stop").touch()
    os.waitpid(user, 0)
    _settle(repo, place, account)
    _examine(repo, place, account)
    return account


def _await(repo: Repo, name: str) -> None:
    end = time.monotonic() + 1
    while not (repo.path / ".git" / name).exists() and time.monotonic() < end:
        time.sleep(0.0002)


def _forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            work()
        except Exception:  # noqa: BLE001 - the child has no other way to report it
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def _strike(worker: int, victim: str) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        if victim == "tool":
            os.kill(worker, signal.SIGKILL)
        elif victim == "both":
            os.killpg(worker, signal.SIGKILL)
        else:
            children = Path(f"/proc/{worker}/task/{worker}/children").read_text(encoding="ascii").split()
            os.kill(int(children[-1]), signal.SIGKILL) if children else None
            return bool(children)
        return True
    return False


def _land_on(repo: Repo, place: Path, *, until: int = 1 << 30) -> None:
    """Land one thing after the other, as the loop does: an intent, the landing, what came of it."""
    landed, noted = place / "landed", place / "intent"
    with suppress(BaseException), lander(repo) as cherry_pick:
        while True:
            number = len(landed.read_text().split()) if landed.exists() else 0
            if number >= until:
                return
            if noted.exists():
                landing = LandingStarted(**json.loads(noted.read_text()))
                cherry_pick.recover(landing)
                answer = cherry_pick.observe(landing) or cherry_pick.land(landing)
            else:
                files: dict[str, str | None] = dict.fromkeys(SHARED[number % 3 :: 3], f"landing {number}\n")
                new = candidate(repo, {**files, f"l/{number}.txt": "new\n"}, landing=f"L{number}")
                landing = cherry_pick.prepare(id=f"L{number}", old=repo.head(f"{new}^"), new=new)
                _write(noted, json.dumps(to_builtins(landing)))
                answer = cherry_pick.land(landing)
            if isinstance(answer, Landed):
                _write(landed, f"{landed.read_text() if landed.exists() else ''}{landing.id}\n")
            if isinstance(answer, Pending):
                time.sleep(0.005)
            else:
                noted.unlink()


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


class _User:
    """Edits, saves, commits and switches branches; notes what must not be lost."""

    def __init__(self, repo: Repo, place: Path, chance: random.Random) -> None:
        self._repo = repo
        self._place = place
        self._chance = chance
        self._saved: dict[str, str] = {}  #: the last thing written to a path and neither committed nor thrown away
        self._commits: list[str] = []
        self._counts: Counter[str] = Counter()

    def work(self) -> None:
        number = 0
        while not (self._place / "stop").exists():
            number += 1
            action = self._chance.choices((self._save, self._commit, self._switch, self._throw_away), (6, 3, 2, 2))[0]
            action(number)
            time.sleep(self._chance.uniform(0, 0.03))
        notes = {"saved": self._saved, "commits": self._commits, "counts": self._counts}
        (self._place / "user.json").write_text(json.dumps(notes))

    def _save(self, number: int) -> None:
        name = self._chance.choice((*OWN, *OWN, *SHARED))
        path, text = self._repo.path / name, f"user {number}\n"
        if self._chance.random() < 0.5:
            draft = self._place / "draft"
            draft.write_text(text)
            draft.replace(path)
        else:
            path.write_text(text)
        self._saved[name] = text
        self._counts["saves"] += 1

    def _commit(self, number: int) -> None:
        before = self._repo.head()
        names = [*self._saved]
        self._repo.git("add", "--", *names, ok=False)
        self._repo.git("commit", "-qm", f"By the user {number}", "--", *names, ok=False)
        self._counts["refused"] += (self._repo.path / ".git/index.lock").exists()
        now, _, subject = self._repo.git("log", "-1", "--format=%H %s").partition(" ")  # a landing may follow at once
        if now != before and subject == f"By the user {number}":
            self._commits.append(now)
            for name in names:
                if self._repo.git("show", f"{now}:{name}", ok=False) == self._saved[name].strip():
                    del self._saved[name]
            self._counts["commits"] += 1

    def _switch(self, _number: int) -> None:
        branch = "main" if self._repo.git("symbolic-ref", "HEAD", ok=False) != MAIN else "topic"
        self._repo.git("switch", "-q", branch, ok=False)
        self._counts["switches"] += self._repo.git("symbolic-ref", "HEAD", ok=False) == f"refs/heads/{branch}"

    def _throw_away(self, _number: int) -> None:
        for name in [one for one in self._saved if one in SHARED]:
            self._repo.git("checkout", "-q", "HEAD", "--", name, ok=False)
            with suppress(FileNotFoundError):  # a landing is replacing it
                if (self._repo.path / name).read_text() != self._saved[name]:
                    del self._saved[name]


def _settle(repo: Repo, place: Path, account: Account) -> None:
    """Remove the edits of the user, then land three times without a kill."""
    done = len((place / "landed").read_text().split()) if (place / "landed").exists() else 0
    notes = json.loads((place / "user.json").read_text())
    with lander(repo) as cherry_pick:
        cherry_pick.recover()
    for name in notes["saved"]:
        if name in SHARED:
            _keep_elsewhere(repo, place, name)
    worker = _forked(lambda: _land_on(repo, place, until=done + 3))
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end and os.waitpid(worker, os.WNOHANG) == (0, 0):
        time.sleep(0.01)
    else:
        if time.monotonic() >= end:
            account.wrong.append(f"the landing does not come to its end: {repo.status()}")
            os.killpg(worker, signal.SIGKILL)


def _keep_elsewhere(repo: Repo, place: Path, name: str) -> None:
    kept = place / "kept" / name
    kept.parent.mkdir(exist_ok=True)
    if (repo.path / name).exists():
        kept.write_bytes((repo.path / name).read_bytes())
    repo.git("checkout", "-q", "HEAD", "--", name, ok=False)


def _examine(repo: Repo, place: Path, account: Account) -> None:
    notes = json.loads((place / "user.json").read_text())
    for name, count in notes["counts"].items():
        setattr(account, name, count)
    landed = (place / "landed").read_text().split()
    account.landed = len(landed)
    trailers = repo.git("log", "--format=%(trailers:key=Runplan-Landing,valueonly,separator=%x20)", MAIN).split()
    account.lost += [f"{one} is not on main" for one in landed if one not in trailers]
    account.doubled += [one for one, count in Counter(trailers).items() if count > 1]
    known = set(repo.git("rev-list", "main", "topic").split())
    account.lost += [f"the user's commit {one}" for one in notes["commits"] if one not in known]
    for name, text in notes["saved"].items():
        places = [repo.path / name, place / "kept" / name, *(repo.path / ".git/runplan").rglob(name)]
        if not any(one.exists() and one.read_text() == text for one in places):
            account.lost.append(f"{text.strip()!r}, which the user saved in {name}")
    for commit in notes["commits"]:
        for name in repo.git("show", "--name-only", "--format=", commit).split():
            if not repo.git("show", f"{commit}:{name}", ok=False).startswith("user"):
                account.wrong.append(f"the user's commit {commit} carries {name} of a landing")
    if left := [name for name in leftovers(repo) if not name.startswith("refs/test/")]:  # those are fast-import's
        account.wrong.append(f"left behind: {left}")
    account.wrong += [f"git fsck: {line}" for line in _fsck(repo)]


def _fsck(repo: Repo) -> list[str]:
    done = subprocess.run(
        ["git", "fsck", "--no-dangling", "--no-progress"], cwd=repo.path, capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines() if done.returncode else []
