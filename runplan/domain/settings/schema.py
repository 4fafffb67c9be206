"""The settings: each is one field of a section's class, with its type, its default, its reason and its rule."""

# No postponed annotations here: msgspec would evaluate each of them again, which takes 5 ms of every command.
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeAlias

from msgspec import Struct, ValidationError, field
from msgspec.structs import fields, replace

from runplan.domain import names
from runplan.domain.decoding import convert
from runplan.domain.plan import marks
from runplan.domain.plan.marks import PhaseSettings
from runplan.domain.run.kinds import PLANNING, Role
from runplan.domain.times import zone

Rule: TypeAlias = Callable[[Any], str]  #: a check of a value that has the right type: why it cannot be used, or ""
LANDINGS = ("cherry-pick", "pr", "direct")
NOTICES = ("done", "failed", "waiting", "limit", "morning")
SANDBOXES = ("auto", "bwrap", "container", "none")
CONTAINER_ENGINES = ("auto", "podman", "docker")
NETWORKS = ("all", "none")  #: beside a list of hosts
MISFIRES = ("run-once", "skip")
#: The roles that name an agent. The last two may be empty.
ROLES = ("implementer", "verifier", "planner", "try", "fallback")
MAX_ROUNDS = 4  #: of critique and revision in a planning run
MAX_EXPLORERS = 5  #: at the same time
TESTS = "tests"  #: the name of the gate that runs tests.command
FILES = ("runplan.toml", "config/runplan.toml")  #: of a repository; the first that exists is read
#: The daemon serves all repositories of a user, so a repository's file cannot set these.
USER_SECTIONS = ("daemon", "notify", "web", "fleet")


def rule_that(holds: Callable[[Any], object], why: str) -> Rule:
    """The rule that a value passes a test, which may raise; `why` may contain {value}."""

    def rule(value: Any) -> str:
        try:
            return "" if holds(value) else why.format(value=value)
        except (LookupError, AttributeError, ValueError, OSError, re.error):
            return why.format(value=value)

    return rule


def one_of(*words: str) -> Rule:
    return rule_that(words.__contains__, f"must be one of {', '.join(words)}, not {{value!r}}")


def _is_inside(path: str) -> bool:
    parts = path.lower().split("/")
    is_refused = parts[0] == "" or "\\" in path or not {"..", ".git"}.isdisjoint(parts)  # git lands no `.git`
    return names.is_plain(path) and not is_refused


not_empty = rule_that(str.strip, "must not be empty")
not_zero = rule_that(lambda value: value > 0, "must be more than 0")
few_explorers = rule_that(lambda value: 1 <= value <= MAX_EXPLORERS, f"must be 1 to {MAX_EXPLORERS}, not {{value}}")
few_rounds = rule_that(lambda value: 1 <= value <= MAX_ROUNDS, f"must be 1 to {MAX_ROUNDS}, not {{value}}")
percentage = rule_that(lambda value: value <= 100, "must be 0 to 100, not {value}")
branch = rule_that(names.valid_ref, "{value!r} is not a valid branch name")
ref_prefix = rule_that(lambda text: names.valid_ref(f"{text}x"), "{value!r} is not a valid beginning of a branch name")
path_inside = rule_that(_is_inside, "must be a path inside the repository, not {value!r}")
plain_path = rule_that(
    lambda path: not path or (path.strip() and names.is_plain(path)), "must be a printable path, not {value!r}"
)
absolute = rule_that(lambda path: path.startswith("/"), "must be an absolute path, not {value!r}")
home_entry = rule_that(_is_inside, "must be a path from your home, such as .cache/models, not {value!r}")
host = rule_that(
    lambda name: re.fullmatch(r"(\*\.)?[0-9a-z]([0-9a-z.-]*[0-9a-z])?(:\d{1,5})?", name),
    "must be all, none, or hosts like example.com, *.example.com and example.com:8443, not {value!r}",
)
pattern = rule_that(re.compile, "is not a regular expression: {value!r}")
known_zone = rule_that(zone, "unknown time zone {value!r} on this machine; use UTC, or a name like Europe/Berlin")
forwardable = rule_that(lambda name: not name.startswith(("GIT_", "RUNPLAN_")), "{value} is set by runplan itself")
time_of_day = rule_that(lambda time: re.fullmatch(r"|([01]\d|2[0-3]):[0-5]\d", time), "must be a time like 08:00")
_CLOCK = r"([01]\d|2[0-3]):[0-5]\d"
clock_hours = rule_that(lambda text: re.fullmatch(f"|{_CLOCK}-{_CLOCK}", text), "must be like 22:00-07:00")
port_number = rule_that(lambda port: port <= 65535, "must be 0 to 65535, not {value}")
person = rule_that(lambda who: re.fullmatch(r"|[^<>\n]+ <[^<>\s]+>", who), "must be like: Name <name@example.com>")
subject = rule_that(
    lambda text: "{what}" in text and text.format(plan="", what="").isprintable(),
    "must be one line with {{what}}, such as: chore({{plan}}): {{what}}",
)
web_address = rule_that(lambda url: re.fullmatch(r"|https?://[^\s/]\S*", url), "must be an http or https address")

# Each key is annotated with its reason, and with the rule for its value or for each text of its list.
Texts: TypeAlias = tuple[str, ...]
Network: TypeAlias = str | Texts  # one of NETWORKS, or hosts
OneOrMore: TypeAlias = Texts | str


def is_allowed_host(name: str, port: int, hosts: Texts) -> bool:
    """Whether a list of hosts has this one; `*.` stands for one or more parts, and a host without a port for all."""
    known = (allowed.partition(":") for allowed in hosts)
    fits = ((name.endswith(top[1:]) if top[0] == "*" else name == top, number) for top, _, number in known)
    return any(is_named and number in ("", str(port)) for is_named, number in fits)


class RunSettings(Struct, frozen=True, kw_only=True):
    landing: Annotated[str, "how phases land: cherry-pick, pr or direct", one_of(*LANDINGS)] = "cherry-pick"
    target: Annotated[str, "branch that receives landings", branch] = "main"
    remote: Annotated[str, "remote that pr and direct push to", not_empty] = "origin"
    main_protected: Annotated[bool, "the target takes no pushes: direct is refused before any work"] = False
    branch_prefix: Annotated[str, "work branches are <prefix><plan>/<phase>", ref_prefix] = "runplan/"
    author: Annotated[str, "author of landed commits: user or agent", one_of("user", "agent")] = "user"
    co_author: Annotated[str, "a further author of landed work: Name <name@example.com>; empty: none", person] = ""
    signoff: Annotated[bool, "add Signed-off-by with your name to landed commits"] = False
    bookkeeping_subject: Annotated[str, "first line of commits that record progress", subject] = "{plan}: {what}"
    worktrees: Annotated[
        str, "directory in which agents work; empty: ../<checkout>.runplan, else ~/runplan/<checkout>", plain_path
    ] = ""
    max_fix_cycles: Annotated[int, "how often a phase that failed its checks may be fixed"] = 2
    parallel: Annotated[int, "phases worked on at once, if their `Touches:` do not overlap", not_zero] = 1
    pipeline: Annotated[int, "phases begun with `auto` on a phase that is still being proven"] = 0
    setup: Annotated[str, "command that prepares a fresh worktree, e.g. npm ci; again when its inputs change"] = ""
    setup_inputs: Annotated[Texts, 'further files whose change makes it run again, e.g. ["tools/**"]'] = ()
    copy: Annotated[Texts, 'files copied to a fresh worktree, e.g. [".env"]', path_inside] = ()
    clean: Annotated[
        str,
        "files deleted before tests run, so leftovers cannot make them pass: ignored or untracked",
        one_of("ignored", "untracked"),
    ] = "ignored"
    sign_off: Annotated[Texts, 'a person signs off changes of these files, e.g. ["web/**"]'] = ()
    timezone: Annotated[str, "time zone of schedules, e.g. Europe/Berlin", known_zone] = "UTC"
    pace: Annotated[int, "per cent of a usage window that runs may use; then agents wait; 0: all", percentage] = 0
    hours: Annotated[str, "agents begin only then, e.g. 22:00-07:00; empty: always", clock_hours] = ""
    misfire: Annotated[str, "after downtime: run missed schedules once or skip them", one_of(*MISFIRES)] = "run-once"

    @property
    def target_ref(self) -> str:
        remote = f"refs/remotes/{self.remote}/{self.target}"
        return remote if uses_remote(self.landing) else f"refs/heads/{self.target}"

    @property
    def concludes(self) -> bool:
        return self.landing == "pr"


def uses_remote(landing: str) -> bool:
    """Whether the target is a branch of the remote, so that landing needs the remote and its credentials."""
    return landing != "cherry-pick"


class AgentTable(Struct, frozen=True, kw_only=True):
    name: str
    kind: Annotated[str, "built-in kind of agent"]
    argv: Annotated[Texts, "program and its arguments"] = ()
    script: Annotated[str, "file that a script agent plays", not_empty] = ""
    env: Annotated[Texts, "names of further environment variables for it", forwardable] = ()
    model: Annotated[str, "model to use; unset: the program's default", not_empty] = ""
    effort: Annotated[str, "how much it thinks, in its program's words; unset: the program's default", not_empty] = ""
    args: Annotated[Texts, "further arguments for its program"] = ()
    context: Annotated[int, "size of its context in tokens; 0: as reported, or by model"] = 0
    usd_per_mtok_in: Annotated[float, "dollars per million tokens sent; 0: as reported"] = 0.0
    usd_per_mtok_out: Annotated[float, "dollars per million tokens received; 0: as reported"] = 0.0
    sandbox: Annotated[str, "sandbox of this agent; unset: agents.sandbox", one_of(*SANDBOXES)] = ""
    account: Annotated[str, "login that it uses; agents of one share its usage limit; unset: its name", not_empty] = ""


class ContainerSettings(Struct, frozen=True, kw_only=True):
    image: Annotated[str, 'image in which agents and checks run, if agents.sandbox = "container"'] = ""
    build: Annotated[str, "Dockerfile of the repository from which it is built instead, at the target's tip"] = ""
    context: Annotated[str, "folder of the repository from which the Dockerfile may copy", not_empty] = "."
    engine: Annotated[str, "auto takes the first that works", one_of(*CONTAINER_ENGINES)] = "auto"
    mounts: Annotated[Texts, 'further places in it, read-only, e.g. ["/opt/sdk", "/data:/data:rw"]', absolute] = ()
    user: Annotated[str, "user in it; empty: you"] = ""


class AgentsSettings(Struct, frozen=True, kw_only=True):
    implementer: Annotated[str, "does the work: a built-in kind or an [agents.<name>]", not_empty] = "claude"
    verifier: Annotated[str, "judges the work, preferably another agent", not_empty] = "codex"
    verifiers: Annotated[Texts, "several verifiers instead; all of them must pass"] = ()
    planner: Annotated[str, "writes plans: a built-in kind or an [agents.<name>]", not_empty] = "claude"
    trial: Annotated[str, "tries what try.serve serves, with a browser; empty: the verifier"] = field(
        default="", name="try"
    )
    fallback: Annotated[
        OneOrMore, "replaces an agent during its usage limit; of a list the first free one; empty: wait"
    ] = ""
    sandbox: Annotated[
        str, "for agents and checks: auto (bubblewrap), bwrap, container or none", one_of(*SANDBOXES)
    ] = "auto"
    home: Annotated[Texts, 'entries of your home that agents may read, e.g. [".cache/models"]', home_entry] = ()
    caches: Annotated[Texts, "entries of your home, or other directories, of which they get their own", not_empty] = ()
    mounts: Annotated[Texts, "places, sockets and devices outside the home that they may use", absolute] = ()
    network: Annotated[Network, 'hosts that agents may reach: all, none, or a list like ["*.example.com"]', host] = (
        "all"
    )
    container: ContainerSettings = ContainerSettings()
    tables: dict[str, AgentTable] = {}
    others: tuple[AgentTable, ...] = ()  #: that phases of the plan, or the caller, want besides

    @property
    def judges(self) -> tuple[str, ...]:
        return self.verifiers or (self.verifier,)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.fallback,))) if isinstance(self.fallback, str) else self.fallback

    @property
    def named(self) -> list[tuple[str, str]]:
        roles = [("implementer", self.implementer), ("verifier", self.verifier), ("planner", self.planner)]
        roles += [("verifiers", name) for name in self.verifiers]
        roles += [("try", self.trial)] if self.trial else []
        return roles + [("fallback", name) for name in self.fallbacks]

    @property
    def dispatched(self) -> list[tuple[str, str]]:
        unused = ("planner", "verifier" if self.verifiers else "")
        return [(role, name) for role, name in self.named if role not in unused]

    @property
    def used(self) -> tuple[AgentTable, ...]:
        return (*(self.agent(name) for name in dict.fromkeys(name for _, name in self.dispatched)), *self.others)

    @property
    def sandboxes(self) -> dict[str, str]:
        by_agent = {f"agents.{table.name}.sandbox": table.sandbox for table in self.used if table.sandbox}
        return {"agents.sandbox": self.sandbox} | by_agent

    @property
    def has_containers(self) -> bool:
        return "container" in self.sandboxes.values()

    def sandbox_of(self, name: str) -> str:
        return self.agent(name).sandbox or self.sandbox

    def account_of(self, name: str) -> str:
        return self.agent(name).account or name

    def agent(self, name: str) -> AgentTable:
        return self.tables.get(name) or AgentTable(name=name, kind=name)  # a built-in kind needs no table


class CheckSettings(Struct, frozen=True, kw_only=True):
    command: Annotated[str, "command that proves a phase, e.g. make test; run verbatim, never guessed"] = ""
    timeout_s: Annotated[float, "a test command that runs longer has failed", not_zero] = 1800.0
    allow_red_baseline: Annotated[bool, "start although the tests already fail before any work"] = False
    summary: Annotated[str, "regular expression in the output of a finished run; empty: none", pattern] = ""
    junit: Annotated[Texts, 'JUnit files to read instead of the output, e.g. ["out/*.xml"]', path_inside] = ()
    paths: Annotated[Texts, 'further test files, beside the usual names, e.g. ["t/**"]', path_inside] = ()
    env: Annotated[Texts, "your variables that tests and run.setup see, e.g. JAVA_HOME"] = ()
    home: Annotated[Texts, "entries of your home that they may read in the sandbox", home_entry] = ()
    caches: Annotated[Texts, "entries of your home, or other directories, of which they get their own", not_empty] = ()
    mounts: Annotated[Texts, 'places they may use, e.g. ["/run/postgresql"]', absolute] = ()
    network: Annotated[Network, "hosts that tests and run.setup may reach: all, none, or a list", host] = "all"
    rerun: Annotated[str, "command that repeats failed tests, e.g. pytest {tests}; empty: automatic"] = ""
    prove: Annotated[
        str,
        "old tests on new code and new tests on old code: off, report or require",
        one_of("off", "report", "require"),
    ] = "report"
    changed: Annotated[
        str, "base tests that fail on the new code: verify, ask or refuse", one_of("verify", "ask", "refuse")
    ] = "verify"


class GateTable(Struct, frozen=True, kw_only=True):
    command: Annotated[str, "command that has to pass, e.g. ruff check", not_empty]
    timeout_s: Annotated[float, "a gate that runs longer has failed", not_zero] = 1800.0
    parallel: Annotated[bool, "run at the same time as the other gates that say so"] = False


class GatesSettings(Struct, frozen=True, kw_only=True):
    tables: dict[str, GateTable] = {}


class TrySettings(Struct, frozen=True, kw_only=True):
    paths: Annotated[Texts, 'an agent tries changes of these files in use, e.g. ["web/**"]'] = ()
    serve: Annotated[str, "command that serves the work on $RUNPLAN_PORT, for that agent; empty: nothing is tried"] = ""
    timeout_s: Annotated[float, "a server that accepts no connection after this time has failed", not_zero] = 60.0


class LimitSettings(Struct, frozen=True, kw_only=True):
    """Where an agent is stopped. Without a scope in its name, a limit is per dispatch."""

    wall_s: Annotated[float, "longest run of an agent per dispatch", not_zero] = 7200.0
    fix_wall_s: Annotated[float, "the same of a fixer; 0s: as limits.wall"] = 0.0
    verify_wall_s: Annotated[float, "the same of a verifier, which only reads; 0s: as limits.wall"] = 2700.0
    silence_s: Annotated[float, "longest time without output or activity; 0s for no limit"] = 900.0
    handover_s: Annotated[float, "longest time for taking over an agent's work", not_zero] = 300.0
    handover_size: Annotated[int, "largest pack and sum of large files of an agent's work, in bytes"] = 2_000_000_000
    handover_entries: Annotated[int, "most files and directories that an agent's work may change"] = 200_000
    context_critical: Annotated[int, "per cent of context at which a fresh agent continues; 0: never", percentage] = 60
    context_warning: Annotated[
        int, "per cent at which an agent that takes messages is told to write its notes; 0: never", percentage
    ] = 50
    tokens: Annotated[int, "tokens per dispatch, sent and received; 0 for no limit"] = 0
    usd: Annotated[float, "dollars per dispatch, as reported or by its price; 0 for no limit"] = 0.0
    memory: Annotated[int, "memory of all processes of a dispatch, tests too, in bytes; 0 for no limit"] = 0
    phase_tokens: Annotated[int, "tokens per phase, over all its attempts; 0 for no limit"] = 0
    phase_usd: Annotated[float, "dollars per phase; 0 for no limit"] = 0.0
    phase_wall_s: Annotated[float, "time of agents per phase; 0s for no limit"] = 0.0
    plan_tokens: Annotated[int, "tokens per plan, over all its runs; 0 for no limit"] = 0
    plan_usd: Annotated[float, "dollars per plan; 0 for no limit"] = 0.0
    plan_wall_s: Annotated[float, "time of agents per plan; 0s for no limit"] = 0.0
    day_tokens: Annotated[int, "tokens of the repository, or of the fleet, per day of run.timezone; 0 for no limit"] = 0
    day_usd: Annotated[float, "dollars of the repository, or of the fleet, per day; 0 for no limit"] = 0.0
    day_wall_s: Annotated[float, "time of agents of the repository, or of the fleet, per day; 0s for no limit"] = 0.0
    month_tokens: Annotated[int, "tokens of the repository, or of the fleet, per calendar month; 0 for no limit"] = 0
    month_usd: Annotated[float, "dollars of the repository, or of the fleet, per month; 0 for no limit"] = 0.0
    month_wall_s: Annotated[float, "time of agents of the repository or fleet, per month; 0s for no limit"] = 0.0

    def wall_of(self, role: Role) -> float:
        walls: dict[str, float] = {"fix_wall": self.fix_wall_s, "verify_wall": self.verify_wall_s}
        return walls.get(role.wall) or self.wall_s

    @property
    def in_dollars(self) -> bool:
        return any((self.usd, self.phase_usd, self.plan_usd, self.day_usd, self.month_usd))


class PullRequestSettings(Struct, frozen=True, kw_only=True):
    method: Annotated[str, "merge, rebase or squash, if allowed", one_of("merge", "rebase", "squash")] = "merge"
    poll_s: Annotated[float, "first interval between two looks at checks and reviews; it grows", not_zero] = 15.0
    checks_wait_s: Annotated[float, "how long to wait for further checks after a push, or after the last check"] = 60.0
    draft: Annotated[bool, "open a draft, and mark it ready when the last phase has landed"] = True
    labels: Annotated[Texts, "labels of new pull requests"] = ()
    assignees: Annotated[Texts, "accounts that are assigned to new pull requests"] = ()
    reviewers: Annotated[Texts, "accounts and teams (org/team) asked to review new pull requests"] = ()
    ignore_red_on_target: Annotated[bool, "merge although checks fail that fail on the target too"] = False
    bookkeeping: Annotated[
        str,
        "commits of tracker and report: phase (one after each), or squash (one at the end; the branch is pushed anew)",
        one_of("phase", "squash"),
    ] = "phase"
    stack: Annotated[bool, "one pull request for each phase, or phases of one `Pull-request:`, on the last"] = False
    max_reviews: Annotated[int, "how often an auto run has new messages of reviewers handled by itself; 0: never"] = 3


class IssuesSettings(Struct, frozen=True, kw_only=True):
    claim: Annotated[str, "shows on GitHub that a run works on an issue: assignee, or a label; empty: nothing"] = ""
    trust: Annotated[
        str,
        "whose issues a watch works on, and whose comments it reads: write (may write) or all",
        one_of("write", "all"),
    ] = "write"
    plan: Annotated[bool, "have agents write a plan for an issue first, which you approve as plan.approval says"] = (
        False
    )


class PlanSettings(Struct, frozen=True, kw_only=True):
    approval: Annotated[
        str, "required, or none for plans without open questions and permissions", one_of("required", "none")
    ] = "required"
    rounds: Annotated[int, "rounds of critique and revision, 1 to 4", few_rounds] = 2
    explorers: Annotated[int, "agents that explore at once, each with its own question, 1 to 5", few_explorers] = 1
    replan: Annotated[bool, "have the planner revise a phase that does not fit, if the run has that agent"] = True
    quick: Annotated[bool, "leave out understanding and alternatives, with one round"] = False
    steps: Annotated[Texts, "the steps to take; there is always a draft", one_of(*PLANNING)] = (*map(str, PLANNING),)
    sections: Annotated[Texts, "headings that a plan must have beside its phases", not_empty] = marks.SECTIONS
    memory: Annotated[bool, "tell agents what earlier runs here have taught: runplan memory"] = True

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(role for role in PLANNING if role in (*self.steps, Role.DRAFT))


class DaemonSettings(Struct, frozen=True, kw_only=True):
    max_parallel: Annotated[int, "runs at the same time on this host", not_zero] = 4
    max_parallel_repository: Annotated[int, "runs at the same time in one repository", not_zero] = 3
    grace_s: Annotated[float, "time for running agents to finish after the first SIGTERM or Ctrl-C"] = 30.0


class PathSettings(Struct, frozen=True, kw_only=True):
    plans: Annotated[str, "directory of the plans", path_inside] = "plans"
    reports: Annotated[str, "directory of the reports", path_inside] = "reports"


class NotifyTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    on: tuple[str, ...] = ()  #: empty: notify.on

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]


Targets: TypeAlias = tuple[str | NotifyTarget, ...]


def _read_target(entry: str | NotifyTarget) -> NotifyTarget:
    return NotifyTarget(url=entry) if isinstance(entry, str) else entry


def _is_target(entry: str | NotifyTarget) -> bool:
    target = _read_target(entry)
    is_url = re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://\S+", target.url) and names.is_plain(target.url)
    return bool(is_url) and set(target.on) <= set(NOTICES)


# The message has no {value}: an address may be a secret.
notify_target = rule_that(_is_target, f"each must be an address SCHEME://..., `on` a list of {', '.join(NOTICES)}")


class NotifySettings(Struct, frozen=True, kw_only=True):
    command: Annotated[str, "notification command; details in $RUNPLAN_* and as JSON on its input"] = ""
    webhook: Annotated[str, "address to which the same JSON is posted", web_address] = ""
    urls: Annotated[
        Targets, 'services of Apprise: "ntfy://TOPIC" or {url = "slack://...", on = ["failed"]}', notify_target
    ] = ()
    desktop: Annotated[bool, "show notifications on the desktop of this machine"] = False
    morning: Annotated[str, "time of the daily report, e.g. 08:00; empty: none", time_of_day] = ""
    on: Annotated[Texts, "the notices that are sent", one_of(*NOTICES)] = NOTICES

    @property
    def targets(self) -> tuple[NotifyTarget, ...]:
        return tuple(replace(target, on=target.on or self.on) for target in map(_read_target, self.urls))


class WebSettings(Struct, frozen=True, kw_only=True):
    address: Annotated[str, "address on which runplan web listens", not_empty] = "127.0.0.1"
    port: Annotated[int, "port of runplan web; 0: any free one", port_number] = 8642
    url: Annotated[str, "address of the page for links in notifications; empty: they name commands", web_address] = ""


class FleetSettings(Struct, frozen=True, kw_only=True):
    dsn: Annotated[str, "address of the fleet's PostgreSQL; empty: plans are worked on here"] = ""
    max_parallel: Annotated[int, "runs at the same time over all hosts; 0 for no limit"] = 0
    output: Annotated[int, "bytes of each output kept in the database; the rest stays on its host"] = 4_000_000


class Settings(Struct, frozen=True, kw_only=True):
    run: RunSettings = RunSettings()
    agents: AgentsSettings = AgentsSettings()
    tests: CheckSettings = CheckSettings()
    gates: GatesSettings = GatesSettings()
    trial: TrySettings = field(default=TrySettings(), name="try")
    limits: LimitSettings = LimitSettings()
    pull_request: PullRequestSettings = PullRequestSettings()
    issues: IssuesSettings = IssuesSettings()
    plan: PlanSettings = PlanSettings()
    daemon: DaemonSettings = DaemonSettings()
    paths: PathSettings = PathSettings()
    notify: NotifySettings = NotifySettings()
    web: WebSettings = WebSettings()
    fleet: FleetSettings = FleetSettings()

    @property
    def checks(self) -> dict[str, GateTable]:
        tests = {TESTS: GateTable(command=self.tests.command, timeout_s=self.tests.timeout_s)}
        return (tests if self.tests.command else {}) | self.gates.tables

    @property
    def of_project(self) -> "Settings":
        """Without the sections of the user, which may contain secrets."""
        fields = (name for name in Settings.__struct_fields__ if name not in USER_SECTIONS)
        return Settings(**{name: getattr(self, name) for name in fields})

    @property
    def check_groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of the checks; those of one group run at the same time."""
        together = tuple(name for name, table in self.checks.items() if table.parallel)
        alone = ((name,) for name, table in self.checks.items() if not table.parallel)
        return (*alone, *([together] if together else []))


def set_for_phase(settings: Settings, chosen: PhaseSettings, *, is_last: bool) -> Settings:
    """The settings with those of a phase; the end of a plan is proven by all tests."""
    agents = settings.agents
    judges = (chosen.verifier,) if chosen.verifier else agents.verifiers
    agents = replace(agents, implementer=chosen.agent or agents.implementer, verifiers=judges)
    narrows = chosen.tests and settings.tests.command and not is_last
    tests = replace(settings.tests, command=chosen.tests, summary="", rerun="") if narrows else settings.tests
    return replace(settings, agents=agents, tests=tests)


class Key(Struct, frozen=True):
    """One setting, as its field declares it. A field that ends in `_s` is a duration in seconds."""

    section: str
    field: str
    type: Any
    default: Any
    why: str
    rule: Rule | None
    name: str  #: as it is written

    TYPES: ClassVar = {
        str: "text in quotes",
        bool: "true or false",
        int: "a whole number, 0 or more",
        float: "a number, 0 or more",
        Texts: 'a list of texts like ["a", "b"]',
        Network: 'all, none, or a list of hosts like ["example.com"]',
        Targets: 'a list like ["ntfy://TOPIC", {url = "ntfy://TOPIC", on = ["failed"]}]',
    }

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def is_duration(self) -> bool:
        return self.field.endswith("_s")

    @property
    def written(self) -> object:
        return format_duration(self.default) if self.is_duration else self.default

    @property
    def is_network(self) -> bool:
        return self.type == Network and self.rule is host

    @property
    def expected(self) -> str:
        if self.is_duration:
            return 'a duration like "90s", "15m" or "1h30m"'
        is_either = self.type == OneOrMore and not self.is_network
        return 'text in quotes, or a list like ["a", "b"]' if is_either else self.TYPES[self.type]

    def read(self, value: object) -> Any:
        try:
            typed: Any = parse_duration(value) if self.is_duration else convert(value, self.type)
        except ValidationError:
            typed = None
        if isinstance(typed, (int, float)):
            is_usable = 0 <= typed < float("inf")
        else:
            is_usable = typed is not None and (all(typed) if isinstance(typed, tuple) else "\0" not in typed)
        if not is_usable:
            raise ValueError(f"must be {self.expected}" + (f", not {value!r}" if self.type != Targets else ""))
        if self.is_network and typed not in NETWORKS and (isinstance(typed, str) or {*NETWORKS} & {*typed}):
            raise ValueError(f"must be {self.expected}, not {value!r}")
        for item in typed if isinstance(typed, tuple) else (typed,):
            if self.rule is not None and (wrong := self.rule(item)):
                raise ValueError(wrong)
        return typed

    def from_text(self, text: str) -> object:
        """The value that the text of a variable or a flag means. Other text is returned as it is, for `read`."""
        is_either = self.type == OneOrMore and ("," in text or (self.is_network and text not in NETWORKS))
        if self.type in (Texts, Targets) or is_either:
            return [part.strip() for part in text.split(",") if part.strip()]
        if self.is_duration or self.type in (str, Network):
            return text
        try:
            return convert(text.strip().lower(), self.type, strict=False)
        except ValidationError:
            return text


def keys_of(section: str, declared: type[Struct]) -> tuple[Key, ...]:
    return tuple(
        Key(section, of.name, of.type.__origin__, of.default, why, rule[0] if rule else None, name)
        for of in fields(declared)
        for why, *rule in [getattr(of.type, "__metadata__", ("",))]
        for name in [of.encode_name.removesuffix("_s")]
        if why
    )


_OF_CONTAINERS = keys_of("agents.container", ContainerSettings)
KEYS = tuple(
    key
    for section in fields(Settings)
    for key in (*keys_of(section.encode_name, section.type), *(_OF_CONTAINERS if section.name == "agents" else ()))
)
SECTIONS = tuple(section.encode_name for section in fields(Settings))
AGENT_KEYS = keys_of("agents.*", AgentTable)
GATE_KEYS = keys_of("gates.*", GateTable)
_DURATION = r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?"
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_duration(text: object) -> float | None:
    match = re.fullmatch(_DURATION, text.strip().lower()) if isinstance(text, str) else None
    if not match or not match[0]:
        return None
    return sum(float(count) * unit for count, unit in zip(match.groups("0"), _UNITS.values(), strict=True))


def format_duration(seconds: float) -> str:
    unit = next((unit for unit, length in _UNITS.items() if seconds and seconds % length == 0), "s")
    return f"{seconds / _UNITS[unit]:.12g}{unit}"
