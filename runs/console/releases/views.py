"""Closing a version to new starts and opening it, setting a ramp, and what may be done to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError, NotFound
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs.console.tables.releases import Panel
from runs.engine.agents import registry
from runs.models import Ramp
from runs.services.bodies import SteerBody
from runs.services.releases import acts
from runs.services.releases.bodies import RaiseBody, RampActBody, RampBody

_OFF = "none"


class VersionsPage(Page):
    """How an agent's versions stand beside each other: their runs, who starts get, and the ramp."""

    template = "agents/releases.html"
    section = "agents"

    def get(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        return self.tell(request, graph_id)

    def tell(self, request: HttpRequest, graph_id: str, refused: Refused | None = None) -> HttpResponse:
        """The page; with what was refused. Raises NotFound."""
        name = graph_id.partition("@")[0]
        panel = Panel.of(name)
        if not panel.versions:
            raise NotFound("agent", name)
        context = {
            "name": name,
            "graph_id": graph_id if "@" in graph_id else f"{name}@{panel.versions[0].on.version}",
            "releases": panel,
            "refused": refused,
            "typed": refused.typed if refused is not None and refused.act == "ramp" else {},
            "may_release": OPERATOR in roles(request.user),
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class _Acts(VersionsPage):
    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def _done(self, request: HttpRequest, graph_id: str, said: str) -> HttpResponse:
        messages.success(request, f"{said} It is on the record.", extra_tags="ok")
        return redirect("versions", graph_id=graph_id)


class VersionClosings(_Acts):
    """No start gets the version any more."""

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form, (name, _, version) = Sent(request), graph_id.partition("@")
        try:
            body, by = form.read(SteerBody), self.acting(request, prefer=(OPERATOR,))
            acts.close(name, version, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("closing", error, form.kept))
        return self._done(request, graph_id, "The version is closed to new starts.")


class VersionOpenings(_Acts):
    """Starts may get it again."""

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form, (name, _, version) = Sent(request), graph_id.partition("@")
        try:
            body, by = form.read(SteerBody), self.acting(request, prefer=(OPERATOR,))
            acts.reopen(name, version, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("opening", error, form.kept))
        return self._done(request, graph_id, "The version is open to new starts.")


class NewRamp(_Acts):
    """Setting a ramp."""

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form = Sent(request)
        bound = dict.fromkeys(acts.BOUNDS, _bound)
        try:
            body = form.read(RampBody, share=_number, tags=_tags, at_least=_whole, **bound)
            acts.begin(body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("ramp", error, form.kept))
        return self._done(request, graph_id, "The ramp is on.")


class RaiseRamp(_Acts):
    """Sending more of the starts to the newer version."""

    def post(self, request: HttpRequest, ramp_id: int) -> HttpResponse:
        form, graph_id = Sent(request), _page_of(ramp_id)
        try:
            body = form.read(RaiseBody, share=_number, revision=_whole)
            acts.raise_to(ramp_id, body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("share", error, form.kept))
        return self._done(request, graph_id, "The share is raised.")


class SteerRamp(_Acts):
    """Letting a halted ramp go on, taking one back, finishing it: `action` comes from the route."""

    action: ClassVar[str] = ""

    def post(self, request: HttpRequest, ramp_id: int) -> HttpResponse:
        form, graph_id = Sent(request), _page_of(ramp_id)
        act, said = ACTS[self.action]
        try:
            act(ramp_id, form.read(RampActBody, revision=_whole), by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused(self.action, error, form.kept))
        return self._done(request, graph_id, said)


ACTS: Mapping[str, tuple[Callable[..., Ramp], str]] = {
    "resume": (acts.go_on, "The ramp goes on."),
    "rollback": (acts.roll_back, "The ramp is taken back, and the newer version is closed to new starts."),
    "finish": (acts.finish, "The ramp is finished."),
}


def _page_of(ramp_id: int) -> str:
    """The page of the ramp's agent: of a version that is here. Raises NotFound."""
    ramp = acts.find(ramp_id)
    here = [one.version for one in registry.versions(ramp.agent)]
    wanted = next((v for v in (ramp.to_version, ramp.from_version, *here) if v in here), ramp.to_version)
    return f"{ramp.agent}@{wanted}"


def _number(text: str) -> Any:
    """A share as it was typed; what is no number is handed on as text, for the body's own rules to refuse."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return text


def _whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def _bound(text: str) -> Any:
    return None if text.strip().lower() == _OFF else _whole(text.strip())


def _tags(text: str) -> list[str]:
    return [tag for tag in map(str.strip, text.split(",")) if tag]
