"""A run's questions as forms on its page: fields to draw, and an answer from what came back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ledger.errors import DurableAgentsError
from runs import questions
from runs.forms import Field, document_of, fields_of, stray
from runs.models import Wait
from runs.story import Line


@dataclass
class Wrong:
    """An answer that was not taken: what was typed, why, and what is wrong with it."""

    wait_id: UUID
    document: dict[str, Any]
    text: str
    error: DurableAgentsError


@dataclass
class Question:
    """One question as a form. The fields' names begin with the question's own, so that a page may hold several."""

    wait: Wait
    may: bool
    fields: list[Field] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    wrong: Wrong | None = None
    is_damaged: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        return () if self.is_damaged else questions.roles_for(self.wait)

    @property
    def key(self) -> str:
        """What the page calls it, also when it is asked no more."""
        return key_of(self.wait.slot, self.wait.n)


def key_of(slot: str | None, n: object) -> str:
    """One name for a question and for the event that answers it."""
    return f"answer {slot} {n}"


def asked(
    waits: Iterable[Wait], held: frozenset[str], wrong: Wrong | None = None, put: Callable[[Wait], Line | None] = lambda wait: None
) -> list[Question]:
    """What a run asks now, for a reader with these roles; a form for whoever may answer. `put` gives the event that asked."""
    found = []
    for wait in waits:
        if wait.kind == Wait.Kind.INPUT:
            ours = wrong if wrong and wrong.wait_id == wait.id else None
            try:
                found.append(_question(wait, held, ours, put(wait)))
            except (AttributeError, KeyError, TypeError, ValueError):
                # Its row was changed by other hands: there is no form to be made of it, and the run's page must still show.
                found.append(Question(wait, may=False, is_damaged=True))
    return found


def _question(wait: Wait, held: frozenset[str], wrong: Wrong | None, put: Line | None) -> Question:
    shown = Question(wait, questions.may_answer(wait, held), wrong=wrong)
    schema = _schema(wait, put)
    if not shown.may:
        return shown
    name = _name(wait)
    errors: dict[str, list[str]] = {}
    for problem in wrong.error.extra.get("errors", []) if wrong else []:
        words = "; ".join(part for part in (problem.get("problem", ""), problem.get("fix", "")) if part)
        errors.setdefault(name + str(problem.get("field", "")).removeprefix("answer"), []).append(words)
    document = wrong.document if wrong else {name: wait.detail.get("prefilled")}
    made = fields_of(schema, document, errors)
    # The question's own title stands above: the group around its fields needs no second one.
    shown.fields = _inner(made)
    shown.stray = [*stray(made, errors), *(words for one in made if one.kind == "group" for words in one.errors)]
    return shown


def _inner(made: Sequence[Field]) -> list[Field]:
    return [inner for one in made for inner in (one.children if one.kind == "group" else [one])]


def _name(wait: Wait) -> str:
    return f"q{wait.id.hex[:8]}"


def _schema(wait: Wait, put: Line | None = None) -> dict[str, Any]:
    """The answer's schema below a name of its own. The journal keeps its fields in their author's order, which the wait's column
    (jsonb) does not: where both say the same, the journal's is taken."""
    schema = dict(wait.detail["schema"])
    told = put.get("schema") if put is not None else None
    schema = dict(told) if told == schema else schema
    definitions = schema.pop("$defs", {})
    return {"type": "object", "properties": {_name(wait): schema}, "required": [_name(wait)], "$defs": definitions}


def answer_of(wait: Wait, given: Mapping[str, str]) -> dict[str, Any]:
    """The document that a question's filled form stands for, below the question's own name."""
    return document_of(_schema(wait), given)


def given_in(wait: Wait, document: Mapping[str, Any]) -> Any:
    """The answer itself."""
    return document[_name(wait)]
