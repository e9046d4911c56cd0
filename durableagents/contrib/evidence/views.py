"""The page for downloading a run's bundle."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from durableagents.contrib.evidence.leaving_out import Choice, paths_in
from durableagents.contrib.evidence.serving import ROLES, bundle_response, must_export
from durableagents.contrib.seals.models import SealKey
from ledger.errors import DurableAgentsError
from ledger.web.page_base import Page


class EvidencePage(Page):
    """Describe a run's bundle, with a form that downloads it."""

    template = "evidence/run.html"
    section = "runs"
    allowed = frozenset(ROLES)

    def _page(
        self, request: HttpRequest, run_id: UUID, *, problem: str = "", typed: object = None, status: int = 200
    ) -> HttpResponse:
        must_export(run_id)
        newest = SealKey.objects.order_by("-number").first()
        key = "" if newest is None else bytes(newest.public_key).hex()
        context = {"run_id": run_id, "key": key, "problem": problem, "typed": typed or {}}
        return self.show(request, context, status=status)


class RunEvidence(EvidencePage):
    """The page about a run's bundle."""

    http_method_names = ["get"]

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self._page(request, run_id)


class RunExports(EvidencePage):
    """Make a bundle and send it. If it can't be made, the page says why."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponseBase:
        typed = {name: str(request.POST.get(name, ""))[:2000].replace("\x00", "") for name in ("redact", "reason")}
        try:
            paths = paths_in(typed["redact"]) if typed["redact"].strip() else []
            choice = Choice(paths, is_without_payloads="without" in request.POST)
            return bundle_response(run_id, choice, by=self.acting(request), reason=typed["reason"].strip())
        except DurableAgentsError as error:
            problems = "; ".join(each["problem"] for each in error.extra.get("errors", ()))
            text = f"{error.detail} {problems}".strip()
            return self._page(request, run_id, problem=text, typed=typed, status=error.status)
