"""A run's questions as forms on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.errors import DurableAgentsError, RecordDamaged
from runs.console.forms.form import Bound, ExtraField, SchemaForm
from runs.console.forms.maker import MAX_FIELDS
from runs.models import Wait
from runs.services import questions
from runs.story import EventLine


@dataclass
class Wrong:
    """A refused answer: what was sent, and the reason."""

    wait_id: UUID
    data: Mapping[str, Any]
    text: str
    error: DurableAgentsError


@dataclass
class Question:
    """A question as a form.
    Field names have the question's prefix, so that a page may hold several questions."""

    wait: Wait
    may: bool
    form: SchemaForm | None = None
    wrong: Wrong | None = None
    is_damaged: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        return () if self.is_damaged else questions.roles_for(self.wait)

    @property
    def fields(self) -> list[Bound]:
        """Return the fields without their group, because the question's title is shown above them."""
        roots = self.form.roots if self.form else []
        return [inner for root in roots for inner in root.children or [root]]

    @property
    def above(self) -> list[str]:
        if self.form is None:
            return []
        groups = (root for root in self.form.roots if root.children)
        return [*self.form.non_field_errors(), *(words for root in groups for words in root.errors)]

    @property
    def key(self) -> str:
        """Return the question's id on the page. The id stays the same after the question is closed."""
        return key_of(self.wait.slot, self.wait.n)


def key_of(slot: str | None, n: object) -> str:
    return f"answer {slot} {n}"


def open_questions(
    waits: Iterable[Wait],
    held: frozenset[str],
    wrong: Wrong | None = None,
    put: Callable[[Wait], EventLine | None] = lambda wait: None,
) -> list[Question]:
    """Return a run's open questions, with forms for roles that may answer.
    `put` returns the event that opened the wait of a question."""
    questions = []
    for wait in waits:
        if wait.kind == Wait.Kind.INPUT:
            ours = wrong if wrong and wrong.wait_id == wait.id else None
            try:
                questions.append(_question(wait, held, ours, put(wait)))
            except (AttributeError, KeyError, TypeError, ValueError):
                # No form can be made from a changed row, but the run's page must still show.
                questions.append(Question(wait, may=False, is_damaged=True))
    return questions


def _question(wait: Wait, held: frozenset[str], wrong: Wrong | None, put: EventLine | None) -> Question:
    question, schema = Question(wait, questions.may_answer(wait, held), wrong=wrong), _schema(wait, put)
    if question.may and wrong:
        question.form = _form(wait, schema, wrong.data)
        question.form.mark(wrong.error, within="answer", root=_name(wait))
    elif question.may:
        question.form = _form(wait, schema)
    if question.form is not None and len(question.form.values) >= MAX_FIELDS and put is not None:
        # a form with the maximum number of fields, in the order in which the answer is read
        return _question(wait, held, wrong, None)
    return question


def _form(wait: Wait, schema: dict[str, Any], data: Mapping[str, Any] | None = None) -> SchemaForm:
    prefilled = wait.detail.get("prefilled")
    document = None if prefilled is None else {_name(wait): prefilled}
    return SchemaForm(schema, data=data, document=document, extra_fields=_extra_fields(wait))


def _extra_fields(wait: Wait) -> dict[str, ExtraField]:
    return {"justification": ExtraField("Why", f"why-{wait.id}")}


def _name(wait: Wait) -> str:
    return f"q{wait.id.hex[:8]}"


def _schema(wait: Wait, put: EventLine | None = None) -> dict[str, Any]:
    """Return the answer's schema under its prefixed name.
    If the schema in the journal is equal, it is used, because the journal keeps the author's order of fields, which
    jsonb doesn't."""
    schema = dict(wait.detail["schema"])
    recorded = put.get("schema") if put is not None else None
    schema = dict(recorded) if recorded == schema else schema
    definitions = schema.pop("$defs", {})
    return {"type": "object", "properties": {_name(wait): schema}, "required": [_name(wait)], "$defs": definitions}


def answer_of(wait: Wait, data: Mapping[str, Any]) -> Any:
    """Return the answer that a sent form contains. Raises InvalidInput, RecordDamaged."""
    try:
        form = _form(wait, _schema(wait), data)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RecordDamaged(wait.run_id, "a readable question") from None
    return form.document()[_name(wait)]
