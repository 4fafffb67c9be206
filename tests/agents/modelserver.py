"""A scripted model on loopback: four providers' interfaces, as strict as theirs, over one scenario."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.agents.dialects.anthropic import Anthropic
from tests.agents.dialects.chat import Chat
from tests.agents.dialects.gemini import Gemini
from tests.agents.dialects.responses import Responses
from tests.agents.dialects.wire import Dialect, Malformed, Reply
from tests.agents.scenario import KEY, Answer, Asked, FaultKind, Say, Scenario, answer, filled_form, prose

DIALECTS: tuple[Dialect, ...] = (Anthropic(), Responses(), Chat(), Gemini())
LARGEST = 32 * 1024 * 1024

#: A request of a program for its own ends, known by the words of its instructions.
TITLE = "title generator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request as it came, and what became of it."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int = 0  #: 0: no answer was begun
    part: str = ""  #: of the scenario; "" for a request that belongs to none
    turn: int = 0
    fault: str = ""
    tools: tuple[str, ...] = ()  #: the names that were offered
    results: tuple[str, ...] = ()  #: what the tools had said


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A response and how it is sent."""

    seen: Seen
    reply: Reply
    hang: bool = False
    stall: bool = False


class ModelServer:
    """Serves one scenario on a free port of loopback; a context manager."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.seen: list[Seen] = []
        self._known: dict[str, dict[str, Any]] = {}
        self._calls = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.model = self
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Without the version that some providers' addresses end with."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def results(self) -> tuple[str, ...]:
        """Everything that tools said to the model, over all requests."""
        return tuple(dict.fromkeys(text for each in self.seen for text in each.results))

    def faulted(self) -> int:
        return sum(bool(each.fault) for each in self.seen)

    def wait_over(self) -> None:
        """Handle a request that is never answered."""
        self._over.wait()

    def plan(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> _Plan:
        """The whole judgement on one request, recorded."""
        parts = urlsplit(target)
        seen = Seen(at=time.monotonic(), method=method, path=parts.path, headers=headers, body=body)
        with self._lock:
            made = self._judge(seen, dict(parse_qsl(parts.query)))
            made = replace(made, seen=replace(made.seen, status=0 if made.hang else made.reply.status))
            self.seen.append(made.seen)
        return made

    def _judge(self, seen: Seen, query: Mapping[str, str]) -> _Plan:
        dialect = next((each for each in DIALECTS if each.serves(seen.method, seen.path, seen.headers)), None)
        if dialect is None:
            return _Plan(seen=seen, reply=Reply(status=404, body=b'{"error":{"message":"no such path"}}'))
        if dialect.key(seen.headers, query) != KEY:
            return _Plan(seen=seen, reply=dialect.refused(401, "the key is missing or wrong"))
        try:
            body = _decoded(seen)
            plain = dialect.plain(seen.method, seen.path, body)
            asked = None if plain else dialect.asked(seen.path, body, seen.headers)
        except Malformed as error:
            return _Plan(seen=seen, reply=dialect.refused(400, str(error)))
        if asked is None:
            return _Plan(seen=seen, reply=plain or Reply())
        return self._turn(seen, dialect, asked)

    def _turn(self, seen: Seen, dialect: Dialect, asked: Asked) -> _Plan:
        self._known.update(asked.tools)
        part, turn = asked.place(self.scenario.parts)
        side = not part or asked.form is not None or any(TITLE in each.text for each in asked.heard)
        seen = replace(seen, part="" if side else part, turn=turn, tools=tuple(asked.tools), results=asked.results)
        if side:
            words = json.dumps(filled_form(asked.form)) if asked.form else "A scripted answer"
            return _Plan(seen=seen, reply=dialect.reply(seen.path, asked, Answer(text=words)))
        kind = next((fault.kind for fault in self.scenario.faults if fault.turn in (None, turn)), None)
        seen = replace(seen, fault=kind or "")
        if kind in (FaultKind.LIMIT, FaultKind.OVERLOAD, FaultKind.AUTH):
            return _Plan(seen=seen, reply=dialect.fault(kind, self.scenario.resets_in, time.time()))
        made = self._answer(part, turn, asked)
        sent, answered = self.scenario.tokens
        tokens = (sent // 10 if part == self.scenario.small else sent, answered)
        reply = dialect.reply(seen.path, asked, replace(made, tokens=tokens))
        stall = kind is FaultKind.STALL
        # An answer in one piece falls silent before it has begun.
        hang = kind is FaultKind.HANG or (stall and not reply.events)
        return _Plan(seen=seen, reply=reply, hang=hang, stall=stall)

    def _answer(self, part: str, turn: int, asked: Asked) -> Answer:
        turns = self.scenario.parts[part]
        if not asked.tools:
            return prose(turns, asked)
        self._calls += 1
        due = turns[turn] if turn < len(turns) else Say("There is nothing left to do.")
        return answer(due, asked, self._known, id=f"{self._calls:06d}")


def _decoded(seen: Seen) -> dict[str, Any]:
    if seen.method == "GET":
        return {}
    try:
        body = json.loads(seen.body)
    except ValueError as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Malformed("the body is not an object")
    return body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    model: ModelServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "scripted"
    timeout = 600

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """The record is what tests read."""

    def _serve(self) -> None:
        assert isinstance(self.server, _Server)
        model = self.server.model
        body = self._body()
        if body is None:
            self.close_connection = True
            self._document(Reply(status=413, body=b'{"error":{"message":"too large or without a length"}}'))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        made = model.plan(self.command, self.path, headers, body)
        try:
            if made.hang:
                model.wait_over()
                self.close_connection = True
            elif made.reply.events:
                self._stream(made.reply, stall=made.stall)
            else:
                self._document(made.reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return self._chunks()
        size = int(self.headers.get("content-length") or 0)
        return self.rfile.read(size) if size <= LARGEST else None

    def _chunks(self) -> bytes | None:
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
            if len(body) > LARGEST:
                return None
        while self.rfile.readline().strip():
            pass
        return body

    def _document(self, reply: Reply) -> None:
        self._head(reply, "application/json", "content-length", str(len(reply.body)))
        self.wfile.write(reply.body)

    def _stream(self, reply: Reply, *, stall: bool) -> None:
        assert isinstance(self.server, _Server)
        self._head(reply, "text/event-stream", "transfer-encoding", "chunked")
        sent = reply.events[: max(1, len(reply.events) // 2)] if stall else reply.events
        for each in sent:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(each), each))
            self.wfile.flush()
        if stall:
            self.server.model.wait_over()
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _head(self, reply: Reply, kind: str, size: str, value: str) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", kind)
        for name, header_value in {**reply.headers, "request-id": f"req_{id(reply):x}", size: value}.items():
            self.send_header(name, header_value)
        self.end_headers()
