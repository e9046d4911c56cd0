"""The page for migrating runs to another version: mapping of nodes, preview, and action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from ledger.errors import DurableAgentsError, NotFound
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from runs.engine.agents import registry
from runs.queries.payloads import moved as as_read
from runs.services.migrating import acts
from runs.services.migrating.asked import LookBody, MigrateBody, old_nodes, proposed
from runs.services.migrating.outcomes import Outcome

_WORDS = {
    "replayed": ("ok", "continues mid-visit"),
    "reentered": ("run", "restarts the node"),
    "unbegun": ("ok", "not started"),
    "refused": ("bad", "can't be moved"),
}


class MigrationsPage(Page):
    """Runs of one version, and the versions they could move to."""

    template = "agents/migrations.html"
    section = "agents"

    def get(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        return self.tell(request, graph_id)

    def tell(
        self,
        request: HttpRequest,
        graph_id: str,
        refused: Refused | None = None,
        *,
        typed: dict[str, str] | None = None,
        found: Sequence[Outcome] | None = None,
        is_done: bool = False,
    ) -> HttpResponse:
        """Render the page with a preview or a refusal. Raises NotFound."""
        name, _, version = graph_id.partition("@")
        old = old_nodes(graph_id)
        if not old:
            raise NotFound("agent", graph_id)
        others = [a.version for a in registry.versions(name) if a.version != version]
        given = typed or (dict(refused.typed) if refused is not None else {})
        wanted = given.get("to_version") or request.GET.get("to", "")
        to = wanted if wanted in others else next(iter(others), "")
        mapping = proposed(old, registry.find(f"{name}@{to}"), version) if to else {}
        context = {
            "name": name,
            "version": version,
            "graph_id": graph_id,
            "others": others,
            "to": to,
            "old": old,
            "new": list(registry.find(f"{name}@{to}").nodes) if to else [],
            "typed": {"nodes": _lines(mapping), "runs": request.GET.get("run", "")[:40], "limit": "20"} | given,
            "found": None if found is None else [(as_read(each), *_WORDS[each.how]) for each in found],
            "is_done": is_done,
            "can_move": found is not None and not is_done and not all(each.how == "refused" for each in found),
            "refused": refused,
            "may_migrate": OPERATOR in roles(request.user),
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class _LookForm(LookBody):
    """The form has a reason in it once runs were looked at."""

    justification: str = ""


class MigrationLooks(MigrationsPage):
    """Preview of the migration."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(_LookForm, nodes=_nodes, runs=_ids, limit=_whole, retry=_ticked)
            _must_fit(body.from_version, graph_id)
            found = acts.preview(graph_id.partition("@")[0], body)
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("look", error, form.kept))
        looked_at = " ".join(str(each.run) for each in found)  # to migrate exactly these, whatever else matches by then
        return self.tell(request, graph_id, typed=form.kept | {"runs": looked_at}, found=found)


class Migrating(MigrationsPage):
    """Migration of the previewed runs."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    http_method_names = ["post"]

    def post(self, request: HttpRequest, graph_id: str) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(MigrateBody, nodes=_nodes, runs=_ids, limit=_whole, retry=_ticked)
            _must_fit(body.from_version, graph_id)
            found = acts.migrate(graph_id.partition("@")[0], body, by=self.acting(request, prefer=(OPERATOR,)))
        except DurableAgentsError as error:
            return self.tell(request, graph_id, Refused("move", error, form.kept))
        moved = sum(each.is_moved for each in found)
        said = f"{moved} run{'' if moved == 1 else 's'} moved to {body.to_version}, {len(found) - moved} not."
        messages.success(request, said, extra_tags="ok" if moved else "bad")
        return self.tell(request, graph_id, typed=form.kept, found=found, is_done=True)


def _must_fit(version: str, graph_id: str) -> None:
    if version != graph_id.partition("@")[2]:
        raise NotFound("version", version)


def _lines(nodes: dict[str, str]) -> str:
    return "\n".join(f"{name} = {target}" for name, target in nodes.items())


def _nodes(text: str) -> Any:
    """Return the mapping, one `node = target` per line; other text for the body's rules to refuse."""
    pairs = [line.partition("=") for line in text.splitlines() if line.strip()]
    names = [name.strip() for name, _, _ in pairs]
    if len(names) != len(set(names)):
        return "a node stands there twice"
    return {name.strip(): target.strip() for name, _, target in pairs}


def _ids(text: str) -> Any:
    words = text.replace(",", " ").split()
    try:
        return [UUID(word) for word in words]
    except ValueError:
        return words


def _ticked(text: str) -> Any:
    return True if text == "on" else text


def _whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
