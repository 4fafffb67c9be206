"""Which engine makes the views of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from runplan.adapters.sandbox.bubblewrap import Bubblewrap, find_obstacle, find_program
from runplan.adapters.sandbox.view import NoSandbox, Obstacle, Sandbox
from runplan.domain.errors import RefusedEarly
from runplan.domain.settings.schema import AgentsSettings, CheckSettings, Network


class Demands(Struct, frozen=True):
    """What the settings of a run demand of a sandbox, by their keys."""

    modes: Mapping[str, str]
    networks: Mapping[str, Network]


def read_demands(agents: AgentsSettings, tests: CheckSettings) -> Demands:
    own = {f"agents.{table.name}.sandbox": table.sandbox for table in agents.used if table.sandbox}
    networks = {"agents.network": agents.network, "tests.network": tests.network}
    return Demands({"agents.sandbox": agents.sandbox} | own, networks)


def is_used(mode: str, env: Mapping[str, str]) -> bool:
    return mode == "bwrap" or (mode == "auto" and find_obstacle(env) is None)


def open_sandbox(mode: str, env: Mapping[str, str], needed: Sequence[Path], shown: Mapping[Path, Path]) -> Sandbox:
    return Bubblewrap(find_program(env) or "bwrap", env, tuple(needed), shown) if is_used(mode, env) else NoSandbox()


def require_sandbox(demands: Demands, env: Mapping[str, str]) -> Obstacle | None:
    """Refuse a start when a setting demands a sandbox that does not work; else the obstacle to a wanted one."""
    wanted = {mode: key for key, mode in demands.modes.items() if mode != "none"}
    obstacle = find_obstacle(env) if wanted else None
    if obstacle and (key := wanted.get("bwrap")):
        raise RefusedEarly(f'{key} = "bwrap" does not work here: {obstacle.problem}; {obstacle.remedy}')
    off = next((f'{key} = "none"' for key, mode in demands.modes.items() if mode == "none"), "")
    bounded = next((key for key, network in demands.networks.items() if network != "all"), "")
    if bounded and (off or obstacle):
        why = off or (obstacle.problem if obstacle else "")
        raise RefusedEarly(f'{bounded} needs a sandbox: {why}; see runplan doctor, or set {bounded} = "all"')
    return obstacle
