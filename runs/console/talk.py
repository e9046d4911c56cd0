"""Messages and views on a run's page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import uuid4

from ledger.errors import DurableAgentsError
from ledger.web.roles import INTEGRATOR, OPERATOR
from ledger.web.seeing.payloads import Hidden
from runs.console.forms.form import Bound, ExtraField, SchemaForm
from runs.engine.agents import Agent
from runs.engine.messages import Message as Declared
from runs.engine.messages import View
from runs.models import ENDED, Message, Run
from runs.services.messages.sending import MessageDetail, told_of


class Outcome(NamedTuple):
    """The tone and text of an outcome's chip."""

    tone: str
    words: str


OUTCOMES = {
    "": Outcome("wait", "waiting for an answer"),
    "answered": Outcome("ok", "answered"),
    "refused": Outcome("hold", "refused"),
    "failed": Outcome("bad", "failed"),
    "ended": Outcome("hold", "unanswered: the run ended"),
}


def outcome_of(name: str) -> Outcome:
    """Return the chip of an outcome. A damaged row may have an unknown outcome."""
    return OUTCOMES.get(name, Outcome("bad", name))


MAX_SHOWN = 20
SENDERS = (OPERATOR, INTEGRATOR)
_EXTRA_FIELDS = {"sent_id": ExtraField()}


@dataclass(frozen=True)
class NotSent:
    """A refused message: the input, and the reason."""

    name: str
    data: Mapping[str, Any]
    error: DurableAgentsError


@dataclass
class Asking:
    """A message as a form.
    Field names have the message's prefix, so that a page may hold several messages."""

    declared: Declared
    form: SchemaForm
    sent_id: str
    wrong: NotSent | None = None

    @property
    def fields(self) -> list[Bound]:
        return [inner for root in self.form.roots for inner in root.children or [root]]

    @property
    def above(self) -> list[str]:
        groups = (root for root in self.form.roots if root.children)
        return [*self.form.non_field_errors(), *(words for root in groups for words in root.errors)]


@dataclass
class Talk:
    """The panel of messages and views. It is falsy if there is nothing to show."""

    told: list[MessageDetail] = field(default_factory=list)
    more: int = 0
    forms: list[Asking] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    has_ended: bool = False

    @property
    def shown(self) -> list[tuple[MessageDetail, Outcome]]:
        return [(message, outcome_of(message.row.outcome)) for message in self.told]

    def __bool__(self) -> bool:
        return bool(self.told or self.forms or self.views)


def talk_of(
    run: Run, agent: Agent | None, held: Collection[str], wrong: NotSent | None = None, *, hidden: Hidden | None = None
) -> Talk:
    """Return the messages and views that these roles may see and send. If `hidden` is given, it replaces payloads."""
    total = Message.objects.filter(run=run).count() if agent is None or agent.messages else 0
    rows = list(Message.objects.filter(run=run).order_by("-n")[:MAX_SHOWN]) if total else []
    may = run.state not in ENDED and bool({*SENDERS} & {*held})
    declared = list(agent.messages.values()) if agent is not None else []
    forms = [_asking(each, wrong if wrong and wrong.name == each.name else None) for each in declared if may]
    views = list(agent.views.values()) if agent is not None else []
    details = [one if hidden is None else _hidden(one, hidden) for one in told_of(rows, is_head=True)]
    return Talk(details, total - len(rows), forms, views, run.state in ENDED)


def _hidden(detail: MessageDetail, placeholder: Hidden) -> MessageDetail:
    hidden = replace(detail.hidden, body=placeholder)
    return hidden if detail.answer is None else replace(hidden, answer=placeholder)


def _asking(declared: Declared, wrong: NotSent | None) -> Asking:
    if wrong is None:
        return Asking(declared, SchemaForm(_schema(declared), extra_fields=_EXTRA_FIELDS), str(uuid4()))
    form = SchemaForm(_schema(declared), data=wrong.data, extra_fields=_EXTRA_FIELDS)
    form.mark(wrong.error, within="body", root=_name(declared))
    return Asking(declared, form, str(wrong.data.get("sent_id") or uuid4()), wrong)


def _name(declared: Declared) -> str:
    return f"m-{declared.name}"


def _schema(declared: Declared) -> dict[str, Any]:
    schema = dict(declared.takes.model_json_schema())
    definitions = schema.pop("$defs", {})
    name = _name(declared)
    return {"type": "object", "properties": {name: schema}, "required": [name], "$defs": definitions}


def request_of(declared: Declared, data: Mapping[str, Any]) -> Any:
    """Return the request that a sent form contains. Raises InvalidInput."""
    return SchemaForm(_schema(declared), data=data, extra_fields=_EXTRA_FIELDS).document().get(_name(declared), {})
