"""The daemon of this machine, its login service (systemd or launchd), and its channels of notifications."""

import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct

from runplan.adapters import processes
from runplan.adapters.configuration.places import key_directory, state_directory, user_file
from runplan.adapters.git.command import ANY
from runplan.adapters.notify.channels import deliver, list_channels
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import of_test
from runplan.app.operations.model import Caller
from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.engine.report.metrics import collect_samples, render_samples
from runplan.hosts.daemon import client, service
from runplan.hosts.daemon.protocol import Metrics, MetricsText
from runplan.hosts.daemon.state import read_holder


def read_metrics(caller: Caller) -> str:
    """The metrics of the daemon and all repositories; without a daemon, of this repository."""
    try:
        with client.connect_daemon(caller.env) as daemon:
            return daemon.call(Metrics(), MetricsText).text
    except client.NotRunning:
        with caller.open(lenient=True) as context:
            samples = collect_samples(context.store(), repository=str(context.root), now=datetime.now(UTC))
    return render_samples(samples)


def choose_pager(caller: Caller) -> str:
    """The pager that git uses; "" or `cat` for none."""
    chosen = {"GIT_PAGER": caller.env["GIT_PAGER"]} if "GIT_PAGER" in caller.env else {}
    with caller.open(lenient=True) as context:
        # Not in the repository: an agent may have written its configuration.
        return context.git.run("-C", "/", "var", "GIT_PAGER", env=chosen, ok=ANY).text.strip()


def control_daemon(caller: Caller, action: str | None) -> None:
    """Stop or restart the daemon; or be the daemon, until a signal ends it."""
    if action != "stop" and caller.user_settings.fleet.dsn:
        raise RefusedEarly("fleet.dsn is set, so the hosts of the fleet work on plans; start one: runplan worker")
    if action is None:
        from runplan.hosts.daemon import process  # slow to import

        process.run_daemon(caller.env)
        return
    holder = read_holder(state_directory(caller.env))
    daemon = processes.living(holder.identity) if holder else None
    if daemon is not None:  # drain it as SIGTERM does, and wait until it has ended
        is_draining = False
        with suppress(Unreachable), client.connect_daemon(caller.env) as connection:
            is_draining = bool(connection.hello.draining)  # then another SIGTERM would end its agents
        for number in () if is_draining else (signal.SIGTERM, signal.SIGCONT):  # Ctrl-Z may have stopped it
            processes.send(daemon, number)
        caller.say(f"Stopping the daemon (process {daemon.pid}); agents have daemon.grace to finish, and survive it")
        while processes.await_gone([daemon], timeout_s=client.ANSWER_S):
            pass
    if action == "restart":
        with client.reach_daemon(caller.env) as connection:
            caller.say(f"the daemon runs as process {connection.hello.pid}")
        return
    login = "at the next login, or " if service.find_installed(caller.env) else ""
    standing = "has ended" if daemon else "is not running"
    caller.say(f"The daemon {standing}. Start it {login}with: runplan daemon restart")


def send_test_notice(caller: Caller) -> Iterator[tuple[str, str]]:
    """Send a test notice, once and without another attempt; each channel, and why it failed or ""."""
    user = caller.user_settings
    channels = list_channels(user.notify, caller.env)
    if not channels:
        example = 'urls = ["ntfy://TOPIC"]'
        place = user_file(caller.env)
        raise RefusedEarly(f"no channel is configured; add one to {place} under [notify], e.g. {example}")
    notice = of_test(socket.gethostname(), LinkMaker(user.web.url, key_directory(caller.env)).link_to_page())
    for channel in channels:
        yield channel.name, deliver(channel, notice, caller.env, None)


class ServiceState(Struct, frozen=True, kw_only=True):
    file: str
    installed: bool
    current: bool  #: the file is what this version would write
    active: bool
    answers: bool  #: whether the service manager serves this user


def inspect_service(caller: Caller) -> ServiceState:
    manager = service.find_manager(caller.env)
    installed = manager.file.is_file()
    return ServiceState(
        file=str(manager.file),
        installed=installed,
        current=installed and manager.file.read_text(encoding="utf-8", errors="replace") == manager.text,
        active=service.succeeds(manager.is_active, caller.env),
        answers=service.succeeds(manager.asks, caller.env),
    )


def change_service(caller: Caller, action: str, *, dry_run: bool) -> str:
    """Install or uninstall the service; what was done, or would be."""
    caller.refuse_to_agents(f"service {action}")
    manager = service.find_manager(caller.env)
    is_install = action == "install"
    commands = [" ".join(words) for words in (manager.enables if is_install else manager.disables)]
    if dry_run:
        text = manager.text.splitlines() if is_install else []
        return "\n".join([f"# {manager.file}", *text, *(f"# {line}" for line in commands)])
    if is_install:
        try:
            manager.file.parent.mkdir(parents=True, exist_ok=True)
            manager.file.write_text(manager.text, encoding="utf-8")
        except OSError as error:
            raise Unreachable(f"{manager.file} cannot be written: {error.strerror}") from error
        if service.run_all(manager, manager.enables, caller.env):
            return f"wrote {manager.file}\nthe daemon runs, and starts at each login"
        later = f"no {manager.asks[0]} user session here. Once you have one, run: {' && '.join(commands)}"
        return f"wrote {manager.file}\nNot started: {later}"
    if not manager.file.exists():
        return f"there is no {manager.file}"
    within_s = service.STOP_S + service.ANSWER_S  # agents may finish first
    service.run_all(manager, manager.disables[:1], caller.env, within_s=within_s)
    manager.file.unlink(missing_ok=True)
    service.run_all(manager, manager.disables[1:], caller.env)
    return f"removed {manager.file}"
