"""Pages that show which effects a fork or a new start might repeat, and start the new run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from durableagents.contrib.forks.forking import ForkRequest, fork
from durableagents.contrib.forks.points import cut_at, visits_of
from durableagents.contrib.forks.starting_again import (
    NOT_GIVEN,
    StartAgainRequest,
    Verdict,
    read_remains,
    start_again,
)
from ledger.errors import DurableAgentsError, InvalidInput
from ledger.web import strict_json
from ledger.web.bodies import does_not_fit, unstorable
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import OPERATOR, roles
from ledger.web.seeing.payloads import HIDDEN
from ledger.web.seeing.viewers import reads
from runs.engine.forks import COUNTS, Evidence
from runs.models import ENDED
from runs.queries.code_here import agent_here, titles_of
from runs.services import lifecycle
from runs.services.settling.agreeing import is_for_two

_MAKERS = frozenset({OPERATOR})
_OF_A_FORK = ("visit", "version", "seen", "justification")
_OF_A_START = ("version", "input", "justification")
_OF_AN_EFFECT = ("", "-of", "-result", "-gone")


class ForkPage(Page):
    """The visits at which a run can be forked, and for `?visit=` what would be repeated."""

    template = "forks/fork.html"
    section = "runs"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self.render(request, run_id, _whole(request.GET.get("visit", "")))

    def render(
        self, request: HttpRequest, run_id: UUID, visit: int | None, refused: Refused | None = None
    ) -> HttpResponse:
        run = lifecycle.find(run_id)
        context: dict[str, Any] = {
            "run": run,
            "visits": visits_of(run)[::-1],
            "visit": visit,
            "refused": refused,
            "may_make": OPERATOR in roles(request.user),
            "typed": refused.typed if refused else {},
            "titles": titles_of(agent_here(run.graph_id)),
        }
        try:
            context["point"] = None if visit is None else cut_at(run, visit)
            if context["point"] is not None:
                context["effects"] = _as_read(run_id, context["point"].effects)
        except DurableAgentsError as error:
            context["problem"] = error.detail
        return self.show(request, context, status=refused.error.status if refused else 200)


class Forks(ForkPage):
    allowed: ClassVar[frozenset[str]] = _MAKERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        visit = _number(form, "visit") or 0
        try:
            _check(form, _OF_A_FORK)
            wanted = ForkRequest(visit, version=form.texts.get("version", ""), seen=_number(form, "seen"))
            made = fork(
                run_id,
                wanted,
                by=self.acting(request, prefer=(OPERATOR,)),
                justification=form.texts.get("justification", ""),
            )
        except DurableAgentsError as error:
            return self.render(request, run_id, visit or None, Refused("fork", error, form.kept))
        messages.success(request, "Fork created.", extra_tags="ok")
        return redirect("run", made.pk)


def _as_read(run_id: UUID, effects: Iterable[Evidence]) -> list[Evidence]:
    """Return the effects, with hidden arguments for viewers who may not read payloads."""
    is_read = reads(run_id)
    return [effect if is_read else replace(effect, arguments=HIDDEN) for effect in effects]


def _check(form: Sent, known: Iterable[str]) -> None:
    """Refuse oversized forms, unknown or repeated fields, and unstorable text. Raises InvalidInput, TooLarge."""
    form.check(known)
    if problems := unstorable(form.texts):
        raise does_not_fit(problems, "form")


def _number(form: Sent, name: str) -> int | None:
    return _whole(form.texts.get(name, ""))


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _document(form: Sent, name: str) -> Any:
    """Parse the JSON in a form field; NOT_GIVEN if the field is empty. Raises InvalidInput."""
    text = form.texts.get(name, "")
    if not text:
        return NOT_GIVEN
    try:
        return strict_json.loads(text.encode())
    except ValueError as error:
        problem = {"field": name, "problem": f"is not JSON: {error}", "fix": "leave it empty, or give JSON"}
        raise InvalidInput(f"{name}: {problem['problem']}.", errors=[problem]) from error


class StartAgainPage(Page):
    """A run's effects, to be reviewed before it is started again from its input."""

    template = "forks/again.html"
    section = "runs"

    def get(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        return self.render(request, run_id)

    def render(self, request: HttpRequest, run_id: UUID, refused: Refused | None = None) -> HttpResponse:
        run = lifecycle.find(run_id)
        found = read_remains(run)
        context: dict[str, Any] = {
            "run": run,
            "found": found,
            "refused": refused,
            "is_for_two": is_for_two(),
            "may_make": OPERATOR in roles(request.user),
            "has_ended": run.state in ENDED,
            "counts": COUNTS,
            "typed": refused.typed if refused else {},
            "effects": [(f"e{n}", effect) for n, effect in enumerate(_as_read(run_id, found.effects))],
        }
        return self.show(request, context, status=refused.error.status if refused else 200)


class NewStarts(StartAgainPage):
    allowed: ClassVar[frozenset[str]] = _MAKERS
    http_method_names = ["post"]

    def post(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        form = Sent(request)
        try:
            found = read_remains(lifecycle.find(run_id))
            names = [f"e{n}" for n in range(len(found.effects))]
            _check(form, {*_OF_A_START, *(f"{name}{part}" for name in names for part in _OF_AN_EFFECT)})
            audit = [_verdict(form, name, effect) for name, effect in zip(names, found.effects, strict=True)]
            wanted = StartAgainRequest(
                [verdict for verdict in audit if verdict.counts_as],
                version=form.texts.get("version", ""),
                input=_document(form, "input"),
            )
            made = start_again(
                run_id,
                wanted,
                by=self.acting(request, prefer=(OPERATOR,)),
                justification=form.texts.get("justification", ""),
            )
        except DurableAgentsError as error:
            return self.render(request, run_id, Refused("start_again", error, form.kept))
        messages.success(request, "New run started.", extra_tags="ok")
        return redirect("run", made.pk)


def _verdict(form: Sent, name: str, effect: Evidence) -> Verdict:
    """Return the verdict on an effect, if the page showed this effect at this position."""
    is_same = form.texts.get(f"{name}-of", "") == f"{effect.run} {effect.slot} {effect.attempt}"
    counts_as = form.texts.get(name, "") if is_same else ""
    return Verdict(
        effect.slot,
        effect.attempt,
        counts_as,
        effect.run,
        _document(form, f"{name}-result"),
        sender_is_gone=is_same and form.texts.get(f"{name}-gone") == "on",
    )
