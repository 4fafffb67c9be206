"""The MCP server, called by the client of the SDK over standard input and output."""

import json
import signal
import subprocess
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.support.cli import RUNPLAN, Meanwhile, Project, fix, set_up, steps, work

if TYPE_CHECKING:  # its import takes two seconds, which only the tests here need
    from mcp import Client
    from mcp.types import CallToolResult


class Session:
    """The calls of one client."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.told: list[str] = []  #: the progress of all calls
        self.until_told: anyio.CancelScope | None = None  #: cancelled by the first progress

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured content of a call that succeeds."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        return dict(result.structured_content)

    async def refused(self, tool: str, **arguments: Any) -> str:
        """The words of a call that fails."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.content
        return str(result.structured_content["error"])

    async def call(self, tool: str, **arguments: Any) -> "CallToolResult":
        return await self.client.call_tool(tool, arguments, progress_callback=self._tell)

    async def _tell(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append(message or "")
        if self.until_told is not None:
            self.until_told.cancel()


def talk(project: Project, play: Callable[[Session], Awaitable[None]]) -> None:
    """Connect, play, and leave."""
    from mcp import Client, StdioServerParameters

    async def run() -> None:
        server = StdioServerParameters(command=str(RUNPLAN), args=["mcp"], env=project.env, cwd=project.path)
        with anyio.fail_after(100):
            async with Client(server) as client:
                await play(Session(client))

    anyio.run(run)


@pytest.mark.promise
def test_a_plan_is_started_followed_answered_rejected_and_approved_by_its_tree(project: Project) -> None:
    asks = steps('say = "BLOCKER: which port?"\nonce = "main:.git/asked"', 'exit = 0\nonce = "main:.git/ended"')
    set_up(project, agent=asks + work() + fix('append = "1.txt"\ntext = "more\\n"'))

    async def play(session: Session) -> None:
        (listed,) = (await session.ask("status"))["plans"]
        assert (listed["plan"], listed["next"], listed["done"]) == ("plans/X.md", "1", "0 of 2 phases")
        assert "Accepted as r" in (await session.ask("start", plan="X", options=["1"]))["messages"]
        assert (await session.ask("follow", plan="X"))["run"]["waiting_for"] == "question"
        (question,) = (await session.ask("inbox"))["entries"]
        await session.ask("answer", id=question["id"], text="--8080")
        followed = await session.ask("follow", plan="X")
        assert (followed["run"]["state"], followed["run"]["waiting_for"]) == ("waiting", "approval")
        assert "runplan approve plans/X.md" in followed["log"][-1]
        assert any("passed: 1 of 1 item proven" in line for line in session.told)

        first = await session.ask("diff", plan="X")
        await session.ask("reject", plan="X", tree=first["tree"], why="- more words")
        await session.ask("follow", plan="X")
        second = await session.ask("diff", plan="X", file="1.txt")
        assert second["diff"].startswith("diff --git a/1.txt b/1.txt\n")
        assert "+more" in second["diff"]
        assert "runplan diff plans/X.md" in await session.refused("approve", plan="X", tree=first["tree"])
        assert project.landed() == []
        await session.ask("approve", plan="X", tree=second["tree"])
        followed = await session.ask("follow", plan="X")
        assert (followed["run"]["outcome"], project.landed()) == ("done", ["1"])

    talk(project, play)
    (question,) = project.bodies("QuestionAnswered")
    answers = project.bodies("Answered")
    assert question["text"] == "--8080"
    assert [(answer["approved"], answer["why"].strip(), answer["by"]) for answer in answers] == [
        (False, "- more words", "Uma User (mcp)"),
        (True, "", "Uma User (mcp)"),
    ]


def test_the_queue_is_worked_and_a_run_is_followed_and_stopped(project: Project, meanwhile: Meanwhile) -> None:
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))

    async def play(session: Session) -> None:
        assert [plan["plan"] for plan in (await session.ask("queue"))["plans"]] == ["plans/X.md"]
        assert "work takes a number of plans" in await session.refused("work", options=["--all"])
        await session.ask("work", options=["1", "auto"])
        await anyio.to_thread.run_sync(meanwhile.reached, "agent")
        followed = await session.ask("follow", plan="X", timeout=0.1)
        assert (followed["run"]["state"], followed["note"]) == ("running", "the run goes on: call follow again")
        with anyio.CancelScope() as session.until_told:
            await session.ask("follow", plan="X")
        await session.ask("stop", plan="X")
        assert (await session.ask("follow", plan="X"))["run"]["state"] == "stopped"

    talk(project, play)


def test_bad_calls_are_refused_in_the_words_of_the_command(project: Project) -> None:
    from mcp import MCPError

    async def play(session: Session) -> None:
        assert "no such plan" in await session.refused("check", plan="nope")
        assert await session.refused("start", plan="X", options=["9"]) == "9: no such phase; the phases are 1, 2"
        assert "--foreground: no such word" in await session.refused("start", plan="X", options=["--foreground"])
        assert "plan is missing" in await session.refused("stop")
        assert "unknown argument fase" in await session.refused("diff", plan="X", fase="1")
        assert "null character" in await session.refused("plan", goal="a\0b")
        assert "null character" in await session.refused("status", repository="a\0b")
        assert "longer than 100000 bytes" in await session.refused("answer", id="q", text="x" * 200_000)
        assert "No such file or directory" in await session.refused("status", repository="~nobody-of-this-name/x")
        assert "Expected `str`" in await session.refused("check", plan=7)
        assert "No such file or directory" in await session.refused("status", repository="/nowhere")
        with pytest.raises(MCPError, match="no such tool"):
            await session.call("merge")
        tools = {tool.name: tool.annotations for tool in (await session.client.list_tools()).tools}
        assert {name for name, hints in tools.items() if hints and hints.read_only_hint} == {
            *("status", "check", "follow", "report", "diff", "inbox", "queue")
        }
        assert {name for name, hints in tools.items() if hints and hints.destructive_hint} == {
            *("stop", "approve", "reject")
        }

    talk(project, play)
    assert project.events() == []


@pytest.mark.promise
def test_it_is_refused_to_agents_and_without_its_library(project: Project) -> None:
    ran = project.runplan("mcp", RUNPLAN_AGENT="1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.last == "runplan: mcp does not run inside an agent (RUNPLAN_AGENT is set)"
    hidden = (
        "import sys; sys.modules['mcp'] = None; from runplan.interfaces.cli.main import main; sys.exit(main(['mcp']))"
    )
    without = project.run_program(RUNPLAN.with_name("python"), "-c", hidden)
    without.exits(2, "pip install 'runplan[mcp]'")


def test_ctrl_c_ends_the_server_and_only_the_protocol_is_printed(project: Project) -> None:
    ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with subprocess.Popen(
        [RUNPLAN, "mcp"], cwd=project.path, env=project.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(ping)
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == -signal.SIGINT
        assert server.stdout.read() == b""
