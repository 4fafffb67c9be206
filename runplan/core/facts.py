"""What was found around a repository, for `init` and `doctor`: plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from runplan.core.gitfacts import Identity
    from runplan.core.testinfra import Infrastructure

#: The agents that can be looked for by name, in the order they are suggested.
PROGRAMS = ("claude", "codex", "gemini", "opencode", "qwen", "aider", "mini")

#: How each is called as a `command` agent: argv, and the variables it needs of the caller's environment.
WRAPPED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "claude": (("claude", "-p", "--dangerously-skip-permissions"), ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")),
    "codex": (
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"),
        ("OPENAI_API_KEY",),
    ),
    "gemini": (("gemini", "--skip-trust", "--approval-mode", "yolo"), ("GEMINI_API_KEY",)),
    "opencode": (("opencode", "run", "--auto"), ()),
    "qwen": (
        ("qwen", "--auth-type", "openai", "--approval-mode", "yolo"),
        ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    ),
    "aider": (
        ("sh", "-c", 'exec aider --message-file "$RUNPLAN_PROMPT" --yes-always --no-pretty --no-stream'),
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    ),
    "mini": (
        ("sh", "-c", 'exec mini -y --exit-immediately -t "$(cat "$RUNPLAN_PROMPT")"'),
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A repository and the machine it lies on."""

    root: str  #: the main checkout
    git_version: tuple[int, ...]
    branches: tuple[str, ...]  #: short names; none while there is no commit
    default_branch: str  #: what the remote calls its own, else main, master or the current one; "" for none
    identity: Identity | None
    signs: bool  #: commit.gpgsign
    remotes: tuple[str, ...]
    installed: tuple[str, ...]  #: of PROGRAMS, those on PATH
    tests: Infrastructure

    @property
    def empty(self) -> bool:
        return not self.branches


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directory worktrees are made in."""

    path: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who plays a role, and whether their program is there."""

    role: str
    agent: str
    program: str  #: the program or script file that was looked for
    found: bool
    dispatched: bool = True  #: whether this version can dispatch its kind
