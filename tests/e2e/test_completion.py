"""A shell completes verbs, options, plans and phases by the script that runplan prints."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.support.cli import RUNPLAN, Project, a_project

#: The typed words, the last of which is completed.
COMPLETED = {
    "st": "start,stop,status",
    "help comp": "completion",
    "start --fo": "--foreground",
    "start ''": "My plan,X,001-login",
    "start plans/X": "plans/X.md",
    "start X ''": "1,2,finish,auto,cherry-pick,pr,direct,every,now",
    "start X finish --w": "--wait",
    "retry X ''": "1,2",
    "diff X --json 2": "2",
    "completion z": "zsh",
    "service st": "status",
    "daemon re": "restart",
    "report --since ''": "",
    "start none ''": "",
}
IN_BASH = ("st", "start ''", "retry X ''", "start none ''")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = a_project(tmp_path)
    made.repo.write("plans/My plan.md", "# Plan\n")
    made.repo.write("specs/001-login/tasks.md", "# Tasks\n\n- [ ] T001 Write it\n")
    made.extra["PATH"] = f"{RUNPLAN.parent}:{made.env['PATH']}"
    return made


def in_shell(project: Project, shell: str, script: str, *options: str) -> list[str]:
    return project.run_program(shell, *options, "-c", script).exits(0).out.splitlines()


@pytest.mark.promise
def test_verbs_options_plans_and_phases_are_completed(project: Project) -> None:
    printed = {words: project.runplan("complete-words", *shlex.split(words)).out.splitlines() for words in COMPLETED}
    assert {words: ",".join(line.partition("\t")[0] for line in lines) for words, lines in printed.items()} == COMPLETED


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_by_the_printed_script(project: Project) -> None:
    script = "source <(runplan completion bash)\n"
    for words in IN_BASH:
        script += f"COMP_WORDS=(runplan {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _runplan\n"
        script += 'IFS=,; echo "${COMPREPLY[*]}"; unset IFS\n'
    assert in_shell(project, "bash", script) == [COMPLETED[words] for words in IN_BASH]


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs_and_phases_with_their_descriptions(project: Project) -> None:
    script = "runplan completion fish | source; complete -C 'runplan sto'; complete -C 'runplan retry X '"
    shown = in_shell(project, "fish", script, "--no-config")
    assert shown == ["stop\tCancel schedules and end runs; their work is kept", "1\tStep 1", "2\tStep 2"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_its_script_and_defines_the_completion(project: Project) -> None:
    script = "source <(runplan completion zsh) && print $_comps[runplan]"
    assert in_shell(project, "zsh", script, "-f") == ["_runplan"]
