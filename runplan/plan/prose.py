"""Dependencies in prose: lists of phase ids, and sentences about what a phase waits for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


#: Anything that may be an id: which words are one is known from the plan.
WORD = r"[A-Za-z0-9]{1,6}(?:[.-][A-Za-z0-9]{1,4}){0,4}(?![A-Za-z0-9])"
_TOKEN = re.compile(rf"\b[Pp]hases?\b|\bthrough\b|{WORD}|–|-|\.\.")
_RANGE = frozenset({"–", "-", "to", "through", ".."})
_NONE = re.compile(
    r"[*_ ]*(?:(?:none|n/a|nothing|no (?:dependenc(?:y|ies)|phases?))\b|(?:no|[-–—]+)[*_. ]*\Z)", re.IGNORECASE
)
#: "None besides Phase 1" names a phase all the same.
_EXCEPT = re.compile(
    r"[*_ ]*(?:none|nothing|no )[^.;:—]{0,40}?"
    r"\b(?:besides|except(?: for)?|other than|beyond|apart from|until|unless|but)\b",
    re.IGNORECASE,
)

_EARLIER = r"(?:previous|prior|earlier|preceding)"
#: Phrases that stand for several phases, tried in this order.
_OTHERS = r"\b(?:all|every|each)(?: of)?(?: the)? (?:other )?phases?\b(?! (?:before\b|[0-9]|[A-Za-z](?:[0-9]|\b)))"
_BEFORE = (
    rf"\b(?:(?:all|every|each)(?: of)?(?: the)? )(?:{_EARLIER}|above)(?: (?:phases?|ones?))?\b"
    rf"|\b(?:all(?: of)?(?: the)? |the )?(?:{_EARLIER}|above) phases\b"
    r"|\b(?:(?:all|every|each)(?: of)?(?: the)? )?phases? (?:above|before (?:this|it)\b(?: (?:one|phase))?)"
    r"|\b(?:all(?: of)?(?: the)?|everything) (?:above|before (?:this|it))\b(?: (?:one|phase))?"
)
_LAST = rf"\b(?:the )?{_EARLIER} (?:phase|one)\b"
_LATER = r"\b(?:all(?: of)?(?: the)? |every |the )?(?:later|subsequent|remaining) phases?\b"


def says_none(text: str) -> bool:
    """Whether a paragraph begins by saying that there is nothing to wait for."""
    return _NONE.match(text) is not None and _EXCEPT.match(text) is None


def without_exception(text: str) -> str:
    """The text after "none besides", "no dependencies other than" and the like."""
    found = _EXCEPT.match(text)
    return text[found.end() :].strip() if found else text


def spelled_out(text: str, *, own: str, known: Mapping[str, str]) -> str:
    """The text with phrases like "all previous phases" replaced by the ids they stand for.

    A phrase that stands for no phase is replaced by the phase's own id, which is never waited for.
    """
    order = list(known.values())
    at = order.index(own)
    before, after = order[:at], order[at + 1 :]
    for pattern, ids in ((_BEFORE, before), (_LAST, before[-1:]), (_LATER, after), (_OTHERS, [*before, *after])):
        text = re.sub(pattern, f"Phases {', '.join(ids or [own])}", text, flags=re.IGNORECASE)
    return text


def resolve(listed: str, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The ids of a list like `1, 2a and 4–6`, ranges by tracker order; and those that are no phase."""
    ids: list[str] = []
    unknown: list[str] = []
    ranged = False
    for token in _TOKEN.findall(listed):
        if token.lower() in ("phase", "phases"):
            continue
        if token in _RANGE:
            ranged = bool(ids)
            continue
        found = _known(token, known)
        if ranged and len(found) == 1:
            found = _between(ids[-1], found[0], known)
        ranged = False
        ids += found
        if not found and any(char.isdigit() for char in token):
            unknown.append(token)
    return list(dict.fromkeys(ids)), unknown


def _known(token: str, known: Mapping[str, str]) -> list[str]:
    if (id_ := known.get(key(token))) is not None:
        # Letters alone are words too: "Phase 1 and a test" names no phase A.
        return [id_] if id_ == token or any(char.isdigit() for char in token) else []
    first, _, last = token.partition("-")
    if last and key(first) in known and key(last) in known:
        return _between(known[key(first)], known[key(last)], known)
    if parts := [id_ for id_ in known.values() if token.isdigit() and re.match(rf"{token}[A-Za-z]", id_)]:
        return parts  # "Phase 1" of a plan with 1a and 1b is both
    whole = token.rpartition(".")[0]  # "Phase 5c.3" is an item of phase 5c; "Phase 3.5" is a phase of its own
    return _known(whole, known) if any(char.isalpha() for char in whole) else []


def _between(first: str, last: str, known: Mapping[str, str]) -> list[str]:
    order = list(known.values())
    a, b = sorted((order.index(first), order.index(last)))
    return order[a : b + 1]


class Said(Struct, frozen=True):
    """What a paragraph says about phases."""

    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  #: ids the plan does not have
    phases: bool = False  #: it names phases of this plan, be it to deny a dependency


_LINK = r" ?(?:, ?(?:and\b|or\b)?|and\b|or\b|&|\+|/|–|-|to\b|through\b|\.\.) ?"
_LINKS = frozenset({"and", "or", "to", "through"})
_LIST = rf"{WORD}(?:{_LINK}(?:[Pp]hases? )?{WORD})*"
_MENTION = re.compile(
    rf"\b(?:[Pp]hases?|PHASES?|[Aa]ll of|[Bb]oth|[Bb]oth of|[Dd]epends on):? #?(?![Pp]hases? )({_LIST})"
)
#: "1, 2a", "requires 1 and 2": a clause may begin with ids without the word Phase.
_LEAD = re.compile(
    r"(?:(?:requires?|needs?|after|blocked by|waits for|depends on|builds on|follows) )?(?!phases?\b)", re.IGNORECASE
)
_IDS = re.compile(_LIST)
_REST = re.compile(r"[\x01\x02]?(?:\Z| (?:must|has|have|is|are|should) )", re.IGNORECASE)

_CODE = re.compile(r"`[^`]*`")
_LINKED = re.compile(r"\[([^\[\]]{0,80})\]\([^()]{0,300}\)")
_PLAN_NAME = re.compile(r"`(?:[A-Z0-9]+_[A-Z0-9_]+|[^` ]+\.md)`")
_SENTENCE = re.compile(r"[.!?](?= |\Z)|;")
_CLAUSE = re.compile(
    r",? but (?!is |are |was |were |not )|,? while |,? whereas |, (?=phases? [^ ]{1,20} (?:is|are|should|may|can) )"
    r"|(?:, and |, | and )(?=phases? [^ ]{1,20}(?: (?:—|--|–) |: ))",
    re.IGNORECASE,
)
_EXPLAINED = re.compile(r" (?:—|--) ")
#: The same, and marks that may also stand within a list.
_TAIL = re.compile(r" ?—| -- |: | [–-] ")
_RANGED = re.compile(rf"(?:[Pp]hases? )?({WORD})")
#: An explanation that begins so denies what it explains.
_DENIED = re.compile(
    r"(?:is |are |both |all )?(?:not|no longer|never|no dependenc|independent|unrelated)\b", re.IGNORECASE
)
_NOT = re.compile(
    r"(?:\bnot|n't|\bnever|\bno) .{0,60}?\b(?:depend|requir|need|block|gate|prerequisite|wait)", re.IGNORECASE
)
_NOT_BEFORE = re.compile(r"(?:not|never|n't) (?:[a-z]{1,20} ){0,3}before ", re.IGNORECASE)
_APART = re.compile(
    r"\b(?:independent(?:ly)? (?:of|from)|in parallel|parallel (?:to|with)|alongside|in any order"
    r"|regardless of|unrelated to|without waiting for)\b",
    re.IGNORECASE,
)
_VERB = re.compile(r"\b(?:is|are|can|may|could|runs?)\b", re.IGNORECASE)
_ONWARD = re.compile(
    r"\b(?:before|feeds?|feeding|enables?|unblocks?|blocks|blocking|precedes?|prerequisite (?:for|of)"
    r"|(?:consumed|used|needed|required|referenced|extended) by|for (?=phases? ))\b",
    re.IGNORECASE,
)
_SOFT = re.compile(
    r"\b(?:should|recommended|soft|ideally|prefer|preferably|preferred|optional|optionally|nice to have)\b",
    re.IGNORECASE,
)
_LANDED = re.compile(r"(?:already |has )?(?:landed|done|complete|completed|merged|shipped)\b", re.IGNORECASE)
_SOFT_ASIDE = "\x01"  #: stands for "(optional …)" right after the phase it speaks of
_LANDED_ASIDE = "\x02"  #: likewise for "(landed …)"
_ASIDES = str.maketrans("", "", _SOFT_ASIDE + _LANDED_ASIDE + "*")
_MUST = re.compile(r"\bmust\b", re.IGNORECASE)
#: "Phase 6 reads this file": the other phase is the one that waits.
_WAITING = re.compile(
    r" (?:will|reads?|uses?|consumes?|needs?|requires?|relies|depends?|builds|extends?) ", re.IGNORECASE
)
_AFTER = r"\b(?:after|depends? on|needs?|requires?|relies on|builds on) (?:phases? )?{}(?![\w-]|\.\w)"
_OTHER_PLAN = re.compile(r"(?:[A-Z0-9]+_[A-Z0-9_]+|[^ ]+\.md|\b[Pp]lan(?: [A-Z])?)(?:'s)? \Z")
_OF_OTHER_PLAN = re.compile(r"(?:'s)? (?:of|in|from) (?!this\b|the plan\b)(?:[A-Z]|the other|another|[^ ]+\.md)")


_CONDITION = re.compile(
    r"\b(?:merge|land|complete|done|must|release|deploy|approv|branch|pr\b|issue|plan\b|decision|phase)|#[0-9]",
    re.IGNORECASE,
)


def condition(text: str) -> str:
    """The first sentence of a paragraph that speaks of no phase, when it sounds like something to wait for."""
    if not _CONDITION.search(_SENTENCE.split(_plain(text), maxsplit=1)[0]):
        return ""
    return _SENTENCE.split(text, maxsplit=1)[0].strip()[:200]


def read_prose(text: str, *, own: str, known: Mapping[str, str]) -> Said:
    """What a paragraph of phase `own` says about the phases of the plan, given as key to id in tracker order."""
    plain = spelled_out(_plain(_with_ids(text, known)), own=own, known=known)
    clauses = [
        _named(without_exception(clause.strip()), known)
        for sentence in _SENTENCE.split(plain)
        for clause in _CLAUSE.split(sentence)
    ]
    after_own = re.compile(_AFTER.format(re.escape(own)), re.IGNORECASE)
    said = [Said(phases=True) if after_own.search(clause) else _clause(clause, own, known) for clause in clauses]
    return Said(
        hard=tuple(id_ for one in said for id_ in one.hard),
        soft=tuple(id_ for one in said for id_ in one.soft),
        unknown=tuple(id_ for one in said for id_ in one.unknown),
        phases=any(one.phases for one in said),
    )


def _with_ids(text: str, known: Mapping[str, str]) -> str:
    """The text with links and code that hold an id replaced by it."""
    text = _LINKED.sub(r"\1", text)
    return _CODE.sub(
        lambda code: code.group().strip("`") if key(code.group().strip("`")) in known else code.group(), text
    )


def _named(clause: str, known: Mapping[str, str]) -> str:
    """The clause with the word Phases before a list of bare ids it begins with."""
    lead = _LEAD.match(clause)
    head, _ = _explained(clause, known)
    found = _IDS.match(head, lead.end()) if lead else None
    if found is None or _REST.match(head, found.end()) is None:
        return clause
    words = [word for word in re.findall(WORD, found.group()) if word.lower() not in _LINKS]
    strange = any(not any(char.isdigit() for char in word) and word not in known.values() for word in words)
    return clause if strange or not resolve(found.group(), known)[0] else f"Phases {clause[found.start() :]}"


def _explained(clause: str, known: Mapping[str, str]) -> tuple[str, str]:
    """A clause like "Phases 1, 2 — why" as two: before its dash or colon, and after it."""
    for mark in _TAIL.finditer(clause):
        ranged = _RANGED.match(clause, mark.end()) if mark.group() in (" – ", " - ") else None
        if ranged is None or not resolve(ranged.group(1), known)[0]:
            return clause[: mark.start()], clause[mark.end() :]
    return clause, ""


def _plain(text: str) -> str:
    """The text without emphasis, asides and code, but for code that names a plan."""
    text = _CODE.sub(lambda code: code.group()[1:-1] if _PLAN_NAME.fullmatch(code.group()) else "", text)
    return " ".join(_without_asides(text.translate(_ASIDES)).split())


def _without_asides(text: str) -> str:
    """The text without what stands in parentheses; an aside that makes a wish of it leaves a mark."""
    kept, depth, begin = [], 0, 0
    for i, char in enumerate(text):
        if char == "(":
            depth += 1
            if depth == 1:
                kept.append(text[begin:i].rstrip())
                begin = i + 1
        elif char == ")" and depth:
            depth -= 1
            if not depth:
                kept.append(_aside(text[begin : begin + 20].lstrip()))
                begin = i + 1
    return "".join(kept) if depth else "".join([*kept, text[begin:]])


def _aside(text: str) -> str:
    if _SOFT.match(text):
        return _SOFT_ASIDE
    return _LANDED_ASIDE if _LANDED.match(text) else ""


def _clause(clause: str, own: str, known: Mapping[str, str]) -> Said:
    clause, soft = _unexplained(clause, known)
    soft = soft or (bool(_SOFT.search(clause)) and not _MUST.search(clause))
    if _NOT.search(clause) and not soft:
        return Said(phases=_names_any(clause, known))
    named = _without_onward(clause)
    head = _EXPLAINED.split(named, maxsplit=1)[0]
    if _MENTION.search(head):
        named = head
    hard: list[str] = []
    wished: list[str] = []
    unknown: list[str] = []
    for mention in _mentions(named):
        ids, strangers = resolve(mention.group(1), known)
        if ids != [own] and _WAITING.match(named, mention.end()):
            continue
        aside = named[mention.end() : mention.end() + 1]
        firm = len(ids) - (aside == _SOFT_ASIDE)
        (wished if soft else hard).extend(ids[:firm])
        wished.extend(ids[firm:])
        unknown.extend(() if soft or aside in (_SOFT_ASIDE, _LANDED_ASIDE) else strangers)
    phases = bool(unknown) or _names_any(clause, known)
    return Said(hard=tuple(hard), soft=tuple(wished), unknown=tuple(unknown), phases=phases)


def _names_any(clause: str, known: Mapping[str, str]) -> bool:
    return any(any(resolve(mention.group(1), known)) for mention in _mentions(clause))


def _unexplained(clause: str, known: Mapping[str, str]) -> tuple[str, bool]:
    """A clause like "Phases 1, 2 — why" without its explanation; and whether that begins by making it a wish.

    Only the beginning of an explanation can deny the dependency: "no" and "before" further on speak of other things.
    """
    head, tail = _explained(clause, known)
    mention = _MENTION.match(head) if tail else None
    if mention is None or head[mention.end() :].strip(_SOFT_ASIDE + _LANDED_ASIDE) or _DENIED.match(tail.lstrip()):
        return clause, False
    return head, _SOFT.match(tail.lstrip()) is not None


def _without_onward(clause: str) -> str:
    """The clause up to where it says what does not hold back this phase."""
    if (apart := _APART.search(clause)) is not None:
        clause = "" if _VERB.search(clause[: apart.start()]) else clause[: apart.start()]
    if _NOT_BEFORE.search(clause):
        return clause
    onward = _ONWARD.search(clause)
    return clause[: onward.start()] if onward else clause


def _mentions(clause: str) -> Iterator[re.Match[str]]:
    """Where phases of this plan are named."""
    for mention in _MENTION.finditer(clause):
        before = clause[max(0, mention.start() - 80) : mention.start()]
        if not (_OTHER_PLAN.search(before) or _OF_OTHER_PLAN.match(clause, mention.end())):
            yield mention
