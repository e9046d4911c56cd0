"""Try a policy on past calls: which it would hold, refuse or newly allow, and the load of its queue. Read-only, limited
to some seconds."""

# Uses the newest calls with effects, by intent: no reads, and nothing that a policy refused. Past spending and the
# call's source are unknown, so conditions on `cost` or `source` can't be evaluated.

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from approvals.policies import acts
from approvals.policies.acts import EVERY_CALL, TryBody
from approvals.policies.inforce import now as in_force_now
from approvals.policies.inforce import rule_of
from approvals.rules.judging import Rulebook
from approvals.rules.meaning import ARGUMENT
from ledger.codec import unpack
from ledger.errors import DurableAgentsError
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.seeing.payloads import PayloadsHidden
from ledger.web.seeing.viewers import viewer
from runs.engine.agents import registry
from runs.engine.policy import Asking
from runs.journal.asked.starters import OF_A_RUN, starter_of
from runs.journal.asked.starters import STATEMENT as STARTERS

MAX_SECONDS = 5.0
AT_ONCE = 200
MAX_BYTES = 16 * 2**20  # of arguments read at once; at least one call's
EXAMPLES = 5
# By id, newest first from a position: it reads no more rows than it returns.
_CALLS = """
    SELECT l.run_id, v.seq, l.slot, l.tool, l.replay_class, l.at, r.agent, r.version, r.created_by,
           ARRAY(SELECT t.tag FROM runs_runtag t WHERE t.run_id = l.run_id), coalesce(octet_length(v.sealed), 0)
    FROM (SELECT * FROM ledger_ledgerentry WHERE id < %s ORDER BY id DESC LIMIT %s) l
    JOIN ledger_event v ON v.run_id = l.run_id AND v.slot = l.slot AND v.attempt = l.attempt AND v.fact = 'intent'
    JOIN runs_run r ON r.id = l.run_id
    WHERE l.fact = 'pending' AND v.kind = 'ToolInvoked' ORDER BY l.id DESC"""
_SEALED = """
    SELECT v.run_id, v.seq, v.sealed FROM unnest(%s::uuid[], %s::bigint[]) AS c(run_id, seq)
    JOIN ledger_event v ON v.run_id = c.run_id AND v.seq = c.seq WHERE v.sealed IS NOT NULL"""
_OLDEST = "SELECT min(id) FROM (SELECT id FROM ledger_ledgerentry WHERE id < %s ORDER BY id DESC LIMIT %s) l"
# How long the queue's last questions took.
_WAITS = """
    SELECT count(*), extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY a.decided_at - a.opened_at))
    FROM (SELECT decided_at, opened_at FROM approvals_approval
          WHERE queue = %s AND state IN ('approved', 'rejected') ORDER BY decided_at DESC, id DESC LIMIT 500) a"""
LAST = 2**63 - 1
MAY_TRY = frozenset({OPERATOR, AUDITOR})  # and administrators: everybody who sees every run


class NothingToTry(DurableAgentsError):
    """The policies in force differ from the record, so there is nothing to compare with."""

    status, code, title = 409, "policies-not-authentic", "The policies were changed outside the application"


@dataclass(frozen=True, slots=True)
class Call:
    """A past call."""

    run_id: str
    slot: str
    tool: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Load:
    """A queue's load. `median_seconds` is of its last decisions; None if there are none."""

    queue: str
    calls: int
    a_day: float
    median_seconds: float | None
    decided: int


@dataclass
class Change:
    """Calls whose outcome would change: text, count and the newest examples."""

    words: str
    calls: int = 0
    examples: list[Call] = field(default_factory=list)

    def add(self, call: Call) -> None:
        self.calls += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(call)


@dataclass
class Tried:
    """The result for the newest `calls`, made `since` then. `unsure`: the condition can't be evaluated; `unreadable`:
    required arguments can't be read; `is_cut`: the time ran out."""

    gated: Change = field(default_factory=lambda: Change("held for approval"))
    denied: Change = field(default_factory=lambda: Change("refused"))
    let_through: Change = field(default_factory=lambda: Change("now allowed"))
    calls: int = 0
    unreadable: int = 0
    unsure: int = 0
    since: datetime | None = None
    is_cut: bool = False
    loads: Sequence[Load] = ()

    @property
    def changes(self) -> list[Change]:
        return [self.gated, self.denied, self.let_through]


def tried(body: TryBody, *, is_setter: bool = False) -> Tried:
    """Return a policy's effect on past calls. Raises InvalidInput if it couldn't be put in force, NothingToTry,
    PayloadsHidden. Conditions on arguments are only for readers of payloads and policy setters (`is_setter`): repeated
    sums reveal the arguments. Readers who don't see every run get no examples."""
    if not (is_setter or viewer().reads_all) and ARGUMENT in body.condition:
        raise PayloadsHidden(
            None, f"A condition on {ARGUMENT} would reveal arguments of calls, which you have no right to read."
        )
    now = in_force_now()
    if now.problem:
        raise NothingToTry(f"Nothing can be tried: {now.problem}.")
    wanted = body.model_copy(update={"confirm": EVERY_CALL})
    new = rule_of(acts.made(body.name or "tried", wanted, 0, "", datetime.now(UTC)))
    then = Rulebook(0, (*(rule for rule in now.rules if rule.name != body.name), new))
    found, asked = Tried(), Counter[str]()
    into = {"deny": found.denied, "require": found.gated, "allow": found.let_through}
    for call, asking in _calls(body.calls, found, Rulebook(0, (*now.rules, new))):
        found.calls, found.since = found.calls + 1, call.at
        found.unsure += new.may_match(asking) and new.condition.holds(asking) is None
        was, would = now.judge(asking), then.judge(asking)
        assert would is not None
        asked.update(each.queue for each in would.requirements)
        if would.effect != ("allow" if was is None else was.effect):
            into[would.effect].add(call)
    found.loads = [_load(queue, count, found) for queue, count in asked.most_common()]
    for change in found.changes if not viewer().sees_all else ():
        change.examples.clear()
    return found


def _load(queue: str, count: int, found: Tried) -> Load:
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, [queue])
        decided, seconds = cursor.fetchone()
    assert found.since is not None
    days = max((datetime.now(UTC) - found.since).total_seconds() / 86400, 1.0)
    return Load(queue, count, count / days, None if seconds is None else float(seconds), decided)


@dataclass(frozen=True, slots=True)
class _Past:
    """A call to judge again. `size` is that of the intent at event `seq`, if it must be read."""

    call: Call
    asking: Asking
    seq: int
    size: int


def _calls(most: int, found: Tried, book: Rulebook) -> Iterator[tuple[Call, Asking]]:
    """Yield the newest calls, with what the `book` needs of each, until there are enough or the time is up."""
    until, place, given = time.monotonic() + MAX_SECONDS, LAST, 0
    risks = {(agent.name, tool.name): tool.risk for agent in registry.agents() for tool in agent.all_tools()}
    starters: dict[str, str | None] = {}
    while given < most:
        if time.monotonic() > until:
            found.is_cut = True
            return
        with connection.cursor() as cursor:
            cursor.execute(_OLDEST, [place, AT_ONCE])
            (oldest,) = cursor.fetchone()
            cursor.execute(_CALLS, [place, AT_ONCE])
            rows = cursor.fetchall()[: most - given]
        for group in _groups([_past(row, risks, book) for row in rows]):
            sealed = _sealed(group)
            for past in group:
                if time.monotonic() > until:
                    found.is_cut = True
                    return
                if (asking := _asking(past, sealed, starters, book)) is None:
                    found.unreadable += 1
                else:
                    yield past.call, asking
        given += len(rows)
        if oldest is None:
            return
        place = oldest


def _past(row: Sequence[Any], risks: Mapping[tuple[str, str], str], book: Rulebook) -> _Past:
    run_id, seq, slot, tool, replay_class, at, agent, version, by, tags, size = row
    asking = Asking(
        run_id=str(run_id),
        agent=agent,
        version=version,
        tool=tool,
        replay_class=replay_class,
        risk=risks.get((agent, tool), ""),
        arguments=None,
        source="",
        requester=by,
        cost_micro=None,
        tags=tuple(tags),
    )
    return _Past(Call(str(run_id), slot, tool, at), asking, seq, size if book.needs_arguments(asking) else 0)


def _groups(calls: Sequence[_Past]) -> Iterator[list[_Past]]:
    group: list[_Past] = []
    for past in calls:
        if group and sum(each.size for each in group) + past.size > MAX_BYTES:
            yield group
            group = []
        group.append(past)
    yield group


def _sealed(group: Sequence[_Past]) -> dict[tuple[str, int], bytes]:
    """Return the intents that must be read, by run and event."""
    read = [past for past in group if past.size]
    if not read:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_SEALED, [[past.call.run_id for past in read], [past.seq for past in read]])
        return {(str(run_id), seq): bytes(sealed) for run_id, seq, sealed in cursor.fetchall()}


def _asking(
    past: _Past, sealed: Mapping[tuple[str, int], bytes], starters: dict[str, str | None], book: Rulebook
) -> Asking | None:
    """Return a call as judged; None if its arguments are needed and unreadable."""
    asking, run_id = past.asking, past.call.run_id
    if book.needs_requester(asking) and (asking.requester or "").startswith(OF_A_RUN):
        if run_id not in starters:
            with connection.cursor() as cursor:
                cursor.execute(STARTERS, [[run_id]])
                starters[run_id] = starter_of(run_id, cursor.fetchall())
        asking = replace(asking, requester=starters[run_id])
    if not book.needs_arguments(asking):
        return asking
    try:
        return replace(asking, arguments=unpack(sealed.get((run_id, past.seq)))["arguments"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
