"""The output of an agent as lines for people."""

from collections.abc import Iterator
from datetime import UTC, datetime

from runplan.adapters.agents.adapter import Agent
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.configuration.load import list_agent_kinds
from runplan.adapters.store.outputs import Outputs
from runplan.adapters.supervise.output import MISREAD, ShimRecord, decode_record
from runplan.domain.run import dispatch as u, events as e
from runplan.domain.run.reasons import describe_ending
from runplan.domain.text import clock, elapsed, plain
from runplan.engine.steps.gates import own_logs

OUTPUT_LINES = 3  #: of a command, the last ones
TAIL_BYTES = 100_000  #: of the output of a process, for a page


class Transcript:
    """The output of one agent, for people: messages joined to whole lines, tools with their files and commands."""

    def __init__(self, outputs: Outputs, started: e.DispatchStarted, *, most_bytes: int = 0) -> None:
        self.ended: e.DispatchEnded | None = None  #: None while the agent runs
        self._outputs = outputs
        self._id = started.id
        self.lane = f"[{started.lane}] " if started.lane else ""
        self._name = f"{'final verification' if started.scope else started.role} by {started.agent}"
        about = "all phases, " if started.scope else f"phase {started.phase}, " if started.phase else ""
        since = clock(datetime.fromisoformat(started.at), None, now=datetime.now(UTC))
        self._head = f"== {self._name}, {about}since {since}"
        self._agent: Agent | None = None
        self._read = 0  #: bytes of the log
        self._rest = b""  #: of an incomplete line
        self._message = ""  #: the end of the message, until its line is complete
        self._is_prompt = False
        output, end = outputs.read(self._id, "out.log", -most_bytes - 1) if most_bytes else (b"", 0)
        if len(output) > most_bytes:
            self._read = end - len(output.partition(b"\n")[2])
            self._head = ""

    def read_new(self, *, is_last: bool) -> Iterator[str]:
        """The lines since the last time; all of them when the agent has ended."""
        head, self._head = self._head, ""
        yield from self._lines_of(head)
        output, end = self._outputs.read(self._id, "out.log", self._read)
        if self._agent is None and output:
            reader = (decode_record(self._outputs.read(self._id, "shim.json")[0], ShimRecord) or ShimRecord()).reader
            self._agent = agent_of(reader) if reader in list_agent_kinds() else None
            self._is_prompt = not self._read and self._agent is not None and bool(self._agent.prompt_ends)
        self._read = end
        *lines, self._rest = (self._rest + output).split(b"\n")
        is_over = is_last or self.ended is not None
        for line in [*lines, self._rest] if is_over else lines:
            if line.strip():
                yield from self._read_line(line)
        if is_over:
            yield from self._end_message()
        if self.ended is not None:
            how = "" if self.ended.succeeded else f": {describe_ending(self.ended)}"
            yield from self._lines_of(f"== {self._name} ended after {elapsed(self.ended.seconds)}{how}")

    def _read_line(self, line: bytes) -> Iterator[str]:
        if self._agent is not None and self._is_prompt:
            self._is_prompt = not line.startswith(self._agent.prompt_ends)
        if self._is_prompt:
            return
        try:
            events = self._agent.read_line(line) if self._agent is not None else ()
        except MISREAD:  # of an unknown form
            events = (u.Unread(),)
        for event in events:
            if isinstance(event, u.Message) and not event.final:
                *lines, self._message = (self._message + event.text).split("\n")
                for text in lines:
                    yield from self._lines_of(text)
            elif (text := _describe_output(event)) or isinstance(event, u.Message):
                yield from self._end_message()
                for shown in text.split("\n"):
                    yield from self._lines_of(shown)
        is_text = all(isinstance(event, (u.Context, u.Unread)) for event in events)
        if is_text and not line.startswith(b"{"):
            yield from self._lines_of(line.decode("utf-8", "replace"))

    def _end_message(self) -> Iterator[str]:
        message, self._message = self._message, ""
        yield from self._lines_of(message)

    def _lines_of(self, text: str) -> Iterator[str]:
        if text.strip():
            yield plain(f"{self.lane}{text}".rstrip())


def read_process(outputs: Outputs, started: e.DispatchStarted, *, most_bytes: int = TAIL_BYTES) -> list[str]:
    """The last lines of a process: of an agent for people, from the first whole one on; of checks as printed."""
    if started.agent:
        return list(Transcript(outputs, started, most_bytes=most_bytes).read_new(is_last=True))
    lines = []
    for file in own_logs(started.gates).values() or ("out.log",):
        output, _ = outputs.read(started.id, file, -most_bytes)
        lines += [f"== {file}", *plain(output.decode("utf-8", "replace")).splitlines()]
    return lines


def _describe_output(event: u.AgentEvent) -> str:
    match event:
        case u.Started(model=model, version=version) if model or version:
            return f"-- {' '.join(part for part in (model, version) if part)}"
        case u.ToolUsed(tool=tool, path=path, detail=detail, denied=denied):
            use = " ".join(f"{tool} {detail} {path}".split())
            return f"> {use}{' (denied)' if denied else ''}"
        case u.ToolEnded(output=output, ending=ending):
            last = [line for line in output.splitlines() if line.strip()][-OUTPUT_LINES:]
            return "\n".join(f"    {line}" for line in (*last, *filter(None, [ending])))
        case u.Trouble(kind=kind, words=event_words):
            return f"! {kind.value}: {event_words}"
        case u.Retrying(words=event_words):
            return f"! waiting for the provider: {event_words}"
        case u.Finished(ok=ok, words=event_words, so_far=False):
            return f"-- {'finished' if ok else 'failed'}{f': {event_words}' if event_words else ''}"
        case _:
            return ""
