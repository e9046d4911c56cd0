"""Policies over HTTP: list the rules in force; administrators also publish, change, retire and try out policies."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from approvals.api.queues import SetsUp
from approvals.queues.who import is_admin
from durableagents.contrib.policies import services
from durableagents.contrib.policies.queries import PolicyRow, RulePage, find_policy, find_rules
from durableagents.contrib.policies.services import NewPolicyBody, PolicyBody, TryBody
from durableagents.contrib.policies.trying import MAY_TRY, TriedRow, try_policy
from ledger.web.api_base import READ, ApiView, Query, described, read_body
from runs.services.bodies import SteerBody


class Policies(ApiView):
    """All rules in force."""

    permission_classes = [SetsUp]
    roles = {**READ, "POST": ()}

    @described("List policies and gates", RulePage)
    def get(self, request: Request) -> Response:
        Query(request)
        return Response(find_rules())

    @described("Create a policy", PolicyRow, status=201, body=NewPolicyBody)
    def post(self, request: Request) -> Response:
        """Create a policy. The policy applies to calls that begin afterwards."""
        made = services.create(read_body(request, NewPolicyBody), by=self.by)
        return Response(find_policy(made.name), status=201)


class OnePolicy(ApiView):
    """One policy with its versions."""

    permission_classes = [SetsUp]
    versioned = True
    roles = {**READ, "POST": ()}

    @described("Get a policy", PolicyRow)
    def get(self, request: Request, policy: str) -> Response:
        Query(request)
        return Response(find_policy(policy))

    @described("Update a policy", PolicyRow, body=PolicyBody, name="policies_update", headers=("If-Match",))
    def post(self, request: Request, policy: str) -> Response:
        """Create the next version of a policy."""
        services.find(policy)
        services.change(policy, read_body(request, PolicyBody), by=self.by)
        return Response(find_policy(policy))


class PolicyRetire(ApiView):
    """Retire a policy."""

    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Retire a policy", PolicyRow, body=SteerBody)
    def post(self, request: Request, policy: str) -> Response:
        services.find(policy)
        services.retire(policy, by=self.by, justification=read_body(request, SteerBody).justification)
        return Response(find_policy(policy))


class PoliciesRestore(ApiView):
    """Confirm which policies are in force after they were changed outside the application."""

    permission_classes = [SetsUp]
    roles = {"POST": ()}

    @described("Restore policies", RulePage, body=SteerBody)
    def post(self, request: Request) -> Response:
        services.restore(by=self.by, justification=read_body(request, SteerBody).justification)
        return Response(find_rules())


class PoliciesTry(ApiView):
    """Try a policy on recorded calls without changing anything."""

    permission_classes = [SetsUp]
    roles = {"POST": tuple(MAY_TRY)}

    @described("Try a policy", TriedRow, body=TryBody)
    def post(self, request: Request) -> Response:
        return Response(try_policy(read_body(request, TryBody), is_setter=is_admin(request.user)))
