"""The page for injecting context into a stopped run. It shows the state and a preview of the patch."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from pydantic import BaseModel, ConfigDict

from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web import strict_json
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR
from ledger.web.seeing.payloads import must_read
from runs.models import State
from runs.services import lifecycle
from runs.services.injecting import ContextBody, Look, Message, Patch, StateSeen, go_on, look

_ACTS = {"resume": "Resumed.", "retry": "Retried."}


class _Form(BaseModel):
    """The form of the page."""

    model_config = ConfigDict(extra="forbid", strict=True)
    patch: Patch | None = None
    message: Message | None = None
    seq: int = 0
    head: str = ""
    justification: str = ""


class ContextPage(Page):
    """A stopped run's state, and the form for its context."""

    allowed: ClassVar[frozenset[str]] = frozenset({OPERATOR})
    template = "runs/acts/context.html"
    section = "runs"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self.tell(request, run_id)

    def tell(
        self,
        request: HttpRequest,
        run_id: UUID,
        refused: Refused | None = None,
        *,
        typed: dict[str, str] | None = None,
        found: Look | None = None,
    ) -> HttpResponse:
        """Render the page with a preview or a refusal. Raises NotFound, PayloadsHidden."""
        run = lifecycle.find(run_id)
        must_read(run_id)
        given = typed or (dict(refused.typed) if refused is not None else {})
        context: dict[str, Any] = {
            "run": run,
            "typed": given,
            "refused": refused,
            "is_looked": found is not None,
            "act": "resume" if run.state == State.PAUSED else "retry",
        }
        try:
            seen = found or look(run_id)
            context |= {"seen": seen, "stands": seen.stands, "hears": bool(seen.agent.assistants)}
            context["fields"] = sorted(seen.agent.state.model_fields)
            context["changes"] = [
                (path, _text(was), _text(now)) for path, was, now in (seen.made.lines if seen.made else ())
            ]
        except DurableAgentsError as error:
            context["problem"] = error.detail
        return self.show(request, context, status=refused.error.status if refused else 200)


class ContextLooks(ContextPage):
    """Preview of the context."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        must_read(run_id)
        try:
            body = _read(form)
            if body.patch is None and body.message is None:
                problem = {"field": "patch", "problem": "is empty", "fix": "enter state changes or a message"}
                raise InvalidInput("Enter state changes or a message.", errors=[problem])
            found = look(run_id, patch=body.patch, message=body.message)
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused("look", _in_form(error), form.kept))
        return self.tell(request, run_id, typed=form.kept, found=found)


class ContextActs(ContextPage):
    """Resume or retry (`action`) with the context."""

    http_method_names = ["post"]
    action: ClassVar[str] = ""

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        must_read(run_id)
        try:
            body = _read(form)
            seen = StateSeen.model_construct(seq=body.seq, head=body.head)
            context = ContextBody(patch=body.patch, message=body.message, seen=seen)
            by = self.acting(request, prefer=(OPERATOR,))
            go_on(self.action, run_id, context, by=by, justification=body.justification)
        except DurableAgentsError as error:
            return self.tell(request, run_id, Refused(self.action, _in_form(error), form.kept))
        messages.success(request, _ACTS[self.action], extra_tags="ok")
        return redirect("run", run_id=run_id)


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _read(form: Sent) -> _Form:
    return form.read(_Form, patch=_document, seq=_whole)


def _document(text: str) -> Any:
    """Return the patch from the form. Raises InvalidInput."""
    try:
        return strict_json.loads(text.encode("utf-8", "replace"))
    except strict_json.MalformedJSON as error:
        words = str(error).removeprefix("The body is not JSON: ")
        problem = {"field": "patch", "problem": words, "fix": 'an object, such as {"price": 12}'}
        raise InvalidInput(f"The patch is not JSON: {words}", errors=[problem]) from None


def _whole(text: str) -> Any:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else text


def _in_form(error: DurableAgentsError) -> DurableAgentsError:
    for problem in error.extra.get("errors", []):
        problem["field"] = str(problem["field"]).removeprefix("context.")
    return error
