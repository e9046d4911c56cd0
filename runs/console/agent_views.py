"""Pages of agents, with their graphs and tools, and of the fleet."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict

from ledger.web.page_base import Page, SharedPage
from ledger.web.roles import AUDITOR, OPERATOR
from ledger.web.seeing.viewers import viewer
from ledger.web.tally import Tally
from runs import features
from runs.console import budgets
from runs.console.graph_svg import Drawing, draw
from runs.engine.agents import Agent, registry
from runs.fleet import agent_versions, incidents, members, version_changes
from runs.models import Incident, Process
from runs.queries import run_list
from runs.queries.code_here import titles_of
from runs.queries.manifest import manifest_of
from runs.queries.tool_cards import certified_cards_of

_MANIFEST = (
    ("persisted", "Recorded"),
    ("recomputed", "Repeated"),
    ("secret", "Secret"),
    ("external", "Outside"),
)


def graph_of(agent: Agent) -> Drawing:
    nodes = {node.name: node.edges for node in agent.nodes.values()}
    return draw(nodes, agent.start, titles_of(agent))


class AgentsPage(Page):
    """All agent versions of this installation."""

    template = "agents/list.html"
    section = "agents"

    def get(self, request: HttpRequest) -> HttpResponse:
        served = agent_versions.served()
        cards = [(agent, len(agent.all_tools()), served.get(agent.graph_id)) for agent in registry.agents()]
        context = {
            "cards": cards,
            # Counts of waiting runs would reveal that other people's runs exist.
            "unserved": agent_versions.unserved() if viewer().sees_all else [],
            "changes": version_changes.changed_here(),
            "is_production": settings.DURABLEAGENTS.is_production,
        }
        return self.show(request, context)


class AgentPage(Page):
    """One agent version: graph, tools, input, samples."""

    template = "agents/agent.html"
    section = "agents"

    def get(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        agent = registry.find(graph_id)
        versions = [other for other in registry.agents() if other.name == agent.name]
        manifest = manifest_of(agent)
        context = {
            "agent": agent,
            "versions": versions,
            "links": list(features.parts_of_all(lambda each: each.agent_links)),
            "tools": certified_cards_of(agent),
            "drawing": graph_of(agent),
            "changes": version_changes.changed_here([agent]),
            "is_production": settings.DURABLEAGENTS.is_production,
            "manifest": [(name, title, getattr(manifest, name)) for name, title in _MANIFEST],
            "schema": agent.input.model_json_schema(),
            "beforehand": budgets.Beforehand.of(agent),
            "recent": run_list.cards(run_list.newest(run_list.Filters(agent=agent.graph_id), limit=5)),
        }
        return self.show(request, context)


# Of django-q2's processes, only the worker is shown, because it drives runs. The other processes mean nothing to an
# operator.
HELPER = "cluster"


class FleetPage(SharedPage):
    """All living processes."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR})
    template = "fleet/fleet.html"
    section = "fleet"

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        rows = members.alive()
        workers = [row for row in rows if row.kind == "worker"]
        return {
            "may_act": OPERATOR in held,
            "rows": [row for row in rows if row.kind != HELPER],
            "helpers": [row for row in rows if row.kind == HELPER],
            "kinds": [(kind, sum(row.kind == kind for row in rows)) for kind in members.KINDS if kind != HELPER],
            "used": sum(row.slots_used for row in workers),
            "slots": sum(row.slots_total for row in workers),
            "recoveries": Incident.objects.order_by("-id")[:1],
            "unserved": agent_versions.unserved(),
            "changes": version_changes.changed_here(),
            "is_production": settings.DURABLEAGENTS.is_production,
            "gone": Process.objects.filter(ended_at__isnull=False).order_by("-ended_at")[:10],
        }


class RecoveriesPage(SharedPage):
    """Runs that were taken from a worker, newest first."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR, AUDITOR})
    template = "fleet/recoveries.html"
    section = "fleet"
    shown: ClassVar[int] = 50

    def content(self, query: QueryDict, held: frozenset[str], tally: Tally) -> dict[str, Any]:
        wanted = {
            name: query.get(name, "").strip().replace("\x00", "")[:200] for name in ("cause", "host", "run", "before")
        }
        rows = Incident.objects.order_by("-id")
        if wanted["cause"] in Incident.Cause.values:
            rows = rows.filter(cause=wanted["cause"])
        if wanted["host"]:
            rows = rows.filter(host=wanted["host"])
        if wanted["run"]:
            rows = rows.filter(run_id=as_uuid(wanted["run"]))
        if wanted["before"].isascii() and wanted["before"].isdigit() and len(wanted["before"]) < 18:
            rows = rows.filter(id__lt=int(wanted["before"]))
        page = list(rows[: self.shown + 1])
        filters = {name: value for name, value in wanted.items() if value and name != "before"}
        more = urlencode({**filters, "before": page[self.shown - 1].id}) if len(page) > self.shown else ""
        return {
            "rows": incidents.described(page[: self.shown]),
            "more": more,
            "filters": filters,
            "causes": [(cause, urlencode({**filters, "cause": cause})) for cause in Incident.Cause.values],
        }


def as_uuid(text: str) -> UUID:
    """Return the run's id; a nil UUID if the text is not a UUID."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)
