"""Calls in doubt after a restore: those that would be sent first, and those that may already have happened."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from durableagents.contrib.restore_hold.holding import REASON, find_hold, findings_of
from ledger.errors import DurableAgentsError
from ledger.web.seeing.viewers import viewer
from runs.engine.agents import Agent, registry

MAX_LISTED = 200
# Runs with an event within this time before the newest event were active at the end of the record in the backup.
NEAR_MINUTES = 10
# Sorted in the order in which workers claim runs.
_NEXT = """
    SELECT r.id, r.graph_id, r.state, coalesce(nullif(r.node, ''), ''), l.kind, l.at,
           coalesce((SELECT string_agg(DISTINCT w.kind, ', ') FROM runs_wait w
                     WHERE w.run_id = r.id AND w.resolved_at IS NULL), ''),
           coalesce((SELECT w.detail ->> 'tool' FROM runs_wait w WHERE w.run_id = r.id AND w.kind = 'approval'
                     AND w.consumed_at IS NULL AND (w.resolved_at IS NULL OR w.grant_hash IS NOT NULL)
                     ORDER BY w.opened_at DESC LIMIT 1), ''),
           l.at > max(l.at) OVER () - make_interval(mins => %s)
    FROM runs_run r JOIN ledger_head h ON h.run_id = r.id
    JOIN ledger_event l ON l.run_id = r.id AND l.seq = h.seq
    WHERE r.ended_at IS NULL
    ORDER BY (r.ready_at IS NOT NULL OR r.owner IS NOT NULL) DESC, r.priority DESC, r.ready_at, l.at DESC LIMIT %s"""
_UNANSWERED = """
    SELECT p.run_id, r.graph_id, p.slot, p.tool, p.replay_class, p.at
    FROM runs_run r JOIN ledger_ledgerentry p ON p.run_id = r.id AND p.fact = 'pending'
    WHERE r.ended_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM ledger_ledgerentry a WHERE a.run_id = p.run_id AND a.slot = p.slot AND a.attempt = p.attempt
        AND a.id > p.id AND a.fact IN ('committed', 'failed', 'reconciled'))
    ORDER BY p.at DESC LIMIT %s"""


@dataclass(frozen=True, slots=True)
class NextCall:
    """A run that continues once the hold is lifted.

    `tools` are the tools that its node may call, by name and class. `is_near` means that its last event is close to the
    end of the record, so more may have happened than the database knows."""

    run: UUID
    agent: str
    state: str
    node: str
    last_event: str
    last_at: datetime
    waits_for: str
    tools: Sequence[str]
    is_near: bool


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A call that has an intent, but no outcome, in this database."""

    run: UUID
    agent: str
    slot: str
    tool: str
    replay_class: str
    at: datetime


@dataclass(frozen=True, slots=True)
class UnknownOutcomeLists:
    """The two lists of calls in doubt, each with at most MAX_LISTED rows. `is_cut` is true if there are more."""

    upcoming: Sequence[NextCall]
    unanswered: Sequence[Unanswered]
    is_cut: bool


def find_doubts() -> UnknownOutcomeLists:
    """Return the calls in doubt of all runs that have not ended, in the order in which workers would claim the runs."""
    with connection.cursor() as cursor:
        cursor.execute(_NEXT, [NEAR_MINUTES, MAX_LISTED + 1])
        rows = cursor.fetchall()
        cursor.execute(_UNANSWERED, [MAX_LISTED + 1])
        unanswered = [Unanswered(*row) for row in cursor.fetchall()]
    upcoming = [_next_call(*row) for row in rows]
    is_cut = max(len(upcoming), len(unanswered)) > MAX_LISTED
    return UnknownOutcomeLists(upcoming[:MAX_LISTED], unanswered[:MAX_LISTED], is_cut)


def panel(halt: UUID) -> tuple[str, dict[str, Any]] | None:
    """Return the hold's section on the page of halts, for viewers who may see all runs; None for others."""
    hold = find_hold()
    if hold is None or hold.halt != halt or not viewer().sees_all:
        return None
    values = {"findings": findings_of(halt), "doubts": find_doubts(), "near_minutes": NEAR_MINUTES, "reason": REASON}
    return "restore_hold/doubts.html", values


def _next_call(
    run: UUID, graph_id: str, state: str, node: str, kind: str, at: datetime, waits: str, gated: str, is_near: bool
) -> NextCall:
    tools: Sequence[str] = [gated] if gated else ()
    try:
        agent = registry.find(graph_id)
        node = node or agent.start
        tools = tools or tools_of(agent, node)
    except DurableAgentsError:
        pass  # this process doesn't have the run's version, so only the node's name is known
    return NextCall(run, graph_id, state, node, kind, at, waits, tools, is_near)


def tools_of(agent: Agent, node: str) -> list[str]:
    """Return the tools named in a node's code, with their class, such as `charge (unsafe_on_replay)`."""
    if node not in agent.nodes:
        return []
    function = inspect.unwrap(agent.nodes[node].function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return []
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    names |= {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    scope = getattr(function, "__globals__", {})
    found = {id(scope[name]) for name in names if name in scope}
    named = [tool for tool in agent.all_tools() if id(tool) in found or tool.name in names]
    return [f"{tool.name} ({tool.replay_class})" for tool in named]
