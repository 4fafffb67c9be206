"""The runners of a plan: the command in the foreground, the daemon, or a worker of a fleet.

All are driven by the command line alone.
"""

import os
import signal
import time
from typing import Protocol

from tests.chaos.trial import Kill, Trial
from tests.support.cli import Project
from tests.support.daemons import answering, daemon_of
from tests.support.fleet import FleetProject, make_fleet_project
from tests.support.forks import Started

END_S = 60.0  #: what the daemon gets to end
_PAUSE_S = 0.05  #: before a command that was refused is typed again


class Runner(Protocol):
    """One way to work a trial to its end; gives up after a while, which the checks report."""

    @property
    def name(self) -> str: ...

    @property
    def kills(self) -> tuple[Kill, ...]:
        """The kinds of kills that the points of the matrix are given in turn."""

    def prepare(self, project: Project) -> Project:
        """Give the project what this runner needs."""

    def work(self, trial: Trial) -> None: ...


class Foreground:
    """`start --foreground`: killed, it is started again by a person."""

    name = "foreground"
    kills: tuple[Kill, ...] = (Kill("runner"), Kill("power"), Kill("runner", again=1))

    def prepare(self, project: Project) -> Project:
        return project

    def work(self, trial: Trial) -> None:
        end = time.monotonic() + trial.most_s
        while not trial.is_done() and time.monotonic() < end:
            for plan in trial.scene.started:
                if words := trial.next_words(plan):
                    self._run(trial, *words)

    def _run(self, trial: Trial, *words: str) -> None:
        runner = trial.spawn_runner(*words, *(["--foreground"] if words[0] in ("start", "plan") else []))
        while not trial.look(runner):
            pass
        trial.codes.append(runner.wait())


class Daemon:
    """`runplan daemon`: killed, it is started again, and goes on with its runs by itself.

    A person repeats a command that failed, never one that was acknowledged.
    """

    name = "daemon"
    kills: tuple[Kill, ...] = (*Foreground.kills, Kill("runner", command="stop"), Kill("runner", command="pause"))

    def prepare(self, project: Project) -> Project:
        return project

    def start(self, trial: Trial) -> "_Started":
        return _Started(trial)

    def work(self, trial: Trial) -> None:
        daemon = self.start(trial)
        answered = dict.fromkeys(trial.scene.started, (-1, "", ""))
        end = time.monotonic() + trial.most_s
        while not trial.is_done() and time.monotonic() < end:
            if daemon.look():
                continue
            for plan in trial.scene.started:
                situation = trial.situation(plan)
                words = trial.next_words(plan)
                is_above = situation[2] == "sub-plan"
                waits = trial.situation(trial.scene.subplan)[2] if is_above else situation[2]
                is_busy = situation[1] in ("queued", "running") or waits in ("checks", "merge")
                is_busy = is_busy or (is_above and not waits)
                mine = words and (not is_busy or words[0] in ("undo", "tell"))
                if mine and situation != answered[plan] and daemon.type(*words):
                    answered[plan] = situation
        daemon.end()


class _Started:
    """The daemon of a trial, started again when it is gone."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._process = self._spawn()
        self._answers = False

    def _spawn(self) -> Started:
        return self._trial.spawn_runner("daemon")

    def look(self) -> bool:
        """Whether no daemon answers yet."""
        if not self._trial.look(self._process):
            self._answers = self._answers or bool(answering(self._trial.project))
        elif answering(self._trial.project):  # a command was quicker to start one
            time.sleep(_PAUSE_S)
        else:
            self._process.wait()
            self._process = self._spawn()
            self._answers = False
        return not self._answers

    def _is_gone(self) -> bool:
        return self._trial.look(self._process)

    def type(self, *words: str) -> bool:
        """Whether the command was acknowledged; the daemon may be killed meanwhile."""
        command = self._trial.spawn(*words, *(["--no-wait"] if words[0] == "plan" else []))
        while not command.ended():
            if self._is_gone():
                break
        self._trial.codes.append(command.wait(60))
        if self._trial.codes[-1]:
            time.sleep(_PAUSE_S)
        return self._trial.codes[-1] == 0

    def end(self) -> None:
        """As a service manager does; a command may have started another one."""
        end, asked = time.monotonic() + END_S, set[int]()
        while time.monotonic() < end:
            ended = self._trial.look(self._process)
            pid = daemon_of(self._trial.project) if ended else self._process.pid
            if not pid:
                break
            if pid not in asked:
                asked.add(pid)
                os.kill(pid, signal.SIGTERM)
            time.sleep(_PAUSE_S if ended else 0)
        self._process.wait(END_S)


class Worker(Daemon):
    """`runplan worker`: killed, it is started again; or its host is lost, and another one takes over."""

    name = "worker"
    kills = (*Daemon.kills, Kill("host"), Kill("host", again=1))

    def prepare(self, project: Project) -> Project:
        return make_fleet_project(project)

    def start(self, trial: Trial) -> "_Started":
        return _StartedWorker(trial)


class _StartedWorker(_Started):
    """The worker of a trial; after its host is lost, a worker of another one."""

    def _spawn(self) -> Started:
        project = self._trial.project
        assert isinstance(project, FleetProject)
        if self._trial.struck and self._trial.kill is not None and self._trial.kill.victim == "host":
            project.move_to("beta")
        return self._trial.spawn_runner("worker", "--host", project.host)

    def look(self) -> bool:
        if self._trial.look(self._process):
            self._process.wait()
            self._process = self._spawn()
        return False

    def _is_gone(self) -> bool:
        return self.look()  # a command waits for the next worker

    def end(self) -> None:
        end = time.monotonic() + END_S
        os.kill(self._process.pid, signal.SIGTERM)
        while not self._trial.look(self._process) and time.monotonic() < end:
            pass
        self._process.wait(END_S)


RUNNERS: tuple[Runner, ...] = (Foreground(), Daemon(), Worker())
BY_NAME = {runner.name: runner for runner in RUNNERS}
