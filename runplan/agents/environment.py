"""Makes the environment of an agent, a few names from the caller's and the task's own words, and of who watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.run.dispatch import Role

ALLOWED = frozenset(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR"))
ALLOWED_PREFIXES = ("LC_", "XDG_")

#: Keys to the forge and to other machines. An agent never gets them, whatever a setting says should be kept.
NEVER = frozenset(
    (
        "BITBUCKET_TOKEN",
        "CI_JOB_TOKEN",
        "FORGEJO_TOKEN",
        "GH_ENTERPRISE_TOKEN",
        "GH_TOKEN",
        "GIT_ASKPASS",
        "GITEA_TOKEN",
        "GITHUB_ENTERPRISE_TOKEN",
        "GITHUB_TOKEN",
        "GITLAB_TOKEN",
        "GL_TOKEN",
        "SSH_AGENT_PID",
        "SSH_ASKPASS",
        "SSH_AUTH_SOCK",
    )
)

#: What tells git and runplan where they are and what to obey: set by us, and passed on from nobody.
OURS = ("GIT_", "RUNPLAN_")

AGENT_NAME = "runplan agent"
AGENT_EMAIL = "agent@runplan.invalid"

#: By this identity a reflog entry says that it was an agent who moved a ref.
AGENT_GIT = {
    "GIT_AUTHOR_NAME": AGENT_NAME,
    "GIT_AUTHOR_EMAIL": AGENT_EMAIL,
    "GIT_COMMITTER_NAME": AGENT_NAME,
    "GIT_COMMITTER_EMAIL": AGENT_EMAIL,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_NO_REPLACE_OBJECTS": "1",
}


#: What an interpreter needs to find itself and us; of a runner's secrets it needs none.
_OWN = frozenset(
    (
        *("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", MARK),
        *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES"),
    )
)


def own_environment(caller: Mapping[str, str]) -> dict[str, str]:
    """What our own processes beside an agent see: it can read their environment, since both are of one user."""
    return {name: value for name, value in caller.items() if name in _OWN or name.startswith("PYTHON")}


def agent_environment(caller: Mapping[str, str], *, keep: Sequence[str], settings: Mapping[str, str]) -> dict[str, str]:
    """What an agent sees of the caller's environment, `keep` and `settings` added, and its identity for git."""
    return {**allowed(caller, keep=keep), **settings, **AGENT_GIT}


def allowed(caller: Mapping[str, str], *, keep: Sequence[str]) -> dict[str, str]:
    """The caller's variables that agents, tests and setup may see; `keep` names further ones."""
    names = ALLOWED.union(name for name in keep if not name.startswith(OURS)) - NEVER
    return {name: value for name, value in caller.items() if name in names or name.startswith(ALLOWED_PREFIXES)}


def task_environment(
    *,
    dispatch: str,
    role: Role,
    plan: str,
    phase: str,
    run: str,
    attempt: int,
    cycle: int,
    prompt: str,
    return_file: str,
) -> dict[str, str]:
    """The variables that tell an agent its task (docs/agents.md)."""
    return {
        MARK: dispatch,
        "RUNPLAN_AGENT": "1",
        "RUNPLAN_ROLE": role.value,
        "RUNPLAN_PLAN": plan,
        "RUNPLAN_PHASE": phase,
        "RUNPLAN_RUN": run,
        "RUNPLAN_ATTEMPT": str(attempt),
        "RUNPLAN_CYCLE": str(cycle),
        "RUNPLAN_PROMPT": prompt,
        "RUNPLAN_RETURN": return_file,
    }
