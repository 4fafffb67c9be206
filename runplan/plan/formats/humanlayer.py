"""HumanLayer plans: phase sections with Success Criteria, some verified by commands and some by a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.plan.formats import sections
from runplan.plan.reading import Format, Reading

if TYPE_CHECKING:
    from runplan.plan.scan import Lines

_CRITERIA = re.compile(r"(?:automated|manual) verification", re.IGNORECASE)


def read(lines: Lines, path: str) -> Reading | None:
    """The phase sections, when one of them has the heading Automated or Manual Verification."""
    criteria = [heading.at for heading in lines.headings if heading.level > 2 and _CRITERIA.match(heading.text)]
    found = sections.read(lines, path) if criteria else None
    if found is None or not any(place.first < at < place.end for place in found.places for at in criteria):
        return None
    return replace(found, format=Format.HUMANLAYER, name="HumanLayer plan", decided_by=criteria[0])
