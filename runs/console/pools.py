"""The page of pools: status, refill, waiting runs; creating, changing and switching off."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError
from ledger.models import Head
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs.console.tables.waits import amount_of
from runs.models import Run
from runs.queries.pools import Listed, listed, newest, of_run
from runs.services.bodies import PoolBody, PoolChangeBody, SteerBody
from runs.services.pools import acts

_SETTERS = frozenset({OPERATOR})
_SCOPES = {
    "all": "every run",
    "tag": "runs with the tag",
    "agent": "runs of the agent",
    "person": "runs started by a person",
    "provider": "models of the provider",
}
_RESOURCES = {
    "usd": "US dollars",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "model_calls": "model calls",
    "tool_calls": "tool calls",
}
_PERIODS = ("day", "week", "month")


@dataclass(frozen=True, slots=True)
class Shown:
    """A pool with formatted amounts."""

    on: Listed

    def _said(self, amount: int) -> str:
        return amount_of(self.on.resource, amount)

    @property
    def most(self) -> str:
        return self._said(self.on.most)

    @property
    def used(self) -> str:
        return self._said(self.on.used)

    @property
    def reserved(self) -> str:
        return self._said(self.on.reserved) if self.on.reserved else ""

    @property
    def left(self) -> str:
        return self._said(self.on.left)

    @property
    def limit(self) -> str:
        return str(self.on.said(self.on.most))

    @property
    def whose(self) -> str:
        return _SCOPES.get(str(self.on.pool.scope), str(self.on.pool.scope))

    @property
    def what(self) -> str:
        return _RESOURCES.get(self.on.resource, self.on.resource)

    @property
    def tone(self) -> str:
        return "bad" if self.on.waiting else "wait" if self.on.warned_at else "run"

    @property
    def word(self) -> str:
        if self.on.pool.off_at is not None:
            return "off"
        return "calls wait" if self.on.waiting else "nearly used up" if self.on.warned_at else "open"


class PoolsPage(Page):
    """The active pools, newest first; with `run`, those of a run."""

    template = "runs/pools.html"
    section = "pools"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request)

    def tell(self, request: HttpRequest, refused: Refused | None = None, at: int | None = None) -> HttpResponse:
        """Render the page, with what was refused at its pool."""
        pools = listed(newest(limit=acts.MOST))
        context: dict[str, Any] = {
            "pools": [Shown(one) for one in pools],
            "refused": refused,
            "refused_at": at,
            "may_set": OPERATOR in roles(request.user),
            "scopes": _SCOPES,
            "resources": _RESOURCES,
            "periods": _PERIODS,
            "typed": refused.typed if refused is not None and at is None else {"zone": "UTC", "period": "month"},
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class NewPool(PoolsPage):
    allowed: ClassVar[frozenset[str]] = _SETTERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(PoolBody, limit=_number)
            acts.create(body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, Refused("pool", error, form.kept))
        messages.success(request, "Pool created.", extra_tags="ok")
        return redirect("pools")


class PoolLimits(PoolsPage):
    allowed: ClassVar[frozenset[str]] = _SETTERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pool_id: int) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(PoolChangeBody, limit=_number, if_limit=_number)
            acts.change(pool_id, body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, Refused("limit", error, form.kept), pool_id)
        messages.success(request, "Limit saved.", extra_tags="ok")
        return redirect("pools")


class PoolClosings(PoolsPage):
    """Switching a pool off."""

    allowed: ClassVar[frozenset[str]] = _SETTERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, pool_id: int) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(SteerBody)
            by = self.acting(request, prefer=(OPERATOR,))
            acts.switch_off(pool_id, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, Refused("off", error, form.kept), pool_id)
        messages.success(request, "Pool switched off.", extra_tags="ok")
        return redirect("pools")


def of(run: Run, head: Head) -> list[Shown]:
    """Return a run's pools for its page, without a query if its head says there are none."""
    return [Shown(one) for one in of_run(run, has_past=False)] if getattr(head, "has_pools", True) else []


def _number(text: str) -> Any:
    """Return a limit; other text unchanged, for the body's rules to refuse."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return text
