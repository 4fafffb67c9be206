"""The newest facts about every plan, for `status`: each is read by one query, however many plans there are."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from msgspec import Struct, field

from runplan.errors import RunplanError
from runplan.run.rows import RunRow
from runplan.store.sqlite import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runplan.run.rows import ScheduleRow, WaitRow

_NEWEST = "SELECT max(number) FROM runs WHERE ?1 IN ('', plan) GROUP BY plan"
_PLACES = (
    "SELECT runs.plan, json_extract(body, '$.landing'), json_extract(body, '$.target'), json_extract(body, '$.remote'),"
    " iif(json_extract(body, '$.concludes'), json_extract(body, '$.slug'), '')"
    f" FROM runs JOIN events ON events.run=runs.id AND events.type='RunStarted' WHERE number IN ({_NEWEST})"
)
_REFUSED = (
    "SELECT plan, at, json_extract(answer, '$.error') FROM commands WHERE seq IN"
    " (SELECT max(seq) FROM commands WHERE verb IN ('start', 'now', 'resume') AND ?1 IN ('', plan) GROUP BY plan)"
)


class Summary(Struct, frozen=True):
    """The JSON of a value that is slow to compute, and the stamp it is valid for."""

    kind: str
    plan: str
    stamp: str
    value: str


class Overview(Struct, frozen=True, kw_only=True):
    """Every mapping is by plan."""

    newest: dict[str, RunRow] = field(default_factory=dict)
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: landing, target, remote, slug of its own branch
    owners: dict[str, str] = field(default_factory=dict)
    schedules: dict[str, ScheduleRow] = field(default_factory=dict)
    queued: dict[str, str] = field(default_factory=dict)  #: the verb of the newest queued command
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)  #: time and error of a refused newest start
    waits: dict[str, WaitRow] = field(default_factory=dict)  #: of the daemon
    summaries: dict[tuple[str, str], Summary] = field(default_factory=dict)  #: by kind and plan


def read_overview(store: Store, plan: str = "") -> Overview:
    """The facts about one plan, or about all."""
    return Overview(
        newest={row.plan: row for row in store.rows(RunRow, f"runs WHERE number IN ({_NEWEST})", plan)},
        places={plan: tuple(place) for plan, *place in store.query(_PLACES, plan)},
        owners={plan: owner for plan, (_, owner, _) in store.claims("plan").items()},
        schedules={row.plan: row for row in store.schedules.all()},
        queued=dict(store.query("SELECT plan, verb FROM commands WHERE answer IS NULL ORDER BY seq")),
        refused={plan: (at, error) for plan, at, error in store.query(_REFUSED, plan) if error},
        waits={row.plan: row for row in store.waits.all()},
        summaries={(row.kind, row.plan): row for row in store.rows(Summary, "summaries WHERE ? IN ('', plan)", plan)},
    )


def keep_summaries(directory: Path, summaries: Sequence[Summary]) -> None:
    """Store the summaries for the next reader; one that cannot be stored is computed again."""
    with contextlib.suppress(RunplanError, OSError), contextlib.closing(Store(directory)) as store, store.transaction():
        for one in summaries:
            store.put("summaries", one)
