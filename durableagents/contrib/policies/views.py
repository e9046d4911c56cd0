"""Pages of policies. On them, administrators put policies in force, change them and retire them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.queues.listed import all_of_them
from approvals.queues.views import ForAdmins, PersonalAct, QueuePage
from approvals.queues.who import is_admin
from durableagents.contrib.policies import queries, services
from durableagents.contrib.policies.models import Policy
from durableagents.contrib.policies.services import EVERY_CALL, TryBody
from durableagents.contrib.policies.trying import MAY_TRY, try_policy
from ledger.errors import DurableAgentsError
from ledger.web.page_acts import is_on, whole
from ledger.web.page_forms import Refused, Sent

# How fields of the forms are read.
READ: dict[str, Callable[[str], Any]] = {
    "within_hours": whole,
    "proof_minutes": whole,
    "second_factor": is_on,
    "type_amount": is_on,
    "type_target": is_on,
}


class PolicyPage(QueuePage):
    """Base class of pages for people with any role, and for administrators."""

    section = "policies"

    def form(self, request: HttpRequest, refused: Refused | None, of: Any = None) -> dict[str, Any]:
        """Return the context of the form: the refused input, or the values of version `of`.

        Input of other forms is ignored."""
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

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        fields = {"rules": queries.find_rules(), "retired": queries.find_retired(), **self.form(request, refused)}
        return self.show_forms(request, fields, refused)


class OnePolicyPage(PolicyPage):
    """A policy with its versions."""

    template = "policies/policy.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, *, policy: str) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        newest = services.find(policy)
        fields = {
            "p": newest,
            "rule": queries.policy_rule(newest),
            "versions": queries.find_policy(policy).versions,
            **self.form(request, refused, newest),
        }
        return self.show_forms(request, fields, refused)


class RulesAct(ForAdmins, PersonalAct, PoliciesPage):
    """Base class of acts that are not about one existing policy."""

    page = "policies"


class PolicyAct(ForAdmins, PersonalAct, OnePolicyPage):
    """Base class of acts on one policy."""

    def post(self, request: HttpRequest, **address: Any) -> HttpResponse:
        """Perform the act. Raises NotFound if there is no such policy."""
        services.find(address["policy"])
        return super().post(request, **address)


class PolicyTrying(PolicyPage):
    """Try a policy on recorded calls, without changing anything."""

    http_method_names = ["post"]
    template = "policies/tried.html"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader may see every run. Only POST is checked, because it is the only allowed method."""
        return self.request.method != "POST" or bool(held & MAY_TRY) or is_admin(self.request.user)

    def post(self, request: HttpRequest) -> HttpResponse:
        form, refused, found = Sent(request), None, None
        try:
            body = form.read(TryBody, **READ, calls=whole)
            found = try_policy(body, is_setter=is_admin(request.user))
        except DurableAgentsError as error:
            refused = Refused("try", error, form.kept)
        known = self.form(request, refused)
        known["typed"] = form.kept
        last = Policy.objects.filter(name=form.kept.get("name", ""), ended_at__isnull=True).first()
        fields = {"tried": found, "replaced": last, **known}
        return self.show(request, fields, status=refused.error.status if refused else 200)


def _typed(of: Policy) -> dict[str, Any]:
    proof = of.proof or {}
    boxes = {"second_factor": "factor", "type_amount": "amount", "type_target": "target"}
    ticked = {name: "on" for name, of_row in boxes.items() if proof.get(of_row)}
    return ticked | {"proof_minutes": proof.get("within", 0) // 60 or ""}
