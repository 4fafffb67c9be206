"""The documents of the repository: their fences, links, headings and the commands they show."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = tuple(
    path.relative_to(ROOT).as_posix() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
)


@dataclass(frozen=True)
class Fence:
    """One fenced block."""

    language: str
    text: str
    line: int


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str) -> list[Fence]:
    """Every fenced block; a fence inside a longer one belongs to it."""
    found: list[Fence] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opening = re.match(r"(`{3,})(\w*)", lines[at])
        if opening is None:
            at += 1
            continue
        end = next(i for i in range(at + 1, len(lines)) if lines[i].rstrip() == opening[1])
        found.append(Fence(language=opening[2], text="\n".join(lines[at + 1 : end]) + "\n", line=at + 1))
        at = end + 1
    return found


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^(`{3,})\w*\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    """The commands a page shows, without their comments: lines of sh and text blocks, and code spans.

    Console blocks are played as a whole (`tests/support/transcripts.py`). A span that names only a verb, or has a
    placeholder, is no command.
    """
    shown = [line for fence in fences(text) if fence.language in ("sh", "text") for line in fence.text.splitlines()]
    lines = [re.split(r"\s{2,}|\s#\s", line.strip())[0] for line in shown]
    spans = [
        span for span in re.findall(r"`(runplan [^`]+ [^`]+)`", prose(text)) if not re.search(r"[A-Z]{2}|[…<|]", span)
    ]
    return [line for line in (*lines, *spans) if re.match(r"(?:RUNPLAN_\w+=\S+ )*runplan [a-z-]", line)]


def verbs_named(text: str) -> set[str]:
    """The words that stand right after `runplan` wherever a command is written, in code spans too."""
    spans = re.findall(r"`runplan ([a-z][\w-]*)[^`]*`", prose(text))
    return {*spans, *(re.sub(r"^(?:\w+=\S+ )*runplan ", "", line).split()[0] for line in commands(text))}


def anchors(text: str) -> set[str]:
    """The anchors a forge makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(text: str) -> list[str]:
    """The targets of links that stay in the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(text))
    return [target for target in found if not target.startswith(("http://", "https://", "mailto:"))]


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    below = text.partition(f"\n{heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, f"no table below {heading}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]
