"""Pages of queues and limits, where administrators change them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from pydantic import BaseModel

from approvals.queues import acts, listed
from approvals.queues.acts import QueueBody, ReasonsBody
from approvals.queues.who import ADMIN, is_admin
from ledger.actors import Actor
from ledger.web.page_acts import Act, FormPage, is_on
from ledger.web.page_forms import Refused, Sent, told_of
from ledger.web.roles import AUDITOR, actor, ordered, roles
from ledger.web.seeing.viewers import viewer
from ledger.web.tally import Tally
from runs import features

_GROUPED = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?", re.ASCII)  # 50,000.00


class QueuePage(FormPage):
    """A page for everybody with a role, and for administrators."""

    section = "queues"

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader has a role or may configure queues."""
        return super().may_open(held) or is_admin(self.request.user)

    def context(self, request: HttpRequest, refused: Refused | None) -> dict[str, Any]:
        """Return the context that both pages share."""
        held = roles(request.user)
        return {
            "tally": Tally(held),
            "may_set": is_admin(request.user),
            "refused": refused,
            "typed": refused.typed if refused else {},
            "me": request.user.pk,
            "sees_all": viewer().sees_all,
            "decides": any(role != AUDITOR for role in ordered(held)),
        }


class QueuesPage(QueuePage):
    """All queues."""

    template = "approvals/queues.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None) -> HttpResponse:
        """Show the page with the refused form."""
        known = self.context(request, refused)
        shown = {
            "queues": listed.overview(known["tally"]),
            "panels": list(features.parts_of_all(lambda each: each.queue_list_templates)),
            "links": list(features.parts_of_all(lambda each: each.queue_list_links)),
            **known,
        }
        for panel in features.parts_of_all(lambda each: each.queue_list_panels):
            shown |= panel(request.user.pk)
        return self.show_forms(request, shown, refused)


class OneQueuePage(QueuePage):
    """The page of one queue, with all details."""

    template = "approvals/queue.html"

    def tell(self, request: HttpRequest, refused: Refused | None = None, *, queue: str) -> HttpResponse:
        """Show the page with the refused form."""
        known, found = self.context(request, refused), acts.find(queue)
        panels = list(features.parts_of_all(lambda each: each.queue_templates))
        shown = {"q": listed.load_queue(found, known["tally"]), "panels": panels, **known}
        for panel in features.parts_of_all(lambda each: each.queue_panels):
            shown |= panel(found)
        return self.show_forms(request, shown, refused)


class PersonalAct(Act):
    """An act by a person who may be an administrator; the service checks that."""

    @property
    def by(self) -> Actor:
        user = self.request.user
        return actor(self.request, ADMIN if is_admin(user) else (ordered(roles(user)) or [""])[0])


class ForAdmins(FormPage):
    """An act for administrators; the service checks it again under its locks."""

    http_method_names = ["post"]
    needed: ClassVar[tuple[str, ...]] = ("Administrator",)

    def may_open(self, held: frozenset[str]) -> bool:
        """Return whether the reader is an administrator, whatever their roles.

        GET passes, because the view answers it itself.
        """
        return self.request.method != "POST" or is_admin(self.request.user)


class NewQueue(ForAdmins, PersonalAct, QueuesPage):
    act, done, page = "add_queue", "Queue added.", "queues"
    service, body, reads = staticmethod(acts.create), QueueBody, {"needs_amount": is_on}


class QueueAct(ForAdmins, PersonalAct, OneQueuePage):
    """An act on a queue. If its form is refused, the queue's page shows it again."""

    page, has_own_page = "queue", True


class QueueRemovals(QueueAct):
    act, done, service = "QueueRemovals", "Queue removed.", staticmethod(acts.remove)
    page, has_own_page = "queues", False


class QueueReasons(QueueAct):
    act, done, service, body = "QueueReasons", "Reasons saved.", staticmethod(acts.offer), ReasonsBody
    aside, defaults = ("seen",), {"reasons": "\n"}  # an empty field means no value, not a missing field

    def read(self, form: Sent, **address: Any) -> BaseModel:
        """Read the reasons, one per line."""
        lines = _lines(form.texts.get("reasons", ""))
        self.reads = {"reasons": lambda text: [*lines.values()]}
        with told_of({f"reasons.{place}": ("reasons", f"line {n}") for place, n in enumerate(lines)}):
            return super().read(form, **address)


def parse_sum(text: str) -> Any:
    """Parse a sum, also with thousands separators. Ambiguous text (50,00) is refused by the body's validation."""
    if text == "none":
        return None
    typed = text.strip()
    try:
        return Decimal(typed.replace(",", "") if _GROUPED.fullmatch(typed) else typed)
    except InvalidOperation:
        return text


def _lines(text: str) -> dict[int, str]:
    return {n: line.strip() for n, line in enumerate(text.split("\n"), 1) if line.strip()}


def moment(text: str) -> Any:
    """Parse a form's time, in UTC by default; other text is refused by the body's validation."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
