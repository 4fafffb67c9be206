"""The verbs of the command line: their help, arguments and examples. Cheap to import."""

from argparse import SUPPRESS, _ActionsContainer
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from runplan.app.operations import requests

#: Adds itself to a parser. Those of a list exclude each other.
Argument: TypeAlias = Callable[[_ActionsContainer], object]


class Verb(NamedTuple):
    module: str  #: with its function
    line: str  #: of help
    arguments: tuple[Argument | list[Argument], ...] = ()


def _value(help: str, *names: str, **more: Any) -> Argument:
    return lambda parser: parser.add_argument(*names, help=help, **more)


def _flag(help: str, *names: str) -> Argument:
    return _value(help, *names, action="store_true")


def _operation(kind: type[Any], *more: Argument | list[Argument]) -> Verb:
    """The verb of a request, with a word or an option for each field that has help."""
    hints = get_type_hints(kind, include_extras=True)
    shown = [field for field in fields(kind) if get_origin(hints[field.name]) is Annotated]
    arguments = []
    for field in shown:
        base, about = get_args(hints[field.name])
        is_needed = field.default is MISSING
        default = None if is_needed else field.default
        option = {"why": "-m", "sources": "--with"}.get(field.name, f"--{field.name.replace('_', '-')}")
        if base is bool:
            arguments.append(_flag(about.text, option))
        elif field.name in ("plan", "phase", "options", "id", "text"):
            nargs = "+" if field.name == "text" else "*" if base is not str else None if is_needed else "?"
            arguments.append(_value(about.text, field.name, metavar=about.value, nargs=nargs, default=default))
        else:
            settings = {"metavar": about.value, "dest": field.name, "default": default, "required": is_needed}
            if base == tuple[str, ...]:
                settings |= {"action": "append", "default": []}
            elif base is not str:
                settings["type"] = int
            arguments.append(_value(about.text, option, **settings))
    return Verb("cli.control", str(kind.__doc__).partition(".\n")[0].removesuffix("."), (*arguments, *more))


_ANY_RUN = _value("a plan, or the id of a run", "plan", metavar="PLAN|RUN", nargs="?")
_JSON = _flag("print JSON", "--json")
_HERE = _flag("run here and exit with the outcome", "--foreground")
_PREVIEW = _flag("show what would be done and change nothing", "--dry-run")
_WAIT = _flag("follow the daemon's run and exit with its outcome", "--wait")
_BACKGROUND = _flag("continue it by the daemon, also after start --foreground", "--background")
_VIA = _value(SUPPRESS, "--via", metavar="WAY", default="terminal")  # for programs that answer for a person
_GOAL = (
    _value("its words, - for standard input, or a spec folder", "goal", metavar="GOAL", nargs="*", default=[]),
    _flag("revise a plan: PLAN [PHASE] instead of GOAL", "--revise"),
    [_HERE, _flag("return when the daemon has accepted it", "--no-wait")],
    _JSON,
)
_DIFF = (
    _value("a plan, or the id of a run", "plan", metavar="PLAN|RUN"),
    _value("a phase that waits, failed or, of a run, landed", "phase", metavar="PHASE", nargs="?"),
    [_flag("print it at once, also on a terminal", "--no-pager"), _JSON],
)
_STATUS = (_ANY_RUN, _flag("all repositories, with finished plans and other pages", "--all"), _JSON)
_REPORT = (
    _ANY_RUN,
    _value("all repositories since today, yesterday, 8h, 2d or 2026-11-15", "--since", metavar="WHEN"),
    [_flag("print one HTML page", "--html"), _JSON],
    _value("write to a file", "-o", "--output", metavar="FILE"),
)
_LOGS = (
    _ANY_RUN,
    _flag("list the runs, the newest first", "--list"),
    _flag("continue until the run ends", "-f", "--follow"),
    [
        _flag("the transcripts of all its agents", "--agent"),
        _flag("the recorded events with their fields, in UTC", "--events"),
        _flag("one JSON object per line", "--json"),
    ],
)
_WEB = (
    _flag("only show: no form is accepted", "--read-only"),
    _value("default: web.address; other machines need --tls or --behind-proxy", "--address", metavar="ADDRESS"),
    _value("default: web.port; 0 for any", "--port", metavar="PORT", type=int),
    _value("speak https, with these files", "--tls", metavar=("CERT", "KEY"), nargs=2),
    _flag("a proxy in front of it speaks https", "--behind-proxy"),
)
_ALL = _flag("every step, instead of the last ones", "--all")
_STEPS = _value("only the steps of this phase", "phase", metavar="PHASE", nargs="?")
_CHECK = (
    _value("a file, a spec folder, or a plan of this repository", "plan", metavar="PLAN"),
    _flag("add a tracker to a plan of bare phase sections", "--fix"),
    _flag("turn warnings into errors", "--strict"),
    _flag("also what a start would refuse: settings, agents, target; then exit 1", "--preflight"),
    _JSON,
)
_MEMORY = (
    [_value("forget this lesson", "--forget", metavar="ID", default=""), _flag("forget all of them", "--clear"), _JSON],
)
_QUEUE = (
    _value("instead of a list", "action", choices=("move", "pin", "unpin"), nargs="?"),
    _value("a plan of the queue", "plan", metavar="PLAN", nargs="?", default=""),
    _value("its new number, for move", "to", metavar="N", type=int, nargs="?"),
    _JSON,
)
_INIT = (_flag("write a /run-plan skill for the agent you talk to, instead", "--skill"),)
_DAEMON = (_value("stop or restart the running daemon", "action", nargs="?", choices=("stop", "restart")),)
_SERVICE = (
    _value("what to do", "action", choices=("install", "uninstall", "status")),
    _flag("only show the file and the commands", "--dry-run"),
    _JSON,
)
_ACTIONS = ("init", "status", "drain", "up", "forget", "metrics")
_FLEET = (
    _value("init creates the tables in the database", "action", choices=_ACTIONS),
    _value("the name of a host, as status shows it", "host", metavar="HOST", nargs="?"),
    _value("its URL; default: the remote of this repository", "--repository", metavar="URL", action="append"),
    _flag("with metrics: answer Prometheus until SIGTERM", "--serve"),
    _value("of --serve", "--address", metavar="ADDRESS", default="127.0.0.1"),
    _value("of --serve; 0 for any", "--port", metavar="PORT", type=int, default=9788),
    _JSON,
)
_WORKER = (
    _value("name of this host; default: that of the machine", "--host", metavar="NAME", default=""),
    _value("labels of this host, for phases with a line Host:", "--labels", metavar="A,B", default=""),
    _value("plans at the same time; default: daemon.max_parallel", "--slots", metavar="N", type=int),
)
_NOTIFY = (_flag("send a test notice through each channel", "--test"),)
_RUN = _flag("also run set-up and tests once, in a fresh worktree", "--run")
_GC = (_flag("only list", "--dry-run"), _JSON)
_UNINSTALL = (
    _flag("only list what would be removed and kept", "--dry-run"),
    _flag("remove work that did not land, too: parked refs and branches of runs", "--delete-work"),
    _JSON,
)
_DEMO = (
    _flag("begin with a goal: agents write the plan first", "--plan"),
    _flag("play it slowly, and show its page in a browser", "--web"),
    _value("before each step of an agent; default with --web: 2.5", "--pause", metavar="SECONDS", type=float),
    _flag("keep the repository and say where it is", "--keep"),
)
_COMPLETION = (_value("the shell that completes", "shell", choices=("bash", "zsh", "fish")),)
_HELP = (_value("the verb to explain", "verb", metavar="VERB", nargs="?"),)

GROUPS: dict[str, dict[str, Verb]] = {
    "Work on plans": {
        "start": _operation(requests.StartRequest, [_HERE, _WAIT, _PREVIEW]),
        "plan": _operation(requests.PlanRequest, *_GOAL),
        "work": _operation(requests.WorkRequest, _PREVIEW),
        "queue": Verb("cli.show.report", "List the plans that work takes, in order; move or pin one", _QUEUE),
        "watch-issues": _operation(requests.WatchIssuesRequest),
        "stop": _operation(requests.StopRequest),
        "pause": _operation(requests.PauseRequest),
        "resume": _operation(requests.ResumeRequest),
        "now": _operation(requests.NowRequest),
        "retry": _operation(requests.RetryRequest, [_HERE, _WAIT, _BACKGROUND]),
        "undo": _operation(requests.UndoRequest),
    },
    "Answer": {
        "inbox": Verb("cli.show.report", "Show what waits for you, in all repositories", (_JSON,)),
        "diff": Verb(
            "cli.show.change", "Show the change or plan that waits, or the kept work of a failed phase", _DIFF
        ),
        "approve": _operation(requests.ApproveRequest, _VIA, [_WAIT, _BACKGROUND]),
        "reject": _operation(requests.RejectRequest, _VIA, [_WAIT, _BACKGROUND]),
        "edit": _operation(requests.EditRequest),
        "answer": _operation(requests.AnswerRequest, [_WAIT, _BACKGROUND]),
        "tell": _operation(requests.TellRequest),
    },
    "Look": {
        "status": Verb("cli.show.status", "Show what is done, running and next", _STATUS),
        "watch": Verb("cli.show.watch", "Show the plans of all repositories in the terminal, with keys to answer"),
        "next": Verb("cli.show.status", "List schedules and when they fire next", (_JSON,)),
        "report": Verb("cli.show.report", "Show a plan's report", _REPORT),
        "logs": Verb("cli.show.journal", "Show what a plan's newest run did, step by step", _LOGS),
        "attach": Verb("cli.show.journal", "Follow the agents of a plan's run, and what they are told", (_ANY_RUN,)),
        "explain": Verb(
            "cli.show.journal", "Say why the run stands where it does, and what to do", (_ANY_RUN, _STEPS, _ALL, _JSON)
        ),
        "check": Verb("cli.show.check", "Show how runplan reads a plan, and what is wrong with it", _CHECK),
        "memory": Verb("cli.show.report", "Show what earlier runs taught the agents here, and forget it", _MEMORY),
        "web": Verb("web.app", "Show plans, changes and costs in a browser, and answer there", _WEB),
        "metrics": Verb("cli.show.journal", "Print Prometheus metrics"),
    },
    "Set up": {
        "init": Verb("cli.setup.machine", "Write a commented runplan.toml that fits this repository", _INIT),
        "doctor": Verb("cli.setup.machine", "Check the setup and suggest fixes", (_RUN, _JSON)),
        "config": Verb("cli.setup.machine", "Print every setting, its value and its origin", (_JSON,)),
        "gc": Verb("cli.setup.machine", "Remove what ended runs left behind; list what is kept", _GC),
        "uninstall": Verb("cli.setup.machine", "Remove what runplan left in this repository and your home", _UNINSTALL),
        "mcp": Verb("mcp.server", "Serve plans, changes and answers to the agent you talk to, by MCP"),
        "service": Verb("cli.setup.machine", "Manage the login service", _SERVICE),
        "daemon": Verb("cli.setup.machine", "Run the daemon in the foreground, stop it, or restart it", _DAEMON),
        "fleet": Verb("cli.setup.fleet", "Set up a fleet of many hosts, show its state, take a host out of it", _FLEET),
        "worker": Verb("cli.setup.fleet", "Work on plans of a fleet on this host, in the foreground", _WORKER),
        "notify": Verb("cli.setup.machine", "Send a test notice through each channel of [notify]", _NOTIFY),
        "demo": Verb("cli.setup.demo", "Work on a three-phase plan in a temporary repository", _DEMO),
        "completion": Verb("cli.setup.completion", "Print a completion script for bash, zsh or fish", _COMPLETION),
        "help": Verb("cli.setup.completion", "Show all verbs, or the options and examples of one", _HELP),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
#: The verbs that are refused to agents; `gc`, `memory`, `queue`, `uninstall` and `service` for some arguments.
CHANGING = (
    *(name for name, verb in VERBS.items() if verb.module == "cli.control"),
    *("web", "mcp", "init", "daemon", "demo", "notify"),
)

EXAMPLES = {
    "start": """\
  runplan start plans/X.md finish auto                everything, phase after phase, by the daemon
  runplan start finish auto                           the same, where only one plan is open
  runplan start plans/X.md auto every 4h              the next phase every 4 hours; with `now` also at once
  runplan start X every "weekday at 9:30"             in run.timezone
  runplan start plans/X.md --foreground               the next phase, here; it lands after runplan approve
  runplan start X finish auto direct --foreground     everything, pushed to the remote's branch
  runplan start --issue 42 auto                       an issue on GitHub, landed by a pull request that fixes it
  runplan start X finish --dry-run                    what would be done; changes nothing""",
    "plan": """\
  runplan plan "add OAuth login"                        a short plan; it waits for: runplan approve
  runplan plan -                                        the goal from standard input
  runplan plan --issue 42                               the text of an issue is quoted, never obeyed
  runplan plan "add a cache" --then "finish auto pr"    goal in, pull request out
  runplan plan --revise plans/X.md 2 -m "use sqlite"    revise a phase; finished phases stay as they are""",
    "work": """\
  runplan work                             the first ready plan of the queue, each phase after your approval
  runplan work --dry-run                   which plans it would take, and why it would not take others
  runplan work 3 auto                      three plans, one after the other
  runplan work all auto pr                 until no plan is ready
  runplan work all every day at 22:00      every night; stop it: runplan stop queue:all""",
    "queue": """\
  runplan queue                            the open plans, and why one is not ready
  runplan queue move plans/X.md 1          work on it first
  runplan queue pin plans/X.md             keep it before all others; undo both: runplan queue unpin plans/X.md""",
    "watch-issues": "  runplan watch-issues --label runplan every 10m    the issues, one after the other",
    "stop": """\
  runplan stop                      everything in this repository
  runplan stop plans/X.md           the plan's schedule and its run
  runplan stop X --keep-schedule    only the run; the schedule fires again at its next time
  runplan stop issues:runplan       the watch of this label; the issue at work is finished""",
    "pause": "  runplan pause plans/X.md      until: runplan resume plans/X.md",
    "resume": "  runplan resume plans/X.md     after a pause, a failed phase, or a lost key",
    "now": """\
  runplan now                   the one schedule of this repository
  runplan now plans/X.md        the schedule of this plan""",
    "retry": """\
  runplan retry plans/X.md        again, with the options of the last run
  runplan retry plans/X.md 4b     only this phase, landing the same way
  runplan retry X --fresh         without the work that the failed attempt has kept
  runplan retry X --review        have an agent handle the review of the pull request""",
    "undo": "  runplan undo plans/X.md 3       revert what phase 3 landed; it can be worked on again",
    "diff": """\
  runplan diff plans/X.md         checks, verdict, findings and diff
  runplan diff X 2                one of several phases that wait, or the kept work of a failed phase
  runplan diff r1a2b3c4           the change of a run: what waits, the kept work, or what it landed""",
    "approve": """\
  runplan approve plans/X.md               land the change that was shown, then continue the run
  runplan approve                          the only change that waits in this repository
  runplan approve X 2                      sign off one of several phases that wait
  runplan approve X --tree 4b825dc642cb    only the change with this tree; exit 4 if another one waits""",
    "reject": """\
  runplan reject plans/X.md                                   end the run; its work is kept
  runplan reject plans/X.md -m "the flag must be optional"    a fixer changes the work, then you are asked again
  runplan reject plans/X.md -m "src/a.py:12: use the parser"  the same, as a comment on a line of the change""",
    "tell": '  runplan tell plans/X.md "use the existing parser"      the agents of the run read it first',
    "attach": "  runplan attach plans/X.md      what its agents do, until the run ends; Ctrl-C leaves it running",
    "memory": """\
  runplan memory                     what agents of this repository are told, with ids
  runplan memory --forget 1a2b3c4d   one lesson that is wrong
  runplan memory --clear             all of them""",
    "inbox": "  runplan inbox      proposals, changes, sign-offs, questions and failed plans, with commands",
    "answer": """\
  runplan answer r1a2b3c4d.2 "Use port 8080."     the next agent continues the work with it
  runplan answer plans/X.md "Use port 8080."      the only question of this plan""",
    "edit": "  runplan edit plans/X.md      then approve your own version of it",
    "status": """\
  runplan status                what needs you first; finished plans in one line
  runplan status --all          all your repositories, with finished plans; outside of one it shows all as well""",
    "watch": "  runplan watch             every plan of every repository; ? lists the keys, q quits",
    "next": "  runplan next             each schedule with its next time",
    "report": """\
  runplan report                      the plan of the newest run
  runplan report plans/X.md           Markdown, newest first
  runplan report X --html -o X.html   one page with the diffs, for a browser
  runplan report --since yesterday    all your repositories; also today, 8h, 2026-11-15""",
    "logs": """\
  runplan logs                   the newest run of all plans
  runplan logs X --list          its runs with their ids; runplan logs r1a2b3c4 shows one of them
  runplan logs X -f              follow the newest run of a plan until it ends
  runplan logs X --agent -f      the messages and tool calls of its agents
  runplan logs X --json          one JSON object per line: seq, at, run, type, and the event's own fields""",
    "explain": """\
  runplan explain plans/X.md          what happens now and why, the last steps, and what you can do
  runplan explain X --all             with every step of the newest run
  runplan explain X 2                 the same for one phase of the newest run""",
    "check": """\
  runplan check plans/X.md              phases, dependencies and items as runplan reads them
  runplan check plans/X.md --fix        add a tracker to a plan of bare phase sections""",
    "web": """\
  runplan web                                      prints the address to open, on this machine only
  runplan web --address 192.168.1.5 --tls c.pem k.pem     for other machines, by https
  runplan web --behind-proxy                       a proxy speaks https; set web.url to its address""",
    "metrics": "  runplan metrics        runs, phases, agents, tokens, schedules and the daemon",
    "init": """\
  runplan init             finds branch, test command and agents, shows what a sandbox hides; never overwrites
  runplan init --skill     writes .claude/skills/run-plan/SKILL.md: /run-plan plans/X.md in your agent""",
    "doctor": """\
  runplan doctor             exit 0 when a run could start, 2 otherwise
  runplan doctor --run       also run set-up and tests once, in a fresh worktree""",
    "config": """\
  runplan config                              every key, value and origin
  RUNPLAN_RUN_LANDING=pr runplan config       the effect of a variable""",
    "gc": """\
  runplan gc --dry-run       list what would be removed and what is kept, and why
  runplan gc                 remove leftovers that are provably on the target""",
    "uninstall": """\
  runplan uninstall --dry-run        list what would be removed and kept, and why
  runplan uninstall                  remove it; work that did not land stays in the repository
  runplan uninstall --delete-work    remove that, too""",
    "mcp": """\
  runplan mcp                                      by standard input and output; started by an agent, not by you
  claude mcp add runplan -- runplan mcp            in Claude Code
  codex mcp add runplan -- runplan mcp             in Codex; docs/mcp.md has the lines for others""",
    "service": """\
  runplan service install --dry-run      show the file that would be written
  runplan service install                write it, start the daemon, and start it at each login
  runplan service status                 whether it is installed, and whether it runs""",
    "daemon": """\
  runplan daemon           in the foreground; Ctrl-C lets agents finish, a second one stops them
  runplan daemon stop      start nothing new, give agents daemon.grace to finish, then end
  runplan daemon restart   after an update, or with other settings; running agents survive""",
    "fleet": """\
  RUNPLAN_FLEET_DSN=postgresql://uma@db/fleet runplan fleet init              add the remote of this repository
  runplan fleet init --repository git@github.com:acme/app.git                 add another, without a clone
  runplan fleet status                                                        hosts, queue and what waits for a host
  runplan fleet drain alpha                                                   alpha hands its plans to others
  runplan fleet up alpha                                                      alpha takes plans again
  runplan fleet metrics --serve --address 10.0.0.5                            for Prometheus, at port 9788""",
    "worker": """\
  runplan worker                           Ctrl-C lets agents finish, and leaves their plans to other hosts
  runplan worker --labels gpu --slots 2    also takes phases with Host: gpu; at most two plans at once""",
    "notify": "  runplan notify --test     one line per channel; exit 5 if one failed, 2 if there is none",
    "demo": """\
  runplan demo             three phases, one of them fixed on the way; leaves no files
  runplan demo --plan      the same from a goal: agents write the plan, and a critic finds what is missing
  runplan demo --web       slowly, with the page on which you see it and approve the first phase; ends by itself""",
    "completion": """\
  runplan completion bash      in ~/.bashrc: source <(runplan completion bash)
  runplan completion zsh       in ~/.zshrc: source <(runplan completion zsh)
  runplan completion fish      into ~/.config/fish/completions/runplan.fish""",
    "help": """\
  runplan help             all verbs
  runplan help start       options and examples of a verb""",
}
