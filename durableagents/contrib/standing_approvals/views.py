"""Standing approvals in the console: list, detail, revoking, and a queue's limits."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.queues.views import QueuePage
from durableagents.contrib.standing_approvals import queries, services
from durableagents.contrib.standing_approvals.reading import StandingApproval
from ledger.actors import Actor
from ledger.web.cursors import placed, placed_at
from ledger.web.page_acts import Act
from ledger.web.page_forms import Refused
from ledger.web.roles import actor, roles


class GrantsPage(QueuePage):
    """All standing approvals, newest first."""

    template = "standing_approvals/grants.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page, or the next part of the list."""
        beyond, size = placed_at(request.GET.get("beyond", "")), queries.PAGE
        found = queries.find_page(request.user, beyond=beyond, limit=size + 1)
        grants, more = found[:size], ""
        if len(found) > size:
            more = placed(grants[-1].at, grants[-1].id)
        parties = queries.find_parties(grants)
        fields = {"grants": [(each, parties.get(each.approval_id, "")) for each in grants], "more": more}
        return self.show(request, fields | self.context(request, None))


class OneGrantPage(QueuePage):
    """One standing approval with its uses."""

    template = "standing_approvals/grant.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, *, grant_id: int) -> HttpResponse:
        """Show the page, with the errors of a refused form."""
        grant, may_end = queries.find_one(grant_id, request.user)
        about = queries.find_parties([grant]).get(grant.approval_id, "")
        fields: dict[str, Any] = {"g": grant, "may_end": may_end, "about": about, **self.context(request, refused)}
        return self.show_forms(request, fields, refused)


class GrantEnds(Act, OneGrantPage):
    """Revoke a standing approval. The service checks the rights."""

    act, done = "end", "Standing approval revoked. Later calls need approval again."
    page, has_own_page = "standing_grant", True

    @property
    def by(self) -> Actor:
        return actor(self.request, "")

    def service(self, grant_id: int, *, by: Actor, justification: str) -> StandingApproval:
        """Revoke a standing approval, if the person may see it."""
        queries.find_one(grant_id, self.request.user)
        return services.revoke(grant_id, justification=justification, by=by, roles=roles(self.request.user))

    def after(self, request: HttpRequest, result: StandingApproval, **address: Any) -> HttpResponse:
        """Add a note if the database has an earlier revocation that is not authentic."""
        if result.end is not None and not result.end.is_authentic:
            self.done = "Its unused approvals are void. The database holds an earlier revocation that is not authentic."
        return super().after(request, result, **address)
