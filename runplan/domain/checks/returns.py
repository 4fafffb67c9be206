"""Reads what an agent hands back: its structured return and the blockers in its message."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta, Struct, ValidationError
from msgspec.structs import astuple, replace

from runplan.domain.decoding import convert
from runplan.domain.run import dispatch
from runplan.domain.text import bounded

T = TypeVar("T", bound=Struct)
_FENCE = r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*?)[ \t]*$"
_BLOCKER = "BLOCKER:"
#: The content of the return file before the agent starts. If it is still there at the end, the agent was interrupted.
IN_PROGRESS = '{"status": "in_progress"}\n'
NAME = 80  #: characters of a name that are shown
MOST_EVIDENCE = 50  #: references of an item that are read
LONGEST_EVIDENCE = 4_000  #: characters of a reference
MOST_REMARKS = 10  #: of each kind that are read
LONGEST_REMARK = 300  #: characters of one
MOST_FINDINGS = 20  #: of a trial that are read
LONGEST_FINDING = 1_000  #: characters of one
MOST_FILES = 20  #: of a trial that are kept
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=2**53)] | None


class Unusable(Struct, frozen=True, kw_only=True):
    why: str


ReadReturn: TypeAlias = dispatch.Return | Unusable


class _Reference(Struct):
    kind: str | None = None
    ref: str | None = None
    line: int | str | None = None
    gone: bool | None = None
    absent: bool | None = None
    unchanged: bool | None = None


class _Item(Struct):
    item: Annotated[str, Meta(min_length=1)]
    result: dispatch.ItemAnswer
    evidence: str | _Reference | tuple[str | _Reference, ...] | None = None
    demanded_by: str | None = None


class _Usage(Struct):
    input_tokens: _Count = None
    output_tokens: _Count = None
    usd: Annotated[float, Meta(ge=0, lt=1e12)] | None = None


class TrialReport(Struct, frozen=True, kw_only=True):
    summary: str
    findings: tuple[str, ...]
    files: tuple[dispatch.Artifact, ...]


class _Trial(Struct):
    status: dispatch.ReturnStatus
    findings: tuple[str, ...]
    summary: str | None = None
    artifacts: Any = None


class _Return(Struct):
    """The JSON of a return (docs/agents.md); null is the same as absent."""

    status: dispatch.ReturnStatus
    summary: str | None = None
    items: tuple[_Item, ...] | None = None
    usage: _Usage | None = None
    artifacts: Any = None  #: what has another shape in these is left out: it decides nothing
    next_steps: Any = None
    errors: Any = None
    memory: Any = None


def parse_return(file_text: str | None, message: str) -> ReadReturn:
    parsed = decode_return(file_text, message, _Return)
    if isinstance(parsed, Unusable):
        return parsed
    items = []
    for item in parsed.items or ():
        references = []
        listed = item.evidence if isinstance(item.evidence, tuple) else (item.evidence,)
        for stated in (stated for stated in listed[:MOST_EVIDENCE] if stated):
            cited = _Reference(ref=stated) if isinstance(stated, str) else stated
            kinds = (kind for kind in dispatch.ReferenceKind if kind == (cited.kind or "").casefold())
            reference = dispatch.Reference(
                kind=next(kinds, dispatch.ReferenceKind.TEXT),
                ref=clean_text(f"{cited.ref or ''}{f':{cited.line}' if cited.line else ''}")[:LONGEST_EVIDENCE],
                gone=bool(cited.gone),
                absent=bool(cited.absent),
                unchanged=bool(cited.unchanged),
            )
            references.append(reference)
        result = dispatch.ItemResult(item=clean_text(item.item), answer=item.result, evidence=tuple(references))
        items.append(replace(result, demanded_by=clean_text(item.demanded_by)))
    used = parsed.usage or _Usage()
    usage = dispatch.Usage(input_tokens=used.input_tokens or 0, output_tokens=used.output_tokens or 0)
    steps, errors, memory = map(_read_lines, (parsed.next_steps, parsed.errors, parsed.memory))
    remarks = dispatch.Remarks(next_steps=steps, errors=errors, memory=memory)
    remarks = replace(remarks, artifacts=tuple(_read_artifacts(parsed.artifacts)))
    answer = dispatch.Return(status=parsed.status, summary=clean_text(parsed.summary), items=tuple(items))
    return replace(answer, usage=replace(usage, usd=used.usd or 0.0), remarks=remarks)


def parse_trial(file_text: str | None, message: str) -> TrialReport | Unusable:
    """The findings of a trial. They decide, so an answer without a list of them is none."""
    parsed = decode_return(file_text, message, _Trial)
    if isinstance(parsed, Unusable):
        return parsed
    summary = bounded(" ".join(clean_text(parsed.summary).split()), LONGEST_FINDING)
    stated = [text for text in map(clean_text, parsed.findings) if text]
    findings = tuple(bounded(" ".join(text.split()), LONGEST_FINDING) for text in stated[:MOST_FINDINGS])
    if parsed.status is not dispatch.ReturnStatus.DONE and not findings:
        return Unusable(why=f"it says {parsed.status.value}, and names no finding: {summary or 'no summary given'}")
    return TrialReport(summary=summary, findings=findings, files=tuple(_read_artifacts(parsed.artifacts, MOST_FILES)))


def find_image_type(content: bytes) -> str:
    """The media type of an image that browsers show, by its first bytes; "" for anything else."""
    is_webp = content[:4] == b"RIFF" and content[8:12] == b"WEBP"
    known = (media for start, media in _IMAGES.items() if content.startswith(start))
    return "image/webp" if is_webp else next(known, "")


def _read_lines(values: object) -> tuple[str, ...]:
    listed = values if isinstance(values, list) else [values]
    lines = (" ".join(clean_text(value).split()) for value in listed if isinstance(value, str))
    return tuple(bounded(line, LONGEST_REMARK) for line in lines if line)[:MOST_REMARKS]


def _read_artifacts(values: object, most: int = MOST_REMARKS) -> Iterator[dispatch.Artifact]:
    for value in values[:most] if isinstance(values, list) else ():
        fields = value if isinstance(value, dict) else {"path": value}
        path, kind, summary = (next(iter(_read_lines(fields.get(name))), "") for name in ("path", "kind", "summary"))
        if path:
            yield dispatch.Artifact(path=path, kind=kind, summary=summary)


def decode_return(file_text: str | None, message: str, shape: type[T]) -> T | Unusable:
    """The JSON of a return in this shape; that of the file, else of the block that ends the message."""
    # An invalid file counts, too: an example that the agent printed earlier could replace a half-written verdict.
    if file_text is not None and file_text.strip() and file_text != IN_PROGRESS:
        return _decode_text(file_text, "the return file", shape)
    lines = re.split(r"\r?\n", message.rstrip())  # a text in JSON may contain other line ends, as U+2028
    start = 0
    while True:  # the block that ends the message, and is in no other one; it need not be closed
        opening = re.match(_FENCE, lines[start])
        end = _closing_line(lines, start, opening[1]) if opening else start
        if end >= len(lines) - 1:
            break
        start = end + 1
    if opening is None or opening[2].casefold() != "json":
        return Unusable(why="no return: there is no return file, and the message does not end with a fenced json block")
    fences = [number for number, line in enumerate(lines) if re.match(_FENCE, line)]
    texts = {first: "\n".join(lines[first + 1 : last]) for first, last in pairwise((*fences, len(lines)))}
    answer = _decode_text(texts.pop(start), "the last json block of the message", shape)
    others = (_decode_text(text, "", shape) for text in texts.values())  # also those that a block quotes
    if any(not isinstance(other, Unusable) and any(astuple(other)) and other != answer for other in others):
        return Unusable(why="the message has two json blocks that differ, and one may be a quotation")
    return answer


def find_blockers(message: str) -> tuple[str, ...]:
    lines = (line.strip() for line in message.splitlines() if line.startswith(_BLOCKER))
    return tuple(clean_text(line.removeprefix(_BLOCKER)) or "no reason given" for line in lines)


def split_markdown_block(message: str) -> tuple[str, str]:
    lines = message.splitlines()
    last = range(0)
    start = 0
    while start < len(lines):
        opening = re.match(_FENCE, lines[start])
        if opening is not None and opening[2].casefold() in ("markdown", "md"):
            last = range(start, _closing_line(lines, start, opening[1]))
            start = last.stop
        start += 1
    if not last:
        return "", message
    return "\n".join(lines[last.start + 1 : last.stop]), "\n".join(lines[: last.start] + lines[last.stop + 1 :])


def _closing_line(lines: list[str], start: int, fence: str) -> int:
    fences = [fence]
    for number in range(start + 1, len(lines)):
        mark = re.match(_FENCE, lines[number])
        if mark is None or not mark[1].startswith(fences[-1]):
            continue
        if mark[2]:
            fences.append(mark[1])
        else:
            fences.pop()
        if not fences:
            return number
    return len(lines)


def _decode_text(text: str, where: str, shape: type[T]) -> T | Unusable:
    try:
        return convert(json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_refuse_duplicates), shape)
    except RecursionError:
        return Unusable(why=f"{where} is nested too deeply")
    except ValidationError as error:
        return Unusable(why=f"{where}: {clean_text(str(error))}")
    except (ValueError, OverflowError) as error:
        return Unusable(why=f"{where} is not JSON in UTF-8: {error}")


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            raise ValidationError(f"{name[:NAME]!r} is given twice in one object")
        fields[name] = value
    return fields


def clean_text(text: str | None) -> str:
    """The text without half surrogate pairs and NUL, which JSON can contain and no file and no terminal takes."""
    return (text or "").replace("\0", "").strip().encode("utf-8", "replace").decode("utf-8")
