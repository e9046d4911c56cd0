"""Help with unknown outcomes: the call's link to the upstream system, and similar cases."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from django.db import connection
from pydantic import Field

from ledger import events as e
from ledger.codec import unpack
from ledger.contents import readable_text
from ledger.errors import DurableAgentsError
from ledger.web.fields import ActorName, Reason, RunId
from ledger.web.seeing.viewers import viewer
from ledger.web.shapes import Shape
from runs import seen
from runs.engine.errors import JournalBroken, describe_error
from runs.engine.tape import payload_of
from runs.models import Run, Wait
from runs.services.bodies import Verdict
from runs.services.calls import told_at, tool_here
from runs.services.messages.reading import in_time
from runs.services.settling.senders import name_of

log = logging.getLogger("runs.queries.doubts")
MAX_LINKED = 2000
SECONDS = 0.5  # an argument of the author's function
_NAME = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)*[a-z](?:[a-z0-9-]*[a-z0-9])?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Link:
    """A URL in an upstream system; `host` is shown next to it."""

    url: str
    host: str


def link_of(run: Run, wait: Wait) -> Link | None:
    """Return the link to a wait's call; None if its tool is missing or doesn't return a valid web address."""
    tool = tool_here(run, name_of(wait))
    if tool is None or tool.link is None:
        return None
    try:
        requested = told_at(run.pk, wait.slot)
        intent = next(x for x in reversed(requested) if isinstance(x, e.ToolInvoked) and x.attempt == wait.attempt)
        args = tool.input.model_validate(payload_of(intent)["arguments"])
        return read(in_time(f"link of {tool.name}", partial(tool.link, args), SECONDS))
    except (JournalBroken, DurableAgentsError, StopIteration, KeyError, ValueError) as error:
        # Errors in the author's code must not prevent the page from being shown.
        log.warning("run %s: no link to a call of %s: %s", run.pk, tool.name, describe_error(error, 200))
    return None


def read(given: object) -> Link | None:
    """Return a link if the text is a web address that really leads to the host that it shows; None otherwise."""
    if not isinstance(given, str) or not 0 < len(given) <= MAX_LINKED:
        return None
    if any(character.isspace() or not character.isprintable() for character in given) or "\\" in given:
        return None
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or not _is_plain(host):
        return None
    return Link(given, host if port is None else f"{host}:{port}")


def _is_plain(host: str) -> bool:
    """Return whether the host is plain ASCII or a complete IP address, so that browsers don't change it."""
    if _NAME.fullmatch(host):
        return True
    try:
        return str(ip_address(host)) == host
    except ValueError:
        return False


MAX_SIMILAR = 20
LOOKED_AT = 500  # limit of settled calls of the tool that are read, among all agents
# The newest verdicts by people in those runs of this agent that the reader may see, with the event that has the reason.
_SIMILAR = """
    WITH newest AS MATERIALIZED (
        SELECT run_id, slot, attempt, seq, digest, actor, at, id FROM ledger_ledgerentry
        WHERE fact = 'reconciled' AND tool = %s AND digest IN ('happened', 'did_not', 'fail')
        AND actor ~ '^(user|key|os):' ORDER BY id DESC LIMIT %s)
    SELECT n.run_id, n.digest, n.actor, n.at, r.about, r.creator, (
        SELECT e.sealed FROM ledger_event e
        WHERE e.run_id = n.run_id AND e.slot = n.slot AND e.attempt = n.attempt AND e.kind = 'ToolReconciled'
        AND e.seq <= n.seq ORDER BY e.seq DESC LIMIT 1)
    FROM newest n JOIN runs_run r ON r.id = n.run_id
    WHERE r.agent = %s AND {sees} ORDER BY n.id DESC LIMIT %s"""


class SimilarRow(Shape):
    """An earlier call of the same tool and agent that a person settled."""

    run: RunId
    verdict: Verdict = Field(description="Verdict on that call.")
    by: ActorName
    at: datetime = Field(description="Time of the verdict.")
    about: str | None = Field(description="Also null if the caller may not read that run's payloads.")
    why: Reason


@dataclass(frozen=True, slots=True)
class Similar:
    """The newest cases, and the counts of their verdicts."""

    tool: str
    cases: list[SimilarRow]
    counts: dict[str, int]


def similar_to(run: Run, wait: Wait) -> Similar:
    """Return earlier cases of the wait's tool in this agent's runs."""
    tool = name_of(wait)
    sees, values = seen.is_seen("r", viewer())
    with connection.cursor() as cursor:
        cursor.execute(_SIMILAR.format(sees=sees), [tool, LOOKED_AT, run.agent, *values, MAX_SIMILAR])
        rows = cursor.fetchall()
    readable = seen.readable({run_id: creator for run_id, _, _, _, _, creator, _ in rows})
    cases = [
        SimilarRow.of(
            None,
            run=run_id,
            verdict=verdict,
            by=by,
            at=at,
            about=(readable_text(about) or None) if run_id in readable else None,
            why=_reason_text(sealed),
        )
        for run_id, verdict, by, at, about, _, sealed in rows
    ]
    return Similar(tool, cases, dict(Counter(case.verdict for case in cases).most_common()))


def _reason_text(sealed: Any) -> str:
    try:
        payload = unpack(sealed)
    except (ValueError, RecursionError):
        return ""
    return str(payload.get("justification") or "") if isinstance(payload, dict) else ""
