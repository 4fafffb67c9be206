"""Starts a command in a view without a network, with a loopback port that leads to the proxy of its dispatch.

Any Python since 3.6 runs this file, also one in an image. Arguments: the proxy's socket, the hosts that it allows with
commas between them, and the command.
"""

import contextlib
import os
import signal
import socket
import sys
import threading

CHUNK = 65536
LOCAL = ("localhost", "127.0.0.1", "::1")  #: reached without the proxy, unless the settings name them


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Send on what comes, to its end."""
    try:
        while True:
            chunk = source.recv(CHUNK)
            if not chunk:
                break
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def join(first: socket.socket, second: socket.socket) -> None:
    """Connect two sockets until both have ended."""
    with first, second:
        other = threading.Thread(target=pump, args=(second, first), daemon=True)
        other.start()
        pump(first, second)
        other.join()


def forward(client: socket.socket, path: str) -> None:
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(path)
    except OSError:
        client.close()
        return
    join(client, server)


def serve(listener: socket.socket, path: str) -> None:
    """Forward connections until the view ends."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the command may have last words to send
    os.chdir("/")
    os.closerange(0, listener.fileno())
    os.closerange(listener.fileno() + 1, 256)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=forward, args=(client, path), daemon=True).start()


def main(path: str, hosts: str, *command: str) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    first = os.fork()
    if first == 0:
        if os.fork() == 0:  # no child of the command, which may wait for all of its own
            serve(listener, path)
        os._exit(0)
    os.waitpid(first, 0)
    proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
    named = [host.partition(":")[0] for host in hosts.split(",")]
    direct = ",".join(name for name in LOCAL if name not in named)
    variables = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": direct}
    for name, value in variables.items():
        os.environ[name] = os.environ[name.lower()] = value
    os.environ["NODE_USE_ENV_PROXY"] = "1"
    os.execvp(command[0], command)  # noqa: S606 - there is no shell


if __name__ == "__main__":
    main(*sys.argv[1:])
