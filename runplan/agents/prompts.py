"""Writes the prompts of the agents: a template for each role, filled with the phase word for word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import SettingsError
from runplan.names import as_utf8, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.dispatch import ItemResult

_PLACE = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}")
_OPEN = re.compile(r"\{\{(?![a-z][a-z0-9_]*\}\}).*")


class Brief(Struct, frozen=True, kw_only=True):
    """What every agent of a phase is told."""

    plan: str  #: path in the repository
    phase: str
    title: str
    text: str  #: the phase's section, verbatim
    items: tuple[tuple[str, str], ...]  #: (id, text)
    touches: tuple[str, ...]  #: patterns; empty when the phase names none
    worktree: str
    branch: str
    test_command: str  #: "" when there is none


class GateEvidence(Struct, frozen=True, kw_only=True):
    """One command that runplan ran, and what came of it."""

    command: str
    exit_code: int | None  #: None when it did not end by itself
    tree: str
    result: str  #: one line


def implement_prompt(template: str, brief: Brief) -> str:
    """What the implementer is asked."""
    return render(template, **_common(brief), test_command=_command(brief.test_command))


def fix_prompt(template: str, brief: Brief, *, failed: Sequence[ItemResult], why: str, output: str) -> str:
    """What a fresh agent is asked when the phase did not pass; `output` is the end of a red gate's output."""
    return render(
        template,
        **_common(brief),
        test_command=_command(brief.test_command),
        why=one_line(why) or "The checks did not pass.",
        failed="\n".join(f"- {result.item}: {one_line(result.evidence)}" for result in failed)
        or "No single item was named.",
        evidence=_indented(output) or "No command failed.",
    )


def rejections(words: Sequence[str]) -> str:
    """What people said when they rejected earlier attempts, to be added to a prompt; "" when there is nothing."""
    if not words:
        return ""
    head = (
        "An earlier attempt at this phase was proven, and a person rejected it. Your work must answer what they said."
    )
    return "\n".join(("", "## What was rejected", "", head, "", *(quoted(one, "rejection") for one in words), ""))


def verify_prompt(
    template: str, brief: Brief, *, diff_command: str, changed: Sequence[str], gates: Sequence[GateEvidence]
) -> str:
    """What the verifier is asked: the phase, the diff and the gates, never the implementer's own words."""
    return render(
        template,
        **_common(brief),
        diff_command=one_line(diff_command),
        changed="\n".join(f"- {shown(path)}" for path in changed) or "No file differs.",
        gates="\n".join(_gate(gate) for gate in gates) or "None: the project has no test command.",
    )


def render(template: str, **values: str) -> str:
    """The template with every {{name}} replaced once, as valid UTF-8; values are not looked at again.

    A name without a value is refused, and so is a value without a place: a prompt never lacks its phase.
    """
    if odd := _OPEN.search(template):
        raise SettingsError(f"prompt template: {odd.group()[:40]!r} is no place for a value; write {{{{name}}}}")
    named = set(_PLACE.findall(template))
    if unknown := sorted(named - values.keys()):
        known = ", ".join(sorted(values))
        raise SettingsError(f"prompt template: {{{{{unknown[0]}}}}} is not known; there are: {known}")
    if missing := sorted(values.keys() - named):
        raise SettingsError(f"prompt template: {{{{{missing[0]}}}}} is missing; add it where it belongs")
    return as_utf8(_PLACE.sub(lambda place: values[place.group(1)], template))


def quoted(text: str, label: str) -> str:
    """The text between two marker lines that do not occur in it; a plan's own fences would break a fence."""
    mark, number = label, 1
    while f"=== end of {mark} ===" in text:
        number += 1
        mark = f"{label} ({number})"
    end = "" if text.endswith("\n") else "\n"
    return f"=== begin of {mark} ===\n{text}{end}=== end of {mark} ==="


def one_line(text: str) -> str:
    """The text with every run of blanks and line ends as one space."""
    return " ".join(text.split())


def _common(brief: Brief) -> dict[str, str]:
    return {
        "plan": brief.plan,
        "phase": brief.phase,
        "title": one_line(brief.title),
        "phase_text": quoted(brief.text, "phase"),
        "items": "\n".join(f"- {item}: {one_line(text)}" for item, text in brief.items),
        "touches": _touches(brief.touches),
        "worktree": brief.worktree,
        "branch": brief.branch,
    }


def _touches(patterns: tuple[str, ...]) -> str:
    if not patterns:
        return "The phase names no paths of its own."
    return f"Only files that match these patterns may change: {', '.join(f'`{p}`' for p in patterns)}."


def _command(command: str) -> str:
    return command or "none"


def _gate(gate: GateEvidence) -> str:
    ending = "did not finish" if gate.exit_code is None else f"exit code {gate.exit_code}"
    return f"- {one_line(gate.command)} on tree {gate.tree}: {ending}; {one_line(gate.result)}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())
