"""A web server on this machine that gets notifications."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def served(*statuses: int, wait: threading.Event | None = None) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A web server that answers what it is sent with these statuses, the last one again; and what that was.

    Asked for a page, it repeats the question.
    """
    got: list[tuple[str, Any]] = []
    answers = [*statuses] or [204]

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((f"{self.headers['Content-Type']} {self.path}", json.loads(body)))
            if wait is not None:
                wait.wait(10)
            self.send_response(answers.pop(0) if len(answers) > 1 else answers[0])
            self.end_headers()

        def do_GET(self) -> None:
            asked = f"{self.path} for {self.headers['Host']}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(asked)))
            self.end_headers()
            self.wfile.write(asked)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
