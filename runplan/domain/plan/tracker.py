"""The tracker: which phase is next, and how its status is written back into the plan."""

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.plan import marks
from runplan.domain.plan.completeness import says_complete
from runplan.domain.plan.marks import NoWorkKind, PlanStatus, Status, id_key
from runplan.domain.plan.model import Phase, Plan, lay_out, require_settable
from runplan.domain.plan.reading import OWN_FRONT
from runplan.domain.plan.scan import scan_lines
from runplan.domain.text import command


def set_status(text: bytes, *, path: str, phase: str, status: Status, commit: str = "") -> bytes:
    """The plan with one phase set to done, with the commit of its work, or back to todo; only people write others."""
    lines, reading = lay_out(text, path)
    place = next((place for place in reading.places if id_key(place.id) == id_key(phase)), None)
    if place is None:
        ids = ", ".join(place.id for place in reading.places)
        raise lines.error_at(0, f"there is no phase {phase}; the phases are {ids}")
    slots = {spot.slot for spot in place.spots}
    is_same = place.mark.known and place.mark.status is status
    if is_same and (commit in ("", place.commit) or (slots and slots <= {"box", "brackets", "word"})):
        return text
    words = marks.WRITTEN[status]
    if commit and "commit" not in slots:
        words = f"{words} (`{commit}`)" if "cell" in slots else f"{words} ({commit})"
    if not place.spots:
        below = lines.line_start(place.first + 1)
        line = f"**Status:** {words}".encode()
        new = line + lines.eol if text[:below].endswith(b"\n") else lines.eol + line
        return text[:below] + new + text[below:]
    for spot in sorted(place.spots, key=lambda spot: (spot.at, spot.end), reverse=True):
        begin = lines.byte_offset(spot.at, spot.begin)
        end = lines.byte_offset(spot.at, spot.end)
        old = text[begin:end]
        above = text[:begin]
        match spot.slot:
            case "cell":
                new = _status_cell(old, words)
            case "commit":
                new = _status_cell(old, f"`{commit}`" if commit else "") if commit or place.commit else old
            case "line":
                new = (b"" if above.endswith((b" ", b"\t", b"\n")) else b" ") + words.encode()
            case "brackets":
                new = marks.WRITTEN_IN_BRACKETS[status].encode()
            case "box" | "word":
                new = spot.words[status is not Status.DONE].encode()
        text = above + new + text[end:]
    return text


def _status_cell(old: bytes, words: str) -> bytes:
    """A cell with other content and the blanks around it; an empty one gets a blank on each side."""
    content = old.strip()
    if not content:
        return f" {words} ".encode()
    if not words and old == b" " + content + b" ":
        return b" "  # as people write an empty cell
    return old.replace(content, words.encode())


def set_completed(text: bytes, *, path: str, completed: str | None) -> bytes:
    """The plan with `status: complete` and `completed:` in its front matter; None: active again, and without it."""
    lines = scan_lines(text, path=path)
    is_complete = says_complete(lines)
    is_right = not is_complete if completed is None else is_complete and lines.front_value("completed") != ""
    if not lines.front or is_right or lay_out(text, path)[1].format in OWN_FRONT:
        return text
    text = put_key(text, path=path, key="status", value="active" if completed is None else "complete")
    return put_key(text, path=path, key="completed", value=completed, after="status")


def put_key(text: bytes, *, path: str, key: str, value: str | None, after: str = "") -> bytes:
    """The text with one key of its front matter set, or without it; a new key goes below the key `after`."""
    lines = scan_lines(text, path=path)
    if not lines.front:
        raise lines.error_at(0, f"there is no front matter to set {key} in; begin the file with ---")
    field = lines.find_field(key)
    if value is None:
        return text if field is None else text[: lines.line_start(field.at)] + text[lines.line_start(field.below) :]
    if field is None:
        above = lines.find_field(after)
        start = lines.line_start(above.below if above else lines.front)
        return text[:start] + f"{key}: {value}".encode() + lines.eol + text[start:]
    require_settable(lines, key)
    begin = lines.byte_offset(field.at, field.begin)
    end = lines.byte_offset(field.at, field.end)
    gap = b"" if lines.texts[field.at][field.begin - 1] in " \t" else b" "
    return text[:begin] + gap + value.encode() + text[end:]


class NoPhase(Struct, frozen=True):
    kind: NoWorkKind
    detail: str = ""  #: for people


def is_complete_with(plan: Plan, phase: str) -> bool:
    return all(other.status is Status.DONE for other in plan.phases if other.id != phase)


def choose_phase(plan: Plan, *, wanted: str | None) -> Phase | NoPhase:
    """The requested phase, else the first in tracker order that is todo and not waiting."""
    asked = plan.phase(wanted) if wanted is not None else None
    if wanted is not None and asked is None:
        ids = ", ".join(phase.id for phase in plan.phases)
        return NoPhase(NoWorkKind.BLOCKED, f"there is no phase {wanted}; there are: {ids}")
    if plan.status is PlanStatus.COMPLETE:
        return NoPhase(NoWorkKind.COMPLETE, "the plan is already complete")
    if plan.status is not PlanStatus.ACTIVE:
        remedy = f"to have it worked, write status: {PlanStatus.ACTIVE} in its front matter, and commit it"
        return NoPhase(NoWorkKind.INACTIVE, f"the plan says status: {plan.status}; {remedy}")
    if asked is not None and asked.status is Status.DONE:
        commit = f" ({asked.commit})" if asked.commit else ""
        return NoPhase(NoWorkKind.PHASE_DONE, f"phase {asked.id} is already done{commit}")
    if asked is not None and (waits := missing_dependencies(plan, asked)):
        statuses = ", ".join(f"{phase.id} ({phase.status})" for phase in plan.phases if phase.id in waits)
        first = command("runplan", "start", plan.path, waits[0])
        return NoPhase(NoWorkKind.NEEDS, f"phase {asked.id} depends on {statuses}; first run: {first}")
    if asked is not None:
        return NoPhase(NoWorkKind.BLOCKED, f"phase {asked.id} {asked.unsupported}") if asked.unsupported else asked
    left = [phase for phase in plan.phases if phase.status is not Status.DONE]
    for phase in left:
        if not describe_hindrance(plan, phase):
            return phase
    why = "; ".join(f"phase {phase.id} {describe_hindrance(plan, phase)}" for phase in left)
    is_blocked = any(phase.status is Status.BLOCKED or phase.unsupported for phase in left)
    return NoPhase(NoWorkKind.BLOCKED if is_blocked else NoWorkKind.ELSEWHERE if left else NoWorkKind.ALL_DONE, why)


def describe_hindrance(plan: Plan, phase: Phase) -> str:
    """Why an open phase is passed over; "" when it can be worked."""
    if waits := missing_dependencies(plan, phase):
        return f"waits for {', '.join(waits)}"
    note = f": {phase.note}" if phase.note else ""
    if phase.status is Status.BLOCKED:
        return phase.blocker or f"is marked blocked{note}; clear its status in the plan to allow work on it"
    if phase.status is Status.IN_PROGRESS:
        return f"is marked in progress{note}; to have it worked: {command('runplan', 'start', plan.path, phase.id)}"
    return phase.unsupported


def list_workable(plan: Plan) -> list[str]:
    """The phases that `finish` works on, in this order, if each of them lands."""
    ids = []
    while not isinstance(phase := choose_phase(plan, wanted=None), NoPhase):
        ids.append(phase.id)
        plan = assume_done(plan, phase.id)
    return ids


def assume_done(plan: Plan, *ids: str) -> Plan:
    done = (replace(phase, status=Status.DONE) if phase.id in ids else phase for phase in plan.phases)
    return replace(plan, phases=tuple(done))


def missing_dependencies(plan: Plan, phase: Phase) -> tuple[str, ...]:
    done = {other.id for other in plan.phases if other.status is Status.DONE}
    return tuple(id_ for id_ in phase.depends if id_ not in done)


def add_tracker(text: bytes, *, path: str) -> bytes:
    """The plan with a tracker above its first phase, unless it has a tracker or status lines."""
    lines, reading = lay_out(text, path)
    has_lines = any(spot.slot == "line" for place in reading.places for spot in place.spots)
    if not reading.lacks_statuses and (reading.format != "sections" or has_lines):
        return text
    above = (marks.STATUS_LINE.match(row) for row in lines.texts[: reading.places[0].first])
    says_done = any(line and marks.read_mark(line.string[line.end() :]).status is Status.DONE for line in above)
    is_done = reading.lacks_statuses and (says_done or says_complete(lines))
    rows = ["## Progress Tracker", "", "| Phase | Status | Commit | Notes |", "|-------|--------|--------|-------|"]
    for place in reading.places:
        title = place.title.replace("\\|", "|").replace("|", "\\|")
        status = marks.WRITTEN[Status.DONE if is_done or place.mark.status is Status.DONE else Status.TODO]
        rows.append(f"| {place.id}{' — ' if title else ''}{title} | {status} | | |")
    first = reading.places[0].first
    chapters = [heading.at for heading in lines.headings if heading.level == 2 and heading.at < first < heading.end]
    start = lines.line_start(chapters[-1] if chapters else first)
    return text[:start] + b"".join(row.encode() + lines.eol for row in [*rows, ""]) + text[start:]
