"""The phases that a phase waits for: its `Depends:` line, else the prose of its Dependencies.

A phase that a sentence names is waited for, unless the sentence denies it, recommends it, or says what comes later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import PlanUnreadable
from runplan.plan.ids import key
from runplan.plan.reading import Remark
from runplan.plan.scan import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runplan.plan.body import Body


MOST = 20_000  #: characters of the dependencies of one phase


class Depends(Struct):
    hard: list[str] = []
    soft: list[str] = []
    unknown: list[Remark] = []  #: ids of phases the plan does not have
    unread: list[Remark] = []  #: sentences that name no phase of this plan


class Phases(Struct, frozen=True):
    """The phases of a plan, seen from one of them."""

    known: Mapping[str, str]  #: key to id, in the order of the plan
    own: str
    unit: str = "phase"  #: the word for them
    aliases: Mapping[str, str] = {}  #: see Reading


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_ID = r"[A-Za-z0-9]{1,6}(?:[.-][A-Za-z0-9]{1,4}){0,4}(?![A-Za-z0-9])"
_LINK = r" ?(?:, ?(?:and\b|or\b)?|and\b|or\b|&|\+|/|–|-|to\b|through\b|\.\.) ?"
_LIST = rf"{_ID}(?:{_LINK}(?:[Pp]hases? )?{_ID})*+"
_RANGE = frozenset({"–", "-", "to", "through", ".."})
_NONE = _words(r"[*_ ]*(?:none|n/a|nothing|no|no dependenc(?:y|ies)|no phases?|(?=[-–—]))[*_ ]*(?:[.,;:(–—-]|\Z)")
_CODE, _LINKED = re.compile(r"`([^`]*)`"), re.compile(r"\[([^\[\]]{0,80})\]\([^()]{0,300}\)")
_ASIDE = re.compile(r" ?\([^()]*\)")
_NO_PHASE = "\x02"  #: stands for a phrase that means no phase
_OTHER_PLAN = re.compile(r"(?:[A-Z0-9]+_[A-Z0-9_]+|[^` ]+\.md)(?:'s)? ?\Z")
_OF_PLAN = re.compile(r"(?:'s)? (?:of|in|from) (?!this\b|the plan\b)(?:[A-Z]|another|[^ ]+\.md)")
_EARLIER, _EACH = r"(?:previous|prior|earlier|preceding|above)", r"(?:all|every|each)(?: of)?(?: the)?"
#: Phrases that stand for all phases before this one, the last one, the later ones, all others.
_PHRASES = (
    _words(rf"\b(?:{_EACH} {_EARLIER}(?: phases?| ones?)?|(?:the )?{_EARLIER} phases|everything above)\b"),
    _words(rf"\b(?:the )?{_EARLIER} (?:phase|one)\b"),
    _words(rf"\b(?:{_EACH} |the )?(?:later|subsequent|remaining) phases?\b"),
    _words(rf"\b{_EACH} (?:other )?phases?\b(?! (?:before\b|[0-9]|[A-Za-z](?:[0-9]|\b)))"),
)
_MENTION = re.compile(rf"\b(?:[Pp]hases?|PHASES?|[Aa]ll of|[Bb]oth(?: of)?|[Dd]epends on):? #?(?![Pp]hases? )({_LIST})")
#: "1, 2a", "requires 1 and 2": a clause may begin with ids without the word Phase.
_BARE = _words(
    rf"(?:(?:requires?|needs?|after|depends on|builds on|follows) )?({_LIST})(?=\Z| (?:must|has|have|is|are|should) )"
)
_CLAUSE = _words(
    r"[.!?](?= |\Z)|;|,? but (?!is |are |was |were |not )|,? while |, (?=phases? [^ ]{1,20} (?:is|are|should|may|can) )"
    r"|(?:, and |, | and )(?=phases? [^ ]{1,20}(?: (?:—|--|–) |: ))"
)
_EXPLAINED = re.compile(r" ?— ?| -- |: | [–-] (?![Pp]hase|[0-9])")
_APART = _words(
    r"\b(?:independent(?:ly)?|in parallel|parallel (?:to|with)|alongside|in any order|regardless of|unrelated)\b"
    r"|(?:\bnot|n't|\bnever|\bno(?! dependenc\w+ (?:other|except|but|apart))) .{0,60}?"
    r"\b(?:depend|requir|need|block|gate|prerequisite|wait)"
)
_SOFT = _words(r"\b(?:should|recommended|soft|ideally|prefer|preferably|preferred|optional|optionally|nice to have)\b")
#: The phases after these words wait for this one, unless it must not begin before them.
_ONWARD = _words(
    r"(?<!not start )(?<!not begin )\b(?:before|feeds?|feeding|enables?|unblocks?|blocks|blocking|precedes?"
    r"|prerequisite (?:for|of)|(?:consumed|used|needed|required) by)\b"
)
#: "Phase 6 reads this file": the other phase is the one that waits.
_WAITING = _words(r" (?:will|reads?|uses?|consumes?|needs?|requires?|relies|depends?|builds|extends?) ")
_IN_TITLE = _words(r"\(((?:depends on|after|requires|needs) [^()]{1,80})\)")


def read_depends(body: Body, phases: Phases) -> Depends:
    found = Depends()
    line = next((body.labels[label] for label in ("depends", "depends on") if label in body.labels), None)
    paragraphs = [line] if line is not None else list(_paragraphs(body))
    if (size := sum(len(text) for _, text in paragraphs)) > MOST:
        what = f"the dependencies of phase {phases.own} have {size:,} characters, and at most {MOST:,} are read"
        raise PlanUnreadable(f"{body.lines.path}:{paragraphs[0][0] + 1}: {what}; use a short line 'Depends: …'")
    if line is not None:
        _read_line(line[1], line[0] + 1, phases, found)
    else:
        if in_title := _IN_TITLE.search(body.lines.texts[body.whole.start - 1]):
            titled = Depends()
            _read_prose(in_title[1], body.whole.start, phases, titled)
            found.hard += titled.hard
            found.unread += [Remark(body.whole.start, in_title[1])] if titled.unknown else []
        for index, text in paragraphs:
            if _NONE.match(text):
                if not found.hard and not found.unread:
                    break
            elif not _read_prose(text, index + 1, phases, found):
                found.unread.append(Remark(index + 1, text[:200].rstrip(".")))
        found.hard = [id_ for id_ in found.hard if id_ != phases.own]
    found.hard = list(dict.fromkeys(found.hard))
    found.soft = [id_ for id_ in dict.fromkeys(found.soft) if id_ not in (phases.own, *found.hard)]
    return found


def _read_line(value: str, line: int, phases: Phases, found: Depends) -> None:
    """A `Depends:` line: a list of ids and ranges."""
    value = " ".join(value.replace("`", "").replace("*", "").split()).rstrip(".")
    if _NONE.match(value) or not value:
        return
    spelled = _spelled_out("all phases" if value.lower() == "all" else value, phases)
    for entry in re.split(r"[,;]| and | & ", spelled):
        words = re.sub(r"(?i:phases? )", "", entry.partition("(")[0].strip(), count=1)
        ids, strangers = resolve(words, phases.known)
        found.hard += ids
        if words.strip(_NO_PHASE) and (strangers or not ids):
            found.unknown.append(Remark(line, words[:80]))


def _spelled_out(text: str, phases: Phases) -> str:
    """The text with Phase for the plan's own word, and ids for phrases like "all previous phases"."""
    if phases.unit != "phase":
        text = re.sub(rf"\b{phases.unit}(?=s?\b)", "Phase", text, flags=re.IGNORECASE)
    text = re.sub(r"(?i)user story (?=[0-9])", "US", text)
    for word in dict.fromkeys(re.findall(r"\b[A-Z]{1,2}[0-9]+[a-z]?\b", text) if phases.aliases else ()):
        if id_ := phases.aliases.get(word.lower()):
            text = re.sub(rf"\b{word}\b", f"Phase {id_}", text)
    order = list(phases.known.values())
    before, after = order[: order.index(phases.own)], order[order.index(phases.own) + 1 :]
    for phrase, ids in zip(_PHRASES, (before, before[-1:], after, [*before, *after]), strict=True):
        text = phrase.sub(f"Phases {', '.join(ids)}" if ids else _NO_PHASE, text)
    return text


def resolve(listed: str, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The ids of a list like `1, 2a and 4–6`, ranges by tracker order; and those that are no phase."""
    order, ids, unknown = list(known.values()), list[str](), list[str]()
    is_range = False
    apart = re.sub(_ID, lambda id_: id_[0] if key(id_[0]) in known else id_[0].replace("-", " - "), listed)
    for token in re.findall(rf"\bthrough\b|{_ID}|–|-|\.\.", apart):
        if token in _RANGE:
            is_range = bool(ids)
            continue
        found = _known(token, known)
        if is_range and len(found) == 1:
            first, last = sorted((order.index(ids[-1]), order.index(found[0])))
            found = order[first : last + 1]
        is_range = is_range and not found
        ids += found
        if not found and re.search("[0-9]", token):
            unknown.append(token)
    return list(dict.fromkeys(ids)), unknown


def _known(token: str, known: Mapping[str, str]) -> list[str]:
    if (id_ := known.get(key(token))) is not None:
        # Letters alone are words too: "Phase 1 and a test" names no phase A.
        return [id_] if id_ == token or re.search("[0-9]", token) else []
    if parts := [id_ for id_ in known.values() if token.isdigit() and re.match(rf"{token}[A-Za-z]", id_)]:
        return parts  # "Phase 1" of a plan with 1a and 1b is both
    whole = token.rpartition(".")[0]  # "Phase 5c.3" is an item of phase 5c; "Phase 3.5" is a phase of its own
    return _known(whole, known) if re.search("[A-Za-z]", whole) else []


# --- prose ------------------------------------------------------------------------------------------------


def _read_prose(text: str, line: int, phases: Phases, found: Depends) -> bool:
    """Whether the text names phases of the plan, also to deny a dependency."""
    spelled = _spelled_out(_plain(text, phases.known), phases)
    is_read = _NO_PHASE in spelled
    of_own = _words(rf"\b(?:after|depends? on|needs?|requires?) (?:[a-z]+ )?{re.escape(phases.own)}(?![\w-]|\.\w)")
    for clause in map(str.strip, _CLAUSE.split(spelled)):
        if of_own.search(clause):
            is_read = True  # another phase waits for this one
            continue
        marks = (mark for mark in _EXPLAINED.finditer(clause) if any(_mentions(clause[: mark.start()], phases)))
        mark = next(marks, None)  # "Phases 1, 2 — why"
        head, tail = (clause[: mark.start()], clause[mark.end() :]) if mark else (clause, "")
        is_soft = (_SOFT.search(head) or _SOFT.match(tail)) is not None and "must" not in clause.lower()
        is_apart = not is_soft and (_APART.search(head) or _APART.match(tail) or tail.lower().startswith("not"))
        onward = _ONWARD.search(head)
        for mention in _mentions(head, phases):
            ids, strangers = resolve(mention[1], phases.known)
            is_read = is_read or bool(ids or strangers)
            is_waiting = ids != [phases.own] and _WAITING.match(head, mention.end()) is not None
            if is_apart or is_waiting or (onward and onward.start() < mention.start(1)):
                continue
            (found.soft if is_soft else found.hard).extend(ids)
            found.unknown += [] if is_soft else [Remark(line, id_) for id_ in strangers]
    return is_read


def _mentions(clause: str, phases: Phases) -> Iterator[re.Match[str]]:
    bare = _BARE.match(clause)
    words = [word for word in re.findall(_ID, bare[1]) if word.lower() not in ("and", "or", *_RANGE)] if bare else []
    is_strange = any(word.isalpha() and word not in phases.known.values() for word in words)
    if bare is not None and not is_strange and resolve(bare[1], phases.known)[0]:
        yield bare
        return
    for mention in _MENTION.finditer(clause):
        if not (_OTHER_PLAN.search(clause[: mention.start()][-80:]) or _OF_PLAN.match(clause, mention.end())):
            yield mention


def _plain(text: str, known: Mapping[str, str]) -> str:
    """The text without links, emphasis, asides and code, except for code that is an id or names a plan."""
    text = _LINKED.sub(r"\1", text)
    text = _CODE.sub(lambda code: code[1] if key(code[1]) in known or _OTHER_PLAN.fullmatch(code[1]) else "", text)
    text = text.replace("*", "")
    for _ in range(2):  # asides may be nested
        text = _ASIDE.sub("", text)
    return " ".join(text.partition("(")[0].split())


def _paragraphs(body: Body) -> Iterator[tuple[int, str]]:
    """The paragraphs and list entries of the Dependencies, with the line each begins on."""
    texts, end = body.lines.texts, body.whole.stop
    index, value = body.labels.get("dependencies", (len(texts), ""))
    ends = (i for i in range(index + 1, end) if re.match(r"\s*\Z|#|(?:[-*+] )?\*\*", texts[i]))
    labelled = range(index, next(ends, end))
    part = next((part for title in ("dependenc", "depends") for part in body.named(title)), labelled)
    entries = {entry.at: entry.text for entry in within(body.lines.entries, part.start, part.stop)}
    begin, block = 0, list[str]()
    for i in [*part, -1]:
        text = "" if i < 0 or body.lines.inert[i] else value if i == index else texts[i].strip()
        if i in entries and i != index:
            text = entries[i] or text.strip("-*+.) \t")  # a lone "2." is an id, not a number of a list
        if block and (i in entries or not text):
            yield begin, " ".join(block)
            block = []
        if text.strip("-*_ "):
            begin = begin if block else i
            block.append(text)
