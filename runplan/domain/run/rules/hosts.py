"""The labels of hosts: which a phase needs, and the queues in which its plan waits for a host that has them."""

from collections.abc import Collection
from itertools import combinations

from runplan.domain.run.state import RunState, open_states

ANY = "any"  #: the queue of plans that need no label
MAX_LABELS = 8  #: of one host, which looks into a queue for each combination of them


def name_queue(labels: Collection[str]) -> str:
    return "+".join(sorted(labels)) or ANY


def list_queues(labels: Collection[str]) -> list[str]:
    named = sorted(set(labels))
    return [name_queue(chosen) for count in range(len(named) + 1) for chosen in combinations(named, count)]


def missing_labels(state: RunState) -> tuple[str, ...]:
    if state.labels is None or state.attempt is None or state.attempt.cleaned:
        return ()
    return tuple(label for label in state.attempt.chosen.host if label not in state.labels)


def awaited_labels(state: RunState) -> tuple[str, ...]:
    return next((lane.current.chosen.host for lane in open_states(state) if missing_labels(lane)), ())
