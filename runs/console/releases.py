"""The page of an agent's versions and its ramp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError, NotFound
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs.engine.agents import registry
from runs.models import Ramp
from runs.queries.releases import COUNTED_TO, Ramped, Standing, ramped, ramps, versions_of
from runs.queries.run_list import GROUPS
from runs.services.bodies import SteerBody
from runs.services.releases import acts
from runs.services.releases.acts import RaiseBody, RampActBody, RampBody

_WORDS = {"on": "on", "halted": "halted", "rolled_back": "reverted", "done": "finished"}
_TONES = {"on": "run", "halted": "bad", "rolled_back": "hold", "done": "ok"}


@dataclass(frozen=True, slots=True)
class VersionShown:
    """A version with formatted figures."""

    on: Standing
    is_here: bool
    in_ramp: bool

    @property
    def counts(self) -> list[tuple[str, str]]:
        told = [(word, self.on.total(*map(str, states))) for word, states in GROUPS.values()]
        return [(word, f"{COUNTED_TO:,}+" if number > COUNTED_TO else f"{number:,}") for word, number in told if number]

    @property
    def service(self) -> str:
        if not self.on.is_served:
            return "no running worker has it"
        only = ", which only drain it" if self.on.is_only_drained else ""
        return f"{self.on.workers} worker{'' if self.on.workers == 1 else 's'}{only}"

    @property
    def until(self) -> tuple[datetime | None, datetime | None]:
        """Return the earliest and latest time at which its last run may end."""
        return self.on.forecast.earliest, self.on.forecast.latest


@dataclass(frozen=True, slots=True)
class RampShown:
    """A ramp with formatted figures."""

    on: Ramped

    @property
    def ramp(self) -> Ramp:
        return self.on.ramp

    @property
    def share(self) -> str:
        return acts.percent(self.ramp.share)

    @property
    def word(self) -> str:
        return _WORDS.get(str(self.ramp.state), str(self.ramp.state))

    @property
    def tone(self) -> str:
        return _TONES.get(str(self.ramp.state), "")

    @property
    def bounds(self) -> list[tuple[str, int, int | None]]:
        return [(name, getattr(self.on.figures, name), self.ramp.bounds.get(name)) for name in acts.BOUNDS]


@dataclass(frozen=True, slots=True)
class Panel:
    """An agent's versions, and its current or last ramp."""

    versions: list[VersionShown]
    ramp: RampShown | None

    @classmethod
    def of(cls, agent: str) -> Panel:
        here = [one.version for one in registry.versions(agent)]
        last = next(iter(ramps(agent, limit=1)), None)
        is_on = last is not None and last.ended_at is None
        sides = {last.from_version, last.to_version} if last is not None and is_on else set()
        found = versions_of(agent, here)
        shown = [VersionShown(one, one.version in here, one.version in sides) for one in found]
        return cls(shown, None if last is None else RampShown(ramped(last)))

    @property
    def page(self) -> str:
        """Return the newest version with a page here; "" if there is none."""
        return next((one.on.graph_id for one in self.versions if one.is_here), "")

    @property
    def is_ramping(self) -> bool:
        return self.ramp is not None and self.ramp.ramp.ended_at is None

    @property
    def open_here(self) -> list[str]:
        """Return the versions that a ramp may lead from."""
        return [one.on.version for one in self.versions if one.is_here and not one.on.is_closed]

    @property
    def here(self) -> list[str]:
        return [one.on.version for one in self.versions if one.is_here]


_OFF = "none"


class VersionsPage(Page):
    """An agent's versions compared: their runs, which one new starts get, and the ramp."""

    template = "agents/releases.html"
    section = "agents"

    def get(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        return self.tell(request, graph_id)

    def tell(self, request: HttpRequest, graph_id: str, refused: Refused | None = None) -> HttpResponse:
        """Render the page, with what was refused. Raises NotFound."""
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
        messages.success(request, said, extra_tags="ok")
        return redirect("versions", graph_id=graph_id)


class VersionClosings(_Acts):
    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form, (name, _, version) = Sent(request), graph_id.partition("@")
        try:
            body, by = form.read(SteerBody), self.acting(request, prefer=(OPERATOR,))
            acts.close(name, version, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("closing", error, form.kept))
        return self._done(request, graph_id, "Version closed to new runs.")


class VersionOpenings(_Acts):
    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form, (name, _, version) = Sent(request), graph_id.partition("@")
        try:
            body, by = form.read(SteerBody), self.acting(request, prefer=(OPERATOR,))
            acts.reopen(name, version, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("opening", error, form.kept))
        return self._done(request, graph_id, "Version open to new runs.")


class NewRamp(_Acts):
    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form = Sent(request)
        bound = dict.fromkeys(acts.BOUNDS, _bound)
        try:
            body = form.read(RampBody, share=_number, tags=_tags, at_least=_whole, **bound)
            acts.begin(body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("ramp", error, form.kept))
        return self._done(request, graph_id, "Ramp started.")


class RaiseRamp(_Acts):
    def post(self, request: HttpRequest, ramp_id: int) -> HttpResponse:
        form, graph_id = Sent(request), _page_of(ramp_id)
        try:
            body = form.read(RaiseBody, share=_number, revision=_whole)
            acts.raise_to(ramp_id, body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("share", error, form.kept))
        return self._done(request, graph_id, "Share raised.")


class SteerRamp(_Acts):
    """Resuming, rolling back or finishing a ramp; `action` comes from the route."""

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
    "resume": (acts.go_on, "Ramp resumed."),
    "rollback": (acts.roll_back, "Ramp reverted. The newer version is closed to new runs."),
    "finish": (acts.finish, "Ramp finished."),
}


def _page_of(ramp_id: int) -> str:
    """Return the page of the ramp's agent, for a version that is here. Raises NotFound."""
    ramp = acts.find(ramp_id)
    here = [one.version for one in registry.versions(ramp.agent)]
    wanted = next((v for v in (ramp.to_version, ramp.from_version, *here) if v in here), ramp.to_version)
    return f"{ramp.agent}@{wanted}"


def _number(text: str) -> Any:
    """Return a share; other text unchanged, for the body's rules to refuse."""
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
