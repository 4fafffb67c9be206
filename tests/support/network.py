"""A network of separate hosts on one machine, and a proxy that damages connections.

Each host is a network namespace of iproute2 with one address, behind a bridge in the namespace of the servers. No
interface of the machine is touched. Its processes see only each other. Without root, `ip` or `unshare` all hosts share
the loopback address and their processes, and `Network.kind` says so.
"""

import contextlib
import ctypes
import itertools
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
NETNS = Path("/run/netns")
SHARED = "process groups on one loopback address (no root, `ip` or `unshare`: no namespaces)"
SEPARATE = "namespaces of network and processes"
#: The first process of a host: orphans become its children, and with it all others end.
INIT = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"
ENTER = 'cd "$0" && exec "$@"'  #: an entered namespace begins at its root directory
_numbers = itertools.count(1)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@cache
def namespaces_work() -> bool:
    """Whether this user may make network namespaces with an interface in them."""
    name = f"runplan-{os.getpid()}-try"
    if os.getuid() or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return False
    try:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    except subprocess.CalledProcessError:
        return False
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "del", name)
    return True


def _remove_leftovers() -> None:
    """Namespaces of test processes that were killed."""
    for place in NETNS.glob("runplan-*"):
        if not Path("/proc", place.name.split("-")[1]).exists():
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", place.name)


class Namespace:
    """One network namespace; "" is the one of this process."""

    def __init__(self, name: str) -> None:
        self.name = name

    def call(self, function: Callable[[], T]) -> T:
        """Call the function in a thread in this namespace: its sockets, children and threads belong to it."""
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def enter() -> None:
            try:
                if self.name:
                    self._enter()
                answers.put((function(), None))
            except BaseException as error:  # noqa: BLE001 - raised in the calling thread
                answers.put((None, error))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        value, error = answers.get()
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def run(self, argv: Sequence[str | Path], **how: Any) -> subprocess.CompletedProcess[bytes]:
        """Run a program there to its end."""
        return self.call(lambda: subprocess.run(self._enter_processes(argv, how), capture_output=True, **how))

    def start(self, argv: Sequence[str | Path], **how: Any) -> subprocess.Popen[bytes]:
        return self.call(lambda: subprocess.Popen(self._enter_processes(argv, how), **how))

    def _enter_processes(self, argv: Sequence[str | Path], how: dict[str, Any]) -> Sequence[str | Path]:
        return argv

    def _enter(self) -> None:
        with (NETNS / self.name).open("rb") as place:
            if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")


class HostNamespace(Namespace):
    """A network namespace whose programs see only each other's processes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._first: subprocess.Popen[bytes] | None = None

    def _enter_processes(self, argv: Sequence[str | Path], how: dict[str, Any]) -> Sequence[str | Path]:
        if not self.name:
            return argv
        enter = ["nsenter", f"--target={self._boot()}", "--pid", "--mount", "sh", "-c", ENTER, str(how["cwd"])]
        return [*enter, *argv]

    def _boot(self) -> int:
        """The first process of the host, which is started when there is none."""
        if self._first is None or self._first.poll() is not None:
            program = [sys.executable, "-I", "-S", "-c", INIT]
            self._first = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *program])
        while (
            not (found := psutil.Process(self._first.pid).children()) or not Path("/proc", str(found[0].pid)).exists()
        ):
            time.sleep(0.005)
        return found[0].pid

    def kill(self) -> None:
        """End every process of the host at once."""
        if self._first is not None:
            self._first.kill()
            self._first.wait()


def find_program(started: subprocess.Popen[bytes]) -> int:
    """The process of a program that was started in a namespace of processes, as it is seen here."""
    while started.poll() is None:
        children = psutil.Process(started.pid).children()
        if Path(f"/proc/{started.pid}/comm").read_text() != "nsenter\n":
            return started.pid
        if children and children[0].name() not in ("nsenter", "sh"):
            return children[0].pid
        time.sleep(0.005)
    return started.pid


class Network:
    """The servers' namespace with a bridge, and the namespaces of hosts."""

    def __init__(self) -> None:
        self.kind = SEPARATE if namespaces_work() else SHARED
        self._prefix = f"runplan-{os.getpid()}-{next(_numbers)}"
        self._hosts: list[str] = []
        self.servers = Namespace("")
        self.addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  #: of PostgreSQL, of its next machine, of the rest
        if self.is_separate:
            _remove_leftovers()
            self.servers = Namespace(f"{self._prefix}-servers")
            self.addresses = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
            _ip("netns", "add", self.servers.name)
            _ip("-n", self.servers.name, "link", "set", "lo", "up")
            _ip("-n", self.servers.name, "link", "add", "br0", "type", "bridge")
            for address in reversed(self.addresses):  # with the first one added the kernel drops the others
                self.add_address(address)
            _ip("-n", self.servers.name, "link", "set", "br0", "up")

    @property
    def is_separate(self) -> bool:
        return self.kind == SEPARATE

    def add_host(self, name: str) -> HostNamespace:
        """A namespace with one address that reaches the servers and the other hosts, and nothing else."""
        if not self.is_separate:
            return HostNamespace("")
        namespace = HostNamespace(f"{self._prefix}-{name}")
        self._hosts.append(name)
        _ip("netns", "add", namespace.name)
        outside = ("-n", self.servers.name, "link")
        _ip(*outside, "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", namespace.name)
        _ip(*outside, "set", f"v-{name}", "master", "br0", "up")
        _ip("-n", namespace.name, "addr", "add", f"10.77.0.{10 + len(self._hosts)}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", namespace.name, "link", "set", link, "up")
        return namespace

    def unplug(self, name: str) -> None:
        """Lose every packet to and from the host; no connection is told."""
        _ip("-n", self.servers.name, "link", "set", f"v-{name}", "down")

    def plug(self, name: str) -> None:
        _ip("-n", self.servers.name, "link", "set", f"v-{name}", "up")

    def add_address(self, address: str) -> None:
        if self.is_separate:
            _ip("-n", self.servers.name, "addr", "add", f"{address}/24", "dev", "br0")

    def drop_address(self, address: str) -> None:
        """A machine that is gone: it refuses nothing, it answers nothing."""
        if self.is_separate:
            _ip("-n", self.servers.name, "addr", "del", f"{address}/24", "dev", "br0")

    def close(self) -> None:
        for name in self._hosts if self.is_separate else ():
            _ip("netns", "del", f"{self._prefix}-{name}")
        if self.is_separate:
            _ip("netns", "del", self.servers.name)


class Proxy:
    """Forwards TCP connections to a server; it can delay, swallow or cut them."""

    def __init__(self, namespace: Namespace, address: str, target: tuple[str, int]) -> None:
        self.target = target
        self.delay_s = 0.0  #: before each piece in each direction
        self.swallows = False  #: connections stay open, and nothing arrives
        self.refuses = False  #: new connections are closed at once
        self.errors: list[str] = []  #: of connections that could not be forwarded
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = namespace.call(lambda: socket.create_server((address, 0)))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        namespace.call(self._thread.start)

    def cut(self) -> None:
        """Break every open connection."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Forward everything again; a connection whose bytes were swallowed is broken."""
        swallowed, self.swallows = self.swallows, False
        self.refuses = False
        self.delay_s = 0.0
        if swallowed:
            self.cut()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()  # else it accepts connections of the next socket with this descriptor
        self._listener.close()
        self.cut()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refuses:
                    client.close()
                    continue
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with client, self._connect() as server:
            if server.fileno() < 0:
                return
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
            back.start()
            self._pump(client, server)
            back.join()
            with self._lock:
                self._open -= {client, server}

    @contextlib.contextmanager
    def _connect(self) -> Iterator[socket.socket]:
        try:
            server = socket.create_connection(self.target, timeout=5)
            server.settimeout(None)
        except OSError as error:
            self.errors.append(str(error))
            server = socket.socket()
            server.close()
        with server:
            yield server

    def _pump(self, source: socket.socket, goal: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.delay_s:
                    time.sleep(self.delay_s)
                if not self.swallows:
                    goal.sendall(data)
        for end in (source, goal):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
