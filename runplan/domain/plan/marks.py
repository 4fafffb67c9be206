"""The marks of a phase: its id and title, the words and signs of its status, and the commit next to it."""

import re
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

#: The words that a heading may call its phase, most telling first: a Chunk has Tasks, a Task has Steps.
UNITS = (
    *("phase", "task", "issue", "iteration", "stage", "milestone", "sprint", "story", "slice", "session", "part"),
    *("chunk", "wave", "epic", "week", "step"),
)
SECTIONS = ("Goal", "Non-Scope", "Risks", "Open Questions")  #: of a plan that agents write, beside its phases
WEAK_UNITS = ("issue", "session", "part", "step", "week")  #: words that documents of other kinds count with too
#: One id. Parts after a dot or a hyphen stay short, so that `1-Setup` is phase 1 and `3b-i` is itself.
_ID = re.compile(
    r"(?:[A-Za-z]{0,3}[0-9]{1,4}[A-Za-z]{0,3}|[A-Za-z]{1,2}|[IVXivx]{1,4})"
    r"(?:[.-](?:[A-Za-z]{1,4}|[0-9]{1,4}[A-Za-z]{0,2})){0,4}(?![A-Za-z0-9])"
)
#: The word phase in other languages; `第1阶段` has the number before it.
PHASE = r"stufe|fase|faza|fas|faz|fáze|vaihe|tahap|aşama|giai đoạn|étape|etapa|etap|этап|фаза|阶段|階段|단계|フェーズ"
_WEEK = r"semana|semaine|settimana|woche|неделя"
_UNIT = re.compile(
    rf"(?:user )?({'|'.join(UNITS)})(?:(?<=week)s)?(?:[ \t]+#?|-(?=[0-9]))"
    rf"|(?:(?:{PHASE})[ \t]+|阶段|階段|段階|단계|フェーズ)#?|((?:{_WEEK})[ \t]+|[周週])|(步骤?)",
    re.IGNORECASE,
)
#: `第1阶段`, `第十二阶段`, `阶段一`, `1단계`, which count after or with numerals.
_CHINESE = re.compile(
    r"\A(\W*)(?:(?:第[ \t]*|(?=[0-9]{1,3}(?:단계|段階)))([0-9]{1,3}|[一二三四五六七八九十]{1,3})[ \t]*"
    r"([阶階]段|段階|단계|[周週步])"
    r"|([阶階]段|步骤)[ \t]*([一二三四五六七八九十]{1,3}))"
)
_NUMERALS = "零一二三四五六七八九"
COLON = "[:：]"
_SEPARATOR = re.compile(rf"[*_`]*[ \t]*(?:—|–|·|-+|{COLON}|\.(?![0-9])|\))[*_`]*[ \t]*")
#: `Phase A (this week): Title`.
_ASIDE = re.compile(rf"[ \t]*[(（][^()（）]{{1,40}}[)）][*_]*[ \t]*(?:{COLON}|[—–-][ \t])")
#: Several units at once: `Week 1–2: Title`.
_RANGE = re.compile(rf"([0-9]{{1,4}})[ \t]*[—–-][ \t]*([0-9]{{1,4}})(?=[*_`]*[ \t]*(?:\Z|[—–(-]|{COLON}))")
#: `M3-M7`, `M3–M7: Title`.
_LETTERED_RANGE = re.compile(
    rf"(([A-Za-z]{{1,2}})[0-9]{{1,3}})[—–-](\2[0-9]{{1,3}})(?=[*_`]*[ \t]*(?:\Z|[—–(-]|{COLON}))"
)
_LINK = r"(?s)\A\[(.+?)\]\(.*"
_MARKS = "*_`~ \t"


class Named(Struct, frozen=True):
    id: str
    title: str
    strong: bool  #: a separator or nothing follows the id; else a title follows after a blank only
    unit: str  #: the word before the id in lower case, one of UNITS; "" for none


UNNAMED = Named("", "", strong=False, unit="")


@lru_cache(maxsize=4096)  # a plan is read again at each phase, and half of the time goes into this
def read_name(text: str) -> Named | None:
    """The id and title a text begins with; None when it begins with no id."""
    text = _unwrap_text(re.sub(_LINK, r"\1", _unwrap_text(text.strip())))
    text = text if text.isascii() else _CHINESE.sub(_count_in_digits, text)
    begin = len(text) - len(text.lstrip("*_`~"))
    unit = _UNIT.match(text, begin)
    span = _RANGE.match(text, unit.end()) if unit else _LETTERED_RANGE.match(text, begin)
    match = span or _ID.match(text, unit.end() if unit else begin)
    if match is None:
        return None
    id_ = f"{span[1]}-{span[span.re.groups]}" if span else match[0]
    separator = _SEPARATOR.match(text, match.end())
    aside = unit and _ASIDE.match(text, match.end())
    strong = separator is not None or bool(aside) or not text[match.end() :].strip(_MARKS)
    if match[0].isalpha() and re.match(r"-\w", text[match.end() :]):
        return None  # "Task Re-labelling"
    if not strong and not (
        text[match.end()] in (" \t" if unit else " \t（") and any(c.isdigit() for c in match.group())
    ):
        return None
    end = separator.end() if separator else match.end()
    rest = text[end:].strip()
    if begin and text[:begin] not in text[begin:end]:
        rest = rest.replace(text[:begin], "", 1).strip()  # `**4a: Title** text`
    word = (unit[1] or (unit[2] and "week") or (unit[3] and "step") or "phase").lower() if unit else ""
    return Named(id_, rest if rest.strip(_MARKS) else "", strong=strong, unit=word)


def _count_in_digits(counted: re.Match[str]) -> str:
    number = counted[2] or counted[5]
    if not number.isdigit():
        tens, ten, ones = number.rpartition("十")
        number = str(10 * _NUMERALS.find(tens or (ten and "一") or "零") + _NUMERALS.find(ones or "零"))
    return f"{counted[1]}{counted[3] or counted[4]}{number}"


def _unwrap_text(text: str) -> str:
    """The text without emphasis around all of it; marks within it stay."""
    for mark in ("**", "__", "~~", "*", "_", "`") if text[:1] in _MARKS else ():
        inner = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and inner and mark not in inner:
            return _unwrap_text(inner.strip())
    return text


def id_key(id_: str) -> str:
    """The id without its case, for comparisons: some file systems ignore case in branch names."""
    return id_.casefold()


class NoWorkKind(StrEnum):
    ALL_DONE = "all-done"  #: every phase is done, and the plan is not marked as complete
    COMPLETE = "complete"
    PHASE_DONE = "phase-done"
    NEEDS = "needs"  #: the requested phase waits for others
    ELSEWHERE = "elsewhere"  #: others work on the phases that are left, or they wait for such phases
    BLOCKED = "blocked"
    INACTIVE = "inactive"
    UNREADABLE = "unreadable"


class Status(StrEnum):
    TODO = "todo"
    IN_PROGRESS = "in-progress"
    BLOCKED = "blocked"
    DONE = "done"


class ExecutionKind(StrEnum):
    WORKTREE = "worktree"  #: an agent; it lands as the run does
    DIRECT = "direct"  #: an agent; it lands by a push
    PLAN = "plan"  #: another plan, in a run of its own
    DELEGATE = "delegate"  #: a command, which lands by itself
    PLAN_FIRST = "plan-first"  #: agents, after the plan was revised for it and a person has approved that


class Mark(Struct, frozen=True):
    status: Status
    known: bool = True  #: False when the text is no known status and counts as todo
    reason: str = ""  #: why a person must act first, where the plan does not say it by a word
    note: str = ""  #: the plan's words beside blocked or in progress, or why an unknown status needs a person


_GLYPH = "✅|✔|☑|🟡|⏳|⚙|🚧|🔄|🔴|[⬚⬜☐🔲]|\\[[xX ]?\\]"
_GLYPHS = {
    **dict.fromkeys(("✅", "✔", "☑", "[x]"), Status.DONE),
    **dict.fromkeys(("🟡", "⏳", "⚙", "🚧", "🔄"), Status.IN_PROGRESS),
    "🔴": Status.BLOCKED,
}
#: Statuses in other languages.
_DONE_ELSEWHERE = (
    r"已?完成|完了|実装済み?|已实现|conclu[ií]d[oa]|complet(?:ad|at)[oa]|implementad[oa]|terminad[oa]|terminée?|erledigt|abgeschlossen"
    r"|faite?s?|entregad[oa]|entregue|выполнен[оа]?|заверш[её]н[оа]?|готово|완료"
)
_BEGUN_ELSEWHERE = (
    r"en progreso|en curso|em andamento|en cours|in arbeit|в работе|进行中|進行中|部分実装|実装中|진행 ?중"
)
_TODO_ELSEWHERE = (
    *("pendiente", "pendente", "por hacer", "planificado", "planejado", "à faire", "geplant", "offen", "не начато"),
    *("未开始", "待开始", "待办", "计划中", "計劃中", "規劃中", "未着手", "未実装", "未対応", "予定", "예정"),
)
_WORD = rf"(?i)\b(?:done|in[ _-]?progress|active|ongoing|wip|partial(?:ly)?|blocked|{_BEGUN_ELSEWHERE})\b"
_WORDS = {"done": Status.DONE, "blocked": Status.BLOCKED}
#: Words that mean done at the beginning of a text: "Merged in #12", but not "waits until #12 is merged".
_FINISHED = (
    rf"(?i)[\W_]*(?:fully )?(complete|completed|finished|implemented|shipped|merged|released|{_DONE_ELSEWHERE})\b"
    r"(?! parcial)"
)
#: Words of a person who wants no work on it now.
SET_ASIDE = (
    r"(?i)[\W_]*(?:deferred|postponed|on hold|cancell?ed|skipped|dropped|abandoned|archived|historical|obsolete"
    r"|superseded)\b"
)
#: A plan that is not ready to be worked, by the first word of its status: `Draft, for review`.
NOT_READY = r"(?i)[\W_]*(draft|propos(?:ed|al))\b"
#: Parts of a phase that was worked, and the titles of documents that tell of work instead of planning it.
TOLD = r"(?i)\W*(?:(?:key |main )?(?:results?|findings|conclusions?)|what (?:was|we) \w+|lessons)\b(?! to\b)"
REPORT = (
    r"(?i)\b(?:results?|report|findings|retrospective|post-?mortem|recap|summary)(?:\.md)?\W*\Z"
    r"|(?:보고서|报告|報告|レポート)\W*\Z"
)
#: One that tells how something is done.
GUIDE = r"(?i)\b(?<!implementation )guide\b|\btutorial\b|\bhow[- ]to\b|\brunbook\b|\bhandbook\b|指南|教程|手册"
#: One of checks by hand: `Launch Checklist`, `regression_checklist.md`.
HAND_CHECKS = (
    r"(?i)(?:acceptance|launch|publish|qa|regression|release|review|smoke|submission|test(?:ing)?|verification)"
    r"[ _-]checklist\b"
)
PLAN_WORD = r"(?i)plan|roadmap|to-?do|tasks"
#: Negates a "done" after it.
_NOT_YET = r"(?i)(?:\b(?:not|never|almost|nearly|mostly|half|partly|partially|to be)\b|n't\b|%)"
_TODO = frozenset(
    {"", "-", "–", "—", "0%", "not started", "not done", "not yet done", "incomplete", "not complete", "unfinished"}
    | {"ready", "todo", "to do", "pending", "planned", *_TODO_ELSEWHERE}
)
#: The text that is written for a status, and in the brackets of a heading. Only a person writes the other two.
WRITTEN = {Status.DONE: "✅ Done", Status.TODO: "⬚"}
WRITTEN_IN_BRACKETS = {Status.DONE: "COMPLETED", Status.TODO: "NOT STARTED"}


@lru_cache(maxsize=1024)
def read_mark(written: str, note: str = "") -> Mark:
    """The status in a cell or a status line, and the words beside it; the first glyph or word decides."""
    text = written.replace("_", " ")
    glyph = re.search(_GLYPH, text)
    word = re.search(_WORD, text)
    if word is not None and word[0].lower() != "blocked" and re.search(_NOT_YET, text[: word.start()]):
        word = None
    if glyph is not None and word is not None and word.start() < glyph.start():
        glyph = None  # `In progress (2a ✅)`
    if glyph is not None and (status := _GLYPHS.get(glyph.group().lower())) is not None:
        if status is Status.IN_PROGRESS and _strip_marks(re.sub(_GLYPH, "", text)) in _TODO - {""}:
            return Mark(Status.TODO)  # `⏳ Pending`
        return Mark(status, note=_read_note(written, note, status))
    if glyph is None and re.match(SET_ASIDE, text):
        return Mark(Status.BLOCKED, note=written.strip(" *_"))
    if glyph is None and (re.match(_FINISHED, text) or re.fullmatch(r"\W*100 ?%\W*", text)):
        return Mark(Status.DONE)
    if word is None or (glyph is not None and word.group().lower() != "blocked"):
        plain = _strip_marks(re.sub(r"\A[^\w\s–—-]+", "", text)) or _strip_marks(text)  # `📋 Pending`
        return Mark(Status.TODO, known=glyph is not None or plain in _TODO)
    return Mark(status := _WORDS.get(word[0].lower(), Status.IN_PROGRESS), note=_read_note(written, note, status))


def _read_note(written: str, note: str, status: Status) -> str:
    """The words of a person about a phase that is passed over: those of its status without the status itself."""
    words = re.sub(_WORD, "", re.sub(_GLYPH, "", written), count=1).strip(" \t\ufe0f*_.,:;()[]—–-")
    return "; ".join(filter(None, (words, note.strip()))) if status in (Status.BLOCKED, Status.IN_PROGRESS) else ""


class PhaseSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the lines of a phase set for it alone; "" where the settings hold."""

    agent: str = ""  #: that implements it
    verifier: str = ""
    model: str = ""  #: of the implementer
    effort: str = ""  #: likewise
    tests: str = ""  #: the command of its gate, unless the plan ends with it


class PlanStatus(StrEnum):
    ACTIVE = "active"  #: the only one that is worked
    COMPLETE = "complete"
    PROPOSED = "proposed"
    DRAFT = "draft"
    DEFERRED = "deferred"
    ABANDONED = "abandoned"


PUT_OFF = (PlanStatus.PROPOSED, PlanStatus.DRAFT, PlanStatus.DEFERRED, PlanStatus.ABANDONED)  #: not to be worked


def read_plan_status(text: str) -> PlanStatus | None:
    """The status that a front matter names, active when it names none; None for an unknown one, or for more words."""
    word = "proposed" if _strip_marks(text) == "proposal" else _strip_marks(text)
    mark = read_mark(word)
    words = {Status.TODO: PlanStatus.ACTIVE, Status.IN_PROGRESS: PlanStatus.ACTIVE, Status.DONE: PlanStatus.COMPLETE}
    read = words.get(mark.status) if mark.known and not mark.note else None
    return next((status for status in PlanStatus if status == word), read)


def _strip_marks(text: str) -> str:
    return text.strip(" \t\r*_`.[]░").lower()


def read_commit(text: str) -> str:
    """The last commit hash in a text; "" for none."""
    hashes = re.findall(r"`([0-9a-f]{7,40})`|(?<![\w`])(?=[a-f]*[0-9])([0-9a-f]{7,40})(?![\w`])", text)
    return hashes[-1][0] or hashes[-1][1] if hashes else ""


#: A status line up to its value.
STATUS_LINE = re.compile(
    rf"[ \t]*(?:[-*>+][ \t]+)?(\*\*)?(?:Status|Statut|Estado|Stato|Статус|状态|狀態|状態|ステータス|상태)[ \t]*"
    rf"(?:\*\*{COLON}|{COLON}\*\*|{COLON})[ \t]*",
    re.IGNORECASE,
)
#: A status at the end or the beginning of a heading: `## Phase 2: Parser [IN PROGRESS]`, `… (blocked)`, `… — BLOCKED`.
_OPEN = (
    r"blocked|in[ _-]?progress|active|wip|partial|not[ _-]started|pending|planned|to[ -]?do|deferred|skipped|on hold"
    rf"|dropped|{_BEGUN_ELSEWHERE}|{'|'.join(_TODO_ELSEWHERE)}"
)
BOX_WORD = rf"(?i:{_OPEN}|completed?|done)"  #: the same in the place of a box: `- [WIP] text`
_MORE = r"(?:[ \t]*[:,—–-][^\[\]]{1,40}|[ \t]+[0-9][^\[\]]{0,40})?"
_BRACKETS = rf"\[([^\w\[\]]*(?i:{_OPEN}|completed?|done){_MORE}[^\w\[\]]*)\]"
BRACKETS = (
    rf"(?<=[ \t])[*`_]*(?:{_BRACKETS}|\(((?i:{_OPEN}))\)"
    r"|(?:—|–|-)[ \t]+(BLOCKED|IN PROGRESS|NOT STARTED|PARTIAL|COMPLETED))[*`_ \t#]*\Z"
    rf"|(?<=[#][ \t]){_BRACKETS}(?=[ \t])"
    r"|(?<=[—–:-])[ \t]+(BLOCKED)(?=:)"
)
#: A sign at the end or the beginning of a heading: `## Phase 2: Parser 🚧 IN PROGRESS`, `## ⬜ Phase 3: Writer`.
SIGN = (
    rf"(?<=[ \t])([🚧🔄🟡⏳⬜⬚☐🔲]\ufe0f?(?:[ \t]+\**(?i:{_OPEN})\**)?(?=[*_ \t#]*\Z)"
    r"|(?<=#[ \t])[🚧⬜⬚☐🔲](?=\ufe0f?[ \t]))"
)
BEGUN_SIGN = "[🟡🔄🚧]"
OPEN_SIGN = r"(?:\A|\s)[⬜⬚☐🔲](?:\ufe0f?\s|\Z)"
#: A word there that is no known status, and no priority or part of the work.
UNKNOWN_BRACKETS = (
    r"(?<=[ \t])\[(?!(?:CRITICAL|HIGH|MEDIUM|LOW|OPTIONAL|MVP|NEW)\])([^\W\da-z_]+(?: [^\W\da-z_]+)?)\][*`_ \t#]*\Z"
)
#: Headings above what is no work.
NOT_WORK = (
    r"(?i)accept|crit[eéè]r|критери|验收|verif(?!\w* gaps)|definition of \W?done|question|risk"
    r"|(?<!term )(?<!stretch )goals|prerequisite|dependenc|checklist|review|test plan"
    r"|\bm[eé]tri\w{1,4}(?: d\w+ .*)?\W*\Z|\bkpis?\b|\blegend\b|\bout of scope\b"
)
MANUAL = r"(?i)manual (?:verif|test)"  #: the part of a phase that a person verifies
#: A value that runplan does not know, and that may mean done: "First version implemented".
MAY_BE_DONE = rf"(?i)\b(?:done|finished|implemented|shipped|merged|{_DONE_ELSEWHERE})\b(?! parcial)"
NEXT_FIELD = re.compile(rf"\*\*[A-Za-z ]{{1,30}}(?:{COLON}\*\*|\*\*{COLON})")  #: another field after the value
#: A heading that says done: `## Phase 1 — Parser ✅`, `… (done in 4a6075d)`, `… — Done`, `… (COMPLETED - Feb 2026)`,
#: `## M1: DONE — Title`; not `… (complete rewrite)`, `## M1: COMPLETE the parser`.
DONE_WORDS = rf"(?:done|completed?|finished|implemented|shipped|merged|released|{_DONE_ELSEWHERE})"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DONE_WORD = (
    rf"(?:[(（\[]|[—–-][ \t]+){DONE_WORDS}(?:[ \t,:]+(?:(?:in|on|at|by)[ \t]+)?"
    rf"(?:[`#v]?[0-9a-f][\w.:#-]{{0,40}}`?|(?:PR|commit|release|sprint|{_MONTH})[ \t][\w #.,]{{1,20}}))?"
    r"[)）\]]?[*_ \t]*\Z"
    rf"|[(\[]{DONE_WORDS}(?:[ \t]*[,:;—–-]|[ \t]+(?:in this|as|with|via)\b)[^()\[\]]{{1,60}}[)\]][ \t]*\Z"
    rf"|[:：—–][ \t]+(?:(?-i:(?:DONE|COMPLETED?)\b(?![ \t]+[A-Z]{{2}}))|\*\*{DONE_WORDS}\*\*)"
    r"(?-i:(?![ \t]+(?!(?:in|on|at|by|with|since|via)\b)[a-z]))"
)
#: A mark beside another word says something else: `Rebuild issue ✅ CONFIRMED`.
DONE_TITLE = (
    r"(?i)[✅✔☑](?![ \t*_(\[]*(?:confirmed|approved|accepted|agreed|decided|planned|ready)\b)"
    rf"|\[[xX]\]|{_DONE_WORD}"
)
#: A sign there without a word, which may adorn: `## ✅ Milestone 4: Feedback`.
LONE_SIGN = rf"(?i)[✅✔☑](?!.*\b{DONE_WORDS}\b)"
#: The text of a box that says done: `- [ ] **Parser** ✅ DONE (2026-02-27)`.
DONE_BOX = rf"(?i)[✅✔☑]\ufe0f?[ \t*_(]*(?:\Z|{DONE_WORDS}\b)|{_DONE_WORD}"
#: A heading above sections that may be done, and one above a list of what is done.
DONE_ABOVE = rf"{DONE_TITLE}|\A\W*(?:completed|done|finished|shipped|{_DONE_ELSEWHERE})\b"
DONE_LABEL = rf"(?i)[\W_]*{DONE_WORDS}(?: (?:phases|work|items|tasks|steps))?[\W_]*"
#: The beginning of one with more words: `**Completed in this repository:**`, not `**Done when:**`.
DONE_START = rf"(?i)[\W_]*{DONE_WORDS}\b(?! (?:when|if|means|by|criteria)\b)"
#: A sentence about phases: "Phases 1–3 are complete".
CLAIM = (
    r"(?i:\bUNITs?[ \t]+([0-9]{1,3})(?:[ \t]*(?:[—–-]|to|through)[ \t]*([0-9]{1,3}))?[ \t*]+(?:is |are )?"
    rf"{DONE_WORDS}\b)"
)
#: What follows such a word may take it back: `… (done, except the docs)`.
RESERVED = (
    r"(?i)\b(?:not|except|but|partly|partial(?:ly)?|mostly|pending|remain\w*|needs?|without|wip|to ?do)\b|[0-9] ?%"
)
