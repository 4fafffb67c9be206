"""Plays honest commits of a repository as phases: `python -m tests.corpus.history REPOSITORY COMMAND`.

Each commit that changes code and tests becomes a phase on top of its parent. runplan works on it, and the verifier
answers that the work item demands every changed promise. The table shows what runplan asked or refused, and the time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from msgspec import Struct

from runplan.domain.checks.guarded import is_test
from tests.corpus.play import HERE, SETTINGS, plan_of
from tests.support.cli import RUNPLAN, Project, end_processes_of
from tests.support.repos import init_repo

ITEM = "Make the change of the commit"
SOURCES = (".py", ".go", ".js", ".ts", ".mjs", ".rs", ".c", ".java")


class Played(Struct, frozen=True, kw_only=True):
    """How runplan took one commit."""

    commit: str
    subject: str
    has_landed: bool
    reason: str  #: of a refusal, with its detail
    promises: tuple[str, ...]  #: the tests of the base that fail on the new code, each with its reason
    is_hollow: bool  #: no new test fails without the change
    gate_s: float
    proof_s: float
    can_run: bool  #: whether the tests pass on the parent and on the commit itself


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus.history", description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("command", help="the test command")
    parser.add_argument("--setup", default="", help="run.setup")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the test command")
    parser.add_argument("--count", type=int, default=10, help="commits to play; those whose tests fail do not count")
    parser.add_argument("--skip", type=int, default=0, help="newest commits that are left out")
    asked = parser.parse_args()
    env = dict(pair.split("=", 1) for pair in asked.env)
    played: list[Played] = []
    for commit in candidates(asked.repository, asked.skip):
        with tempfile.TemporaryDirectory(prefix="runplan-history-") as place:
            result = play(asked.repository, commit, Path(place), asked.command, asked.setup, env)
        print(describe(result), flush=True)  # noqa: T201
        played += [result] if result.can_run else []
        if len(played) == asked.count:
            break
    print(summarize(asked.repository.resolve().name, played))  # noqa: T201
    return 0


def git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", repository, *words], check=True, capture_output=True, text=True).stdout


def candidates(repository: Path, skip: int) -> Iterator[str]:
    """The commits that change code and tests, newest first."""
    for commit in git(repository, "rev-list", "--no-merges", f"--skip={skip}", "HEAD").split():
        paths = git(repository, "diff-tree", "--no-commit-id", "--name-only", "-r", commit).splitlines()
        sources = [path for path in paths if path.endswith(SOURCES)]
        if any(map(is_test, sources)) and not all(map(is_test, sources)):
            yield commit


def play(repository: Path, commit: str, place: Path, command: str, setup: str, env: dict[str, str]) -> Played:
    home = place / "home"
    home.mkdir()
    repo = init_repo(place / "repo")
    parent = git(repository, "rev-parse", f"{commit}^").strip()
    repo.git("fetch", "-q", str(repository.resolve()), parent)
    repo.git("reset", "-q", "--hard", "FETCH_HEAD")
    settings = SETTINGS.format(argv=json.dumps([sys.executable, str(HERE / "agent.py"), str(home)]))
    settings = settings.replace("[run]", f"[run]\nsetup = {json.dumps(setup)}")
    settings += f"[tests]\ncommand = {json.dumps(command)}\nenv = {json.dumps([*env])}\n"
    repo.commit("Begin", **{"runplan.toml": settings, "plans/X.md": plan_of((ITEM,))})
    patch = git(repository, "diff", "--binary", parent, commit)
    paths = git(repository, "diff", "--name-only", "--diff-filter=AM", parent, commit).splitlines()
    script = {"patch": patch, "write": {}, "delete": [], "evidence": paths[0], "demanded": True}
    (home / "1.json").write_text(json.dumps(script))
    project = Project(repo=repo, home=home, extra=env)
    words = [str(RUNPLAN), "start", "X", "1", "auto", "--foreground"]
    ran = subprocess.run(words, cwd=repo.path, env=project.env, capture_output=True, text=True, check=False)
    end_processes_of(home)
    events = project.events()
    proofs = [body for kind, body in events if kind == "ProofJudged"]
    last = {proof["kind"]: proof for proof in proofs}  # a run that was repeated counts as it ended
    judged = [body for kind, body in events if kind == "GateJudged"]
    said = f": {judged[-1]['line']}" if judged and judged[-1]["answer"] != "passed" else ""
    gates = {body["id"] for kind, body in events if kind == "DispatchStarted" and body["role"] == "gate"}
    promises = [promise for proof in last.values() for promise in proof.get("promises", ())]
    return Played(
        commit=commit,
        subject=git(repository, "log", "-1", "--format=%s", commit).strip(),
        has_landed=project.landed() == ["1"],
        reason="" if ran.returncode == 0 else ran.stderr.rstrip().rpartition("\n")[2] + said,
        can_run=ran.returncode == 0 or (bool(judged) and judged[-1]["code"] == 0),
        promises=tuple(f"{promise['test']}: {promise['why']}" for promise in promises),
        is_hollow=any(proof.get("answer") == "hollow" for proof in proofs),
        gate_s=sum(body["seconds"] for kind, body in events if kind == "DispatchEnded" and body["id"] in gates),
        proof_s=sum(proof["seconds"] for proof in proofs),
    )


def describe(played: Played) -> str:
    kind = "landed" if played.has_landed else f"refused: {played.reason}"
    if not played.can_run:
        kind = f"cannot run: {played.reason}"
    elif played.has_landed and played.promises:
        kind = f"asked: {len(played.promises)}"
    times = f"gate {played.gate_s:.1f} s, proof {played.proof_s:.1f} s"
    hollow = "; no new test fails without the change" if played.is_hollow else ""
    lines = (f"    {promise}" for promise in played.promises)
    return "\n".join([f"{played.commit[:9]} {kind}{hollow} ({times}): {played.subject}", *lines])


def summarize(name: str, played: list[Played]) -> str:
    asked = sum(1 for one in played if one.promises)
    refused = sum(1 for one in played if not one.has_landed)
    hollow = sum(1 for one in played if one.is_hollow)
    gate_s = median(one.gate_s for one in played)
    proof_s = median(one.proof_s for one in played)
    return (
        f"{name}: {len(played)} commits, {asked} asked, {refused} refused, {hollow} hollow; "
        f"median gate {gate_s:.1f} s, proof runs {proof_s:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
