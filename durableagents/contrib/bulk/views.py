"""Pages of batches: choose runs by the filter of the list, preview, start and watch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from durableagents.contrib.bulk import services
from durableagents.contrib.bulk.models import BatchItem
from durableagents.contrib.bulk.queries import choose, items, matching, newest, progress_of, visible_runs
from durableagents.contrib.bulk.services import MAX_RUNS, BatchBody, BatchForm
from ledger.actors import Actor
from ledger.errors import DurableAgentsError
from ledger.web.bodies import fit
from ledger.web.cursors import closed, opened
from ledger.web.page_acts import Act, FormPage
from ledger.web.page_base import Page
from ledger.web.page_forms import Refused, Sent
from ledger.web.roles import roles
from ledger.web.seeing.viewers import viewer
from runs.console import budgets
from runs.console.settling import receipt_of
from runs.console.tables.statuses import VERBS
from runs.engine.budget import Budget
from runs.queries.run_list import GROUPS, Filters
from runs.services import authority
from runs.services.bodies import RunFilter, SteerBody

PAGE_SIZE, ITEMS_SHOWN = 50, 100
_NOT_DONE = ("refused", "failed")
# The name of each action on the page.
LABELS = {name: verb.label for name, verb in VERBS.items()} | {
    "priority": "Set priority for",
    "budget": "Raise budget for",
    "reconcile": "Settle outcome for",
}
MEANS = {name: verb.means for name, verb in VERBS.items()} | {
    "budget": "Raises caps to these values. Higher caps and unlimited ones stay.",
    "reconcile": "The same outcome for each run that has exactly one call with an unknown outcome. Others are skipped.",
}
CAPS = ("usd", "model_calls", "tool_calls", "steps")
FILTERED = {"q": "search", "where": "attributes", "parent": "started by", "older": "waiting for"}
STATES = {
    "draft": ("previewed", "wait"),
    "running": ("in progress", "run"),
    "stopped": ("stopped", "hold"),
    "done": ("done", "ok"),
}


class BatchesPage(Page):
    """The list of bulk actions, newest first: operators and auditors see all, others their own."""

    template = "bulk/list.html"
    section = "runs"

    def get(self, request: HttpRequest) -> HttpResponse:
        beyond = opened(request.GET.get("beyond", ""))
        rows = newest(person=request.user.pk, held=roles(request.user), limit=PAGE_SIZE + 1, beyond=beyond)
        progress = progress_of(rows[:PAGE_SIZE])
        more = closed(rows[PAGE_SIZE - 1].made_at, rows[PAGE_SIZE - 1].pk) if len(rows) > PAGE_SIZE else ""
        context = {"batches": [_BatchView(one) for one in progress], "more": more, "is_from_start": beyond is None}
        return self.show(request, context)


class _BatchView:
    """A batch with the values that a page shows."""

    def __init__(self, progress: Any) -> None:
        self.on, self.of = progress, progress.batch
        self.label = LABELS.get(self.of.action, self.of.action)
        # Workers don't carry out batches that aren't authentic.
        self.is_left_alone = self.of.state == "running" and not services.is_authentic_batch(self.of)
        self.word, self.tone = ("skipped", "stop") if self.is_left_alone else STATES[self.of.state]

    @property
    def states(self) -> list[tuple[str, int]]:
        counted: Counter[str] = Counter()
        for state, number in self.of.forecast.get("states", {}).items():
            counted[next((label for label, states in GROUPS.values() if state in states), state)] += number
        return counted.most_common()

    @property
    def caps(self) -> str:
        """Return the caps that the batch raises a budget to."""
        budget = self.of.said.get("budget")
        caps = budget.items() if isinstance(budget, dict) else ()
        return ", ".join(f"{budgets.LABELS.get(name, name)}: {most}" for name, most in caps)

    @property
    def chosen(self) -> list[tuple[str, str]]:
        """Return the filter that selected the runs; empty if they were named."""
        return _in_words(self.of.chosen.get("filter", {}))


def _in_words(known: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (FILTERED.get(name, name.replace("_", " ")), _state_words(str(value)) if name == "state" else str(value))
        for name, value in known.items()
    ]


def _state_words(state: str) -> str:
    return GROUPS.get(state, (state.replace("_", " "), []))[0]


class NewBatchPage(Page):
    """The page with the runs that the list's filter finds, and the form.

    A POST fixes the selection and shows a preview.
    """

    template = "bulk/new.html"
    section = "runs"
    allowed: ClassVar[frozenset[str]] = frozenset(authority.STOPPERS)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.render(request, request.GET.dict())

    def render(self, request: HttpRequest, given: dict[str, str], refused: Refused | None = None) -> HttpResponse:
        choice, fitting, misread = RunFilter(), 0, None
        try:
            choice = _choice(given)
            fitting = len(matching(choice))
        except DurableAgentsError as error:
            misread = error
        held = roles(request.user)
        items = [(name, LABELS[name], MEANS.get(name, "")) for name in services.REQUESTERS]
        known = {name: value for name, value in choice.model_dump(mode="json").items() if value}
        context = {
            "choice": known,
            "chosen": _in_words(known),
            "fitting": fitting,
            "caps": {name: budgets.LABELS[name] for name in CAPS},
            "may_settle": _may("reconcile", held),
            "may_raise": _may("budget", held),
            "may_order": _may("priority", held),
            "is_more": fitting > MAX_RUNS,
            "most": MAX_RUNS,
            "misread": misread,
            "refused": refused,
            "offered": [one for one in items if _may(one[0], held)],
            "back": Filters.of(choice.model_dump()).link(),
        }
        wrong = refused.error if refused else misread
        return self.show(request, context, status=wrong.status if wrong else 200)

    def post(self, request: HttpRequest) -> HttpResponse:
        form = Sent(request)
        try:
            choice = _choice(form.texts)
            happened = form.texts.get("verdict") == "happened"
            sent = form.read(BatchForm, priority=_whole, receipt=receipt_of if happened else str)
            settles = sent.action == "reconcile"
            body = BatchBody(
                action=sent.action,
                filter=choice,
                justification=sent.justification,
                priority=sent.priority,
                effects=sent.effects if sent.action == "cancel" else None,
                start=False,
                budget=_budget(sent) if sent.action == "budget" else None,
                verdict=sent.verdict if settles else None,
                receipt=sent.receipt if settles and happened else None,
            )
            ids, how = choose(body)
            batch = services.create(body, ids, how, by=self.acting(request), held=roles(request.user))
        except DurableAgentsError as error:
            return self.render(request, form.texts, Refused("bulk", error, form.kept))
        return redirect("batch", batch_id=batch.pk)


def _budget(sent: BatchForm) -> Budget:
    """Return the caps that were filled in on the form. Raises InvalidInput."""
    typed = {name: text for name in CAPS if (text := getattr(sent, name))}
    return fit(Budget, {name: text if name == "usd" else _whole(text) for name, text in typed.items()}, "form")


def _may(action: str, held: frozenset[str]) -> bool:
    try:
        return bool(services.check_requester(action, held))
    except DurableAgentsError:
        return False


def _choice(given: dict[str, str]) -> RunFilter:
    """Return the filter of the runs in the list.

    Raises InvalidInput if it is unreadable, since it would match more runs.
    """
    texts = {name: text for name in RunFilter.model_fields if (text := given.get(name, "").strip())}
    sort = given.get("sort", "").strip()
    listed = Filters(sort=sort, where=texts.get("where", ""), wait=texts.get("wait", "")).unordered
    more = {name: text for name in ("where", "wait") if (text := getattr(listed, name))}
    return fit(RunFilter, texts | more, "filter")


def _whole(text: str) -> int | str:
    """Parse a whole number. Other text is returned unchanged, for the body's validation to refuse."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else text


class BatchPage(FormPage):
    """The page of one bulk action: first its preview, then its results."""

    template = "bulk/batch.html"
    section = "runs"

    def tell(self, request: HttpRequest, batch_id: UUID, refused: Refused | None = None) -> HttpResponse:
        held, by = roles(request.user), self.acting(request)
        batch = services.find(batch_id, person=request.user.pk, held=held)
        wanted = request.GET.get("outcome", "")
        after = request.GET.get("after", "")
        outcome = wanted if wanted in BatchItem.Outcome.values else None
        number = int(after) if after.isascii() and after.isdigit() and len(after) < 9 else 0
        rows = items(batch, outcome=outcome, after=number, limit=ITEMS_SHOWN + 1)
        context = {
            "receipt": batch.receipt if viewer().reads_all else None,
            "b": _BatchView(progress_of([batch])[0]),
            "rows": rows[:ITEMS_SHOWN],
            "seen": visible_runs(rows),
            "outcome": outcome or "",
            "more": rows[ITEMS_SHOWN - 1].n if len(rows) > ITEMS_SHOWN else 0,
            "not_done": _NOT_DONE,
            "may_begin": batch.state == "draft" and services.is_own(batch, by) and _may(batch.action, held),
            "may_stop": batch.ended_at is None and services.can_stop(batch, by, held),
            "here": reverse("batch", args=[batch_id]),
        }
        return self.show_forms(request, context, refused)


class BatchAct(Act, BatchPage):
    allowed: ClassVar[frozenset[str]] = frozenset(authority.STOPPERS)
    page, has_own_page = "batch", True

    def perform(self, form: Sent, by: Actor, **address: Any) -> Any:
        """Start or stop the batch."""
        held, batch_id = roles(self.request.user), address["batch_id"]
        services.find(batch_id, person=self.request.user.pk, held=held)
        self.service(batch_id, by=by, held=held, justification=form.read(SteerBody).justification)
