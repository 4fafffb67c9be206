"""Asks git whether the target already holds what a commit would bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.removal import OnTarget

if TYPE_CHECKING:
    from runplan.adapters.git import Git
    from runplan.core.gitfacts import Oid

_WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "runplan"), ("EMAIL", "runplan@runplan.invalid"), ("DATE", "1000000000 +0000"))
}


def on_target(git: Git, tip: Oid, target: str) -> OnTarget:
    """How `target` holds the content of `tip`: cheapest proof first."""
    if git.tip(target) is None:
        return OnTarget.NO
    base = git.run("merge-base", target, tip, ok=(0, 1)).text
    if base == tip:
        return OnTarget.REACHABLE
    if not base:
        return OnTarget.NO
    tree = git.commit(tip).tree
    if tree in git.text("log", "--format=%T", f"{base}..{target}", "--").split() or tree == git.commit(base).tree:
        return OnTarget.TREE
    if _linear(git, base, tip) and _picked(git, target, tip):
        return OnTarget.PATCH
    # The branch as one commit of its net diff: how a squash, or a branch with merges, lands.
    squashed = git.run("commit-tree", "--no-gpg-sign", "-p", base, "-m", "-", tree, env=_WHO).text
    return OnTarget.PATCH if _picked(git, target, squashed) else OnTarget.NO


def _linear(git: Git, base: Oid, tip: Oid) -> bool:
    return git.text("rev-list", "--merges", "--count", f"{base}..{tip}", "--") == "0"


def _picked(git: Git, target: str, tip: Oid) -> bool:
    """Whether every commit has one with the same patch on the target."""
    marks = git.text("cherry", target, tip).splitlines()
    return bool(marks) and all(mark.startswith("-") for mark in marks)
