"""Dependencies in prose: lists of phase ids, and sentences about the phases that a phase waits for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.ids import key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


#: Anything that may be an id: the plan decides which words are one.
WORD = r"[A-Za-z0-9]{1,6}(?:[.-][A-Za-z0-9]{1,4}){0,4}(?![A-Za-z0-9])"
_TOKEN = re.compile(rf"\b[Pp]hases?\b|\bthrough\b|{WORD}|–|-|\.\.")
_RANGE = frozenset({"–", "-", "to", "through", ".."})
_NONE = _words(r"[*_ ]*(?:(?:none|n/a|nothing|no (?:dependenc(?:y|ies)|phases?))\b|(?:no|[-–—]+)[*_. ]*\Z)")
#: "None besides Phase 1" names a phase.
_EXCEPT = _words(
    r"[*_ ]*(?:none|nothing|no )[^.;:—]{0,40}?"
    r"\b(?:besides|except(?: for)?|other than|beyond|apart from|until|unless|but)\b"
)

_EARLIER = r"(?:previous|prior|earlier|preceding)"
#: Phrases that stand for several phases, tried in this order.
_BEFORE = _words(
    rf"\b(?:(?:all|every|each)(?: of)?(?: the)? )(?:{_EARLIER}|above)(?: (?:phases?|ones?))?\b"
    rf"|\b(?:all(?: of)?(?: the)? |the )?(?:{_EARLIER}|above) phases\b"
    r"|\b(?:(?:all|every|each)(?: of)?(?: the)? )?phases? (?:above|before (?:this|it)\b(?: (?:one|phase))?)"
    r"|\b(?:all(?: of)?(?: the)?|everything) (?:above|before (?:this|it))\b(?: (?:one|phase))?"
)
_LAST = _words(rf"\b(?:the )?{_EARLIER} (?:phase|one)\b")
_LATER = _words(r"\b(?:all(?: of)?(?: the)? |every |the )?(?:later|subsequent|remaining) phases?\b")
_OTHERS = _words(
    r"\b(?:all|every|each)(?: of)?(?: the)? (?:other )?phases?\b(?! (?:before\b|[0-9]|[A-Za-z](?:[0-9]|\b)))"
)


def says_none(text: str) -> bool:
    """Whether a paragraph begins by saying that there are no dependencies."""
    return _NONE.match(text) is not None and _EXCEPT.match(text) is None


def spelled_out(text: str, *, own: str, known: Mapping[str, str]) -> str:
    """The text with phrases like "all previous phases" replaced by the ids they stand for.

    A phrase that stands for no phase is replaced by the phase's own id, which is never waited for.
    """
    order = list(known.values())
    at = order.index(own)
    before, after = order[:at], order[at + 1 :]
    for phrase, ids in ((_BEFORE, before), (_LAST, before[-1:]), (_LATER, after), (_OTHERS, [*before, *after])):
        text = phrase.sub(f"Phases {', '.join(ids or [own])}", text)
    return text


def resolve(listed: str, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The ids of a list like `1, 2a and 4–6`, ranges by tracker order; and those that are no phase."""
    ids: list[str] = []
    unknown: list[str] = []
    is_range = False
    for token in _TOKEN.findall(listed):
        if token.lower() in ("phase", "phases"):
            continue
        if token in _RANGE:
            is_range = bool(ids)
            continue
        found = _known(token, known)
        if is_range and len(found) == 1:
            found = _between(ids[-1], found[0], known)
        is_range = False
        ids += found
        if not found and _has_digit(token):
            unknown.append(token)
    return list(dict.fromkeys(ids)), unknown


def _known(token: str, known: Mapping[str, str]) -> list[str]:
    if (id_ := known.get(key(token))) is not None:
        # Letters alone are words too: "Phase 1 and a test" names no phase A.
        return [id_] if id_ == token or _has_digit(token) else []
    first, _, last = token.partition("-")
    if last and key(first) in known and key(last) in known:
        return _between(known[key(first)], known[key(last)], known)
    if parts := [id_ for id_ in known.values() if token.isdigit() and re.match(rf"{token}[A-Za-z]", id_)]:
        return parts  # "Phase 1" of a plan with 1a and 1b is both
    whole = token.rpartition(".")[0]  # "Phase 5c.3" is an item of phase 5c; "Phase 3.5" is a phase of its own
    return _known(whole, known) if any(char.isalpha() for char in whole) else []


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _between(first: str, last: str, known: Mapping[str, str]) -> list[str]:
    order = list(known.values())
    a, b = sorted((order.index(first), order.index(last)))
    return order[a : b + 1]


class Prose(Struct, frozen=True):
    hard: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  #: ids the plan does not have
    phases: bool = False  #: it names phases of this plan, also to deny a dependency


_LINK = r" ?(?:, ?(?:and\b|or\b)?|and\b|or\b|&|\+|/|–|-|to\b|through\b|\.\.) ?"
_LINKS = frozenset({"and", "or", "to", "through"})
_LIST = rf"{WORD}(?:{_LINK}(?:[Pp]hases? )?{WORD})*"
_MENTION = re.compile(
    rf"\b(?:[Pp]hases?|PHASES?|[Aa]ll of|[Bb]oth|[Bb]oth of|[Dd]epends on):? #?(?![Pp]hases? )({_LIST})"
)
#: "1, 2a", "requires 1 and 2": a clause may begin with ids without the word Phase.
_LEAD = _words(r"(?:(?:requires?|needs?|after|blocked by|waits for|depends on|builds on|follows) )?(?!phases?\b)")
_IDS = re.compile(_LIST)
_REST = _words(r"[\x01\x02]?(?:\Z| (?:must|has|have|is|are|should) )")

_CODE = re.compile(r"`([^`]*)`")
_LINKED = re.compile(r"\[([^\[\]]{0,80})\]\([^()]{0,300}\)")
_PLAN_NAME = re.compile(r"[A-Z0-9]+_[A-Z0-9_]+|[^` ]+\.md")
_SENTENCE = re.compile(r"[.!?](?= |\Z)|;")
_CLAUSE = _words(
    r",? but (?!is |are |was |were |not )|,? while |,? whereas |, (?=phases? [^ ]{1,20} (?:is|are|should|may|can) )"
    r"|(?:, and |, | and )(?=phases? [^ ]{1,20}(?: (?:—|--|–) |: ))"
)
_EXPLAINED = re.compile(r" (?:—|--) ")
#: The same, and marks that may also occur within a list.
_TAIL = re.compile(r" ?—| -- |: | [–-] ")
_RANGED = re.compile(rf"(?:[Pp]hases? )?({WORD})")
#: An explanation that begins so denies the dependency.
_DENIED = _words(r"(?:is |are |both |all )?(?:not|no longer|never|no dependenc|independent|unrelated)\b")
_NOT = _words(r"(?:\bnot|n't|\bnever|\bno) .{0,60}?\b(?:depend|requir|need|block|gate|prerequisite|wait)")
_NOT_BEFORE = _words(r"(?:not|never|n't) (?:[a-z]{1,20} ){0,3}before ")
_APART = _words(
    r"\b(?:independent(?:ly)? (?:of|from)|in parallel|parallel (?:to|with)|alongside|in any order"
    r"|regardless of|unrelated to|without waiting for)\b"
)
_VERB = _words(r"\b(?:is|are|can|may|could|runs?)\b")
_ONWARD = _words(
    r"\b(?:before|feeds?|feeding|enables?|unblocks?|blocks|blocking|precedes?|prerequisite (?:for|of)"
    r"|(?:consumed|used|needed|required|referenced|extended) by|for (?=phases? ))\b"
)
_SOFT = _words(r"\b(?:should|recommended|soft|ideally|prefer|preferably|preferred|optional|optionally|nice to have)\b")
_LANDED = _words(r"(?:already |has )?(?:landed|done|complete|completed|merged|shipped)\b")
_SOFT_ASIDE = "\x01"  #: stands for "(optional …)" right after a phase
_LANDED_ASIDE = "\x02"  #: likewise for "(landed …)"
_ASIDES = str.maketrans("", "", _SOFT_ASIDE + _LANDED_ASIDE + "*")
_MUST = _words(r"\bmust\b")
#: "Phase 6 reads this file": the other phase is the one that waits.
_WAITING = _words(r" (?:will|reads?|uses?|consumes?|needs?|requires?|relies|depends?|builds|extends?) ")
_AFTER = r"\b(?:after|depends? on|needs?|requires?|relies on|builds on) (?:phases? )?{}(?![\w-]|\.\w)"
_OTHER_PLAN = re.compile(r"(?:[A-Z0-9]+_[A-Z0-9_]+|[^ ]+\.md|\b[Pp]lan(?: [A-Z])?)(?:'s)? \Z")
_OF_OTHER_PLAN = re.compile(r"(?:'s)? (?:of|in|from) (?!this\b|the plan\b)(?:[A-Z]|the other|another|[^ ]+\.md)")


def read_prose(text: str, *, own: str, known: Mapping[str, str]) -> Prose:
    """The phases in a paragraph of phase `own`; `known` are those of the plan, key to id in tracker order."""
    linked = _CODE.sub(lambda code: code[1] if key(code[1]) in known else code[0], _LINKED.sub(r"\1", text))
    plain = spelled_out(_plain(linked), own=own, known=known)
    after_own = _words(_AFTER.format(re.escape(own)))
    found = []
    for part in (part.strip() for sentence in _SENTENCE.split(plain) for part in _CLAUSE.split(sentence)):
        exception = _EXCEPT.match(part)
        clause = _with_word(part[exception.end() :].strip() if exception else part, known)
        found.append(Prose(phases=True) if after_own.search(clause) else _clause(clause, own, known))
    return Prose(
        hard=tuple(id_ for one in found for id_ in one.hard),
        soft=tuple(id_ for one in found for id_ in one.soft),
        unknown=tuple(id_ for one in found for id_ in one.unknown),
        phases=any(one.phases for one in found),
    )


def _with_word(clause: str, known: Mapping[str, str]) -> str:
    """The clause with the word Phases before a list of bare ids it begins with."""
    lead = _LEAD.match(clause)
    head, _ = _explained(clause, known)
    found = _IDS.match(head, lead.end()) if lead else None
    if found is None or _REST.match(head, found.end()) is None:
        return clause
    words = [word for word in re.findall(WORD, found.group()) if word.lower() not in _LINKS]
    is_strange = any(not _has_digit(word) and word not in known.values() for word in words)
    return clause if is_strange or not resolve(found.group(), known)[0] else f"Phases {clause[found.start() :]}"


def _explained(clause: str, known: Mapping[str, str]) -> tuple[str, str]:
    """A clause like "Phases 1, 2 — why" as two: before its dash or colon, and after it."""
    for mark in _TAIL.finditer(clause):
        ranged = _RANGED.match(clause, mark.end()) if mark.group() in (" – ", " - ") else None
        if ranged is None or not resolve(ranged[1], known)[0]:
            return clause[: mark.start()], clause[mark.end() :]
    return clause, ""


def _plain(text: str) -> str:
    """The text without emphasis, asides and code, except for code that names a plan."""
    text = _CODE.sub(lambda code: code[1] if _PLAN_NAME.fullmatch(code[1]) else "", text)
    return " ".join(_without_asides(text.translate(_ASIDES)).split())


def _without_asides(text: str) -> str:
    """The text without parentheses; those that begin with "optional" or "landed" leave a mark."""
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
                aside = text[begin : begin + 20].lstrip()
                kept.append(_SOFT_ASIDE if _SOFT.match(aside) else _LANDED_ASIDE if _LANDED.match(aside) else "")
                begin = i + 1
    return "".join(kept) if depth else "".join([*kept, text[begin:]])


def _clause(clause: str, own: str, known: Mapping[str, str]) -> Prose:
    clause, is_soft = _unexplained(clause, known)
    is_soft = is_soft or (bool(_SOFT.search(clause)) and not _MUST.search(clause))
    names_any = any(any(resolve(mention[1], known)) for mention in _mentions(clause))
    if _NOT.search(clause) and not is_soft:
        return Prose(phases=names_any)
    named = _without_onward(clause)
    head = _EXPLAINED.split(named, maxsplit=1)[0]
    if _MENTION.search(head):
        named = head
    hard: list[str] = []
    soft: list[str] = []
    unknown: list[str] = []
    for mention in _mentions(named):
        ids, strangers = resolve(mention[1], known)
        if ids != [own] and _WAITING.match(named, mention.end()):
            continue
        aside = named[mention.end() : mention.end() + 1]
        firm = len(ids) - (aside == _SOFT_ASIDE)
        (soft if is_soft else hard).extend(ids[:firm])
        soft += ids[firm:]
        unknown += [] if is_soft or aside in (_SOFT_ASIDE, _LANDED_ASIDE) else strangers
    return Prose(tuple(hard), tuple(soft), tuple(unknown), phases=bool(unknown) or names_any)


def _unexplained(clause: str, known: Mapping[str, str]) -> tuple[str, bool]:
    """A clause like "Phases 1, 2 — why" without its explanation; and whether that makes the dependency soft.

    Only the beginning of an explanation can deny the dependency: "no" and "before" further on are about other things.
    """
    head, tail = _explained(clause, known)
    mention = _MENTION.match(head) if tail else None
    if mention is None or head[mention.end() :].strip(_SOFT_ASIDE + _LANDED_ASIDE) or _DENIED.match(tail.lstrip()):
        return clause, False
    return head, _SOFT.match(tail.lstrip()) is not None


def _without_onward(clause: str) -> str:
    """The clause up to the words after which phases are named that this phase does not wait for."""
    if (apart := _APART.search(clause)) is not None:
        clause = "" if _VERB.search(clause[: apart.start()]) else clause[: apart.start()]
    onward = None if _NOT_BEFORE.search(clause) else _ONWARD.search(clause)
    return clause[: onward.start()] if onward else clause


def _mentions(clause: str) -> Iterator[re.Match[str]]:
    for mention in _MENTION.finditer(clause):
        before = clause[max(0, mention.start() - 80) : mention.start()]
        if not (_OTHER_PLAN.search(before) or _OF_OTHER_PLAN.match(clause, mention.end())):
            yield mention
