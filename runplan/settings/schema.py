"""The settings: each is one field of a section's class, with its type, its default, its reason and its rule."""

# No postponed annotations here: msgspec would evaluate each of them again, which takes 5 ms of every command.
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields

from runplan import names

#: A check of a value that has the right type: why it cannot be used, or "".
Rule: TypeAlias = Callable[[Any], str]

LANDINGS = ("cherry-pick", "pr", "direct")
NOTICES = ("done", "failed", "waiting", "morning")
SANDBOXES = ("auto", "bwrap", "none")
#: The roles that name an agent. Only the fallback may be empty.
ROLES = ("implementer", "verifier", "planner", "fallback")

#: The name of the gate that runs tests.command.
TESTS = "tests"

#: The files of a repository's settings. The first that exists is read.
FILES = ("runplan.toml", "config/runplan.toml")
#: The daemon serves all repositories of a user, so a repository's file cannot set these.
USER_SECTIONS = ("daemon", "notify")


# --- rules -------------------------------------------------------------------------------------------------


def must(holds: Callable[[Any], object], why: str) -> Rule:
    """The rule that a value passes a test; `why` may contain {value}."""
    return lambda value: "" if holds(value) else why.format(value=value)


def one_of(*words: str) -> Rule:
    return must(words.__contains__, f"must be one of {', '.join(words)}, not {{value!r}}")


def at_least(least: int) -> Rule:
    return must(lambda value: least <= value < float("inf"), f"must be {least} or more, not {{value}}")


def each(rule: Rule) -> Rule:
    return lambda values: next((wrong for value in values if (wrong := rule(value))), "")


def path_inside(value: str) -> str:
    if not value or value.startswith("/") or ".." in value.split("/") or "\\" in value:
        return f"must be a path inside the repository, not {value!r}"
    return plain_path(value)


def plain_path(value: str) -> str:
    return not_empty(value) or ("" if names.is_plain(value) else f"must not contain control characters: {value!r}")


def pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        return f"is not a regular expression: {error}"
    return ""


def known_zone(value: str) -> str:
    if value == "UTC":
        return ""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {value!r} on this machine; use UTC, or a name like Europe/Berlin"
    return ""


not_empty = must(str.strip, "must not be empty")
percentage = must(lambda value: 0 <= value <= 100, "must be 0 to 100, not {value}")
not_zero = must(lambda value: value > 0, "must be longer than 0s")
branch = must(names.valid_ref, "{value!r} is not a valid branch name")
ref_prefix = must(lambda value: names.valid_ref(f"{value}x"), "{value!r} is not a valid beginning of a branch name")
forwardable = must(
    lambda name: not name.startswith(("GIT_", "RUNPLAN_")),
    "{value} cannot be passed on: runplan sets GIT_* and RUNPLAN_* itself",
)
time_of_day = must(
    lambda value: not value or re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value),
    "must be a time like 08:00, not {value!r}",
)
file_pattern = must(
    lambda value: re.fullmatch(r"[\w*?][\w./*?-]*", value) and ".." not in value,
    "must be a path inside the worktree, with * and ?, not {value!r}",
)
names_tests = must(
    lambda value: not value or "{tests}" in value, "must contain {{tests}}, which the names of the failed tests replace"
)
web_address = must(
    lambda value: not value or re.fullmatch(r"https?://[^\s/]+(?:/\S*)?", value),
    "must begin with https:// or http:// and a host",
)


# --- sections ----------------------------------------------------------------------------------------------


def about(why: str, rule: Rule | None = None) -> Meta:
    return Meta(description=why, extra={"rule": rule})


class RunSettings(Struct, frozen=True, kw_only=True):
    landing: Annotated[str, about("how phases land: cherry-pick, pr or direct", one_of(*LANDINGS))] = "cherry-pick"
    target: Annotated[str, about("branch that receives landings", branch)] = "main"
    remote: Annotated[str, about("remote that pr and direct push to", not_empty)] = "origin"
    main_protected: Annotated[bool, about("the target takes no pushes: direct is refused before any work")] = False
    branch_prefix: Annotated[str, about("work branches are <prefix><plan>/<phase>", ref_prefix)] = "runplan/"
    author: Annotated[str, about("author of landed commits: user or agent", one_of("user", "agent"))] = "user"
    worktrees: Annotated[str, about("directory in which agents work, outside of your checkout", plain_path)] = (
        "~/.cache/runplan/worktrees"
    )
    max_fix_cycles: Annotated[int, about("how often a phase that failed its checks may be fixed", at_least(0))] = 2
    parallel: Annotated[int, about("phases worked at once, if their `Touches:` do not overlap", at_least(1))] = 1
    setup: Annotated[str, about("command that prepares a fresh worktree, e.g. npm ci")] = ""
    copy: Annotated[tuple[str, ...], about('files copied to a fresh worktree, e.g. [".env"]', each(path_inside))] = ()
    clean: Annotated[
        str,
        about(
            "files deleted before tests run, so leftovers cannot make them pass: ignored or untracked",
            one_of("ignored", "untracked"),
        ),
    ] = "ignored"
    sign_off: Annotated[tuple[str, ...], about('a person signs off changes of these files, e.g. ["web/**"]')] = ()
    timezone: Annotated[str, about("time zone of schedules, e.g. Europe/Berlin", known_zone)] = "UTC"
    misfire: Annotated[
        str, about("after downtime: run missed schedules once (run-once) or skip them", one_of("run-once", "skip"))
    ] = "run-once"


class AgentTable(Struct, frozen=True, kw_only=True):
    """One agent that can be dispatched: the table [agents.<name>]."""

    name: str
    kind: Annotated[str, about("built-in kind of agent")]
    argv: Annotated[tuple[str, ...], about("program and its arguments")] = ()
    script: Annotated[str, about("file that a script agent plays", not_empty)] = ""
    env: Annotated[tuple[str, ...], about("names of further environment variables for it", each(forwardable))] = ()
    model: Annotated[str, about("model to use; unset: the program's default", not_empty)] = ""
    args: Annotated[tuple[str, ...], about("further arguments for its program")] = ()
    context: Annotated[int, about("size of its context in tokens; 0: as reported, or by model", at_least(0))] = 0
    usd_per_mtok_in: Annotated[float, about("dollars per million tokens sent; 0: as reported", at_least(0))] = 0.0
    usd_per_mtok_out: Annotated[float, about("dollars per million tokens received; 0: as reported", at_least(0))] = 0.0
    sandbox: Annotated[str, about("sandbox of this agent; unset: agents.sandbox", one_of(*SANDBOXES))] = ""


class AgentsSettings(Struct, frozen=True, kw_only=True):
    implementer: Annotated[str, about("does the work: a built-in kind or an [agents.<name>]", not_empty)] = "claude"
    verifier: Annotated[str, about("judges the work, preferably another agent", not_empty)] = "codex"
    verifiers: Annotated[tuple[str, ...], about("several verifiers instead; all of them must pass")] = ()
    planner: Annotated[str, about("writes plans", not_empty)] = "claude"
    fallback: Annotated[str, about("replaces an agent during its usage limit; empty: wait for the reset")] = ""
    sandbox: Annotated[
        str, about("bubblewrap for agents and checks: auto (if it works), bwrap (required), none", one_of(*SANDBOXES))
    ] = "auto"
    tables: dict[str, AgentTable] = {}

    @property
    def judges(self) -> tuple[str, ...]:
        """The verifiers, in the order in which they judge."""
        return self.verifiers or (self.verifier,)

    @property
    def dispatched(self) -> tuple[tuple[str, str], ...]:
        """The agents that a run may start, each with the setting that names it."""
        judging = "verifiers" if self.verifiers else "verifier"
        named = (("implementer", self.implementer), *((judging, name) for name in self.judges))
        return (*named, *([("fallback", self.fallback)] if self.fallback else []))

    def sandbox_of(self, name: str) -> str:
        return self.agent(name).sandbox or self.sandbox

    def agent(self, name: str) -> AgentTable:
        """The agent of that name; a built-in kind needs no table."""
        return self.tables.get(name) or AgentTable(name=name, kind=name)


class CheckSettings(Struct, frozen=True, kw_only=True):
    command: Annotated[str, about("command that proves a phase, e.g. make test; run verbatim, never guessed")] = ""
    timeout_s: Annotated[float, about("a test command that runs longer has failed", not_zero)] = 1800.0
    allow_red_baseline: Annotated[bool, about("start although the tests already fail before any work")] = False
    summary: Annotated[str, about("regular expression in the output of a finished run; empty: none", pattern)] = ""
    junit: Annotated[
        tuple[str, ...],
        about('JUnit files that the tests write, e.g. ["out/*.xml"]; read instead of the output', each(file_pattern)),
    ] = ()
    env: Annotated[tuple[str, ...], about("your variables that tests and run.setup see, e.g. JAVA_HOME")] = ()
    rerun: Annotated[
        str, about("command that repeats failed tests, e.g. pytest {tests}; empty: as the runner allows", names_tests)
    ] = ""


class GateTable(Struct, frozen=True, kw_only=True):
    """A further command that has to pass on every candidate: the table [gates.<name>]."""

    command: Annotated[str, about("command that has to pass, e.g. ruff check", not_empty)]
    timeout_s: Annotated[float, about("a gate that runs longer has failed", not_zero)] = 1800.0
    parallel: Annotated[bool, about("run at the same time as the other gates that say so")] = False


class GatesSettings(Struct, frozen=True, kw_only=True):
    tables: dict[str, GateTable] = {}


def _tokens(scope: str) -> Meta:
    return about(f"tokens {scope}, sent and received; 0 for no limit", at_least(0))


def _usd(scope: str) -> Meta:
    return about(f"dollars {scope}, as the agent reports them or by its price; 0 for no limit", at_least(0))


def _wall(scope: str) -> Meta:
    return about(f"time {scope}; 0s for no limit")


_DISPATCH = "an agent may use per dispatch"
_PHASE = "a phase may use, over all its agents and attempts"
_PLAN = "a plan may use, over all its runs"
_DAY = "all plans of the repository may use per day of run.timezone"


class LimitSettings(Struct, frozen=True, kw_only=True):
    """Where an agent is stopped. Without a scope in its name, a limit is per dispatch."""

    wall_s: Annotated[float, about("longest run of an agent per dispatch", not_zero)] = 7200.0
    fix_wall_s: Annotated[float, about("the same of a fixer; 0s: as limits.wall")] = 0.0
    verify_wall_s: Annotated[float, about("the same of a verifier; 0s: as limits.wall")] = 0.0
    silence_s: Annotated[float, about("longest time without output or activity; 0s for no limit")] = 900.0
    context_critical: Annotated[
        int, about("percentage of its context at which a fresh agent takes over; 0: never", percentage)
    ] = 60
    tokens: Annotated[int, _tokens(_DISPATCH)] = 0
    usd: Annotated[float, _usd(_DISPATCH)] = 0.0
    phase_tokens: Annotated[int, _tokens(_PHASE)] = 0
    phase_usd: Annotated[float, _usd(_PHASE)] = 0.0
    phase_wall_s: Annotated[float, _wall(_PHASE)] = 0.0
    plan_tokens: Annotated[int, _tokens(_PLAN)] = 0
    plan_usd: Annotated[float, _usd(_PLAN)] = 0.0
    plan_wall_s: Annotated[float, _wall(_PLAN)] = 0.0
    day_tokens: Annotated[int, _tokens(_DAY)] = 0
    day_usd: Annotated[float, _usd(_DAY)] = 0.0
    day_wall_s: Annotated[float, _wall(_DAY)] = 0.0

    def wall_of(self, role: str) -> tuple[float, str]:
        """The wall limit of the role in seconds, and the setting that it comes from."""
        own = {"fix": self.fix_wall_s, "verify": self.verify_wall_s}.get(role, 0.0)
        return (own, f"limits.{role}_wall") if own else (self.wall_s, "limits.wall")

    @property
    def in_dollars(self) -> bool:
        return any((self.usd, self.phase_usd, self.plan_usd, self.day_usd))


class PullRequestSettings(Struct, frozen=True, kw_only=True):
    method: Annotated[
        str, about("how a pull request is merged, if the repository allows it", one_of("merge", "rebase", "squash"))
    ] = "merge"
    poll_s: Annotated[float, about("first interval between two looks at checks and reviews; it grows", not_zero)] = 15.0
    checks_wait_s: Annotated[float, about("how long to wait for a first check before none counts as configured")] = 60.0


class DaemonSettings(Struct, frozen=True, kw_only=True):
    max_parallel: Annotated[int, about("runs at the same time on this host", at_least(1))] = 4
    max_parallel_repository: Annotated[int, about("runs at the same time in one repository", at_least(1))] = 3
    grace_s: Annotated[float, about("time for running agents to finish after the first SIGTERM or Ctrl-C")] = 30.0


class PathSettings(Struct, frozen=True, kw_only=True):
    """Directories, relative to the repository."""

    plans: Annotated[str, about("directory of the plans", path_inside)] = "plans"
    reports: Annotated[str, about("directory of the reports", path_inside)] = "reports"


class NotifySettings(Struct, frozen=True, kw_only=True):
    command: Annotated[str, about("notification command; details in $RUNPLAN_* and as JSON on its input")] = ""
    webhook: Annotated[str, about("address to which the same JSON is posted", web_address)] = ""
    desktop: Annotated[bool, about("show notifications on the desktop of this machine")] = False
    morning: Annotated[str, about("time of the daily report in run.timezone, e.g. 08:00; empty: none", time_of_day)] = (
        ""
    )
    on: Annotated[tuple[str, ...], about("notify about these runs", each(one_of(*NOTICES)))] = NOTICES


class Settings(Struct, frozen=True, kw_only=True):
    run: RunSettings = RunSettings()
    agents: AgentsSettings = AgentsSettings()
    tests: CheckSettings = CheckSettings()
    gates: GatesSettings = GatesSettings()
    limits: LimitSettings = LimitSettings()
    pull_request: PullRequestSettings = PullRequestSettings()
    daemon: DaemonSettings = DaemonSettings()
    paths: PathSettings = PathSettings()
    notify: NotifySettings = NotifySettings()

    @property
    def checks(self) -> dict[str, GateTable]:
        """Every command that has to pass, by name; the test command first."""
        tests = {TESTS: GateTable(command=self.tests.command, timeout_s=self.tests.timeout_s)}
        return (tests if self.tests.command else {}) | self.gates.tables

    @property
    def check_groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of the checks; those of one group run at the same time."""
        alone = tuple((name,) for name, table in self.checks.items() if not table.parallel)
        together = tuple(name for name, table in self.checks.items() if table.parallel)
        return (*alone, together) if together else alone


# --- keys --------------------------------------------------------------------------------------------------


class Key(Struct, frozen=True):
    """One setting, as its field declares it. A field that ends in `_s` is a duration in seconds."""

    section: str
    field: str
    type: Any
    default: Any
    why: str
    rule: Rule | None

    TYPES: ClassVar = {
        str: "text in quotes",
        bool: "true or false",
        bool | None: "true or false",
        int: "a whole number",
        float: "a number",
        tuple[str, ...]: 'a list of texts like ["a", "b"]',
    }

    @property
    def name(self) -> str:
        return self.field.removesuffix("_s")

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def is_duration(self) -> bool:
        return self.field.endswith("_s")

    @property
    def written(self) -> object:
        """The default as it is written in a file."""
        return duration(self.default) if self.is_duration else self.default

    def read(self, value: object) -> Any:
        """The value for its field. Raises ValueError with the reason if it cannot be used."""
        typed = seconds(value) if self.is_duration else self._typed(value)
        if typed is None:
            expected = 'a duration like "90s", "15m" or "1h30m"' if self.is_duration else self.TYPES[self.type]
            raise ValueError(f"must be {expected}, not {value!r}")
        if self.rule is not None and (wrong := self.rule(typed)):
            raise ValueError(wrong)
        return typed

    def _typed(self, value: object) -> Any:
        try:
            typed = convert(value, self.type)
        except ValidationError:
            return None
        is_usable = all(typed) if isinstance(typed, tuple) else "\0" not in str(typed)
        return typed if is_usable else None

    def from_text(self, text: str) -> object:
        """The value that the text of a variable or a flag means. Other text is returned as it is, for `read`."""
        if self.type == tuple[str, ...]:
            return [part.strip() for part in text.split(",") if part.strip()]
        if self.is_duration or self.type is str:
            return text
        words = {"yes": "true", "no": "false"} if self.type is bool else {}
        try:
            return convert(words.get(text.strip().lower(), text.strip()), self.type, strict=False)
        except ValidationError:
            return text


@cache
def keys_of(section: str, declared: type[Struct]) -> tuple[Key, ...]:
    found = []
    for field in fields(declared):
        if metadata := getattr(field.type, "__metadata__", ()):
            kind = field.type.__origin__
            found.append(
                Key(section, field.name, kind, field.default, metadata[0].description, metadata[0].extra["rule"])
            )
    return tuple(found)


KEYS = tuple(key for section in fields(Settings) for key in keys_of(section.name, section.type))
SECTIONS = Settings.__struct_fields__
AGENT_KEYS = keys_of("agents.*", AgentTable)
GATE_KEYS = keys_of("gates.*", GateTable)

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: object) -> float | None:
    """A duration such as 90s, 15m, 2h or 1h30m in seconds; None for anything else."""
    found = _DURATION.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if not found or not found[0]:
        return None
    return float(sum(int(count) * unit for count, unit in zip(found.groups("0"), _UNITS.values(), strict=True)))


def duration(seconds: float) -> str:
    """A duration as it is written: 90s, 30m, 2h."""
    unit = next((unit for unit, length in _UNITS.items() if seconds and seconds % length == 0), "s")
    return f"{int(seconds) // _UNITS[unit]}{unit}"


def nearest(word: str, valid: tuple[str, ...]) -> str:
    from difflib import get_close_matches  # only an error needs it

    return get_close_matches(word.lower(), valid, n=1, cutoff=0.0)[0]
