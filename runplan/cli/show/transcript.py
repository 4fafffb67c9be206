"""The transcript of an agent in readable form: its messages, its tool calls, and what stood in its way."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from runplan.errors import NotFound
from runplan.run.usage import Finished, Message, Retrying, Started, ToolUsed, Trouble
from runplan.settings.load import kinds
from runplan.supervise.files import DispatchFiles, directory_name
from runplan.supervise.output import MISREAD, reader_of
from runplan.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.run.rows import RunRow
    from runplan.run.usage import AgentEvent
    from runplan.store.sqlite import Store

FOLLOW_S = 0.5  #: how often a followed log is read again


def show(store: Store, run: RunRow, dispatches: Path, *, follow: bool) -> None:
    """Print the transcript of the newest agent of the run; followed, also of those that come after it."""
    shown: list[str] = []
    while True:
        row = store.newest(run.plan)
        goes_on = follow and row is not None and row.id == run.id and row.state == "running"
        started = [one for one in _agents(store, run.id) if one["id"] not in shown]
        if not started and not shown:
            raise NotFound(f"no agent has worked on {run.plan} in the run {run.id} yet")
        for one in started if shown else started[-1:]:
            shown = [*shown, *(str(other["id"]) for other in started)]
            print(f"== {one['role']} by {one['agent']}, phase {one['phase']}", flush=True)
            _print(DispatchFiles(dispatches / directory_name(str(one["id"]))), follow=follow)
        if not goes_on:
            return
        time.sleep(FOLLOW_S)


def _agents(store: Store, run: str) -> list[dict[str, object]]:
    """The dispatches of agents, oldest first; those of checks have no agent."""
    facts = (json.loads(row.body) for row in store.events(run) if row.type == "DispatchStarted")
    return [fact for fact in facts if fact["agent"]]


def _print(files: DispatchFiles, *, follow: bool) -> None:
    """Print what the log holds; followed, until the dispatch has ended."""
    reader, rest, read = files.reader(), b"", 0
    while True:
        runs = follow and files.locked()
        content = files.out.read_bytes()[read:] if files.out.exists() else b""
        read += len(content)
        *lines, rest = (rest + content).split(b"\n")
        for line in lines if runs else [*lines, rest]:
            for text in _texts(line, reader):
                print(plain(text), flush=follow)
        if not runs:
            return
        time.sleep(FOLLOW_S)


def _texts(line: bytes, reader: str) -> Iterator[str]:
    """What a person reads of one line of output."""
    if not line.strip():
        return
    if reader not in kinds():
        yield line.decode("utf-8", "replace")
        return
    try:
        events = reader_of(reader)(line)
    except MISREAD:  # of a form that this version does not know
        return
    texts = [text for event in events if (text := _text(event))]
    if not texts and not line.startswith(b"{"):  # a CLI that prints plain text
        texts = [line.decode("utf-8", "replace")]
    yield from texts


def _text(event: AgentEvent) -> str:
    match event:
        case Started(model=model, version=version) if model or version:
            return f"-- {' '.join(part for part in (model, version) if part)}"
        case Message(text=text, final=False):
            return text.rstrip("\n")
        case ToolUsed(tool=tool, path=path, denied=denied):
            return f"> {tool} {path}".rstrip() + (" (denied)" if denied else "")
        case Trouble(kind=kind, words=words):
            return f"! {kind.value}: {words}"
        case Retrying(words=words):
            return f"! waiting for the provider: {words}"
        case Finished(ok=ok, words=words):
            return f"-- {'finished' if ok else 'failed'}{f': {words}' if words else ''}"
        case _:
            return ""
