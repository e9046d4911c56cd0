"""Erasing a run's content on its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.queues.who import ADMIN
from durableagents.contrib.encryption import erasure
from durableagents.contrib.encryption.bodies import EraseBody
from ledger.errors import DurableAgentsError
from ledger.four_eyes.known import is_guarded
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import actor
from runs.console.run_views import RunPage
from runs.models import ENDED, Run


@dataclass(frozen=True, slots=True)
class Panel:
    """The form for administrators. `copies` are runs that hold copies of the content."""

    copies: list[Run]
    is_for_two: bool


def panel(run: Run, user: Any) -> tuple[str, Panel] | None:
    """Return the form; None for others than administrators, and unless the run's content could be erased."""
    if not user.is_superuser or run.state not in ENDED or run.erased_at is not None:
        return None
    return "encryption/erasing.html", Panel(erasure.copies(run.pk)[:20], is_guarded(erasure.FAMILY))


class Erasures(RunPage):
    """Erase the content of a run."""

    http_method_names = ["post"]

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether they are an administrator; whoever opens the form's address is led to the run's page. Whether
        they see the run is checked as for its page."""
        return self.request.method != "POST" or bool(self.request.user.is_superuser)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Show 403."""
        return self.show(request, {"needed": ["Administrator"]}, template="errors/403.html", status=403)

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        try:
            body = form.read(EraseBody, with_children=lambda text: text == "on")
            done = erasure.erase(
                run_id,
                with_children=body.with_children,
                by=actor(request, ADMIN),
                justification=body.justification,
            )
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused(erasure.ACTION, error, form.kept))
        others = f" with {len(done.others)} other{'s' if len(done.others) > 1 else ''}" if done.others else ""
        messages.success(request, f"The content of this run was erased{others}.", extra_tags="ok")
        return redirect("run", run_id=run_id)
