"""Tries a policy on recorded calls.

The result tells which calls it would hold, refuse or newly allow, and how many approvals its queue would receive.
A trial only reads, and takes at most a few seconds."""

# It uses the intents of the newest calls with effects; reads, and calls that a policy refused, are not included. The
# spending at the time and the source of a call are unknown, so conditions on `cost` or `source` can't be evaluated.

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from pydantic import Field

from durableagents.contrib.policies import services
from durableagents.contrib.policies.conditions import ARGUMENT
from durableagents.contrib.policies.in_force import read_policies, rule_of
from durableagents.contrib.policies.judging import Rulebook
from durableagents.contrib.policies.services import EVERY_CALL, TryBody
from ledger.codec import unpack
from ledger.errors import DurableAgentsError
from ledger.web.fields import RunId, Slot, ToolName
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.seeing.payloads import PayloadsHidden
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs.engine.agents import registry
from runs.engine.policy import Asking
from runs.journal.asked.starters import OF_A_RUN, starter_of
from runs.journal.asked.starters import STATEMENT as STARTERS

MAX_SECONDS = 5.0
AT_ONCE = 200
MAX_BYTES = 16 * 2**20  # size of the arguments read at once, but at least those of one call
EXAMPLES = 5
# Reads by id, newest first from a position, so that no more rows are read than returned.
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
# The durations of the queue's last decisions.
_WAITS = """
    SELECT count(*), extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (ORDER BY a.decided_at - a.opened_at))
    FROM (SELECT decided_at, opened_at FROM approvals_approval
          WHERE queue = %s AND state IN ('approved', 'rejected') ORDER BY decided_at DESC, id DESC LIMIT 500) a"""
LAST = 2**63 - 1
MAY_TRY = frozenset({OPERATOR, AUDITOR})  # administrators too: these are the roles that see every run


class NothingToTry(DurableAgentsError):
    """The policies in force differ from the record, so there is nothing to compare with."""

    status, code, title = 409, "policies-not-authentic", "The policies were changed outside the application"


class CallRow(Shape):
    """A recorded call."""

    run_id: RunId
    slot: Slot
    tool: ToolName
    at: datetime = Field(description="Time of the call.")


class TriedChange(Shape):
    """The number of calls with a different result, and the newest of these calls."""

    calls: int = Field(description="Number of calls with a different result.")
    examples: list[CallRow] = Field(description="The newest of these calls.")

    def add(self, call: CallRow) -> None:
        self.calls += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(call)


class LoadRow(Shape):
    """The approvals that a queue would have received."""

    queue: str = Field(description="Queue that would have been asked.")
    calls: int = Field(description="Number of approvals it would have received.")
    a_day: float = Field(description="Average number of approvals a day.")
    median_seconds: float | None = Field(description="Median duration of its last 500 decisions; null if it made none.")
    decided: int = Field(description="Number of decisions behind `median_seconds`.")


class TriedRow(Shape):
    """The effect of a policy on the newest recorded calls, compared with the policies in force."""

    calls: int = Field(description="Number of calls that were read.")
    since: datetime | None = Field(description="Time of the oldest call that was read; null if none was read.")
    is_cut: bool = Field(description="Time ran out before all requested calls were read.")
    unsure: int = Field(description="Calls for which the condition can't be evaluated.")
    unreadable: int = Field(description="Calls whose arguments can't be read.")
    gated: TriedChange = Field(description="Calls that would have needed an approval.")
    denied: TriedChange = Field(description="Calls that would have been denied.")
    let_through: TriedChange = Field(description="Calls that would no longer have needed an approval or been denied.")
    loads: list[LoadRow] = Field(description="Approvals that each queue would have received.")

    @property
    def changes(self) -> list[tuple[str, TriedChange]]:
        """Return the changes with their labels."""
        return [("held for approval", self.gated), ("refused", self.denied), ("now allowed", self.let_through)]


def try_policy(body: TryBody, *, is_setter: bool = False) -> TriedRow:
    """Return a policy's effect on recorded calls.

    Conditions on arguments may only be tried by readers of payloads and people who may set policies (`is_setter`),
    because repeated attempts would reveal the arguments. Readers who don't see every run get no examples. Raises
    InvalidInput if the policy couldn't be put in force, NothingToTry, PayloadsHidden."""
    if not (is_setter or viewer().reads_all) and ARGUMENT in body.condition:
        raise PayloadsHidden(
            None, f"A condition on {ARGUMENT} would reveal arguments of calls, which you have no right to read."
        )
    now = read_policies()
    if now.problem:
        raise NothingToTry(f"Nothing can be tried: {now.problem}.")
    wanted = body.model_copy(update={"confirm": EVERY_CALL})
    new = rule_of(services.build_version(body.name or "tried", wanted, 0, "", datetime.now(UTC)))
    then = Rulebook(0, (*(rule for rule in now.rules if rule.name != body.name), new))
    gated, denied, let_through = (TriedChange(calls=0, examples=[]) for _ in range(3))
    changes = {"gated": gated, "denied": denied, "let_through": let_through}
    found = TriedRow(calls=0, since=None, is_cut=False, unsure=0, unreadable=0, loads=[], **changes)
    queue_counts, into = Counter[str](), {"deny": denied, "require": gated, "allow": let_through}
    for call, asking in _calls(body.calls, found, Rulebook(0, (*now.rules, new))):
        found.calls, found.since = found.calls + 1, call.at
        found.unsure += new.may_match(asking) and new.condition.holds(asking) is None
        was, would = now.judge(asking), then.judge(asking)
        assert would is not None
        queue_counts.update(each.queue for each in would.requirements)
        if would.effect != ("allow" if was is None else was.effect):
            into[would.effect].add(call)
    found.loads = [_load(queue, count, found) for queue, count in queue_counts.most_common()]
    if not viewer().sees_all:
        for _, change in found.changes:
            change.examples.clear()
    return found


def _load(queue: str, count: int, found: TriedRow) -> LoadRow:
    with connection.cursor() as cursor:
        cursor.execute(_WAITS, [queue])
        decided, seconds = cursor.fetchone()
    assert found.since is not None
    days = max((datetime.now(UTC) - found.since).total_seconds() / 86400, 1.0)
    return LoadRow(
        queue=queue,
        calls=count,
        a_day=count / days,
        median_seconds=None if seconds is None else float(seconds),
        decided=decided,
    )


@dataclass(frozen=True, slots=True)
class _Past:
    """A recorded call to judge again.

    `size` is the size of its intent (event `seq`) if that must be read, otherwise 0."""

    call: CallRow
    asking: Asking
    seq: int
    size: int


def _calls(most: int, found: TriedRow, book: Rulebook) -> Iterator[tuple[CallRow, Asking]]:
    """Yield the newest calls with the fields that `book` needs, until `most` calls are found or time runs out."""
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
    call = CallRow.of(None, run_id=run_id, slot=slot, tool=tool, at=at)
    return _Past(call, asking, seq, size if book.needs_arguments(asking) else 0)


def _groups(calls: Sequence[_Past]) -> Iterator[list[_Past]]:
    group: list[_Past] = []
    for past in calls:
        if group and sum(each.size for each in group) + past.size > MAX_BYTES:
            yield group
            group = []
        group.append(past)
    yield group


def _sealed(group: Sequence[_Past]) -> dict[tuple[str, int], bytes]:
    """Read the encrypted intents of calls that need them, by run and event."""
    read = [past for past in group if past.size]
    if not read:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_SEALED, [[past.call.run_id for past in read], [past.seq for past in read]])
        return {(str(run_id), seq): bytes(sealed) for run_id, seq, sealed in cursor.fetchall()}


def _asking(
    past: _Past, sealed: Mapping[tuple[str, int], bytes], starters: dict[str, str | None], book: Rulebook
) -> Asking | None:
    """Return the call as policies evaluate it; None if its arguments are needed and unreadable."""
    asking, run_id = past.asking, past.asking.run_id
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
