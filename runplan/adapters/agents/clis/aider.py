"""The `aider` agent. It edits files by its model's answer and prints plain lines."""

import re
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from runplan.adapters.agents.adapter import Agent, Task, provider_keys, under_home
from runplan.adapters.agents.endings import classify_trouble
from runplan.adapters.store.files import read_text
from runplan.domain.names import DIFF_FILE
from runplan.domain.run import dispatch as d

_HEADS = (b"Analytics have been", b"Detected dumb terminal", b"Weak model:", b"Git repo:", b"Repo-map:")
_NUMBER = rb"(\d{1,9}|\d{1,9}(?:\.\d{1,3})?[kM])"
_COST = rb"Cost: \$(\d{1,9}\.\d{1,9}) message, \$\d{1,9}\.\d{1,9} session\."
_TOKENS = re.compile(
    rb"Tokens: " + _NUMBER + rb" sent, (?:[\w. ]{1,40}, ){0,3}" + _NUMBER + rb" received\.(?: " + _COST + rb")?\s*"
)
_COST_LINE = re.compile(_COST + rb"\s*")  #: on a line of its own after long statistics of the cache
_MOST_TOKENS = 20_000_000  #: in one answer; no context window is larger
_ERROR = re.compile(rb"litellm\.\w{1,60}(?:Error|Exception|Timeout)\b")
#: The usual form of an error of its library: its own name for it, then the provider's.
_LIBRARY_ERROR = re.compile(rb"litellm\.\w{1,60}: (?:litellm\.)?\w{1,60}(?:Error|Exception|Timeout)(?: -|:)")
_DIFF_IN_PROMPT = "\n=== begin of diff"  #: as the prompt quotes it


class Aider(Agent):
    program = "aider"
    install = "uv tool install aider-chat"
    names_provider = True
    closes = True
    base = (
        *("--yes-always", "--no-pretty", "--no-stream", "--no-check-update"),
        "--no-analytics",  # --analytics-disable would write that to the user's home, for ever
        *("--no-show-release-notes", "--no-gitignore", "--no-detect-urls", "--no-suggest-shell-commands"),
        *("--map-tokens", "0", "--chat-history-file", "/dev/null", "--input-history-file", "/dev/null"),
        *("--no-auto-commits", "--no-dirty-commits"),  # runplan commits the changes itself
    )
    reading = ("--dry-run", "--read", DIFF_FILE)
    model_flag = "--model"
    effort_arguments = ("--reasoning-effort", "{}")
    rank = 6
    instructions = (".aider.conf.yml",)
    folder = ".aider"
    configuration = ("oauth-keys.env",)
    keys = provider_keys()
    #: It wraps lines at the width of the screen, error messages too.
    fixed: ClassVar = {"COLUMNS": "4000"}

    def build_arguments(self, task: Task) -> tuple[str, ...]:
        # It adds each file that the prompt names to those it edits, except files that it only reads.
        guarded = (word for name in task.guarded for word in ("--read", name))
        return ("--message-file", str(task.prompt), *guarded, *super().build_arguments(task))

    def role_arguments(self, task: Task) -> tuple[str, ...]:
        """A verifier reads the diff as a file, unless its prompt has the diff; a planner has none."""
        is_in_prompt = not task.writes and _DIFF_IN_PROMPT in (read_text(task.prompt) or "")
        return self.reading[:1] if is_in_prompt or task.role.is_planner else super().role_arguments(task)

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        names = (".aider.conf.yml", ".env", ".aider/oauth-keys.env")
        return any(under_home(caller, name).exists() for name in names)

    def read_line(self, line: bytes) -> tuple[d.AgentEvent, ...]:
        """Its own lines are known by their beginning; every other line is a part of the message."""
        if line.startswith(_HEADS):
            return ()
        if line.startswith(b"Aider v"):
            return (d.Started(version=_decode_line(line[7:])),)
        if line.startswith(b"Main model: "):
            return (d.Started(model=_decode_line(line[12:].partition(b" with ")[0])),)
        if line.startswith(b"Applied edit to "):
            return (d.ToolUsed(tool="edit", path=_decode_line(line[16:])[:4_096]),)
        if (tokens := _TOKENS.fullmatch(line)) and _parse_count(tokens[1]) <= _MOST_TOKENS:
            sent = _parse_count(tokens[1])
            usd = float(tokens[3]) if tokens[3] else 0.0
            used = d.Usage(input_tokens=sent, output_tokens=_parse_count(tokens[2]), usd=usd)
            return (d.Spent(usage=used), d.Context(tokens=sent), d.Finished(ok=True, so_far=True))
        if cost := _COST_LINE.fullmatch(line):
            return (d.Spent(usage=d.Usage(usd=float(cost[1]))),)
        if _ERROR.match(line):
            error = replace(classify_trouble(_decode_line(line[:4_000])), doubtful=not _LIBRARY_ERROR.match(line))
            return (d.Message(text=_decode_line(line) + "\n"), error)
        if line.startswith(b"Retrying in "):
            return (d.Retrying(words=_decode_line(line[:400])),)
        return (d.Message(text=_decode_line(line) + "\n"),)


AGENT = Aider()


def _parse_count(number: bytes) -> int:
    unit = {b"k": 1_000, b"M": 1_000_000}.get(number[-1:], 1)
    return int(float(number.rstrip(b"kM")) * unit)


def _decode_line(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
