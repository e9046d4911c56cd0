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
from ledger.web.fields import ActorName, IsAuthentic, Rows, RunId, Slot, ToolName
from ledger.web.shapes import Page, Shape
from runs.services.bodies import SteerBody


class ChangeRow(Shape):
    """A difference from the previous version."""

    what: str = Field(description="Field that changed.")
    was: str = Field(description="Its previous value.")
    now: str = Field(description="Its new value.")


PROOF = (
    "Proof required to approve: authentication within the last `within` seconds, a second "
    "`factor`, and the `amount` or `target` typed. Null: the queue's requirement applies."
)


class VersionRow(Shape):
    """A version of a policy."""

    version: int = Field(description="Number of the version, from 1.")
    agent: str = Field(description="Empty: any agent.")
    tool: str = Field(description="Empty: any tool.")
    condition: str = Field(description="Empty: always.")
    effect: Policy.Effect = Field(description="allow, require (an approval) or deny.")
    queue: str = Field(description="Queue that must approve; empty: none.")
    within_hours: int = Field(description="For a gate in code that counts working hours: the number of hours.")
    rule: str = Field(description="Explanation that approvers see.")
    proof: Any = Field(description=PROOF)
    set_by: ActorName
    made_at: datetime = Field(description="Time when it came into force.")
    ended_at: datetime | None = Field(description="Null: in force.")
    ended_by: str = Field(description="Person who replaced or retired it; empty: in force.")
    changes: list[ChangeRow] = Field(description="Differences from the previous version.")
    is_authentic: bool = Field(
        description="False: not recorded by this installation, so affected calls stop for an operator."
    )


class PolicyRow(Shape):
    """A policy, as of its newest version."""

    name: str = Field(description="Name of the policy.")
    version: int = Field(description="Number of its newest version.")
    is_in_force: bool = Field(description="Whether it is in force.")
    versions: list[VersionRow] = Field(description="Newest first; at most 100.")


class RuleRow(Shape):
    """A rule in force: a policy, or a gate defined in an agent's code."""

    source: str = Field(description="policy or code.")
    name: str = Field(description="Name of a policy; a gate in code has none.")
    version: int | None = Field(description="Version of the policy; null for a gate in code.")
    agent: str = Field(description="Agent that it applies to; empty: any agent.")
    agent_versions: list[str] = Field(description="For a gate in code: the agent versions that define it.")
    tool: str = Field(description="Tool that it applies to; empty: any tool.")
    condition: str = Field(description="Condition on the call's arguments; empty: always.")
    effect: Policy.Effect = Field(description="allow, require (an approval) or deny.")
    queue: str = Field(description="Queue that must approve; empty: none.")
    within_hours: int = Field(description="For a gate in code that counts working hours: the number of hours.")
    rule: str = Field(description="Explanation that approvers see.")
    proof: Any = Field(description=PROOF)
    is_authentic: IsAuthentic


class RulePage(Page):
    results: Rows[RuleRow]
    problem: str = Field(
        description="Why the rules in force can't be determined, in which case no call is sent; empty: no problem."
    )


class Policies(ApiView):
    """All rules in force."""

    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("List policies and gates", RulePage)
    def get(self, request: Request) -> Response:
        Query(request)
        rules, problem = listed.in_force()
        rows = [rule_row(each) for each in (*rules, *listed.in_code())]
        return Response({"results": rows, "next": None, "problem": problem})

    @described("Create a policy", PolicyRow, status=201, body=NewPolicyBody)
    def post(self, request: Request) -> Response:
        """Create a policy. It applies to calls from then on."""
        made = acts.create(read_body(request, NewPolicyBody), by=self.by)
        return Response(row_of(made.name), status=201)


class OnePolicy(ApiView):
    """One policy with its versions."""

    permission_classes = [SetsUp]
    versioned = True
    roles = {**READ, "POST": ()}

    @described("Get a policy", PolicyRow)
    def get(self, request: Request, policy: str) -> Response:
        Query(request)
        return Response(row_of(policy))

    @described("Update a policy", PolicyRow, body=PolicyBody, name="policies_update", headers=("If-Match",))
    def post(self, request: Request, policy: str) -> Response:
        """Create the next version of a policy."""
        acts.find(policy)
        acts.change(policy, read_body(request, PolicyBody), by=self.by)
        return Response(row_of(policy))


class PolicyRetire(ApiView):
    """Retire a policy."""

    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Retire a policy", PolicyRow, body=SteerBody)
    def post(self, request: Request, policy: str) -> Response:
        acts.find(policy)
        acts.retire(policy, by=self.by, justification=read_body(request, SteerBody).justification)
        return Response(row_of(policy))


class PoliciesRestore(ApiView):
    """Confirm which policies are in force after they were changed outside this installation."""

    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Restore policies", RulePage, body=SteerBody)
    def post(self, request: Request) -> Response:
        acts.restore(by=self.by, justification=read_body(request, SteerBody).justification)
        rules, problem = listed.in_force()
        rows = [rule_row(each) for each in (*rules, *listed.in_code())]
        return Response({"results": rows, "next": None, "problem": problem})


class CallRow(Shape):
    """A recorded call."""

    run_id: RunId
    slot: Slot
    tool: ToolName
    at: datetime = Field(description="Time of the call.")


class TriedChange(Shape):
    """The number of calls with a different result, and the newest of them."""

    calls: int = Field(description="Number of calls with a different result.")
    examples: list[CallRow] = Field(description="The newest of these calls.")


class LoadRow(Shape):
    """Approvals that a queue would have received."""

    queue: str = Field(description="Queue that would have been asked.")
    calls: int = Field(description="Number of approvals it would have received.")
    a_day: float = Field(description="Average number of approvals a day.")
    median_seconds: float | None = Field(description="Median duration of its last 500 decisions; null: it made none.")
    decided: int = Field(description="Number of decisions behind `median_seconds`.")


class TriedRow(Shape):
    """Effect of a policy on the newest recorded calls, compared with the policies in force."""

    calls: int = Field(description="Number of calls that were read.")
    since: datetime | None = Field(description="Time of the oldest call that was read; null: none was.")
    is_cut: bool = Field(description="Time ran out before all requested calls were read.")
    unsure: int = Field(description="Calls for which the condition can't be evaluated.")
    unreadable: int = Field(description="Calls whose arguments can't be read.")
    gated: TriedChange = Field(description="Calls that would have needed an approval.")
    denied: TriedChange = Field(description="Calls that would have been denied.")
    let_through: TriedChange = Field(description="Calls that would no longer have needed an approval or been denied.")
    loads: list[LoadRow] = Field(description="Approvals that each queue would have received.")


class PoliciesTry(ApiView):
    """Try a policy on recorded calls. Nothing is changed."""

    permission_classes = [SetsUp]
    roles = {"POST": tuple(MAY_TRY)}

    @described("Try a policy", TriedRow, body=TryBody)
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
    """Return the row of a rule in force."""
    return RuleRow.of(
        each,
        source="code" if each.policy is None else "policy",
        within_hours=int(each.within.total_seconds() // 3600),
        version=None if each.policy is None else each.policy.version,
        agent_versions=list(each.versions),
        is_authentic=each.is_authentic,
        proof=None if each.policy is None else each.policy.proof,
    )


def row_of(name: str) -> PolicyRow:
    """Return the row of a policy with its versions. Raises NotFound."""
    newest = acts.find(name)
    versions = [
        VersionRow.of(
            each.row,
            within_hours=each.row.within_seconds // 3600,
            is_authentic=each.is_authentic,
            changes=[ChangeRow.of(change) for change in each.changes],
        )
        for each in listed.versions(name)
    ]
    return PolicyRow.of(newest, is_in_force=newest.is_in_force, versions=versions)
