"""One project on its way: what a person types next, and the kill that meets the runner."""

import contextlib
import json
import os
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos import proofs
from tests.chaos.scenes import ISSUE, MAIN, WORDS, Scene, Way, merge_open, pull_requests
from tests.support import inject
from tests.support.cli import Project, processes_of
from tests.support.forks import Started, starter

WRITTEN, COMMITTED = "any.written", "any.committed"  #: where every agent waits until a person has done something
RETURN = "return.json"  #: what an agent returns
UNFINISHED = ("queued", "running", "waiting")
ANSWER_S = 60.0  #: what a command gets to answer
LASTING_S = 2.0  #: how long a fault lasts
AHEAD_S = 0.3  #: how long a command is under way before the runner is killed
_LOOK_S = 0.004


@dataclass(frozen=True)
class Kill:
    """Which process dies, and where; or what fails there."""

    victim: str  #: runner, git, agent, power or host; or a fault
    start: int = 1  #: which process of the runner, from 1
    point: str = ""  #: where that process is held, as its trace names it
    count: int = 1  #: at which of its passings
    stage: str = ""  #: or where an agent waits: `<phase>.<role>.<stage>`
    command: str = ""  #: what a person types at that instant
    again: int = 0  #: at which of its points the next process of the runner dies too; 0: it lives
    lasting: bool = False  #: whether a fault lasts until a person has seen it

    @property
    def is_fault(self) -> bool:
        return self.victim in inject.FAULTS

    def at(self, start: int, point: str, count: int, again: int) -> "Kill":
        return replace(self, start=start, point=point, count=count, again=again)


@dataclass
class Trial:
    """A copy of a scene's project."""

    project: Project
    scene: Scene
    way: Way
    kill: Kill | None = None
    codes: list[int] = field(default_factory=list)  #: of the commands, in order
    starts: int = 0  #: processes of the runner
    struck: int = 0  #: kills
    most_s: float = 90.0  #: until it is given up
    landed: int = 0  #: phases that had landed at the kill
    wrong: list[str] = field(default_factory=list)
    _promised: str = ""  #: the command that was acknowledged and has to be done
    _undoing: bool = False

    def __post_init__(self) -> None:
        wanted = {
            WRITTEN: self.scene.contested,
            COMMITTED: self.scene.stops or self.scene.tells,
            self.scene.fails: True,
        }
        for name in (name for name, held in wanted.items() if name and held):
            self._hold(name).touch()
        if self.kill is not None and self.kill.stage:
            self._hold(self.kill.stage).touch()

    @property
    def place(self) -> Path:
        return self.project.home.parent

    @property
    def evidence(self) -> proofs.Evidence:
        return proofs.Evidence(project=self.project, scene=self.scene, way=self.way)

    @property
    def trace(self) -> Path:
        return self.place / f"trace.{self.starts}"

    def points(self, start: int) -> list[str]:
        """The points that a process of the runner passed."""
        return (self.place / f"trace.{start}/log").read_text(encoding="utf-8").splitlines()

    # --- processes ------------------------------------------------------------------------------------

    def spawn(self, *words: str, env: dict[str, str] | None = None) -> Started:
        """A command, without waiting for it."""
        with open(os.devnull, "wb") as out, (self.place / "err").open("ab") as err:
            given = {**self.project.env, **(env or {})}
            return starter().start(words, cwd=self.project.path, env=given, out=out.fileno(), err=err.fileno())

    def spawn_runner(self, *words: str) -> Started:
        """The same, traced."""
        self.starts += 1
        self.trace.mkdir()
        kill, hold = self.kill, dict[str, object]()
        if kill is not None and kill.point and self.starts == kill.start:
            hold = {"point": kill.point, "count": kill.count}
            hold |= {"fault": kill.victim, "lasting": kill.lasting} if kill.is_fault else {}
        elif kill is not None and kill.again and self.starts == kill.start + 1:
            hold = {"number": kill.again}
        return self.spawn(*words, env={inject.TRACE: str(self.trace), inject.HOLD: json.dumps(hold)})

    # --- the person -----------------------------------------------------------------------------------

    def situation(self, plan: str) -> tuple[int, str, str]:
        """The number of runs and of questions to a person, and state and wait of the newest run."""
        query = "SELECT state, waiting_for FROM runs WHERE plan=? ORDER BY number"
        runs = self.project.rows(query, f"plans/{plan}.md")
        asked = self.project.rows("SELECT 1 FROM events WHERE type IN ('ApprovalAsked', 'QuestionAsked')")
        return (len(runs) + len(asked), runs[-1][0], runs[-1][1] or "") if runs else (0, "", "")

    def next_words(self, plan: str) -> tuple[str, ...]:
        """The command that a person would type now; none when the plan is done, or a command is still queued."""
        _, state, waits = self.situation(plan)
        if self._is_promised(state, waits):
            return ()
        if self.scene.tells and self._reached(COMMITTED):
            return ("tell", plan, WORDS)
        if self._is_worked(plan, state) and (self._is_undone or not self.scene.undoes):
            return ()
        if self._is_worked(plan, state):
            self._undoing = True
        if self._undoing and not self._is_undone:
            return ("undo", plan, "1")
        if state == "failed" and self.scene.fails:
            self._hold(self.scene.fails).unlink(missing_ok=True)
        if waits == "review":
            merge_open(self.place)
        if waits == "question":
            return ("answer", plan, "Go on.")
        if (
            waits == "approval"
            and self.scene.asks
            and not self.project.rows("SELECT 1 FROM events WHERE type='Answered'")
        ):
            return ("reject", plan, "-m", "Mend it.")
        if state == "waiting":
            return ({"approval": "approve", "paused": "resume"}.get(waits, "retry"), plan)
        if self.scene.planned and not self._is_planned:
            goal = ("--issue", str(ISSUE)) if pull_requests(self.place) else ("Greet people",)
            return ("plan", *goal, "--quick", "--out", f"plans/{plan}.md")
        if self.scene.queued and not state:
            return ("work", "all", "auto", self.way.name) if plan == self.scene.started[0] else ()
        return ("start", plan, "finish", *(["auto"] if self.scene.auto else []), self.way.name)

    def is_done(self) -> bool:
        states = {plan: self.situation(plan)[1] for plan in self.scene.plans}
        return all(self._is_worked(plan, state) and not self.next_words(plan) for plan, state in states.items())

    def _is_promised(self, state: str, waits: str) -> bool:
        """Whether a stop or pause that was acknowledged is still to be done. A paused run still asks for its answer."""
        is_paused = waits == "paused" or (waits and self.project.rows("SELECT 1 FROM events WHERE type='Halted'"))
        met = state not in UNFINISHED or (self._promised == "pause" and is_paused)
        least = 1 if self.scene.planned else len(self.scene.phases)  # then the plan alone lands in a run
        if self._promised == "pause" and state == "done" and self.landed < least:
            self.wrong.append("the pause was acknowledged, and the run went on")
        self._promised = "" if met else self._promised
        return bool(self._promised)

    def _is_worked(self, plan: str, state: str) -> bool:
        """Whether everything has landed and the last run has ended, if only by a stop after the last landing.

        A run that was stopped after the merge is started once more: it closes the issue and deletes the branch.
        """
        hub = pull_requests(self.place)
        ended = state in ("done", "stopped") and (hub is None or list(hub.branches()) == ["main"])
        text = self.evidence.target.git("show", f"{MAIN}:plans/{plan}.md", ok=False)
        return ended and "status: complete" in text

    @property
    def _is_planned(self) -> bool:
        return self._is_landed("^Runplan-Phase: plan$")

    @property
    def _is_undone(self) -> bool:
        return self._is_landed("^Undo phase")

    def _is_landed(self, words: str) -> bool:
        tips = (MAIN, "--branches=runplan/*/pr")
        return bool(self.evidence.target.git("log", "--format=%h", f"--grep={words}", *tips))

    def _hold(self, name: str) -> Path:
        return self.project.home / "hold" / name

    def _reached(self, name: str) -> bool:
        return self._hold(name).exists() and (self.project.home / "at" / name).exists()

    # --- the kill -------------------------------------------------------------------------------------

    def look(self, runner: Started, within_s: float = _LOOK_S) -> bool:
        """Do what is due now; whether the runner has ended."""
        if self._reached(WRITTEN):
            self.way.person(self.place, self.project.repo)
            self._hold(WRITTEN).unlink()
        if self.scene.tells and self._reached(COMMITTED):
            if self.project.rows("SELECT 1 FROM events WHERE type='Told'"):
                self._hold(COMMITTED).unlink()
        elif self._reached(COMMITTED):
            self.codes.append(self.spawn("stop", *self.scene.started).wait(ANSWER_S))
            self._hold(COMMITTED).unlink()
        if self.kill is not None:
            reached = self.trace / "at"
            if reached.exists() and not (self.trace / "go").exists():
                self.strike(self.kill, runner, child=int(reached.read_text(encoding="ascii")))
            elif self.kill.stage and self._reached(self.kill.stage):
                self.strike(self.kill, runner)
        return runner.ended(within_s)

    def strike(self, kill: Kill, runner: Started, child: int = 0) -> None:
        self.landed = len(set(proofs.landed_phases(self.evidence)))
        if self.scene.planned:  # a landing that has begun is the end of a planning run
            self.landed += len(self.project.rows("SELECT 1 FROM events WHERE type='LandingStarted'"))
        typed = self.spawn(kill.command, *self.scene.started) if kill.command and not self.struck else None
        if typed is not None:
            typed.ended(AHEAD_S)
        match kill.victim:
            case _ if kill.is_fault:
                self.struck += 1
                if kill.lasting:
                    runner.ended(LASTING_S)
            case "git":
                self.struck += bool(child) and _kill(child)
            case "agent":
                self.struck += sum(_kill(pid) for pid in processes_of(self.project.home) if is_agent(pid)) > 0
            case _:
                self.struck += _kill(runner.pid)
        if kill.victim in ("power", "host"):
            while left := processes_of(self.project.home):
                for pid in left:
                    _kill(pid)
        if kill.victim == "power":
            self._lose_unsynced()
            self._lose_unreachable()
        (self.trace / "go").touch()
        if kill.stage:
            self._hold(kill.stage).unlink()
        if typed is not None:
            runner.ended(ANSWER_S)
            self.codes.append(typed.wait(ANSWER_S))
            if self.codes[-1]:  # it has lost its daemon: typed again, while there is none
                self.codes.append(self.spawn(kill.command, *self.scene.started).wait(ANSWER_S))
            self._promised = kill.command if self.codes[-1] == 0 else ""

    def _lose_unsynced(self) -> None:
        """Put back every file that was replaced without a sync; a return is synced before its exit is recorded."""
        for start in range(1, self.starts + 1):
            notes = self.place / f"trace.{start}/unsynced"
            lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
            for line in reversed(lines):
                self._put_back(**json.loads(line))
            notes.unlink(missing_ok=True)

    def _put_back(self, path: str, former: str | None) -> None:
        file = Path(path)
        if file.name == RETURN and file.parent.with_name("exit.json").exists():
            return
        file.unlink(missing_ok=True)
        if former is not None:
            file.write_text(former, encoding="utf-8")

    def _lose_unreachable(self) -> None:
        """Run `git gc`: it may remove unreachable objects, so no work may be among them, and nothing may need them."""
        self.wrong += [f"after the kill: {one}" for one in proofs.no_work_is_unreachable(self.evidence)]
        self.project.worked.git("prune", "--expire=now")


def _kill(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def is_agent(pid: int) -> bool:
    """An agent's process carries the mark of its dispatch; its shim does not."""
    with contextlib.suppress(OSError):
        return b"\0RUNPLAN_DISPATCH=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    return False
