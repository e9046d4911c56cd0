"""The audit list: people's acts from every append-only table in one total order.

The order is by time, source and number, so that pages continue exactly even among acts with the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from approvals.authentic import EARLIEST, NOT_YET, authentic
from approvals.models import Approval, Decision
from ledger.chain import microseconds
from ledger.models import AccountRecord, ActRecord, OverrideRecord
from ledger.web.cursors import ROW, at_microseconds, numbered, numbers_of
from runs.models import Run

PAGE = 50
DECISIONS = ("approve", "reject", "fail", "abstain", "amend")
OVERRIDES = (
    "pause",
    "resume",
    "cancel",
    "retry",
    "reconcile",
    "budget",
    "models",
    "fork",
    "start_again",
    "migrate",
    "inject",
    "requeue",
)
ACTS = (
    "start",
    "answer",
    "signal",
    "message",
    "outcome_propose",
    "outcome_withdraw",
    "upstream_ask",
    "inquiry",
    "inquiry_answer",
    "inquiry_withdraw",
    "delegate",
    "delegate_end",
    "declare_dead",
    "drain",
    "price",
    "budget_default",
    "schedule",
    "schedule_change",
    "schedule_pause",
    "schedule_resume",
    "schedule_delete",
    "pool",
    "pool_change",
    "pool_off",
    "limit",
    "limit_reset",
    "breaker_open",
    "breaker_close",
    "priority",
    "probe",
    "probe_done",
    "version_close",
    "version_open",
    "ramp",
    "ramp_raise",
    "ramp_resume",
    "ramp_rollback",
    "ramp_finish",
    "ramp_halt",
    "setup_link",
    "setup",
    "invite",
    "invitation_revoke",
    "invitation_accept",
    "session_end",
    "reset_link",
    "own_keys",
    "read_payloads",
    "queue",
    "queue_change",
    "queue_close",
    "queue_open",
    "queue_remove",
    "queue_limit",
    "queue_limit_lift",
    "queue_proof",
    "queue_reasons",
    "queue_grants",
    "standing_grant",
    "standing_revoke",
    "deputy",
    "deputy_revoke",
    "calendar",
    "calendar_remove",
    "queue_timing",
    "absence",
    "absence_end",
    "policy",
    "policy_change",
    "policy_retire",
    "policy_restore",
    "rule_change",
    "rule_change_apply",
    "rule_change_refuse",
    "rule_change_withdraw",
    "four_eyes",
    "row_confirm",
    "key_rotation",
    "erase",
    "roles",
    "finding_report",
    "finding_close",
    "notice_settings",
    "channel",
    "channel_change",
    "channel_end",
    "notice_replay",
    "device",
    "device_end",
    "retention_policy",
    "retention_policy_end",
    "retention_hold",
    "retention_hold_lift",
    "retention_restore",
    "retention_allow",
    "evidence",
    "webhook",
    "webhook_change",
    "webhook_secret",
    "webhook_pause",
    "webhook_resume",
    "webhook_end",
    "webhook_test",
    "webhook_replay",
)
ACCOUNTS = (
    "account_added",
    "account_changed",
    "account_removed",
    "password_changed",
    "password_rehashed",
    "role_given",
    "role_taken",
    "role_added",
    "role_renamed",
    "role_removed",
    "permission_given",
    "permission_taken",
    "key_issued",
    "key_changed",
    "key_revoked",
    "key_removed",
    "factor_added",
    "factor_changed",
    "factor_removed",
    "recovery_code_used",
    "sign_in_linked",
    "sign_in_unlinked",
    "tag_given",
    "tag_taken",
)
# Tone of an act's chip, by its action or kind.
TONES = {"approve": "ok", "reject": "bad", "fail": "bad", "amend": "hold", "override": "hold"}
# Values of the filter: an act, or all account changes.
ACTIONS = (*DECISIONS, *OVERRIDES, *ACTS, "accounts", *ACCOUNTS)
_KINDS_OF_ACTOR = ("user", "key", "os", "database", "system")
_HEX = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True)
class Act:
    """One act of a person. `kind` names its source; `record` is its row."""

    kind: str
    rank: int
    at: datetime
    run_id: UUID | None
    graph_id: str
    action: str
    record: Any
    is_authentic: bool | None = None  # see authentic.py

    @property
    def tone(self) -> str:
        return TONES.get(self.action) or TONES.get(self.kind, "")

    @property
    def digests(self) -> list[str]:
        return digests(self.record.approval) if self.kind == "decision" else []

    @property
    def place(self) -> str:
        return numbered(microseconds(self.at), self.rank, self.record.pk)


@dataclass(frozen=True)
class Filters:
    """The filters as written. Invalid filters match nothing; `problems` explains them."""

    action: str = ""
    by: str = ""
    queue: str = ""
    agent: str = ""
    run: str = ""
    since: str = ""
    until: str = ""
    before: str = ""

    # Names of filters in the URL that differ from the field's name.
    NAMES = {"since": "from", "until": "to"}

    @classmethod
    def of(cls, query: Any) -> Filters:
        values = {f.name: str(query.get(cls.NAMES.get(f.name, f.name), "") or "") for f in fields(cls)}
        return cls(**{name: value.strip().replace("\x00", "")[:200] for name, value in values.items()})

    @property
    def is_any(self) -> bool:
        return any((self.action, self.by, self.queue, self.agent, self.run, self.since, self.until))

    def link(self, **change: str) -> str:
        """Return the query string with changed filters; without `before` the list restarts."""
        now = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "before"} | change
        kept = {self.NAMES.get(name, name): value for name, value in now.items() if value}
        return f"?{urlencode(kept)}" if kept else ""

    @cached_property
    def moments(self) -> tuple[datetime | None, datetime | None]:
        return _moment(self.since, is_end=False), _moment(self.until, is_end=True)

    @cached_property
    def place(self) -> tuple[datetime, int, int] | None:
        """Return the act after which the page continues."""
        if not (numbers := numbers_of(self.before, 17, 1, ROW)) or numbers[1] >= len(SOURCES):
            return None
        micros, rank, number = numbers
        at = at_microseconds(micros)
        return None if at is None else (at, rank, number)

    @cached_property
    def actor(self) -> Q:
        """Return the condition for the actor, looked up once for all sources."""
        return _of_actor(self.by)

    @cached_property
    def problems(self) -> dict[str, str]:
        """Return the invalid filters by name, with a description of what is valid."""
        since, until = self.moments
        fixes = {
            "action": "" if self.action in ("", *ACTIONS) else f"one of {', '.join(ACTIONS)}",
            "run": ""
            if not self.run or _HEX.fullmatch(_digits(self.run))
            else "a run's id or its beginning, at least four digits of it",
            "from": "a day (2026-11-21) or a moment (2026-11-21T08:00Z)" if self.since and since is None else "",
            "to": "a day (2026-11-21) or a moment (2026-11-21T08:00Z)" if self.until and until is None else "",
            "before": "the cursor from `next` or *Older*" if self.before and self.place is None else "",
        }
        return {name: fix for name, fix in fixes.items() if fix}


def _moment(text: str, *, is_end: bool) -> datetime | None:
    """Parse a day or a time, in UTC by default."""
    try:
        if len(text) <= 10:
            day = date.fromisoformat(text)
            return datetime.combine(day + timedelta(days=is_end), time(), UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _digits(run: str) -> str:
    return run.lower().replace("-", "")


# --- the sources ------------------------------------------------------------------------------------------------------

Rows = QuerySet[Any]


@dataclass(frozen=True, slots=True)
class Source:
    """One table. `run`, `queue` and `verb` are the names of its columns; empty if it has no such column."""

    kind: str
    rank: int
    actions: Sequence[str]
    rows: Callable[[], Rows]
    verb: str = "action"
    run: str = "run_id"
    queue: str = ""

    def page(self, filters: Filters, limit: int) -> list[Any]:
        """Return this source's newest matching rows, in the list's order."""
        if filters.action not in ("", *self.actions) and not (filters.action == "accounts" and self.kind == "account"):
            return []
        # Rows with a time in the future are left out, because they would stay on top forever. The page mentions them,
        # and verification names them.
        rows = self.rows().filter(at__lte=RawSQL(NOT_YET, []), at__gte=EARLIEST).order_by("-at", "-pk")
        if filters.action in self.actions:
            rows = rows.filter(**{self.verb: filters.action})
        for wanted, column, condition in (
            (filters.run, self.run, _of_run),
            (filters.agent, self.run, _of_agent),
            (filters.queue, self.queue, _of_queue),
        ):
            if wanted and not column:
                return []
            if wanted:
                rows = rows.filter(condition(column, wanted))
        if filters.by:
            rows = rows.filter(filters.actor)
        since, until = filters.moments
        rows = rows.filter(at__gte=since) if since else rows
        rows = rows.filter(at__lt=until) if until else rows
        return list((rows.filter(self._after(filters.place)) if filters.place else rows)[:limit])

    def _after(self, place: tuple[datetime, int, int]) -> Q:
        """Return the condition for rows after that position in the list.

        Its first part is redundant, but lets the index be used.
        """
        at, rank, number = place
        if self.rank != rank:
            return Q(at__lte=at) if self.rank < rank else Q(at__lt=at)
        return Q(at__lte=at) & (Q(at__lt=at) | Q(pk__lt=number))


def _of_run(column: str, text: str) -> Q:
    digits = _digits(text)
    return Q(**{f"{column}__gte": UUID(digits.ljust(32, "0")), f"{column}__lte": UUID(digits.ljust(32, "f"))})


def _of_agent(column: str, text: str) -> Q:
    """Filter by an agent's name, or `name@version`."""
    name, at, version = text.partition("@")
    runs = Run.objects.filter(agent=name, version=version) if at else Run.objects.filter(agent=name)
    return Q(**{f"{column}__in": runs.values("pk")})


def _of_queue(column: str, text: str) -> Q:
    return Q(**{column: text})


def _of_actor(text: str) -> Q:
    """Filter by a recorded actor, or by an account's name, which also finds the account's acts under other names."""
    if ":" in text:
        return Q(by=text)
    people = get_user_model().objects.filter(username=text).values_list("pk", flat=True)
    return Q(by__in=[f"{kind}:{text}" for kind in _KINDS_OF_ACTOR]) | Q(person__in=list(people))


SOURCES = (
    Source("override", 0, OVERRIDES, OverrideRecord.objects.all),
    Source(
        "decision",
        1,
        DECISIONS,
        lambda: Decision.objects.select_related("approval"),
        verb="verdict",
        run="approval__run_id",
        queue="approval__queue",
    ),
    Source("act", 2, ACTS, ActRecord.objects.all, queue="queue"),
    Source("account", 3, ACCOUNTS, AccountRecord.objects.all, run=""),
)


def acts(filters: Filters, limit: int = PAGE) -> list[Act]:
    """Return the newest matching acts, at most `limit`, with one query per source and one more."""
    if filters.problems:
        return []
    rows = [(source, row) for source in SOURCES for row in source.page(filters, limit)]
    rows.sort(key=lambda one: (one[1].at, one[0].rank, one[1].pk), reverse=True)
    return list(_acts_of(rows[:limit]))


def _acts_of(rows: Sequence[tuple[Source, Any]]) -> Iterator[Act]:
    runs = [_run_of(row) for _, row in rows]
    graphs = dict(Run.objects.filter(pk__in={run for run in runs if run}).values_list("pk", "graph_id"))
    for (source, row), run, is_authentic in zip(rows, runs, authentic(row for _, row in rows), strict=True):
        yield Act(
            source.kind,
            source.rank,
            row.at,
            run,
            graphs.get(run, "") if run else "",
            getattr(row, source.verb),
            row,
            is_authentic,
        )


def digests(approval: Approval) -> list[str]:
    """Return the digests of a question's documents, from its row. Their names are only for readers of the payload."""
    listed = approval.documents if isinstance(approval.documents, list) else []
    return [str(each.get("sha256", "")) for each in listed if isinstance(each, dict)]


def _run_of(row: Any) -> UUID | None:
    run_id: UUID | None = row.approval.run_id if isinstance(row, Decision) else getattr(row, "run_id", None)
    return run_id
