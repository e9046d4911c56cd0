"""Starting a run from a form that the agent's input schema draws."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from uuid import UUID, uuid4

from django.contrib import messages
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.page_base import Page
from ledger.web.page_forms import Sent
from ledger.web.roles import INTEGRATOR, OPERATOR
from runs.console.forms import Beside, SchemaForm
from runs.engine.agents import Agent, registry
from runs.services import lifecycle
from runs.services.bodies import StartBody
from runs.services.idempotency import answer_once

# What the page's form holds besides the input.
_BESIDE = {"agent": Beside(), "token": Beside(), "tags": Beside("Tags", "tags")}


class NotOurForm(InvalidInput):
    """What marks a form as one of ours, and as this one, was changed on the way. Nobody could tell a repeat of it."""

    def __init__(self) -> None:
        super().__init__(
            "The form came without the mark that this page had given it, or with another. Nothing was started by it. "
            "Below it stands with a new mark, and with all that was typed: if you had sent it before, look in the list "
            "of runs first whether that started one."
        )


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
        form = SchemaForm(agent.input.model_json_schema(), document=document, beside=_BESIDE)
        return self._show(request, agent, form, sample=sample)

    def post(self, request: HttpRequest) -> HttpResponse:
        agent = registry.find(request.POST.get("agent", ""))
        form = SchemaForm(agent.input.model_json_schema(), data=request.POST, beside=_BESIDE)
        sent = Sent(request)
        token = sent.texts.get("token", "")
        try:
            sent.check(request.POST)
            mark = _mark(request, token)
            if mark is None:
                raise NotOurForm()
            body = _asked(agent, form.document(), sent.texts.get("tags", ""))
            run_id, is_new = self._start_once(request, agent, body, mark)
        except DurableAgentsError as error:
            form.mark(error, within="input")
            return self._show(request, agent, form, error=error, token=token, tags=sent.kept.get("tags", ""))
        messages.success(
            request, "Run started." if is_new else "This form had already started a run; here it is.", extra_tags="ok"
        )
        return redirect("run", run_id=run_id)

    def _start_once(self, request: HttpRequest, agent: Agent, body: StartBody, mark: str) -> tuple[UUID, bool]:
        """Start under the form's own mark: the same form sent twice starts one run, and both sendings lead to it."""
        by = self.acting(request, prefer=(INTEGRATOR, OPERATOR))
        is_new = False

        def act() -> tuple[int, Any]:
            nonlocal is_new
            is_new = True
            return 201, {"id": str(lifecycle.accept(agent.graph_id, body.input, by=by, tags=body.tags).run.id)}

        requested = body.model_dump()
        with transaction.atomic():
            _, answer = answer_once(f"console {request.user.pk}", mark, requested, act)
        return UUID(json.loads(answer)["id"]), is_new

    def _show(
        self, request: HttpRequest, agent: Agent, form: SchemaForm, *, sample: int | None = None,
        error: DurableAgentsError | None = None, token: str = "", tags: str = "",
    ) -> HttpResponse:  # fmt: skip
        # A refused form keeps its token only if nothing was started under it: then it is still unused.
        is_unused = error is not None and error.code != "idempotency-mismatch" and _mark(request, token) is not None
        context = {
            "agent": agent, "agents": registry.agents(), "form": form, "error": error, "sample": sample, "tags": tags,
            "token": token if is_unused else _tokens(request).sign(str(uuid4())),
        }  # fmt: skip
        return self.show(request, context, status=error.status if error else 200)


def _tokens(request: HttpRequest) -> Signer:
    """What makes and knows the tokens of one person's forms. Each is a mark with a signature."""
    return Signer(salt=f"runs.console.start {request.user.pk}")


def _mark(request: HttpRequest, token: str) -> str | None:
    """The mark that this page gave the form; None of a token that it gave nobody, or somebody else."""
    try:
        return _tokens(request).unsign(token)
    except BadSignature:
        return None


def _asked(agent: Agent, document: dict[str, Any], tags: str) -> StartBody:
    """What the form asks for, as the API takes it. Raises InvalidInput."""
    found = {
        "agent": agent.graph_id,
        "input": document,
        "tags": [tag for tag in map(str.strip, tags.split(",")) if tag],
    }
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    return fit(StartBody, found, "form")
