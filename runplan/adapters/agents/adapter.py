"""The base class of agents, the task they are started for, and the fields of what they print."""

import json
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct

from runplan.adapters.agents.budgets import tokens_in
from runplan.adapters.sandbox.view import HomeUse
from runplan.adapters.store.files import read_text
from runplan.domain.run import dispatch
from runplan.domain.run.kinds import Role
from runplan.domain.settings.schema import AgentTable

JsonObject: TypeAlias = Mapping[str, object]
_LONGEST_OUTPUT = 10_000  #: programs shorten a command's output before they send it to the model
_MOST = 2**53  #: no count of tokens is larger; beyond it floats are not exact
#: The parameters in which tools name the file they use.
_PATHS = ("file_path", "filePath", "path", "notebook_path", "absolute_path")
#: Those in which they name a command, or what they look for.
_DETAILS = ("command", "pattern", "query", "url", "description")
#: The variables with each provider's key and address, by the word before the slash in a model's name.
PROVIDERS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"),  # of two addresses the first one counts
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "gemini": ("GEMINI_API_KEY",),
    "google": ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
    "openrouter": ("OPENROUTER_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
}


def parse_object(line: bytes) -> JsonObject | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def read_json(path: Path) -> JsonObject:
    """The object in a configuration file; an empty one when it cannot be read."""
    return parse_object((read_text(path) or "").encode()) or {}


def get_value(tree: object, *names: str) -> Any:
    for name in names:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def get_text(tree: object, *names: str) -> str:
    """The text there; a lone surrogate, which JSON can spell and nothing can print, becomes a question mark."""
    value = get_value(tree, *names)
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def get_count(tree: object, *names: str) -> int:
    """The number there, if it can be one of tokens or seconds."""
    return int(get_number(tree, *names))


def get_number(tree: object, *names: str) -> float:
    value = get_value(tree, *names)
    is_sound = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST
    return float(value) if is_sound else 0.0


def get_objects(tree: object, *names: str) -> Iterator[JsonObject]:
    values = get_value(tree, *names)
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))


def read_usage(tree: object, cached: str) -> dispatch.Usage:
    """The usage in an object; the field `cached` has the part of the sent tokens that came from a cache."""
    sent, answered, read = (get_count(tree, name) for name in ("input_tokens", "output_tokens", cached))
    return dispatch.Usage(input_tokens=sent, output_tokens=answered, cached_tokens=read)


def read_tool(name: str, parameters: object, *, denied: bool = False) -> dispatch.ToolUsed:
    path, detail = (next(filter(None, (get_text(parameters, key) for key in keys)), "") for keys in (_PATHS, _DETAILS))
    return dispatch.ToolUsed(tool=name[:200], path=path[:4_096], detail=detail[:4_096], denied=denied)


def end_tool(output: str, code: object) -> dispatch.ToolEnded:
    """The end of a command; an exit code that is none is not shown."""
    ending = f"exit code {code}" if isinstance(code, int) else ""
    return dispatch.ToolEnded(output=output[-_LONGEST_OUTPUT:], ending=ending)


def estimate_context(message: str, output: str = "", *, resent: bool = False) -> dispatch.Context:
    """The context used by a message and an output; `resent`: it is sent with the whole conversation again."""
    tokens = tokens_in(len(message) + min(len(output), _LONGEST_OUTPUT))
    return dispatch.Context(tokens=tokens, estimated=True, resent=resent)


class Task(Struct, frozen=True, kw_only=True):
    table: AgentTable  #: its settings
    caller: Mapping[str, str]  #: the caller's environment
    role: Role
    phase: str  #: phase id
    cycle: int  #: from 1; grows with each fix
    root: Path  #: the main checkout
    directory: Path  #: the directory of the dispatch
    guarded: tuple[str, ...] = ()  #: files of the worktree that no agent may change
    sandboxed: bool = False
    usd: float = 0.0  #: dollars it may use, for a program that enforces the limit itself; 0: no limit

    @property
    def writes(self) -> bool:
        """Whether it may use all its tools; what a trial writes is thrown away."""
        return self.role.is_writer or self.role is Role.TRY

    @property
    def own(self) -> Path:
        """The directory that the program may write besides its worktree."""
        return self.directory / dispatch.OWN

    @property
    def prompt(self) -> Path:
        return self.directory / "prompt.md"


class Agent:
    """One kind of agent; its name is that of its module in agents/clis, which has an instance called AGENT."""

    program = ""  #: looked for on PATH; "": a command of the user
    install = ""  #: the command that installs it
    base: tuple[str, ...] = ()  #: its arguments in every role
    writing: tuple[str, ...] = ()  #: its arguments where it has to change files
    reading: tuple[str, ...] = ()  #: its arguments where it must not
    model_flag = "-m"
    effort_arguments: tuple[str, ...] = ()  #: with `{}` for the effort; () for a program that has none
    usd_flag = ""  #: of a program that enforces a limit in dollars itself
    rank = 100  #: `init` suggests agents with a lower rank first
    keys: tuple[str, ...] = ()  #: variables with its keys, the preferred one first
    addresses: tuple[str, ...] = ()  #: variables with its provider's address
    names_provider = False  #: its model does, such as openai/gpt-5, and so decides about keys and addresses
    models: tuple[str, ...] = ()  #: variables with its model
    passed: tuple[str, ...] = ()  #: further variables of the caller that it gets
    prompt_ends = b""  #: it prints its prompt first; the line that ends it begins so
    personal: tuple[str, ...] = ()  #: untracked files of the checkout that it reads; copied to its worktree
    instructions: tuple[str, ...] = ()  #: patterns: further files of a repository that it takes as instructions
    overhead = 0  #: characters of its own instructions in each request, for an agent that reports usage at its end
    prints_json = False  #: each line is a JSON object; else it is a part of the message
    reports_quota = False  #: how much of a usage window is used; else run.pace has no effect
    closes = False  #: it has an end event, and without one no run ended well
    codes: ClassVar[Mapping[int, dispatch.EndingKind]] = {}  #: meaning of exit codes when its output does not say more
    prints_version = True  #: with --version
    reports_usd = True  #: else a limit in dollars needs a price in the settings
    highest_usd = (0.0, 0.0)  #: per million tokens in and out; charged when it is stopped before it reports dollars
    stop_signal = signal.SIGTERM  #: on which it ends itself and its commands
    folder_variable = ""  #: names its directory instead
    folder = ""  #: its directory in the home: private in a sandbox, except for
    configuration: tuple[str, ...] = ()  #: entries there that it reads: settings and instructions
    logins: tuple[str, ...] = ()  #: files there that it refreshes
    copied: tuple[str, ...] = ()  #: files there that it replaces, and thus gets a copy of
    fixed: ClassVar[Mapping[str, str]] = {}  #: variables that are always set

    def build_argv(self, task: Task) -> tuple[str, ...]:
        return (*(task.table.argv or (self.program,)), *self.build_arguments(task))

    def build_arguments(self, task: Task) -> tuple[str, ...]:
        """Its arguments: those of every role, of this one, the limit, model and effort, and those of the settings."""
        if not self.program:
            return ()
        limit = (self.usd_flag, f"{task.usd:.4f}") if self.usd_flag and task.usd else ()
        model = (self.model_flag, task.table.model) if task.table.model else ()
        effort = [word.format(task.table.effort) for word in self.effort_arguments] if task.table.effort else ()
        return (*self.base, *self.role_arguments(task), *limit, *model, *effort, *task.table.args)

    def role_arguments(self, task: Task) -> tuple[str, ...]:
        return self.writing if task.writes else self.reading

    def encode_message(self, text: str) -> bytes:  # noqa: ARG002
        """The text as a line of standard input, for a program that takes messages while it runs; else b""."""
        return b""

    def read_line(self, line: bytes) -> tuple[dispatch.AgentEvent, ...]:
        """The events that a line of its output reports."""
        if not self.prints_json:
            return (dispatch.Message(text=line.decode(errors="replace") + "\n"),)
        event = parse_object(line)
        if event is None:
            return (dispatch.Unread(),) if line.strip() else ()
        return tuple(self.read_event(event))

    def read_event(self, event: JsonObject) -> Iterable[dispatch.AgentEvent]:  # noqa: ARG002
        """The same for an event of an agent that prints JSON."""
        return ()

    def read_reports(self, directory: Path) -> tuple[dispatch.AgentEvent, ...]:  # noqa: ARG002
        """The events that it reports in files, read when it has ended."""
        return ()

    def find_folder(self, caller: Mapping[str, str]) -> Path:
        """Its directory of settings, login and state."""
        return Path(caller.get(self.folder_variable) or under_home(caller, self.folder))

    def use_home(self, caller: Mapping[str, str]) -> HomeUse:
        if not self.folder:
            return HomeUse()
        folder = self.find_folder(caller)
        names = (self.configuration, self.logins, self.copied)
        readable, shared, copied = (tuple(str(folder / name) for name in group) for group in names)
        return HomeUse(private=(str(folder),), readable=readable, shared=shared, copied=copied)

    def keys_for(self, model: str) -> tuple[str, ...]:
        return provider_keys(model) if self.names_provider else self.keys

    def list_variables(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, ...]:  # noqa: ARG002
        return (*self.keys_for(table.model), *self.addresses_for(table.model), *self.models, *self.passed)

    def build_environment(self, task: Task) -> dict[str, str]:  # noqa: ARG002
        return dict(self.fixed)

    def make_files(self, task: Task) -> dict[str, str]:  # noqa: ARG002
        """Files to write to the directory of the dispatch before it starts."""
        return {}

    def is_configured(self, caller: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Whether the user chose a login or provider in the agent's own configuration; it may need no key then."""
        return False

    def addresses_for(self, model: str) -> tuple[str, ...]:
        """The variables with the address that it uses for this model, the preferred one first."""
        if not self.names_provider:
            return self.addresses
        return tuple(name for name in provider_names(model) if not name.endswith("_API_KEY"))

    def find_choice(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, str]:  # noqa: ARG002
        """The address and the model by the agent's own configuration, where runplan can read them."""
        return "", ""

    def find_key(self, table: AgentTable, caller: Mapping[str, str]) -> str:
        """The variable with the key it uses; "" when the user's configuration of the agent decides that."""
        return "" if self.is_configured(caller) else first_set(caller, *self.keys_for(table.model))

    def describe_account(self, table: AgentTable, caller: Mapping[str, str]) -> str:
        """The login, address and model it will use, and the account that is billed."""
        key = self.find_key(table, caller)
        is_own = self.is_configured(caller)
        default = "of its own configuration" if is_own else "its default"
        seen = caller if key or not is_own else {}
        address, model = self.find_choice(table, caller)
        model = table.model or model or seen.get(first_set(seen, *self.models), "")
        address = address or seen.get(first_set(seen, *self.addresses_for(model))) or default
        login, bill = (key, key) if key else ("of its own configuration", "that login")
        return f"login {login}; address {address}; model {model or default}; billed to the account of {bill}"

    def explain_lack(self, table: AgentTable, caller: Mapping[str, str]) -> str:  # noqa: ARG002
        """Why it cannot work, and the remedy; "" when nothing is missing."""
        return ""


def provider_names(model: str) -> tuple[str, ...]:
    """The variables of the model's provider, of all known ones when it names none; an unknown one may need none."""
    if "/" in model:
        return PROVIDERS.get(model.partition("/")[0], ())
    return tuple(dict.fromkeys(name for names in PROVIDERS.values() for name in names))


def provider_keys(model: str = "") -> tuple[str, ...]:
    return tuple(name for name in provider_names(model) if name.endswith("_API_KEY"))


def first_set(caller: Mapping[str, str], *names: str) -> str:
    """The first of the names that has a value; "" for none."""
    return next((name for name in names if caller.get(name)), "")


def under_home(caller: Mapping[str, str], *parts: str) -> Path:
    return Path(caller.get("HOME") or "/").joinpath(*parts)
