"""A stack of pull requests: one for each group of a plan's phases, each on the one below.

Phases land on the plan's own branch, as without a stack. The branch of a lower group marks where its phases end there;
repairs of its pull request are added to it, and merged into the branches above. The last group has the plan's branch.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from runplan.adapters.forge.protocol import PullRequest
from runplan.domain.gitfacts import PHASE, Commit, Oid, read_trailers
from runplan.domain.plan.marks import Status
from runplan.domain.plan.model import Plan
from runplan.domain.run import events as e
from runplan.engine.landing.direct import Direct
from runplan.engine.landing.lander import Commanded, Failed, NeedsRepair, Progress, Sighting

TOP = ""  #: the group of the plan's own branch


def list_groups(plan: Plan) -> list[str]:
    """The groups with branches, the lowest first."""
    return [*list(plan.stack)[:-1], TOP]


def narrow_plan(plan: Plan, group: str) -> Plan:
    """The part of the plan that the pull request of a group is for."""
    groups = plan.stack
    if len(groups) < 2:
        return plan
    key = group if group in groups else list(groups)[-1]
    return replace(plan, title=f"{plan.title}: {_name(plan, key)}", phases=groups[key])


def _name(plan: Plan, key: str) -> str:
    phases = plan.stack[key]
    return phases[0].title if len(phases) == 1 else key


def find_heads(plan: Plan, phases: Iterable[tuple[Oid, str]]) -> dict[str, Oid]:
    """The commit with which each group ends; `phases` are oldest first, one that lands late is of the group above."""
    places = {phase.id: place for place, group in enumerate(plan.stack.values()) for phase in group}
    groups = list_groups(plan)
    heads: dict[str, Oid] = {}
    reached = -1
    for oid, phase in phases:
        reached = max(reached, places.get(phase, -1))
        if reached >= 0:
            heads[groups[reached]] = oid
    return heads


def find_stale(groups: list[str], merged: Collection[str], facts: Iterable[e.Event]) -> tuple[str, str] | None:
    """The lowest open group, and the one below it, that lacks a repair which landed further below; None for none."""
    stale = set[str]()
    chosen: e.Event | None = None
    for event in facts:
        match event, chosen:
            case e.RepairChosen() | e.MergeChosen(), _:
                chosen = event
            case e.Landed(phase=""), e.RepairChosen(group=group) if group in groups:
                stale.update(groups[groups.index(group) + 1 :])
                chosen = None
            case e.Landed(phase=""), e.MergeChosen(group=group):
                stale = stale - {group} if group else set()  # while phases are worked, the newest group has this branch
                chosen = None
            case e.Concluded(group=""), _:
                stale.clear()
    left = [group for group in groups if group not in merged]
    return next(((upper, lower) for lower, upper in pairwise(left) if upper in stale), None)


class Member(Protocol):
    """The lander of one pull request, as far as its stack needs it."""

    group: str
    branch: str
    seen: Sighting
    closed: Failed | None
    may_be_ready: bool
    target: Direct

    def target_tip(self) -> Oid: ...
    def branch_tip(self) -> Oid | None: ...
    def known_tip(self) -> Oid | None: ...
    def read_whole_plan(self, tip: Oid) -> Plan: ...
    def list_own_commits(self, tip: Oid) -> list[Commit]: ...
    def find_pull(self) -> PullRequest | None: ...
    def last_pull(self) -> PullRequest | None: ...
    def advance(self, head: Oid, *, old: Oid | None) -> None: ...
    def refresh(self) -> None: ...
    def look_at_messages(self, progress: Progress) -> Commanded | NeedsRepair | None: ...
    def merge_base(self, oid: Oid, other: Oid) -> Oid: ...


L = TypeVar("L", bound=Member)


class Stack(Generic[L]):
    def __init__(self, open_group: Callable[[str], L]) -> None:
        self.of = functools.cache(open_group)

    @property
    def _top(self) -> L:
        return self.of(TOP)

    @property
    def focus(self) -> L:
        """The lander of the pull request that is worked on."""
        return self.of(self._top.seen.focus)

    def read_plan(self) -> Plan:
        return self._top.read_whole_plan(self._top.known_tip() or self._top.target_tip())

    @property
    def landers(self) -> list[L]:
        return [self.of(group) for group in list_groups(self.read_plan())]

    def choose_owner(self, tip: Oid) -> L:
        """The lander whose pull request shows what has landed last; its branch is brought to that commit."""
        reached = [*list_groups(self._top.read_whole_plan(tip))[:1], *self._find_heads(tip)]
        self._top.seen.focus = reached[-1]
        old = self.focus.branch_tip()
        if self.focus is not self._top and old != tip and not self.focus.closed:
            self.focus.advance(tip, old=old)
        return self.focus

    def choose_lowest(self, merged: Collection[str]) -> L:
        """The lander of the lowest pull request that is not merged; it may be made ready."""
        groups = list_groups(self.read_plan())
        seen = self._top.seen
        seen.focus = next(group for group in groups if group == TOP or group not in merged)
        self.focus.may_be_ready = True
        if seen.listed != seen.focus:
            for group in groups[groups.index(seen.focus) + 1 :]:
                self.of(group).refresh()
            seen.listed = seen.focus
        return self.focus

    def bring_up(self, lander: L) -> Oid | None:
        """The tip of a group's branch, which a killed landing may have left behind; None for a branch that is over."""
        tip = lander.branch_tip()
        head = self._find_heads(self._top.known_tip()).get(lander.group)
        if head is None or lander.closed or (tip is None and lander.find_pull() is not None):
            return tip
        if tip is not None and (tip == head or lander.merge_base(head, tip) != tip):
            return tip  # with repairs
        lander.advance(head, old=tip)
        return head

    def list_begun(self) -> list[L]:
        """The landers of the groups with phases that have landed, the lowest first."""
        return list(map(self.of, self._find_heads(self._top.known_tip())))

    def find_stale(self, merged: Collection[str], facts: Iterable[e.Event]) -> NeedsRepair | None:
        """The next merge of a branch with a repair into the one above, which is worked on then."""
        stale = find_stale([*(lander.group for lander in self.list_begun()[:-1]), TOP], merged, facts)
        if stale is None:
            return None
        above, below = map(self.of, stale)
        self._top.seen.focus = above.group
        tip = self.bring_up(below) or below.target_tip()
        since = self._top.merge_base(above.branch_tip() or tip, tip)
        complaint = f"{below.branch} was changed after a review or a failed check"
        title = f"Merge {below.branch} into {above.branch}"
        return NeedsRepair(title=title, complaint=complaint, merge=True, commit=tip, since=since)

    def look(self, landers: Iterable[L], progress: Progress) -> Commanded | NeedsRepair | None:
        """What people ask for on these pull requests, commands first; that pull request is worked on then."""
        asked = [(lander, answer) for lander in landers if (answer := lander.look_at_messages(progress)) is not None]
        asked.sort(key=lambda pair: isinstance(pair[1], NeedsRepair))
        if not asked:
            return None
        self._top.seen.focus = asked[0][0].group
        return asked[0][1]

    def look_above(self, lowest: L, progress: Progress) -> Commanded | NeedsRepair | None:
        """The same for one of the pull requests above the lowest, another one each time."""
        begun = self.list_begun()
        above = begun[begun.index(lowest) + 1 :] if lowest in begun else []
        answer = self.look(above[self._top.seen.turn % len(above) :][:1], progress) if above else None
        self._top.seen.turn += answer is None  # after a repair the same one gets its answers
        return answer

    @property
    def worked(self) -> L:
        """The lander of the branch on which a repair of that pull request lands: the plan's own for the newest one."""
        begun = self.list_begun()
        return self._top if begun and self.focus is begun[-1] else self.focus

    def _find_heads(self, tip: Oid | None) -> dict[str, Oid]:
        if tip is None:
            return {}
        commits = self._top.list_own_commits(tip)
        phases = ((commit.oid, read_trailers(commit.message).get(PHASE, "")) for commit in commits)
        return find_heads(self._top.read_whole_plan(tip), phases)

    def _below(self, lander: L) -> Iterator[L]:
        landers = self.landers
        return reversed(landers[: landers.index(lander)])

    def base_of(self, lander: L) -> str:
        """The branch on which its pull request is opened: the next one below that is not merged, else the target."""
        for below in self._below(lander):
            pull = below.find_pull()
            if (pull is None or pull.is_open) and self.bring_up(below) is not None:
                return below.branch
        return lander.target.branch

    def refresh_below(self, lander: L) -> None:
        """Name a new pull request in the descriptions of those below it."""
        for below in self._below(lander):
            if below.known_tip() is not None:
                below.refresh()

    def list_rows(self, here: L) -> list[tuple[str, str, str]]:
        """Number, title and state of each pull request, for the description of one; [] for a single one."""
        plan = self.read_plan()
        rows = list[tuple[str, str, str]]()
        for key, group in zip(plan.stack, list_groups(plan), strict=True):
            lander = self.of(group)
            is_begun = any(phase.status is Status.DONE for phase in plan.stack[key])
            pull = lander.last_pull() if is_begun and lander is not here else None
            number = f"{pull.sign}{pull.number}" if pull else ""
            # What stays true where nobody changes the description again.
            state = "" if pull is None or pull.is_open else "merged" if pull.is_merged else "closed"
            state = "you are here" if lander is here else state
            rows.append((number, _name(plan, key), state))
        return rows if len(rows) > 1 else []
