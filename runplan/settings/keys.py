"""The table of settings: every key with its shape, its default and one line why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.settings import values
from runplan.settings.values import Shape, Unfit

if TYPE_CHECKING:
    from collections.abc import Callable


class Key(Struct, frozen=True, kw_only=True):
    """One setting."""

    section: str
    name: str
    default: str | bool | int | float | tuple[str, ...]
    why: str
    shape: Shape = Shape.TEXT
    choices: tuple[str, ...] = ()
    rule: Callable[[Any], str] | None = None  #: what is wrong with a well-shaped value; "" for nothing

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def field(self) -> str:
        """The attribute that holds it: durations say their unit."""
        return f"{self.name}_s" if self.shape is Shape.DURATION else self.name


def read(key: Key, value: object) -> Any:
    """The typed value of `key`, as its attribute holds it, or Unfit."""
    typed = values.shaped(key.shape, value)
    if isinstance(typed, Unfit):
        return typed
    if key.choices and typed not in key.choices:
        return Unfit(why=f"must be one of {', '.join(key.choices)}, not {value!r}")
    if key.rule and (wrong := key.rule(typed)):
        return Unfit(why=wrong)
    return typed


def nearest(word: str, valid: tuple[str, ...]) -> str:
    """The valid word that resembles `word` most."""
    from difflib import get_close_matches  # only an error needs it

    return get_close_matches(word.lower(), valid, n=1, cutoff=0.0)[0]


SANDBOXES = ("auto", "bwrap", "none")

AGENT_KEYS: tuple[Key, ...] = (
    Key(section="agents.*", name="kind", default="", why="which built-in kind it is"),
    Key(section="agents.*", name="argv", shape=Shape.LIST, default=(), why="the program and its arguments"),
    Key(
        section="agents.*",
        name="script",
        default="",
        rule=values.not_empty,
        why="the file a script agent plays",
    ),
    Key(
        section="agents.*",
        name="env",
        shape=Shape.LIST,
        default=(),
        rule=values.all_passed_on,
        why="names of further environment variables it is given",
    ),
    Key(section="agents.*", name="model", default="", rule=values.not_empty, why="the model it is asked to use"),
    Key(section="agents.*", name="args", shape=Shape.LIST, default=(), why="further arguments for its program"),
    Key(
        section="agents.*",
        name="context",
        shape=Shape.COUNT,
        default=0,
        rule=values.not_negative,
        why="tokens its context has room for; 0: as it tells, or by the model's name",
    ),
    Key(
        section="agents.*",
        name="usd_per_mtok_in",
        shape=Shape.MONEY,
        default=0.0,
        rule=values.not_negative,
        why="dollars per million tokens sent, where it tells none; 0: unknown",
    ),
    Key(
        section="agents.*",
        name="usd_per_mtok_out",
        shape=Shape.MONEY,
        default=0.0,
        rule=values.not_negative,
        why="dollars per million tokens received, where it tells none; 0: unknown",
    ),
    Key(
        section="agents.*",
        name="private",
        shape=Shape.FLAG,
        default=False,
        why="a configuration of its own for each dispatch; unset: when there is a key and no configuration of yours",
    ),
    Key(
        section="agents.*",
        name="sandbox",
        default="auto",
        choices=SANDBOXES,
        why="whether this agent runs under bubblewrap; unset: agents.sandbox",
    ),
)


LANDINGS = ("cherry-pick", "pr", "direct")
NOTICES = ("done", "failed", "waiting")


def _budget(scope: str, of: str) -> tuple[Key, ...]:
    """Tokens, dollars and time of one scope; a dispatch's time is `wall`."""
    keys = (
        Key(
            section="limits",
            name=f"{scope}tokens",
            shape=Shape.COUNT,
            default=0,
            rule=values.not_negative,
            why=f"tokens {of}, sent and received; 0 for no limit",
        ),
        Key(
            section="limits",
            name=f"{scope}usd",
            shape=Shape.MONEY,
            default=0.0,
            rule=values.not_negative,
            why=f"dollars {of}, as the agent tells them or by its price; 0 for no limit",
        ),
        Key(
            section="limits",
            name=f"{scope}wall",
            shape=Shape.DURATION,
            default="0s",
            why=f"time {of}; 0s for no limit",
        ),
    )
    return keys if scope else keys[:2]


def _filled(name: str, default: int, why: str) -> Key:
    """How full a context may be."""
    share = values.percentage
    return Key(section="limits", name=name, shape=Shape.COUNT, default=default, rule=share, why=why)


KEYS: tuple[Key, ...] = (
    Key(
        section="run",
        name="landing",
        default="cherry-pick",
        choices=LANDINGS,
        why="how a verified phase reaches the target: cherry-pick, pr or direct",
    ),
    Key(
        section="run",
        name="target",
        default="main",
        rule=values.branch,
        why="the branch that receives landings",
    ),
    Key(
        section="run",
        name="remote",
        default="origin",
        rule=values.not_empty,
        why="where pr and direct push to",
    ),
    Key(
        section="run",
        name="main_protected",
        shape=Shape.FLAG,
        default=False,
        why="the target takes no pushes: direct is refused before any work",
    ),
    Key(
        section="run",
        name="branch_prefix",
        default="runplan/",
        rule=values.prefix,
        why="work branches are <prefix><plan>/<phase>",
    ),
    Key(
        section="run",
        name="author",
        default="user",
        choices=("user", "agent"),
        why="author of landed commits: user or agent; the committer is always the user",
    ),
    Key(
        section="run",
        name="worktrees",
        default="~/.cache/runplan/worktrees",
        rule=values.place,
        why="where agents work, outside of your checkout",
    ),
    Key(
        section="run",
        name="max_fix_cycles",
        shape=Shape.COUNT,
        default=2,
        rule=values.not_negative,
        why="how often a fresh agent may mend a phase that failed its checks",
    ),
    Key(
        section="run",
        name="parallel",
        shape=Shape.COUNT,
        default=1,
        rule=values.at_least_one,
        why="phases of one plan worked side by side by `finish auto`, where their `Touches:` do not overlap",
    ),
    Key(section="run", name="setup", default="", why="command that prepares a fresh worktree, e.g. npm ci"),
    Key(
        section="run",
        name="copy",
        shape=Shape.LIST,
        default=(),
        rule=values.all_inside,
        why='files taken over from your checkout into a fresh worktree, e.g. [".env"]',
    ),
    Key(
        section="run",
        name="clean",
        default="ignored",
        choices=("ignored", "untracked"),
        why="removed before gates, lest leftovers fake a green: ignored or untracked files",
    ),
    Key(
        section="run",
        name="timezone",
        default="UTC",
        rule=values.not_empty,
        why="zone of schedules, e.g. Europe/Berlin",
    ),
    Key(
        section="run",
        name="misfire",
        default="run-once",
        choices=("run-once", "skip"),
        why="what becomes of schedules that were due while nobody was there: one run, or none",
    ),
    Key(
        section="agents",
        name="implementer",
        default="claude",
        rule=values.not_empty,
        why="who does the work: a built-in kind or the name of an [agents.<name>] table",
    ),
    Key(
        section="agents",
        name="verifier",
        default="codex",
        rule=values.not_empty,
        why="who judges it, preferably somebody else",
    ),
    Key(section="agents", name="planner", default="claude", rule=values.not_empty, why="who writes plans"),
    Key(
        section="agents",
        name="fallback",
        default="",
        why="who stands in while another agent's usage limit lasts; empty to wait for its reset",
    ),
    Key(
        section="agents",
        name="sandbox",
        default="auto",
        choices=SANDBOXES,
        why="run agents and checks under bubblewrap: auto (where it works), bwrap (refuse where not), none",
    ),
    Key(
        section="tests",
        name="command",
        default="",
        why="command that proves a phase, e.g. make test; taken verbatim, never guessed",
    ),
    Key(
        section="tests",
        name="timeout",
        shape=Shape.DURATION,
        default="30m",
        rule=values.some_time,
        why="a test command that runs longer has not passed",
    ),
    Key(
        section="tests",
        name="allow_red_baseline",
        shape=Shape.FLAG,
        default=False,
        why="start although the tests already fail before any work",
    ),
    Key(
        section="tests",
        name="summary",
        default="",
        rule=values.pattern,
        why="regular expression that the output of a finished run contains; empty for none",
    ),
    Key(
        section="tests",
        name="env",
        shape=Shape.LIST,
        default=(),
        why="names of further variables of yours that tests and run.setup see, e.g. JAVA_HOME",
    ),
    Key(
        section="limits",
        name="wall",
        shape=Shape.DURATION,
        default="2h",
        rule=values.some_time,
        why="the longest an agent may run per dispatch",
    ),
    Key(
        section="limits",
        name="silence",
        shape=Shape.DURATION,
        default="15m",
        why="the longest an agent may give no sign of life; 0s for no limit",
    ),
    _filled("context_warn", 50, "per cent of its context at which an agent's hand-over is prepared; 0 for never"),
    _filled("context_critical", 60, "per cent at which it is ended and a fresh agent goes on; 0 for never"),
    *_budget("", "an agent may use per dispatch"),
    *_budget("phase_", "a phase may use, over all its agents and attempts"),
    *_budget("plan_", "a plan may use, over all its runs"),
    *_budget("day_", "all plans of the repository may use per day of run.timezone"),
    Key(
        section="daemon",
        name="max_parallel",
        shape=Shape.COUNT,
        default=4,
        rule=values.at_least_one,
        why="runs at work at once on this host; from the user's file",
    ),
    Key(
        section="daemon",
        name="max_parallel_repository",
        shape=Shape.COUNT,
        default=3,
        rule=values.at_least_one,
        why="runs at work at once in one repository; from the user's file",
    ),
    Key(
        section="daemon",
        name="grace",
        shape=Shape.DURATION,
        default="30s",
        why="what running agents get to end by themselves at the first SIGTERM or Ctrl-C; from the user's file",
    ),
    Key(section="paths", name="plans", default="plans", rule=values.inside, why="where plans lie"),
    Key(
        section="paths",
        name="reports",
        default="reports",
        rule=values.inside,
        why="where reports are written",
    ),
    Key(
        section="notify",
        name="command",
        default="",
        why="command that tells you; facts in RUNPLAN_* and as JSON on its input",
    ),
    Key(
        section="notify", name="webhook", default="", rule=values.web_address, why="address that is sent the same JSON"
    ),
    Key(
        section="notify", name="desktop", shape=Shape.FLAG, default=False, why="show it on the desktop of this machine"
    ),
    Key(
        section="notify",
        name="on",
        shape=Shape.LIST,
        default=NOTICES,
        rule=values.all_of(NOTICES),
        why="what you are told: runs that are done, have failed, or are waiting for you",
    ),
)

BY_PATH: dict[str, Key] = {key.path: key for key in KEYS}
SECTIONS: tuple[str, ...] = tuple(dict.fromkeys(key.section for key in KEYS))
#: Where a repository keeps its settings; the first that exists is read.
FILES = ("runplan.toml", "config/runplan.toml")
#: The daemon serves all repositories of a user, so these are read from the user's file only.
USER_SECTIONS: tuple[str, ...] = ("daemon", "notify")
