"""Policies over HTTP: reading all rules, and, for administrators, putting policies in force, changing and retiring
them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.queues import SetsUp
from approvals.models import Policy
from approvals.policies import acts, listed
from approvals.policies.acts import NewPolicyBody, PolicyBody, TryBody
from approvals.policies.trying import MAY_TRY, Change, tried
from approvals.queues.who import is_admin
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody


class ChangeRow(Shape):
    """One thing that a version says another way than the one before."""

    what: str
    was: str
    now: str


PROOF = (
    "What a yes that it demands has to show: who one is, `within` so many seconds, by a second `factor`; the `amount`, "
    "the `target`, typed. Null: no more than the queue asks."
)


class VersionRow(Shape):
    """A version of a policy."""

    version: int
    agent: str = Field(description="Empty: any.")
    tool: str = Field(description="Empty: any.")
    condition: str = Field(description="Empty: always.")
    effect: Policy.Effect
    queue: str
    within_hours: int = Field(description="Of a gate in code that counts working hours, those.")
    rule: str
    proof: Any = Field(description=PROOF)
    set_by: str
    made_at: datetime
    ended_at: datetime | None = Field(description="Null: in force.")
    ended_by: str
    changes: list[ChangeRow]
    is_genuine: bool = Field(description="false: not put on record by this installation; calls stop for an operator.")


class PolicyRow(Shape):
    """A policy, by its newest version."""

    name: str
    version: int
    is_in_force: bool
    versions: list[VersionRow] = Field(description="The newest first; not beyond 100.")


class RuleRow(Shape):
    """A rule in force: a policy, or a gate that an agent brings."""

    source: str = Field(description="policy, or code.")
    name: str = Field(description="Of a policy; a gate in code has none.")
    version: int | None
    agent: str
    agent_versions: list[str] = Field(description="Of a gate in code: the agent's versions that bring it.")
    tool: str
    condition: str
    effect: Policy.Effect
    queue: str
    within_hours: int = Field(description="Of a gate in code that counts working hours, those.")
    rule: str
    proof: Any = Field(description=PROOF)
    is_genuine: bool


class RulePage(Page):
    results: list[RuleRow]
    problem: str = Field(
        description="Why nobody can tell what is in force, so that no call leaves; empty if nothing is."
    )


class Policies(ApiView):
    """All rules in force; and the place to put a policy in force."""

    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("List policies and gates", RulePage)
    def get(self, request: Request) -> Response:
        Query(request)
        rules, problem = listed.in_force()
        rows = [rule_row(each) for each in (*rules, *listed.in_code())]
        return Response({"results": rows, "next": None, "problem": problem})

    @described("Put a policy in force", PolicyRow, status=201, body=NewPolicyBody)
    def post(self, request: Request) -> Response:
        made = acts.create(read_body(request, NewPolicyBody), by=self.by)
        return Response(row_of(made.name), status=201)


class OnePolicy(ApiView):
    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("A policy", PolicyRow)
    def get(self, request: Request, policy: str) -> Response:
        Query(request)
        return Response(row_of(policy))

    @described("Change a policy", PolicyRow, body=PolicyBody, name="policies_update")
    def post(self, request: Request, policy: str) -> Response:
        acts.find(policy)
        acts.change(policy, read_body(request, PolicyBody), by=self.by)
        return Response(row_of(policy))


class PolicyRetire(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Retire a policy", PolicyRow, body=SteerBody)
    def post(self, request: Request, policy: str) -> Response:
        acts.find(policy)
        acts.retire(policy, by=self.by, justification=read_body(request, SteerBody).justification)
        return Response(row_of(policy))


class PoliciesRestore(ApiView):
    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Say anew which policies are in force", RulePage, body=SteerBody)
    def post(self, request: Request) -> Response:
        acts.restore(by=self.by, justification=read_body(request, SteerBody).justification)
        rules, problem = listed.in_force()
        rows = [rule_row(each) for each in (*rules, *listed.in_code())]
        return Response({"results": rows, "next": None, "problem": problem})


class CallRow(Shape):
    """A call on record."""

    run_id: str
    slot: str
    tool: str
    at: datetime


class TriedChange(Shape):
    """How many calls would have become something else, and the newest of them."""

    calls: int
    examples: list[CallRow]


class LoadRow(Shape):
    """What a queue would have been asked."""

    queue: str
    calls: int
    a_day: float
    median_seconds: float | None = Field(description="How long its last 500 decisions took; null: it made none.")
    decided: int


class TriedRow(Shape):
    """What a policy would have done to the newest calls on record, against the policies in force."""

    calls: int
    since: datetime | None
    is_cut: bool = Field(description="The time was up before as many as asked for were read.")
    unsure: int = Field(description="Calls of which the condition can't be told.")
    unreadable: int
    gated: TriedChange
    denied: TriedChange
    let_through: TriedChange
    loads: list[LoadRow]


class PoliciesTry(ApiView):
    """Trying a policy on history: reads only."""

    permission_classes = [SetsUp]
    roles = {"POST": tuple(MAY_TRY)}

    @described("Try a policy on history", TriedRow, body=TryBody)
    def post(self, request: Request) -> Response:
        found = tried(read_body(request, TryBody), is_setter=is_admin(request.user))
        return Response(
            TriedRow.of(
                found,
                gated=_change(found.gated),
                denied=_change(found.denied),
                let_through=_change(found.let_through),
                loads=[LoadRow.of(load) for load in found.loads],
            )
        )


def _change(of: Change) -> TriedChange:
    return TriedChange.of(of, examples=[CallRow.of(call) for call in of.examples])


def rule_row(each: listed.Shown) -> RuleRow:
    """A rule as the list tells it."""
    return RuleRow.of(
        each,
        source="code" if each.policy is None else "policy",
        within_hours=int(each.within.total_seconds() // 3600),
        version=None if each.policy is None else each.policy.version,
        agent_versions=list(each.versions),
        is_genuine=each.is_genuine,
        proof=None if each.policy is None else each.policy.proof,
    )


def row_of(name: str) -> PolicyRow:
    """A policy with its versions. Raises NotFound."""
    newest = acts.find(name)
    versions = [
        VersionRow.of(
            each.row,
            within_hours=each.row.within_seconds // 3600,
            is_genuine=each.is_genuine,
            changes=[ChangeRow.of(change) for change in each.changes],
        )
        for each in listed.versions(name)
    ]
    return PolicyRow.of(newest, is_in_force=newest.is_in_force, versions=versions)
