"""Builders for landings; as a program, a landing on a disk that becomes full."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from runplan.adapters.git.command import Git
from runplan.domain.errors import RunplanError
from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.lander import Landed, LandingAnswer, Pending
from runplan.engine.landing.swap import BOX, CherryPick
from tests.support.repos import MAIN, Repo, direct, make_repo, watched


def candidate(
    repo: Repo,
    files: Mapping[str, str | None],
    *,
    landing: str = "L1",
    onto: str = MAIN,
    modes: Mapping[str, str] | None = None,
) -> str:
    """A commit on `onto` that writes `files` (None deletes), with the landing's trailer; no checkout moves."""
    lines = [f"commit refs/test/{landing}\nmark :1\ncommitter Uma <uma@example.org> 1700000000 +0000\n"]
    lines += [_data(f"Land {landing}\n\nRunplan-Landing: {landing}\n"), f"from {repo.head(onto)}\n"]
    # Deletions first: a directory may become a file.
    lines += [f'D "{path}"\n' for path, text in files.items() if text is None]
    for path, text in files.items():
        mode = (modes or {}).get(path, "100644")
        if mode == "160000":
            lines.append(f'M {mode} {text} "{path}"\n')
        elif text is not None:
            lines.append(f'M {mode} inline "{path}"\n{_data(text)}')
    return repo.git("fast-import", "--quiet", "--force", stdin="".join([*lines, "\nget-mark :1\n"]))


def _data(text: str) -> str:
    return f"data {len(os.fsencode(text))}\n{text}\n"


@contextmanager
def lander(repo: Repo, point: Callable[[str], None] | None = None, *, ref: str = MAIN) -> Iterator[CherryPick]:
    """The lander of a repository whose main checkout is `repo`."""
    with repo.adapter() as git, watched(point):
        yield CherryPick(git, ref=ref, common_dir=repo.path / ".git")


def intent(repo: Repo, new: str, *, landing: str = "L1", ref: str = MAIN) -> LandingStarted:
    with lander(repo, ref=ref) as cherry_pick:
        return cherry_pick.prepare(id=landing, old=repo.head(ref), new=new)


def land(repo: Repo, landing: LandingStarted | str, point: Callable[[str], None] | None = None) -> LandingAnswer:
    """Land it; of a commit, with a new intent."""
    with lander(repo, point) as cherry_pick:
        return cherry_pick.land(intent(repo, landing) if isinstance(landing, str) else landing)


def held(repo: Repo, landing: LandingStarted | str, said: str = "", point: Callable[[str], None] | None = None) -> str:
    """The landing waits, and says so; why."""
    answer = land(repo, landing, point)
    assert isinstance(answer, Pending)
    assert said in answer.why
    return answer.why


def at(*steps: str | Callable[[], object]) -> Callable[[str], None]:
    """Do something at a point of the landing, the first time it is passed: (point, action, point, action, …)."""
    todo = dict(zip(steps[::2], steps[1::2], strict=True))

    def passed(point: str) -> None:
        action = todo.pop(point, None)
        if callable(action):
            action()

    return passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything of a checkout that is the user's."""

    files: dict[str, tuple[str, bytes]]  #: kind and bytes of every path outside of .git
    index: str
    refs: dict[str, str]
    head: str
    stash: str
    leftovers: tuple[str, ...]  #: lock files and files of ours in any git directory


def snapshot(repo: Repo) -> Snapshot:
    """One look at the checkout `repo` stands in, and at the refs."""
    return Snapshot(
        files=files_of(repo.path),
        index=repo.git("ls-files", "--stage", "-t"),
        refs=repo.refs(),
        head=repo.git("symbolic-ref", "-q", "HEAD", ok=False) or repo.head(),
        stash=repo.git("stash", "list"),
        leftovers=leftovers(repo),
    )


def files_of(root: Path) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == ".git" or name.startswith(".git/"):
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("x" if path.stat().st_mode & 0o100 else "-", path.read_bytes())
    return found


def leftovers(repo: Repo) -> tuple[str, ...]:
    common = repo.path / repo.git("rev-parse", "--git-common-dir")
    found = [*common.rglob("*.lock"), *common.rglob("runplan.*")]
    found += [*common.rglob(BOX)]
    return tuple(sorted(str(path.relative_to(common)) for path in found))


def land_on_full_disk(directory: str, point: str) -> None:
    """Land on a disk that becomes full at a point: nothing of the user's changes, and a retry lands."""
    place = Path(directory)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)], check=True)
    repo = make_repo(place / "repo", **{f"{number}.txt": f"{number}\n" for number in range(20)})
    repo.write("mine.txt", "untracked\n")
    files: dict[str, str | None] = {f"{number}.txt": "x" * 5000 for number in range(15)}
    landing = intent(repo, candidate(repo, {**files, "16.txt": None, "new/n.txt": "n\n"}))
    before, ballast = snapshot(repo), place / "ballast"

    def passed(name: str) -> None:
        if name == point:
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

    passed("begin")
    try:
        with lander(repo, passed) as cherry_pick:
            found = cherry_pick.land(landing)
            answer = found.why if isinstance(found, Pending) else str(found)
    except RunplanError as error:
        answer = str(error)
    ballast.unlink()
    if repo.head() == landing.old:
        assert answer.startswith("git cannot"), answer
        assert snapshot(repo) == before
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert repo.status() == "?? mine.txt"
    assert (place / "repo/mine.txt").read_text() == "untracked\n"
    assert len(files_of(repo.path)) == 21


def die_while_pushing(root: str, at: str, who: str, verb: str, given: str) -> None:
    """Land by direct push and die by SIGKILL at a point, alone or with every git; children find our pid in LANDER."""

    def die(point: str) -> None:
        if point == at:
            os.kill(0 if who == "all" else os.getpid(), signal.SIGKILL)

    fields = json.loads(given)
    landing = LandingStarted(**fields)
    env = {**os.environ, "LANDER": str(os.getpid())}
    with Git(Path(root), env=env) as git, watched(die):
        lander = direct(git, Path(root), Path(root) / ".git/runplan/tool.git", env=env)
        if verb == "tip":
            lander.tip()
        else:
            lander.land(landing)


PROGRAMS: dict[str, Callable[..., None]] = {"full-disk": land_on_full_disk, "die": die_while_pushing}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
