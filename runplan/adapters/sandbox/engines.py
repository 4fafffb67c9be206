"""Which engine makes the views of a run."""

from collections.abc import Mapping

from runplan.adapters.sandbox.bubblewrap import Bubblewrap, find_namespace, find_obstacle, find_program
from runplan.adapters.sandbox.container import Container, find_engine
from runplan.adapters.sandbox.home import HomeMounts
from runplan.adapters.sandbox.view import HomeUse, Obstacle, Places, Sandbox
from runplan.domain.errors import RefusedEarly
from runplan.domain.run.dispatch import TEMPORARY
from runplan.domain.settings.schema import AgentsSettings, CheckSettings, ContainerSettings
from runplan.domain.text import counted

CONTAINER = "container"


def is_used(mode: str, env: Mapping[str, str]) -> bool:
    return mode in ("bwrap", CONTAINER) or (mode == "auto" and find_obstacle(env) is None)


def open_sandbox(mode: str, env: Mapping[str, str], places: Places, settings: ContainerSettings) -> Sandbox:
    if mode == CONTAINER:
        return Container(find_engine(settings, env), settings, env, places)
    return Bubblewrap(find_program(env) or "bwrap", env, places) if is_used(mode, env) else Sandbox()


def require_sandbox(agents: AgentsSettings, tests: CheckSettings, env: Mapping[str, str]) -> Obstacle | None:
    """Refuse a start when a setting demands a sandbox that does not work; else the obstacle to a wanted one."""
    wanted = {mode: key for key, mode in agents.sandboxes.items() if mode != "none"}
    networks = {"agents.network": agents.network, "tests.network": tests.network}
    if key := wanted.get(CONTAINER):
        if other := next((f'{key} = "{mode}"' for mode, key in wanted.items() if mode != CONTAINER), ""):
            mixed = f'{key} = "container" and {other} do not mix'
            raise RefusedEarly(f"{mixed}; use containers for all agents, or for none")
        image, build = agents.container.image, agents.container.build
        if bool(image) == bool(build):
            why = "image and build exclude each other" if image else "neither image nor build is set"
            raise RefusedEarly(f"agents.container: {why}; name an image, or a Dockerfile of the repository")
        engine = find_engine(agents.container, env)
        listed = next((name for name, network in networks.items() if not isinstance(network, str)), "")
        if listed and not engine.is_local:
            why = f"{engine.name} runs in a virtual machine, into which no socket of the proxy leads"
            raise RefusedEarly(f'{listed} cannot be a list here: {why}; set "all" or "none"')
    obstacle = find_obstacle(env) if {"auto", "bwrap"} & {*wanted} else None
    if obstacle and (key := wanted.get("bwrap")):
        raise RefusedEarly(f'{key} = "bwrap" does not work here: {obstacle.problem}; {obstacle.remedy}')
    off = next((f'{key} = "none"' for key, mode in agents.sandboxes.items() if mode == "none"), "")
    bounded = next((key for key, network in networks.items() if network != "all"), "")
    if bounded and (off or obstacle):
        why = off or (obstacle.problem if obstacle else "")
        raise RefusedEarly(f'{bounded} needs a sandbox: {why}; see runplan doctor, or set {bounded} = "all"')
    return obstacle


def describe_view(env: Mapping[str, str], tests: HomeUse) -> tuple[str, ...]:
    """What the processes of a run see and may write on this machine, in five lines."""
    entries = HomeMounts(env, tests)
    absent = [name for name in entries.secrets if (entries.path / name).exists()]
    layers = "an overlay" if find_namespace() else "a copy"
    readable = f"{counted(len(entries.shown), 'entry', 'entries')} of {entries.path}"
    return (
        "bubblewrap works. A process may write its worktree and what is its own:",
        f"the home, {', '.join(TEMPORARY)}, /dev/shm; caches and state start empty",
        f"readable: all else; {'; '.join(entries.describe_left_out()) or readable}",
        f"absent: {', '.join(absent) or 'no key was found'}",
        f"set-up and tests have another home than agents; what tests write is dropped ({layers})",
    )
