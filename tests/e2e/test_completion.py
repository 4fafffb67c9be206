"""A shell completes the words of runplan by the script that runplan prints."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import RUNPLAN, a_project

COMPLETED = {
    "runplan st": "start stop status",
    "runplan start plans/": "plans/X.md",
    "runplan start --fo": "--foreground",
    "runplan start fin": "finish",
    "runplan completion z": "zsh",
    "runplan service st": "status",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_options_words_and_plans(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    script = f"source <({RUNPLAN} completion bash)\n"
    for words in COMPLETED:
        script += f'COMP_WORDS=({words}) COMP_CWORD={len(words.split()) - 1}; _runplan; echo "${{COMPREPLY[*]}}"\n'
    ran = subprocess.run(["bash", "-c", script], cwd=project.path, env=project.env, capture_output=True, check=True)
    assert dict(zip(COMPLETED, ran.stdout.decode().splitlines(), strict=True)) == COMPLETED


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_script(tmp_path: Path, shell: str) -> None:
    project = a_project(tmp_path)
    ran = project.runplan("completion", shell)
    assert (ran.code, "runplan" in ran.out) == (0, True)
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n"], input=ran.out.encode(), env=project.env, capture_output=True, check=True)
