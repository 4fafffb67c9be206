"""Shows a change or a proposed plan, on a terminal in colours and through the pager."""

import argparse
import signal
import subprocess
import sys

from runplan.app.machine import choose_pager
from runplan.app.operations.model import Caller
from runplan.app.views.changes import ChangeView, ProposalView, read_change
from runplan.domain.decoding import as_json
from runplan.domain.plan.proposal import describe_summary
from runplan.domain.standing.actions import describe_actions
from runplan.domain.text import visible
from runplan.interfaces.cli.terminal import Style, warn

SHORT = 12  #: digits of an id
NOT_RUN = (126, 127)  #: exit codes of a shell for a program that it cannot run


def run_diff(args: argparse.Namespace) -> None:
    caller = Caller(warn=warn)
    with caller.open(lenient=True) as context:
        view = read_change(context, args.plan, args.phase or "")
    if args.json:
        print(as_json(view, indent=None))
    else:
        show_change(caller, view, is_paged=not args.no_pager)


def show_change(caller: Caller, view: ChangeView | ProposalView, *, is_paged: bool = True) -> None:
    """Print the change, on a terminal in colours and through the pager that git uses."""
    style = Style.of(sys.stdout)
    if isinstance(view, ChangeView):
        text = _render_change(view, style)
    else:
        proposal = view.proposal
        assert proposal is not None
        standing = f"waits for {view.waiting_for}" if view.waiting_for else f"is {view.state}"
        head = f"{view.plan} {standing}, SHA-256 {proposal.sha256[:SHORT]}"
        # What it grants, then all of it, or the changes of a revision.
        shown = _paint_diff(proposal.diff, style) if proposal.diff else visible(proposal.text, is_prose=True)
        summary = describe_summary(
            proposal.summary, is_edited=proposal.edited, number=proposal.number, notes=proposal.notes
        )
        text = "\n".join([head, *summary, "", shown, ""])
    text += f"\n{describe_actions(action for action in view.actions if action.verb != 'diff')}"
    pager = choose_pager(caller) if is_paged and sys.stdout.isatty() else "cat"
    if pager in ("", "cat"):
        print(text)
        return
    before = signal.getsignal(signal.SIGINT)
    # As git sets them: short texts without a pager, colours, and the text stays on the screen.
    env = {"LESS": "FRX", "LV": "-c", **caller.env}
    process = subprocess.Popen(["sh", "-c", pager], stdin=subprocess.PIPE, env=env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager handles Ctrl-C
    try:
        process.communicate(f"{text}\n".encode("utf-8", "backslashreplace"))  # ignores a pager that was quit
    finally:
        signal.signal(signal.SIGINT, before)
    if process.returncode in NOT_RUN:
        print(text)


def _paint_diff(diff: str, style: Style) -> str:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    is_head = diff.startswith("--- ")  # a diff of texts has no other head
    lines = []
    for line in visible(diff).split("\n"):
        is_head = line.startswith("diff --git ") or (is_head and not line.startswith("@@ "))
        lines.append(style.paint(line, "bold" if is_head else colours.get(line[:1], "")))
    return "\n".join(lines)


def _render_change(view: ChangeView, style: Style) -> str:
    failed = view.failed
    about = (failed.detail, failed.evidence, failed.output, f"branch {failed.branch}") if failed else ()
    lines = [
        f"{view.plan}, phase {view.phase} {view.title}: {view.state}",
        *filter(None, about),
        f"commit {view.commit[:SHORT]}, tree {view.tree[:SHORT]}, on {view.target} {view.onto[:SHORT]}",
        "",
        "Checks:",
    ]
    for gate in view.gates:
        ending = "did not finish" if gate.exit_code is None else f"exit code {gate.exit_code}"
        ran = f"{gate.command} on tree {gate.tree[:SHORT]}: {ending}; " if gate.command else ""
        lines.append(f"  {ran}{gate.result}")
    for proof in view.proofs:
        lines += [f"  {proof.result}", *(f"    {broken.test}: {broken.why}" for broken in proof.broken)]
    if verdict := view.verdict:
        lines += ["", f"Verdict of {verdict.verifier} on tree {verdict.tree[:SHORT]}:"]
        for item in verdict.items:
            lines += [f"  {item.result}  {item.id} {item.text}".rstrip(), f"        {item.evidence}"]
    if view.trial:
        head, *rest = view.trial.describe()
        lines += ["", head, *(f"  {line}" for line in rest)]
    if said := view.remarks.describe():
        lines += ["", "Remarks of the agent:", *(f"  {line}" for line in said)]
    if view.findings:
        lines += ["", "Findings:", *(f"  {line}" for line in view.findings)]
    lines += ["", "Commit messages:", *(f"  {line}".rstrip() for line in view.messages.split("\n"))]
    return "\n".join([visible("\n".join(lines), is_prose=True), "", _paint_diff(view.diff, style)])
