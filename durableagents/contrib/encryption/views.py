"""Pages for erasing the content of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from approvals.queues.who import ADMIN
from durableagents.contrib.encryption import erasure
from durableagents.contrib.encryption.bodies import EraseAllBody, EraseBody
from durableagents.contrib.encryption.finding import LISTED, ErasableRun, find_runs
from ledger.actors import Actor
from ledger.change_control import is_guarded
from ledger.errors import DurableAgentsError, Proposed
from ledger.verification.archives import Sought
from ledger.web.bodies import fit
from ledger.web.cursors import closed, opened
from ledger.web.page_acts import Act
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused
from ledger.web.roles import AUDITOR, OPERATOR, actor
from runs.console.run_views import RunPage
from runs.models import ENDED, Run

SEARCHED = ("business_key", "tag", "agent")
READERS = frozenset({OPERATOR, AUDITOR})


@dataclass(frozen=True, slots=True)
class Panel:
    """The form for administrators. `copies` are runs that hold copies of the content."""

    copies: list[Run]
    is_for_two: bool


def panel(run: Run, user: Any) -> tuple[str, Panel] | None:
    """Return the form; None if the user is no administrator or the run's content can't be erased at all."""
    if not user.is_superuser or run.state not in ENDED or run.erased_at is not None:
        return None
    return "encryption/erasing.html", Panel(erasure.copies(run.pk)[:20], is_guarded(erasure.FAMILY))


class Erasures(Act, RunPage):
    """Erase the content of a run."""

    act, page, has_own_page = erasure.ACTION, "run", True
    needed: ClassVar[tuple[str, ...]] = ("Administrator",)
    service, body, takes_fields = staticmethod(erasure.erase), EraseBody, True
    reads = {"with_children": lambda text: text == "on"}

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the user is an administrator. Others who open this URL are redirected to the run's page.

        The right to see the run is checked as on the run's page.
        """
        return self.request.method != "POST" or _is_superuser(self.request)

    @property
    def by(self) -> Actor:
        return actor(self.request, ADMIN)

    def after(self, request: HttpRequest, result: erasure.ErasureResult, **address: Any) -> HttpResponse:
        """Show how many runs were erased."""
        count = len(result.others)
        others = f" with {count} other{'s' if count > 1 else ''}" if count else ""
        self.done = f"The content of this run was erased{others}."
        return super().after(request, result, **address)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


class FindingPage(Page):
    """The page that finds runs by business key, tag or agent, with a form that erases those chosen.

    It includes runs in archives.
    """

    template = "encryption/finding.html"
    section = "runs"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the user may read the list. Only administrators may erase."""
        return bool(held & READERS) or _is_superuser(self.request)

    def refuse(self, request: HttpRequest) -> HttpResponse:
        """Return a 403 response that names the required roles."""
        needed = ["Operator", "Auditor", "Administrator"] if request.method == "GET" else ["Administrator"]
        return self.show(request, {"needed": needed}, template="errors/403.html", status=403)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.tell(request, request.GET)

    def tell(self, request: HttpRequest, typed: Mapping[str, str], refused: Refused | None = None) -> HttpResponse:
        """Show the matching runs, with the form that was refused."""
        given = {name: str(typed.get(name, "")).strip().replace("\x00", "")[:200] for name in SEARCHED}
        found: list[ErasableRun] = []
        problem = None
        if any(given.values()):
            try:
                found = find_runs(Sought(**given, before=opened(str(typed.get("before", "")))), LISTED + 1)
            except DurableAgentsError as error:
                problem = error
        last = found[LISTED - 1].run if len(found) > LISTED else None
        fields = {
            "given": given,
            "found": found[:LISTED],
            "next": last and urlencode({**given, "before": closed(last.created_at, last.run_id)}),
            "may_erase": _is_superuser(request) and any(not each.kept for each in found[:LISTED]),
            "is_for_two": is_guarded(erasure.FAMILY),
            "problem": problem,
            "refused": refused,
        }
        shows = refused.error if refused else problem
        return self.show(request, fields, status=shows.status if shows else 200)


class ErasuresOfMany(FindingPage):
    """Erase the content of the chosen runs."""

    http_method_names = ["post"]

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the user is an administrator."""
        return self.request.method != "POST" or _is_superuser(self.request)

    def post(self, request: HttpRequest) -> HttpResponse:
        try:
            body = fit(
                EraseAllBody,
                {
                    "runs": request.POST.getlist("runs"),
                    "with_children": request.POST.get("with_children") == "on",
                    "justification": request.POST.get("justification", ""),
                },
                "form",
            )
            done = erasure.erase_all(
                body.runs,
                with_children=body.with_children,
                by=actor(request, ADMIN),
                justification=body.justification,
            )
        except Proposed:
            raise
        except DurableAgentsError as error:
            kept = {"justification": str(request.POST.get("justification", "")).replace("\x00", "")[:4000]}
            return self.tell(request, request.POST, Refused(erasure.ACTION, error, kept))
        count = sum(1 + len(each.others) for each in done)
        messages.success(request, f"The content of {count} run{'s' * (count != 1)} was erased.", extra_tags="ok")
        kept = {name: str(request.POST.get(name, ""))[:200] for name in SEARCHED}
        return redirect(f"{reverse('runs_and_archives')}?{urlencode(kept)}")
