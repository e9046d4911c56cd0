"""Pages of policies; administrators put them in force, change and retire them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path

from approvals.queues.listed import all_of_them
from approvals.queues.views import ForAdmins, QueuePage, is_on, perform_act
from approvals.queues.who import is_admin
from durableagents.contrib.policies import queries, services
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import EVERY_CALL, NewPolicyBody, PolicyBody, TryBody
from durableagents.contrib.policies.trying import MAY_TRY, try_policy
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.page_forms import Refused, Sent
from runs.services.bodies import SteerBody


class PolicyPage(QueuePage):
    """For everybody with a role, and for administrators."""

    section = "policies"

    def form(self, request: HttpRequest, refused: Refused | None, of: Any = None) -> dict[str, Any]:
        """Return a form's context with the refused input or the version to change. Input of other forms is ignored."""
        known = self.context(request, refused)
        if refused is not None and refused.act not in ("add", "change", "try"):
            known["typed"] = {}
        agents, tools = queries.agents_and_tools()
        if of is not None and not known["typed"]:
            known["typed"] = of.as_record() | {"within_hours": of.within_seconds // 3600 or ""} | _typed(of)
        queues = [queue.name for queue in all_of_them() if queue.state == "open"]
        return known | {"agents": agents, "tools": tools, "open_queues": queues, "every_call": EVERY_CALL}


class PoliciesPage(PolicyPage):
    """All rules: policies, and gates in code."""

    template = "policies/list.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        fields = {"rules": queries.find_rules(), "retired": queries.find_retired(), **self.form(request, refused)}
        return self.show(request, fields, status=refused.error.status if refused else 200)


class OnePolicyPage(PolicyPage):
    """A policy with its versions."""

    template = "policies/policy.html"

    def get(self, request: HttpRequest, policy: str) -> HttpResponse:
        return self.tell(request, policy)

    def tell(self, request: HttpRequest, name: str, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with a refused form."""
        newest = services.find(name)
        fields = {
            "p": newest,
            "rule": queries.policy_rule(newest),
            "versions": queries.find_policy(name).versions,
            **self.form(request, refused, newest),
        }
        return self.show(request, fields, status=refused.error.status if refused else 200)

    def act(
        self, request: HttpRequest, name: str, form: str, act: Callable[[Sent, Actor], None], done_text: str
    ) -> HttpResponse | None:
        """Perform an act on the policy; return the page again if it is refused."""
        services.find(name)
        return perform_act(request, form, act, done_text, lambda request, refused: self.tell(request, name, refused))


class PolicyAdding(ForAdmins, PoliciesPage):
    """Put a policy in force."""

    def post(self, request: HttpRequest) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            services.create(form.read(NewPolicyBody, **_READ), by=by)

        return perform_act(request, "add", act, "Policy published.", self.tell) or redirect("policies")


class PolicyRestoring(ForAdmins, PoliciesPage):
    """Restore the policies on record after a forgery."""

    def post(self, request: HttpRequest) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            services.restore(by=by, justification=form.read(SteerBody).justification)

        return perform_act(request, "restore", act, "Policies restored.", self.tell) or redirect("policies")


class PolicyTrying(PolicyPage):
    """Try a policy on past calls. Read-only."""

    http_method_names = ["post"]
    template = "policies/tried.html"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they see every run. GET passes, for its own answer."""
        return self.request.method != "POST" or bool(held & MAY_TRY) or is_admin(self.request.user)

    def post(self, request: HttpRequest) -> HttpResponse:
        form, refused, found = Sent(request), None, None
        try:
            body = form.read(TryBody, **_READ, calls=_number)
            found = try_policy(body, is_setter=is_admin(request.user))
        except DurableAgentsError as error:
            refused = Refused("try", error, form.kept)
        known = self.form(request, refused)
        known["typed"] = form.kept
        last = Policy.objects.filter(name=form.kept.get("name", ""), ended_at__isnull=True).first()
        fields = {"tried": found, "replaced": last, **known}
        return self.show(request, fields, status=refused.error.status if refused else 200)


class PolicyChanging(ForAdmins, OnePolicyPage):
    """Put a new version in force."""

    def post(self, request: HttpRequest, policy: str) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            services.change(policy, form.read(PolicyBody, **_READ, seen=_number), by=by)

        return self.act(request, policy, "change", act, "New version published.") or redirect("policy", policy=policy)


class PolicyRetiring(ForAdmins, OnePolicyPage):
    """Retire a policy."""

    def post(self, request: HttpRequest, policy: str) -> HttpResponse:
        def act(form: Sent, by: Actor) -> None:
            services.retire(policy, by=by, justification=form.read(SteerBody).justification)

        return self.act(request, policy, "retire", act, "Policy retired.") or redirect("policies")


def _number(text: str) -> Any:
    """Parse a number; other text is passed on, for the body's own rules to refuse."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


_READ: dict[str, Callable[[str], Any]] = {
    "within_hours": _number,
    "proof_minutes": _number,
    "second_factor": is_on,
    "type_amount": is_on,
    "type_target": is_on,
}


def _typed(of: Policy) -> dict[str, Any]:
    proof = of.proof or {}
    boxes = {"second_factor": "factor", "type_amount": "amount", "type_target": "target"}
    ticked = {name: "on" for name, of_row in boxes.items() if proof.get(of_row)}
    return ticked | {"proof_minutes": proof.get("within", 0) // 60 or ""}


urlpatterns = [
    path("policies", PoliciesPage.as_view(), name="policies"),
    path("policies/new", PolicyAdding.as_view(), name="new_policy"),
    path("policies/tries", PolicyTrying.as_view(), name="policy_tries"),
    path("policies/restorations", PolicyRestoring.as_view(), name="policy_restorations"),
    path("policies/of/<str:policy>", OnePolicyPage.as_view(), name="policy"),
    path("policies/of/<str:policy>/versions", PolicyChanging.as_view(), name="policy_versions"),
    path("policies/of/<str:policy>/retirements", PolicyRetiring.as_view(), name="policy_retirements"),
]
