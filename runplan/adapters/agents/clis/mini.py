"""The `mini` agent: mini-swe-agent, which reports its work in a file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from runplan.adapters.agents import adapter as f
from runplan.adapters.agents.adapter import Agent, Task, first_set, provider_keys
from runplan.adapters.agents.endings import classify_trouble
from runplan.adapters.store.files import read_text
from runplan.domain.run.dispatch import AgentEvent, Context, Finished, Message, Spent, Started, Usage
from runplan.domain.settings.schema import AgentTable

TRAJECTORY = "trajectory.json"
LONGEST_ARGUMENT = 120 * 1024  #: Linux takes 128 KiB for one argument; a longer prompt is named instead of passed
_CHOOSES = ("-m", "--model", "-c", "--config")  #: arguments by which a user chooses the model, or a file that does


class Mini(Agent):
    program = "mini"
    install = "uv tool install mini-swe-agent"
    names_provider = True
    closes = True
    base = ("-y", "--exit-immediately")
    usd_flag = "--cost-limit"  # it reports dollars only at its end
    rank = 7
    folder = ".config/mini-swe-agent"
    configuration = (".env",)
    keys = provider_keys()
    models = ("MSWEA_MODEL_NAME",)
    prints_version = False
    prompt_ends = b"mini-swe-agent (step "
    fixed: ClassVar = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    folder_variable = "MSWEA_GLOBAL_CONFIG_DIR"
    passed = (folder_variable,)

    def build_arguments(self, task: Task) -> tuple[str, ...]:
        prompt = os.fsdecode(task.prompt.read_bytes().replace(b"\0", b""))
        if len(os.fsencode(prompt)) > LONGEST_ARGUMENT:
            to_do = "Read all of it, in pieces if need be, and do what it says."
            prompt = f"Your task is in the file {task.prompt}. {to_do}"
        return (*super().build_arguments(task), "-o", str(task.own / TRAJECTORY), "-t", prompt)

    def is_configured(self, caller: Mapping[str, str]) -> bool:
        return bool(_read_settings(caller).get("MSWEA_MODEL_NAME"))

    def find_key(self, table: AgentTable, caller: Mapping[str, str]) -> str:
        """A key in the environment wins over one in its settings."""
        return first_set(caller, *self.keys_for(table.model or self.find_choice(table, caller)[1]))

    def find_choice(self, table: AgentTable, caller: Mapping[str, str]) -> tuple[str, str]:
        """Likewise the address and the model."""
        seen = {**_read_settings(caller), **{name: value for name, value in caller.items() if value}}
        model = seen.get("MSWEA_MODEL_NAME", "")
        return seen.get(first_set(seen, *self.addresses_for(table.model or model)), ""), model

    def explain_lack(self, table: AgentTable, caller: Mapping[str, str]) -> str:
        chosen = table.model or caller.get("MSWEA_MODEL_NAME") or self.is_configured(caller)
        if chosen or any(arg.startswith(_CHOOSES) for arg in table.args):
            return ""
        remedy = f'set model = "..." under [agents.{table.name}] in runplan.toml'
        return f"has no model, and does not work without one; {remedy}"

    def read_line(self, line: bytes) -> tuple[AgentEvent, ...]:
        """Its output is for people: the prompt, commands and their output. It shows how long the conversation is."""
        return (f.estimate_context(line.decode(errors="replace"), resent=line.startswith(self.prompt_ends)),)

    def read_reports(self, directory: Path) -> tuple[AgentEvent, ...]:
        """The trajectory is written at every step."""
        trajectory = f.parse_object((read_text(directory / TRAJECTORY, largest=32 * 1024 * 1024) or "").encode())
        if trajectory is None:
            return ()
        info = f.get_value(trajectory, "info")
        used = Usage(usd=f.get_number(info, "model_stats", "instance_cost"))
        sent = 0
        model = error = ""
        for message in f.get_objects(trajectory, "messages"):
            if answer := f.get_value(message, "extra", "response"):
                sent = f.get_count(answer, "usage", "prompt_tokens")
                cached = f.get_count(answer, "usage", "prompt_tokens_details", "cached_tokens")
                answered = f.get_count(answer, "usage", "completion_tokens")
                used = used.plus(Usage(input_tokens=sent, output_tokens=answered, cached_tokens=cached))
                model = f.get_text(answer, "model") or model
            error = f.get_text(message, "extra", "exception_str") or error
        events = (Started(model=model), Spent(usage=used, total=True), Context(tokens=sent))
        status = f.get_text(info, "exit_status")
        if not status:  # it was stopped between two steps
            return events
        if status == "Submitted":
            return (*events, Message(text=f.get_text(info, "submission"), final=True), Finished(ok=True))
        words = f"{status}: {error}" if error else status
        return (*events, classify_trouble(words), Finished(ok=False, words=words))


AGENT = Mini()


def _read_settings(caller: Mapping[str, str]) -> dict[str, str]:
    """The user's settings: lines such as MSWEA_MODEL_NAME='openai/gpt-5'."""
    lines = (read_text(AGENT.find_folder(caller) / ".env") or "").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip().strip("'\"") for name, _, value in pairs}
