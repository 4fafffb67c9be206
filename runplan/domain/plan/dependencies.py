"""The phases that a phase waits for: its `Depends:` line, else the prose of its Dependencies.

A phase that a sentence names is waited for, unless the sentence denies it, recommends it, or says what comes later.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from runplan.domain.plan.body import DEPENDS, Body
from runplan.domain.plan.marks import id_key
from runplan.domain.plan.reading import Reading, Remark
from runplan.domain.plan.scan import marks_within

MOST = 100_000  #: characters of the dependencies of all phases
_ID = r"[A-Za-z0-9]{1,6}(?:[.-][A-Za-z0-9]{1,4}){0,4}(?![A-Za-z0-9])"
_LINK = r" ?(?:, ?(?:and\b|or\b)?|and\b|or\b|&|\+|/|–|-|to\b|through\b|\.\.) ?"
_LIST = rf"{_ID}(?:{_LINK}(?:[Pp]hases? )?{_ID})*+"
_RANGE = frozenset({"–", "-", "to", "through", ".."})
_TOKEN = rf"\bthrough\b|{_ID}|–|-|\.\."
#: A number like 2.5 in prose is no phase where no id has a dot, unless it is all that the word Phase stands for.
_DECIMAL = r"v?[0-9]+(?:\.[0-9]+)+"
_LONE_DECIMAL = rf"(?i)phases?:? #?{_DECIMAL}(?=\Z|[,;:.]| (?:and|or|must|has|have|is|are|should)\b)"
_NONE = r"(?i)[*_ ]*(?:none|n/a|nothing|no|no dependenc(?:y|ies)|no phases?|(?=[-–—]))[*_ ]*(?:[.,;:(–—-]|\Z)"
_CODE = r"`([^`]*)`"
_ASIDE = r" ?\([^()]*\)"
#: An aside about a whole clause: "Phases 1 and 3 write the markers (no hard dependency)".
_NOT_HARD = r"(?i:\b(?:(?:no|not an?) hard|soft) dependenc)"
#: What is said right behind ids: `2 [soft]`, `Phase 1 (landed in March)`, `Phase 3 -- soft dependency`.
_BEHIND = (
    rf"((?<=[Pp]hases ){_LIST}|{_ID})"
    r"(?: ?[(\[]([^()\[\]]*)|(?: --| —)? (soft\b|(?i:(?:(?:has|have|is|are) )?(?:already|landed|merged|shipped))\b))"
)
_TOLERATED = rf"{_NOT_HARD}|(?i:\A(?:soft|optional|recommended|preferred)\Z)"
_LANDED = r"(?i:\A\W*(?:(?:has|have|is|are) )?(?:already|landed|merged|shipped|done|completed?)\b)"
_BRACKETS = r" ?\[([^\[\]]*)\]"
_NO_PHASE = "\x02"  #: stands for a phrase that means no phase
_OTHER_PLAN = r"(?:[A-Z0-9]+_[A-Z0-9_]+|[^` ]+\.md)(?:'s)? ?\Z"
_OF_PLAN = r"(?:'s)? (?:of|in|from) (?!this\b|the plan\b)(?:[A-Z]|another|[^ ]+\.md)"
_EARLIER = r"(?:previous|prior|earlier|preceding|above)"
_EACH = r"(?:all|every|each)(?: of)?(?: the)?"
#: Phrases that stand for all phases before this one, the last one, the later ones, all others.
_PHRASES = (
    rf"(?i)\b(?:{_EACH} {_EARLIER}(?: phases?| ones?)?|(?:the )?{_EARLIER} phases"
    rf"|everything above|(?:everything|{_EACH} phases?) before (?:this|it)(?: one| phase)?)\b",
    rf"(?i)\b(?:the )?{_EARLIER} (?:phase|one)\b",
    rf"(?i)\b(?:{_EACH} |the )?(?:later|subsequent|remaining) phases?\b",
    rf"(?i)\b{_EACH} (?:other )?(?:phases\b(?! (?:before\b|[0-9]|[A-Za-z](?:[0-9]|\b)))"
    r"|phase(?=\Z|[.,;:)]| (?:must|is|has|should|needs|in|of|above|listed)\b))",
)
_MENTION = rf"\b(?:[Pp]hases?|PHASES?|[Aa]ll of|[Bb]oth(?: of)?|[Dd]epends on):? #?(?![Pp]hases? )({_LIST})"
#: "1, 2a", "requires 1 and 2": a clause may begin with ids without the word Phase.
_BARE = (
    rf"(?i)(?:(?:requires?|needs?|after|depends on|builds on|follows) )?({_LIST})"
    r"(?=\Z| (?:must|has|have|is|are|should) )"
)
_CLAUSE = (
    r"(?i)[.!?](?= |\Z)|;|,? but (?!is |are |was |were |not )|,? while "
    r"|, (?=phases? [^ ]{1,20} (?:is|are|should|may|can) )"
    r"|(?:, and |, | and )(?=phases? [^ ]{1,20}(?: (?:—|--|–) |: ))"
    r"|, (?=(?:can |may |and )*(?:be |run )?(?:in parallel|paralleli[sz]|independent|alongside))"
)
_TOGETHER = r"(?:\b(?:in parallel|parallel (?:to|with)|alongside|paralleli[sz](?:e|es|ed|ing|able))\b|並列|並行)"
_APART = (
    rf"(?i){_TOGETHER}|\b(?:independent(?:ly)?|in any order|regardless of|unrelated)\b"
    r"|(?:\bnot|n't|\bnever|\bno(?! dependenc\w+ (?:other|except|but|apart))) .{0,60}?"
    r"\b(?:depend|requir|need|block|gate|prerequisite|wait)"
)
_SOFT = (
    r"(?i)\b(?:should|recommended|soft|ideally|prefer|preferably|preferred|optional|optionally|nice[ -]to[ -]have)\b"
)
_MAY = r"(?i)\bmay (?!(?:only |not )?(?:be )?(?:start|begin|run|proceed|land))"
#: The phases after these words wait for this one, unless it must not begin before them.
_ONWARD = (
    r"(?i)(?<!not start )(?<!not begin )\b(?:before|feeds?|feeding|enables?|unblocks?|blocks|blocking|precedes?"
    r"|prerequisite (?:for|of)|(?:consumed|used|needed|required) by)\b"
)
_LEAD = r"(?i)(?:(?:soft|optional|ideally|requires?|needs?|after|on|both|all of):? )?(?:the )?(?:phases?:? )?#?"
_IN_TITLE = r"(?i)\(((?:depends on|after|requires|needs) [^()]{1,80})\)"


class Depends(Struct):
    hard: list[str] = []
    soft: list[str] = []
    elsewhere: list[str] = []  #: hard, too, by the title of the phase and sentences outside of it
    unknown: list[Remark] = []  #: ids of phases the plan does not have
    landed: list[Remark] = []  #: those of them that have landed, as the text says
    unread: list[Remark] = []  #: sentences that name no phase of this plan


class Phases(Struct, frozen=True):
    ids: list[str]  #: in the order of the plan
    order: dict[str, int]  #: id to its place among them
    meant: dict[str, list[str]]  #: key to the id; in a plan with 1a and 1b, 1 means both
    unit: str
    aliases: Mapping[str, str]  #: see Reading
    has_dots: bool  #: some ids are like 3.5; without them, 2.5 in prose is a number


def read_depends(bodies: Mapping[str, Body], reading: Reading) -> dict[str, Depends]:
    meant: dict[str, list[str]] = {}
    for id_ in bodies:
        if number := re.match("[0-9]+(?=[A-Za-z])", id_):
            meant.setdefault(number[0], []).append(id_)
    for id_, body in bodies.items():  # `### T-01` or `### M1: Title` in a phase is a part of it
        strong = {part.name.id for part in body.parts if part.name.strong and re.match("[A-Za-z]+[0-9]", part.name.id)}
        dotted = {part.name.id for part in body.parts if re.search("[0-9].*[.-]|[.-].*[0-9]", part.name.id)}
        for key in set(map(id_key, strong | dotted)):
            meant.setdefault(key, []).append(id_)
    meant = {key: ids for key, ids in meant.items() if len(ids) == 1 or key.isdigit()}
    meant |= {id_key(id_): [id_] for id_ in bodies}
    order = {id_: n for n, id_ in enumerate(bodies)}
    phases = Phases([*bodies], order, meant, reading.unit, reading.aliases, any("." in id_ for id_ in bodies))
    left = MOST
    depends = {id_: Depends() for id_ in bodies}
    for place in (place for place in reading.places if not place.text):
        phase_id = place.id
        body = bodies[phase_id]
        line = next((body.labels[label] for label in DEPENDS if label in body.labels), None)
        paragraphs = [line] if line is not None else list(_list_paragraphs(body))
        left -= sum(len(text) for _, text in paragraphs) + sum(map(len, place.prose))
        if left < 0:
            message = f"the dependencies of the phases have over {MOST:,} characters; use short lines 'Depends: …'"
            raise body.lines.error_at(place.first, message)
        read = _read_line(*line, phase_id, phases) if line else _read_paragraphs(paragraphs, phase_id, phases)
        for index, value in body.further if line else ():
            # A further line may be of a part of the phase: what waits for a later phase is told.
            further = _read_line(index, value, phase_id, phases)
            before = [id_ for id_ in further.hard if order[id_] < order[phase_id]]
            read.hard += [id_ for id_ in before if id_ not in read.hard]
            read.soft += [id_ for id_ in further.soft if id_ not in (phase_id, *read.hard, *read.soft)]
            read.unread += further.unread
        title = None if line else re.search(_IN_TITLE, body.lines.texts[place.first])
        others = Depends()
        for sentence in (*place.prose, *(title.groups() if title else ())):
            _read_prose(sentence, place.first, phase_id, phases, others)
        read.elsewhere = [id_ for id_ in others.hard if id_ != phase_id]
        read.unread += others.unknown
        depends[phase_id] = read
    return depends


def _read_paragraphs(paragraphs: list[tuple[int, str]], phase_id: str, phases: Phases) -> Depends:
    depends = Depends()
    for index, text in paragraphs:
        if re.match(_NONE, text):
            if not depends.hard and not depends.unread:
                break
        elif not _read_prose(text, index, phase_id, phases, depends):
            depends.unread.append(Remark(index + 1, text[:200].rstrip(".")))
    depends.hard = [id_ for id_ in depends.hard if id_ != phase_id]
    depends.soft = [id_ for id_ in depends.soft if id_ != phase_id]
    return _heed_brackets(depends, " ".join(text for _, text in paragraphs), phases)


def _heed_brackets(depends: Depends, text: str, phases: Phases) -> Depends:
    """The dependencies with regard to what the text says right behind an id: that it is soft, or has landed."""
    plain = text.replace("*", "").replace("`", "")
    tolerated = set[str]()
    landed = set[str]()
    for said in (*re.finditer(_BEHIND, plain), *re.finditer(_BEHIND, re.sub(_ASIDE, "", plain))):
        ids, strangers = _resolve_ids(said[1], phases)
        tolerated.update(ids if re.search(_TOLERATED, said[2] or said[3] or "") else ())
        landed.update(strangers if re.search(_LANDED, said[2] or said[3] or "") else ())
    soft = [*depends.soft, *(id_ for id_ in depends.hard if id_ in tolerated)]
    depends.hard = [id_ for id_ in dict.fromkeys(depends.hard) if id_ not in tolerated]
    depends.soft = [id_ for id_ in dict.fromkeys(soft) if id_ not in depends.hard]
    depends.landed = [quote for quote in depends.unknown if quote.text in landed]
    depends.unknown = [quote for quote in depends.unknown if quote.text not in landed]
    return depends


def _read_line(index: int, value: str, phase_id: str, phases: Phases) -> Depends:
    """A `Depends:` line: a list of ids and ranges; an entry that begins with none of them is not read."""
    depends = Depends()
    plain = _plain_text(value, phases).rstrip(".")
    if re.match(_NONE, plain or value.strip("()[]*` ")) or not value:
        return depends
    if re.search(_APART, plain) or not plain:
        return _read_paragraphs([(index, value)], phase_id, phases)
    spelled = _spelled_out("all phases" if plain.lower() == "all" else plain, phase_id, phases)
    for entry in dict.fromkeys(map(str.strip, re.split(r"[,;→]|\.(?= )| and | & ", spelled))):
        words = re.sub(_LEAD, "", entry, count=1)
        listed = re.match(_LIST, words)
        ids, strangers = _resolve_ids(listed[0], phases) if listed else ([], [])
        strangers = [id_ for id_ in strangers if not re.match("v[0-9]", id_)]  # a version
        is_part = id_key(words) in phases.meant.keys() - {id_key(phase_id)}
        is_itself = listed and listed[0] == words and not is_part  # not "Phase 6 dims after 1"
        others = (id_ for id_ in ids if id_ != phase_id or is_itself)
        (depends.soft if re.search(_SOFT, entry) else depends.hard).extend(others)
        if ids and listed:
            _read_prose(words[listed.end() :], index, phase_id, phases, depends)
        if strangers or (not ids and len(words) in (1, 2) and words.isalnum()):
            depends.unknown += [Remark(index + 1, id_) for id_ in strangers or [words]]
        elif not ids and words.strip(_NO_PHASE):
            depends.unread.append(Remark(index + 1, entry[:200]))
    return _heed_brackets(depends, value, phases)


def _spelled_out(text: str, phase_id: str, phases: Phases) -> str:
    """The text with Phase for the plan's own word, and ids for phrases like "all previous phases"."""
    if phases.unit in ("task", "step"):
        text = re.sub(r"\b([Pp]hases?) (?=#?[0-9])", r"\1 № ", text)  # it is one of another plan
    if phases.unit != "phase":
        text = re.sub(rf"\b{phases.unit}(?=s?\b)", "Phase", text, flags=re.IGNORECASE)
    if phases.aliases:
        text = re.sub(r"(?i)user story (?=[0-9])", "US", text)
        alias = re.compile(r"\b[A-Z]{1,2}[0-9]+[a-z]?\b")
        text = alias.sub(lambda word: f"Phase {id_}" if (id_ := phases.aliases.get(word[0].lower())) else word[0], text)
    index = phases.order[phase_id]
    before = phases.ids[:index]
    after = phases.ids[index + 1 :]
    for phrase, spans in zip(_PHRASES, ((before,), (before[-1:],), (after,), (before, after)), strict=True):
        ids = ", ".join(f"{span[0]} – {span[-1]}" for span in spans if span)
        text = re.sub(phrase, f"Phases {ids}" if ids else _NO_PHASE, text)
    return text


def _resolve_ids(listed: str, phases: Phases) -> tuple[list[str], list[str]]:
    """The ids of a list like `1, 2a and 4–6`, ranges by tracker order; and those that are no phase."""
    ids = list[str]()
    unknown = list[str]()
    is_range = False
    apart = re.sub(_ID, lambda id_: id_[0] if id_key(id_[0]) in phases.meant else id_[0].replace("-", " - "), listed)
    for token in re.findall(_TOKEN, apart):
        if token in _RANGE:
            is_range = bool(ids)
            continue
        phase_ids = _known_ids(token, phases)
        if is_range and len(phase_ids) == 1:
            first, last = sorted((phases.order[ids[-1]], phases.order[phase_ids[0]]))
            phase_ids = phases.ids[first : last + 1]
        is_range = is_range and not phase_ids
        ids += phase_ids
        if not phase_ids and re.search("[0-9]", token):
            unknown.append(token)
    return list(dict.fromkeys(ids)), unknown


def _known_ids(token: str, phases: Phases) -> list[str]:
    if ids := phases.meant.get(id_key(token)):
        # Letters alone are words too: "Phase 1 and a test" names no phase A.
        return ids if ids == [token] or re.search("[0-9]", token) else []
    whole = token.rpartition(".")[0]  # "Phase 5c.3" is an item of phase 5c; "Phase 3.5" is a phase of its own
    return _known_ids(whole, phases) if re.search("[A-Za-z]", whole) else []


def _read_prose(text: str, index: int, phase_id: str, phases: Phases, depends: Depends) -> bool:
    """Whether the text names phases of the plan, also to deny a dependency."""
    spelled = _spelled_out(_plain_text(text, phases), phase_id, phases)
    is_read = _NO_PHASE in spelled
    numbers: list[str] = []
    for clause in dict.fromkeys(map(str.strip, re.split(_CLAUSE, spelled))):
        head, tail = clause, ""  # "Phases 1, 2 — why": what follows only explains
        mentions = _find_mentions(clause, phases)
        for mark in re.finditer(r" ?— ?| -- |: | [–-] (?![Pp]hase|[0-9])", clause):
            if explained := _find_mentions(clause[: mark.start()], phases):
                head, tail, mentions = clause[: mark.start()], clause[mark.end() :], explained
                break
        if not mentions:
            continue
        softened = re.search(_SOFT, head) or re.search(_MAY, head) or re.match(_SOFT, tail)
        is_soft = "must" not in clause.lower() and softened is not None
        is_apart = not is_soft and (re.search(_APART, head) or re.match(_APART, tail) or tail.lower().startswith("not"))
        onward = re.search(_ONWARD, head)
        for mention in mentions:
            ids, strangers = _resolve_ids(mention[1], phases)
            if not phases.has_dots and not re.match(_LONE_DECIMAL, head[mention.start() :]):
                numbers += [id_ for id_ in strangers if re.fullmatch(_DECIMAL, id_)]
                strangers = [id_ for id_ in strangers if not re.fullmatch(_DECIMAL, id_)]
            is_read = is_read or bool(ids or strangers)
            if is_apart or (onward and onward.start() < mention.start(1)):
                continue
            (depends.soft if is_soft else depends.hard).extend(ids)
            depends.unknown += [] if is_soft else [Remark(index + 1, id_) for id_ in strangers]
    depends.unread += [Remark(index + 1, number) for number in dict.fromkeys(numbers) if is_read]
    return is_read


def _find_mentions(clause: str, phases: Phases) -> list[re.Match[str]]:
    if bare := re.match(_BARE, clause):
        words = [word for word in re.findall(_ID, bare[1]) if word.lower() not in ("and", "or", *_RANGE)]
        is_strange = any(word.isalpha() and word not in phases.order for word in words)
        if not is_strange and _resolve_ids(bare[1], phases)[0]:
            return [bare]
    mentions = (named for named in re.finditer(_MENTION, clause) if not re.match(_OF_PLAN, clause[named.end() :]))
    return [named for named in mentions if not re.search(_OTHER_PLAN, clause[: named.start()][-80:])]


def _plain_text(text: str, phases: Phases) -> str:
    """The text without links, emphasis, asides and code, except for code that is an id or names a plan."""
    text = re.sub(r"\[([^\[\]]{0,80})\]\([^()]{0,300}\)", r"\1", text)
    codes = re.findall(_CODE, text)
    kept = {code for code in codes if id_key(code) in phases.meant or re.fullmatch(_OTHER_PLAN, code)}
    text = re.sub(_CODE, lambda code: code[1] if code[1] in kept else "", text)
    text = text.replace("*", "")
    said = rf"{_TOLERATED}|{_LANDED}|\A.?\Z"
    text = re.sub(_BRACKETS, lambda inner: "" if re.search(said, inner[1]) else f" {inner[1]}", text)
    for _ in range(2):  # asides may be nested
        text = re.sub(_ASIDE, "", text)
    return " ".join(text.partition("(")[0].split())


def _list_paragraphs(body: Body) -> Iterator[tuple[int, str]]:
    """The paragraphs and list entries of the Dependencies, with the line each begins on."""
    texts = body.lines.texts
    index, value = body.labels.get("dependencies", (len(texts), ""))
    end = r"\s*\Z|#|(?:[-*+] )?\*\*" + (r"|\s*[-*+] \[.\] " if value else "")  # boxes below a value are work items
    ends = (i for i in range(index + 1, body.whole.stop) if re.match(end, texts[i]))
    labelled = range(index, next(ends, body.whole.stop))
    part = next((part for title in ("dependenc", "depends") for part in body.find_parts(title)), labelled)
    entries = {entry.at: entry.text for entry in marks_within(body.lines.entries, part.start, part.stop)}
    begin = 0
    block = list[str]()
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
