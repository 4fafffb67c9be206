"""A shell completes verbs, options, plans and phases by the script that runplan prints."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import RUNPLAN, Project, a_project

#: The typed words, the last of which is completed.
COMPLETED = {
    "runplan st": "start,stop,status",
    "runplan help comp": "completion",
    "runplan start --fo": "--foreground",
    "runplan start ''": "My plan,X,001-login",
    "runplan start plans/X": "plans/X.md",
    "runplan start X ''": "1,2,finish,auto,cherry-pick,pr,direct,every,now",
    "runplan start X finish --w": "--wait",
    "runplan retry X ''": "1,2",
    "runplan diff X --json 2": "2",
    "runplan completion z": "zsh",
    "runplan service st": "status",
    "runplan daemon re": "restart",
    "runplan report --since ''": "",
    "runplan start none ''": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = a_project(tmp_path)
    made.repo.write("plans/My plan.md", "# Plan\n")
    made.repo.write("specs/001-login/tasks.md", "# Tasks\n\n- [ ] T001 Write it\n")
    made.extra["PATH"] = f"{RUNPLAN.parent}:{made.env['PATH']}"
    return made


def in_shell(project: Project, shell: str, script: str, *options: str) -> list[str]:
    ran = subprocess.run([shell, *options, "-c", script], cwd=project.path, env=project.env, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.decode().splitlines()


@pytest.mark.promise
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_options_plans_and_phases(project: Project) -> None:
    script = "source <(runplan completion bash)\n"
    for words in COMPLETED:
        script += f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _runplan\n"
        script += 'IFS=,; echo "${COMPREPLY[*]}"; unset IFS\n'
    assert dict(zip(COMPLETED, in_shell(project, "bash", script), strict=True)) == COMPLETED


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs_and_phases_with_their_descriptions(project: Project) -> None:
    script = "runplan completion fish | source; complete -C 'runplan sto'; complete -C 'runplan retry X '"
    shown = in_shell(project, "fish", script, "--no-config")
    assert shown == ["stop\tCancel schedules and end runs; their work is kept", "1\tStep 1", "2\tStep 2"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_its_script_and_defines_the_completion(project: Project) -> None:
    script = "source <(runplan completion zsh) && print $_comps[runplan]"
    assert in_shell(project, "zsh", script, "-f") == ["_runplan"]
