"""How moments are written: UTC ISO-8601 with Z for people and scripts, seconds and zone for git."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_iso(text: str) -> datetime:
    # Not strptime, which imports the locale's calendar.
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} does not say its zone")
    return moment.astimezone(UTC)


def git_date(moment: datetime) -> str:
    return f"{int(moment.timestamp())} +0000"


def zone(name: str) -> tzinfo:
    """The zone of that name, e.g. Europe/Berlin."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # dear, and most need no other

    return ZoneInfo(name)
