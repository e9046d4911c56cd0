"""Starting a run from a form that the agent's input schema draws."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar
from uuid import UUID, uuid4

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.access import INTEGRATOR, OPERATOR
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.pages import Page
from ledger.rest import unstorable
from runs import services
from runs.engine.agents import Agent, registry
from runs.forms import document_of, fields_of, stray
from runs.idempotency import answer_once

_TOKEN = re.compile(r"[0-9a-f-]{36}")


class StartPage(Page):
    """The form, prefilled from a sample; a POST starts the run."""

    allowed: ClassVar[frozenset[str]] = frozenset({INTEGRATOR, OPERATOR})
    template = "runs/start.html"
    section = "runs"

    def get(self, request: HttpRequest) -> HttpResponse:
        agents = registry.agents()
        if not agents:
            return self.show(request, {"agents": []})
        agent = registry.find(request.GET.get("agent") or agents[0].name)
        chosen = request.GET.get("sample", "0" if agent.samples else "")
        sample = int(chosen) if chosen.isascii() and chosen.isdigit() and int(chosen[:6]) < len(agent.samples) else None
        document = agent.samples[sample].input if sample is not None else {}
        return self._form(request, agent, document, sample=sample)

    def post(self, request: HttpRequest) -> HttpResponse:
        agent = registry.find(request.POST.get("agent", ""))
        schema = agent.input.model_json_schema()
        given = {name: value for name, value in request.POST.items() if isinstance(value, str)}
        document = document_of(schema, given)
        token = given.get("token", "")
        try:
            run_id, is_new = self._start_once(request, agent, document, token if _TOKEN.fullmatch(token) else str(uuid4()))
        except DurableAgentsError as error:
            return self._form(request, agent, document, error=error, token=token, tags=given.get("tags", ""))
        messages.success(request, "Run started." if is_new else "This form had already started a run; here it is.", extra_tags="ok")
        return redirect("run", run_id=run_id)

    def _start_once(self, request: HttpRequest, agent: Agent, document: dict[str, Any], token: str) -> tuple[UUID, bool]:
        """Start under the form's own token: the same form sent twice starts one run, and both sendings lead to it."""
        by = self.acting(request, prefer=(INTEGRATOR, OPERATOR))
        tags = [tag for tag in (part.strip() for part in request.POST.get("tags", "").split(",")) if tag]
        if problems := unstorable({"input": document, "tags": tags}):
            raise InvalidInput("The form holds values that can't be stored.", errors=problems)
        if len(tags) > 50 or any(len(tag) > 200 for tag in tags):
            problem = {"field": "tags", "problem": "too many or too long", "fix": "at most 50 of 200 characters"}
            raise InvalidInput("There are too many tags, or one is too long.", errors=[problem])
        is_new = False

        def act() -> tuple[int, Any]:
            nonlocal is_new
            is_new = True
            return 201, {"id": str(services.accept(agent.graph_id, document, by=by, tags=tags).run.id)}

        asked = {"agent": agent.graph_id, "input": document, "tags": tags}
        with transaction.atomic():
            _, body = answer_once(f"console {by.ref}", token, asked, act)
        return UUID(json.loads(body)["id"]), is_new

    def _form(
        self, request: HttpRequest, agent: Agent, document: dict[str, Any], *, sample: int | None = None,
        error: DurableAgentsError | None = None, token: str = "", tags: str = "",
    ) -> HttpResponse:  # fmt: skip
        problems: dict[str, list[str]] = {}
        for problem in (error.extra.get("errors", []) if error else []):
            words = "; ".join(part for part in (problem.get("problem", ""), problem.get("fix", "")) if part)
            problems.setdefault(str(problem.get("field", "")).removeprefix("input.").removeprefix("input"), []).append(words)
        fields = fields_of(agent.input.model_json_schema(), document, problems)
        context = {
            "agent": agent, "agents": registry.agents(), "fields": fields, "stray": stray(fields, problems), "error": error,
            "sample": sample, "tags": tags,
            # A refused form keeps its token only if nothing was started under it: then it is still unused.
            "token": token if error and error.code != "idempotency-mismatch" and token else str(uuid4()),
        }  # fmt: skip
        return self.show(request, context, status=error.status if error else 200)
