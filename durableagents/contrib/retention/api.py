"""Retention over HTTP: policies, legal holds, and archived runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.permissions import OrAdmin
from durableagents.contrib.retention import holds, listed, policies, register, restoring
from durableagents.contrib.retention.holds import LegalHoldBody
from durableagents.contrib.retention.models import Archive, Hold, Policy
from durableagents.contrib.retention.policies import RetentionPolicyBody
from ledger.erasure import Erasure, on_record
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.fields import ActorName, Attempt, Rows, RunId
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody

_READERS = (OPERATOR, AUDITOR)
_AGENT = OpenApiParameter("agent", str, "query", description="Only runs of this agent, without version.")
_TAG = OpenApiParameter("tag", str, "query", description="Only runs with this tag.")


class RetentionPolicyRow(Shape):
    """A retention policy.

    Empty fields match any run. If several policies match a run, the one that keeps it longest counts.
    """

    id: int = Field(description="Id of the policy.")
    agent: str = Field(description="Name of the agent.")
    tag: str = Field(description="Tag of the run.")
    effects: str = Field(description="Replay class of a call that the run made.")
    state: str = Field(description="State in which the run ended.")
    checkpoint_days: int | None = Field(
        description="Days from end until all checkpoints but the newest are removed; null: they stay with the run."
    )
    archive_days: int | None = Field(description="Days from end to archiving; null: never.")
    delete_days: int | None = Field(description="Days from archiving to deletion; null: never.")
    reason: str = Field(description="Justification.")
    set_by: ActorName
    at: datetime = Field(description="Time when it was put in force.")


class LegalHoldRow(Shape):
    """A legal hold, on one run and all runs related to it, or on all runs that match all given fields."""

    id: int = Field(description="Id of the hold.")
    run_id: UUID | None = Field(description="The run; null if the other fields select the runs.")
    agent: str = Field(description="Name of the agent; empty: any.")
    tag: str = Field(description="Tag of the runs; empty: any.")
    business_key: str = Field(description="Business key of the runs; empty: any.")
    created_from: datetime | None = Field(description="Runs created at this time or later; null for any time.")
    created_to: datetime | None = Field(description="Runs created at this time or before; null for any time.")
    reason: str = Field(description="Justification.")
    set_by: ActorName
    at: datetime = Field(description="Time when it was placed.")
    live: int = Field(description="Runs in the database that it keeps now, counted up to 1,001.")
    archived: int = Field(description="Archived runs that it keeps now, counted up to 1,001.")


class RetentionRulesRow(Shape):
    """The policies and legal holds in force."""

    policies: list[RetentionPolicyRow] = Field(description="Policies in force, oldest first.")
    holds: list[LegalHoldRow] = Field(description="Legal holds in force, oldest first.")


class ArchivedRunRow(Shape):
    """A run whose rows are in an archive."""

    run_id: RunId
    family: UUID = Field(description="The run from which all runs of the archive come.")
    agent: str = Field(description="Name of the agent.")
    version: str = Field(description="Version of the agent.")
    state: str = Field(description="State in which the run ended.")
    business_key: str = Field(description="Business key; empty: none.")
    created_at: datetime = Field(description="Time of the start.")
    ended_at: datetime = Field(description="Time of the end.")
    seq: int = Field(description="Number of its last event.")
    hash: str = Field(description="Hash of its last event.")
    policy: int = Field(description="Id of the policy that made it due.")
    place: str = Field(description="Name of the file in the storage.")
    digest: str = Field(description="SHA-256 of the file.")
    size: int = Field(description="Size of the file in bytes.")
    at: datetime = Field(description="Time of the archiving.")
    deleted_at: datetime | None = Field(description="Time when the archive was deleted; null if it was not deleted.")
    erased_at: datetime | None = Field(description="Time when the run's content was erased; null if it was not erased.")


class ArchivedRunPage(Page):
    results: Rows[ArchivedRunRow]


class ArchivedEventRow(Shape):
    """An event as read from the archive."""

    seq: int = Field(description="Number of the event.")
    at: datetime = Field(description="Time of the event.")
    kind: str = Field(description="Kind of the event.")
    slot: str | None = Field(description="Place in the run.")
    attempt: Attempt
    payload: Any = Field(description="Content; null if there is none, or if you may not read payloads.")


class ArchivedEventPage(Page):
    results: Rows[ArchivedEventRow]


class RestoredRow(Shape):
    """The runs that were restored."""

    runs: list[UUID] = Field(description="Ids of the restored runs.")


class _OfRules(ApiView):
    permission_classes = [OrAdmin]
    unversioned = frozenset({"holds"})  # the number of runs that they keep changes all the time

    def current(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        return _rules()


class Rules(_OfRules):
    """Policies and legal holds in force."""

    versioned = True
    roles = {"GET": _READERS}

    @described("Get the retention rules", RetentionRulesRow)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response(_rules())


class Policies(_OfRules):
    """Put a policy in force."""

    roles = {"POST": ()}

    @described(
        "Create a retention policy",
        RetentionPolicyRow,
        status=201,
        body=RetentionPolicyBody,
        headers=("If-Match",),
    )
    def post(self, request: Request) -> Response:
        """Put a policy in force. Administrators only."""
        return Response(_policy_row(policies.create(read_body(request, RetentionPolicyBody), by=self.by)), status=201)


class PolicyEnds(_OfRules):
    """End a policy."""

    roles = {"POST": ()}

    @described("End a retention policy", RetentionPolicyRow, body=SteerBody, headers=("If-Match",))
    def post(self, request: Request, policy_id: int) -> Response:
        """End a policy. Administrators only."""
        body = read_body(request, SteerBody)
        return Response(_policy_row(policies.end(policy_id, by=self.by, justification=body.justification)))


class Holds(ApiView):
    """Place a legal hold."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Place a legal hold", LegalHoldRow, status=201, body=LegalHoldBody)
    def post(self, request: Request) -> Response:
        """Place a legal hold, so that runs are not archived, deleted or erased. Administrators only."""
        return Response(_hold_row(holds.place(read_body(request, LegalHoldBody), by=self.by)), status=201)


class HoldEnds(ApiView):
    """Lift a legal hold."""

    permission_classes = [OrAdmin]
    roles = {"POST": ()}

    @described("Lift a legal hold", LegalHoldRow, body=SteerBody)
    def post(self, request: Request, hold_id: int) -> Response:
        """Lift a legal hold. Administrators only."""
        body = read_body(request, SteerBody)
        return Response(_hold_row(holds.lift(hold_id, by=self.by, justification=body.justification)))


class ArchivedRuns(ApiView):
    """Archived runs; the ones archived last come first."""

    roles = READ

    @described("List archived runs", ArchivedRunPage, query=(_AGENT, _TAG, "after", "limit"))
    def get(self, request: Request) -> Response:
        """List the archived runs that you may see."""
        query = Query(request, "agent", "tag", "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = listed.archived(
            agent=query.text("agent") or "", tag=query.text("tag") or "", before=after or None, limit=query.limit + 1
        )
        erased = on_record([row.run_id for row in found])
        return query.page(found, lambda row: {"after": str(row.pk)}, lambda row: _archived_row(row, erased))


class ArchivedRun(ApiView):
    """One archived run."""

    roles = READ

    @described("Get an archived run", ArchivedRunRow)
    def get(self, request: Request, archived_id: UUID) -> Response:
        Query(request)
        row = register.find(archived_id)
        return Response(_archived_row(row, on_record([row.run_id])))


class ArchivedEvents(ApiView):
    """The events of an archived run, read from its archive."""

    roles = READ

    @described("List an archived run's events", ArchivedEventPage, query=("after", "limit"))
    def get(self, request: Request, archived_id: UUID) -> Response:
        """List events from the archive, whose digests are checked first."""
        query = Query(request, "after")
        after = query.integer("after", default=0, lowest=0, highest=2**62)
        found = listed.lines(register.find(archived_id), after=after, limit=query.limit + 1)
        return query.page(found, lambda line: {"after": str(line.seq)}, ArchivedEventRow.of)


class Restorations(ApiView):
    """Restore an archived run."""

    permission_classes = [OrAdmin]
    roles = {"POST": (OPERATOR,)}

    @described("Restore an archived run", RestoredRow, body=SteerBody)
    def post(self, request: Request, archived_id: UUID) -> Response:
        """Restore a run together with all runs in its archive. Operators and administrators."""
        body = read_body(request, SteerBody)
        return Response(RestoredRow(runs=restoring.restore(archived_id, by=self.by, justification=body.justification)))


def _rules() -> RetentionRulesRow:
    return RetentionRulesRow(
        policies=[_policy_row(row) for row in policies.in_force()],
        holds=[_hold_row(row) for row in holds.in_force()],
    )


def _policy_row(row: Policy) -> RetentionPolicyRow:
    return RetentionPolicyRow.of(row)


def _hold_row(row: Hold) -> LegalHoldRow:
    found = holds.covered(row, holds.MAX_COUNTED_IN_LISTS)
    return LegalHoldRow.of(row, live=found.live, archived=found.archived)


def _archived_row(row: Archive, erased: Mapping[UUID, Erasure]) -> ArchivedRunRow:
    return ArchivedRunRow.of(
        row,
        hash=bytes(row.chain).hex(),
        digest=bytes(row.digest).hex(),
        deleted_at=register.deleted_at(row),
        erased_at=erased[row.run_id].at if row.run_id in erased else None,
    )
