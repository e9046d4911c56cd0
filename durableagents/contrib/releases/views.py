"""Pages of an agent's versions with its ramp, and of the migration of runs to another version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.releases import migrating, services
from durableagents.contrib.releases.migrating import MovedRow
from durableagents.contrib.releases.migration_requests import (
    MigrateBody,
    MigrationPreviewBody,
    nodes_of,
    suggested_nodes,
)
from durableagents.contrib.releases.queries import BOUNDS, newest_ramps, ramp_row, versions_of
from durableagents.contrib.releases.services import RampBody
from ledger.actors import Actor
from ledger.errors import DurableAgentsError, NotFound
from ledger.web.page_acts import Act, FormPage, decimal, listed, ticked, whole
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs.engine.agents import registry
from runs.services.bodies import SteerBody

_STATES = {
    "on": ("run", "on"),
    "halted": ("bad", "halted"),
    "rolled_back": ("hold", "reverted"),
    "done": ("ok", "finished"),
}


class VersionsPage(FormPage):
    """An agent's versions side by side: their runs, the version for new starts, and the ramp."""

    template = "releases/versions.html"
    section = "agents"

    def tell(
        self, request: HttpRequest, graph_id: str = "", ramp_id: int = 0, refused: Refused | None = None
    ) -> HttpResponse:
        """Show the page of a version or ramp, with the errors of a refused form. Raises NotFound."""
        graph_id = graph_id or _page_of(ramp_id)
        name = graph_id.partition("@")[0]
        versions = versions_of(name)
        if not versions:
            raise NotFound("agent", name)
        ramp = next(map(ramp_row, newest_ramps(name, limit=1)), None)
        is_ramping = ramp is not None and ramp.ended_at is None
        here = {agent.version for agent in registry.versions(name)}
        context = {
            "name": name,
            "graph_id": graph_id if "@" in graph_id else versions[0].graph_id,
            "versions": versions,
            "here": [row.version for row in versions if row.version in here],
            "open_here": [row.version for row in versions if row.version in here and not row.is_closed],
            "ramp": ramp,
            "ramp_state": _STATES.get(ramp.state, ("", ramp.state)) if ramp else None,
            "is_ramping": is_ramping,
            "in_ramp": [ramp.from_version, ramp.to_version] if ramp and is_ramping else [],
            "typed": refused.typed if refused is not None and refused.act == "ramp" else {},
            "may_release": OPERATOR in roles(request.user),
        }
        return self.show_forms(request, context, refused)


class ReleaseAct(Act, VersionsPage):
    """Base class of acts on a version or a ramp."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    page = "versions"

    def after(self, request: HttpRequest, result: Any, **address: Any) -> HttpResponse:
        """Show the agent's versions."""
        messages.success(request, self.done, extra_tags="ok")
        return redirect(self.page, graph_id=address.get("graph_id") or _page_of(address["ramp_id"]))


class VersionAct(ReleaseAct):
    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Close or open the version."""
        name, _, version = address["graph_id"].partition("@")
        self.service(name, version, by=by, justification=form.read(SteerBody).justification)


class NewRamp(ReleaseAct):
    act, done = "ramp", "Ramp started."

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Create a ramp."""
        bounds = dict.fromkeys(BOUNDS, _bound)
        services.create_ramp(form.read(RampBody, share=decimal, tags=listed, at_least=whole, **bounds), by=by)


def _page_of(ramp_id: int) -> str:
    """Return the page of the ramp's agent, for a version that is installed here. Raises NotFound."""
    ramp = services.find_ramp(ramp_id)
    here = [agent.version for agent in registry.versions(ramp.agent)]
    wanted = next((v for v in (ramp.to_version, ramp.from_version, *here) if v in here), ramp.to_version)
    return f"{ramp.agent}@{wanted}"


# --- migrations -------------------------------------------------------------------------------------------------------

_RESULTS = {
    "replayed": ("ok", "continues mid-visit"),
    "reentered": ("run", "restarts the node"),
    "unbegun": ("ok", "not started"),
    "refused": ("bad", "can't be moved"),
}


class MigrationsPage(Page):
    """The runs of one version, and the versions to which they could be migrated."""

    template = "releases/migrations.html"
    section = "agents"

    def get(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        return self.show_form(request, graph_id)

    def show_form(
        self,
        request: HttpRequest,
        graph_id: str,
        refused: Refused | None = None,
        *,
        typed: dict[str, str] | None = None,
        rows: Sequence[MovedRow] | None = None,
        is_done: bool = False,
    ) -> HttpResponse:
        """Show the page, with a preview, a result or the errors of a refused form. Raises NotFound."""
        name, _, version = graph_id.partition("@")
        old = nodes_of(graph_id)
        if not old:
            raise NotFound("agent", graph_id)
        others = [agent.version for agent in registry.versions(name) if agent.version != version]
        given = typed or (dict(refused.typed) if refused is not None else {})
        wanted = given.get("to_version") or request.GET.get("to", "")
        to = wanted if wanted in others else next(iter(others), "")
        target = registry.find(f"{name}@{to}") if to else None
        nodes = suggested_nodes(old, target, version) if target else {}
        suggested = {
            "nodes": "\n".join(f"{one} = {new}" for one, new in nodes.items()),
            "runs": request.GET.get("run", "")[:40],
            "limit": "20",
        }
        context = {
            "name": name,
            "version": version,
            "graph_id": graph_id,
            "others": others,
            "to": to,
            "old": old,
            "new": list(target.nodes) if target else [],
            "typed": suggested | given,
            "found": None if rows is None else [(row.for_viewer(), *_RESULTS[row.how]) for row in rows],
            "is_done": is_done,
            "can_move": rows is not None and not is_done and not all(row.how == "refused" for row in rows),
            "refused": refused,
            "may_migrate": OPERATOR in roles(request.user),
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class _PreviewForm(MigrationPreviewBody):
    """A preview's form. Once runs were previewed, it also has the field for the justification of the migration."""

    justification: str = ""


class MigrationPreviews(MigrationsPage):
    """Preview a migration."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(_PreviewForm, nodes=_nodes, runs=_ids, limit=whole, retry=ticked)
            rows = migrating.preview(_agent_of(graph_id, body), body)
        except DurableAgentsError as error:
            return self.show_form(request, graph_id, Refused("look", error, form.kept))
        # exactly these runs are migrated, even if others match by then
        previewed = " ".join(str(row.run) for row in rows)
        return self.show_form(request, graph_id, typed=form.kept | {"runs": previewed}, rows=rows)


class Migrations(MigrationsPage):
    """Migrate the previewed runs."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(MigrateBody, nodes=_nodes, runs=_ids, limit=whole, retry=ticked)
            rows = migrating.migrate(_agent_of(graph_id, body), body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.show_form(request, graph_id, Refused("move", error, form.kept))
        moved = sum(row.is_moved for row in rows)
        done = f"{moved} run{'' if moved == 1 else 's'} moved to {body.to_version}, {len(rows) - moved} not."
        messages.success(request, done, extra_tags="ok" if moved else "bad")
        return self.show_form(request, graph_id, typed=form.kept, rows=rows, is_done=True)


def _agent_of(graph_id: str, body: MigrationPreviewBody) -> str:
    """Return the agent's name. Raises NotFound if the form is for another version."""
    name, _, version = graph_id.partition("@")
    if version != body.from_version:
        raise NotFound("version", body.from_version)
    return name


# --- texts of forms; invalid values are left to the body's validation to refuse
# -------------------------------------------


def _bound(text: str) -> Any:
    return None if text.strip().lower() == "none" else whole(text.strip())


def _nodes(text: str) -> Any:
    """Return the mapping as text, with one `node = target` per line."""
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    names = [name.strip() for name, _, _ in pairs]
    if len(names) != len(set(names)):
        return "a node is listed twice"
    return {name.strip(): target.strip() for name, _, target in pairs}


def _ids(text: str) -> Any:
    words = text.replace(",", " ").split()
    try:
        return [UUID(word) for word in words]
    except ValueError:
        return words
