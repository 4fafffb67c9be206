"""Serves the work in a view, and runs an agent beside it that tries it.

Any Python since 3.6 runs this file, also one in an image. Arguments: the seconds in which the server has to accept a
connection, the variables that it does not get with commas between them, its command line, and the agent's command. The
server ends with the view, or with the other processes of its dispatch.
"""

import os
import signal
import socket
import subprocess
import sys
import time

UNSERVED = 97  #: exit code when the agent was not started
PORTS = 10  #: of the worktree
LOOK_S = 0.05  #: between two attempts to connect


def accepts(port: int) -> bool:
    for address in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            continue
        return True
    return False


def main(within_s: str, hidden: str, line: str, *command: str) -> int:
    first = int(os.environ["RUNPLAN_PORT"])
    port = next((port for port in range(first, first + PORTS) if not accepts(port)), None)
    if port is None:  # the agent would try what another process serves
        sys.stderr.write(f"the ports {first} to {first + PORTS - 1} of the worktree are taken by other processes\n")
        return 1
    os.environ["RUNPLAN_PORT"] = str(port)
    log = os.open(os.environ.pop("RUNPLAN_LOGS"), os.O_WRONLY)
    env = {name: value for name, value in os.environ.items() if name not in hidden.split(",")}
    output = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    server = subprocess.Popen(("/bin/sh", "-c", line), env=env, start_new_session=True, **output)  # type: ignore[call-overload]
    deadline = time.monotonic() + float(within_s)
    while server.poll() or not accepts(port):
        code = server.returncode  # one that ends well may have left a server behind
        if code or time.monotonic() >= deadline:
            why = f"ended with code {code}" if code else f"accepted no connection on port {port} within {within_s} s"
            sys.stderr.write(f"try.serve ({line}) {why}\n")
            return UNSERVED
        time.sleep(LOOK_S)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the agent, which does not inherit this, may have last words
    ended = subprocess.Popen(command).wait()
    return 1 if ended == UNSERVED else ended if ended >= 0 else 128 - ended


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
