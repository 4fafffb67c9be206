"""Starts an agent with pipes to its shim: in its control group, where it has one, and in no other for an instant.

To move a process into a group takes the kernel ten milliseconds and more, during which nobody forks; to start it there
takes none (clone3(2), Linux 5.7).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import struct
import subprocess
from typing import TYPE_CHECKING

from runplan.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.run.dispatch import Launch
    from runplan.supervise.cgroups import Cgroup

PIPE_SIZE = 1024 * 1024

_SYS_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000
#: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
_CLONE_ARGS = struct.Struct("=11Q")

#: What Python ignores, and a program would go on ignoring.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


def start(launch: Launch, group: Cgroup | None) -> tuple[int, int | None, int, int]:
    """The agent's pid and our ends of its input, where it hears us, its output and its errors; it runs already."""
    with contextlib.ExitStack() as stack:
        stdin, to_it = _hearing() if launch.hears else (_given(launch.stdin), None)
        stack.callback(os.close, stdin)
        (out, out_end), (err, err_end) = _pipe(), _pipe()
        stack.callback(os.close, out_end)
        stack.callback(os.close, err_end)
        env = {**launch.env, MARK: launch.id}
        ends = (stdin, out_end, err_end)
        pid = _start_inside(group, launch.argv, cwd=launch.cwd, env=env, ends=ends) if group and group.make() else None
        return pid or _start_here(launch.argv, cwd=launch.cwd, env=env, ends=ends), to_it, out, err


def _given(path: str) -> int:
    return os.open(path or os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _hearing() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    return read_end, write_end


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    with contextlib.suppress(AttributeError, OSError):  # only faster; a user may have used up the kernel's allowance
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    return read_end, write_end


def _start_here(argv: tuple[str, ...], *, cwd: str, env: Mapping[str, str], ends: tuple[int, int, int]) -> int:
    stdin, out, err = ends
    agent = subprocess.Popen(argv, stdin=stdin, stdout=out, stderr=err, cwd=cwd, env=env, start_new_session=True)
    # Its shim waits for every child itself; Popen must not think it has to.
    agent.returncode = 0
    return agent.pid


def _start_inside(
    group: Cgroup, argv: tuple[str, ...], *, cwd: str, env: Mapping[str, str], ends: tuple[int, int, int]
) -> int | None:
    """The same in the group; None where the kernel does not let us. Its errors are those of `subprocess`."""
    told, tell = os.pipe()
    try:
        pid = _fork_into(group)
        if pid == 0:
            _become(argv, cwd=cwd, env=env, ends=ends, tell=tell)
    finally:
        os.close(tell)
    with open(told, "rb") as file:
        if pid is None:
            return None
        error = file.read()
    if error:
        os.waitpid(pid, 0)
        _raise(os.fsdecode(error))
    return pid


def _fork_into(group: Cgroup) -> int | None:
    """As `os.fork`, the child in the group; only for a process with a single thread."""
    # With PyDLL the interpreter's lock stays held: the child has it, as after a fork.
    call = ctypes.PyDLL(None).syscall
    call.restype = ctypes.c_long
    try:
        directory = os.open(group.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        args = _CLONE_ARGS.pack(_CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, directory)
        pid = call(ctypes.c_long(_SYS_CLONE3), args, ctypes.c_size_t(_CLONE_ARGS.size))
    finally:
        os.close(directory)
    return pid if pid >= 0 else None


def _become(argv: tuple[str, ...], *, cwd: str, env: Mapping[str, str], ends: tuple[int, int, int], tell: int) -> None:
    """Be the program; every other descriptor of ours closes itself. Never returns."""
    place = ""
    try:
        os.setsid()
        for number in _IGNORED:
            signal.signal(number, signal.SIG_DFL)
        for standard, descriptor in enumerate(ends):
            os.dup2(descriptor, standard)
        place = cwd
        os.chdir(cwd)
        place = argv[0]
        os.execvpe(argv[0], argv, env)  # noqa: S606 - there is to be no shell
    except OSError as error:
        os.write(tell, os.fsencode(f"{error.errno} {place}"))
    except ValueError as error:
        os.write(tell, os.fsencode(f"0 {error}"))
    finally:
        os._exit(127)


def _raise(error: str) -> None:
    number, _, words = error.partition(" ")
    if number == "0":
        raise ValueError(words)
    raise OSError(int(number), os.strerror(int(number)), words)
