"""A run's budget on its page: what it may use and has used, and the form that raises it. And its part of the start
form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from types import MappingProxyType
from typing import Any

from django import forms

from ledger.errors import DurableAgentsError, InvalidInput
from ledger.models import Head
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.page_forms import Refused, Sent, in_words
from runs.console.forms import Beside, Bound, Value
from runs.console.tables.waits import amount_of
from runs.engine.budget.limits import usd_of
from runs.models import ENDED, TIME_TO_LIVE, Run, Wait
from runs.queries import spending
from runs.queries.spending import Exceeded, Share
from runs.services import authority
from runs.services.bodies import BudgetBody

HOUR = 3600
_LABELS = {
    "usd": "US dollars", "model_calls": "Model calls", "tool_calls": "Tool calls", "wall_seconds": "Hours from start",
    "tokens_in": "Tokens in", "tokens_out": "Tokens out", "steps": "Steps",
}  # fmt: skip
AT_START = ("usd", "model_calls", "tool_calls", "wall_seconds")
NO_CAP = "none"
_WHOLE = re.compile(r"-?[0-9]{1,16}")
_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")  # 1,000,000; what is anything else is no number
_HOURS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,4})?")


class BudgetForm(forms.Form):
    """Fields for caps, called as the API's body calls them: `budget.usd`. What is typed is handed on for the budget's
    own rules to judge; `mark` puts their words at the fields."""

    bound_field_class = Bound

    def __init__(
        self, names: tuple[str, ...] = tuple(_LABELS), *, data: Mapping[str, str] | None = None,
        shown: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        super().__init__(data=data)
        for name in names:
            widget = forms.TextInput({"inputmode": "decimal", "autocomplete": "off"})
            schema = {"title": _LABELS[name]}
            self.fields[f"budget.{name}"] = Value(
                schema, key=name, required=False, shown=shown.get(name), widget=widget
            )

    def get(self, name: str) -> Bound:
        """The field of a cap."""
        bound: Any = self[f"budget.{name}"]
        return bound  # type: ignore[no-any-return]

    @property
    def all(self) -> list[Bound]:
        return [self.get(field.key) for field in self.fields.values() if isinstance(field, Value)]

    @property
    def wrong(self) -> list[Bound]:
        """The fields with something wrong in them."""
        return [field for field in self.all if field.errors]

    def mark(self, error: DurableAgentsError) -> None:
        """Put what was wrong at its field, or above the form."""
        self.full_clean()
        for problem in error.extra.get("errors", []):
            name = str(problem.get("field", ""))
            is_here = name in self.fields
            self.add_error(name if is_here else None, in_words(problem) if is_here else f"{name}: {in_words(problem)}")


def beside() -> dict[str, Beside]:
    """The budget's fields of the start form, for the form that they stand beside."""
    return {f"budget.{name}": Beside(_LABELS[name], f"f-budget-{name}") for name in AT_START}


def at_start(texts: Mapping[str, str]) -> dict[str, Any]:
    """The caps that were typed into the start form, as the API takes them; a field that was left empty is left out.
    Raises InvalidInput for hours that are no number."""
    return {name: _value(name, text) for name, text in _typed(texts, AT_START).items()}


def _typed(texts: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: text for name in names if (text := texts.get(f"budget.{name}", "").strip())}


def sent(form: Sent) -> BudgetBody:
    """The form of a run's page as the API's body; `none` lifts a cap. Raises InvalidInput, TooLarge."""
    form.check([*(f"budget.{name}" for name in _LABELS), "justification"])
    typed = _typed(form.texts, tuple(_LABELS))
    caps = {name: None if text.lower() == NO_CAP else _value(name, text) for name, text in typed.items()}
    found = {"budget": caps, "justification": form.texts.get("justification", "")}
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    return fit(BudgetBody, found, "form")


def _value(name: str, text: str) -> Any:
    if name == "usd":
        return text.removeprefix("$")
    if name != "wall_seconds":
        plain = text.replace(",", "") if _GROUPED.fullmatch(text) else text
        return int(plain) if _WHOLE.fullmatch(plain) else text
    if not _HOURS.fullmatch(text):
        problem = {"field": "budget.wall_seconds", "problem": "is no number of hours", "fix": "such as 1.5 or 24"}
        raise InvalidInput("The hours are no number.", errors=[problem])
    return int((Decimal(text) * HOUR).to_integral_value(ROUND_UP))


# --- on the run's page ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A cap as a line of the page."""

    share: Share

    @property
    def label(self) -> str:
        return spending.LABELS[self.share.name]

    @property
    def used(self) -> str:
        return amount_of(self.share.name, self.share.used)

    @property
    def cap(self) -> str:
        return amount_of(self.share.name, self.share.cap)

    @property
    def left(self) -> str:
        return amount_of(self.share.name, self.share.left)

    @property
    def tone(self) -> str:
        """`bad` where it is used up, `hold` where little is left."""
        return "bad" if self.share.percent >= 100 else "hold" if self.share.percent >= 80 else "work"


@dataclass(frozen=True, slots=True)
class BudgetBlock:
    """What the page says of a run's budget. `raised` is the form for whoever may."""

    run: Run
    head: Head
    asked: Exceeded | None
    raised: BudgetForm | None

    @property
    def bars(self) -> list[Bar]:
        return [Bar(share) for share in spending.shares(self.head) if share.cap is not None]

    @property
    def cost(self) -> str:
        return spending.cost_words(self.head)

    @property
    def is_time_given(self) -> bool:
        """Whether somebody has said how long it may take."""
        up = self.run.time_up_at
        return up is not None and abs(up - self.run.counts_from - TIME_TO_LIVE) > timedelta(seconds=5)

    @property
    def is_worth_telling(self) -> bool:
        """Beyond its cost, which stands above."""
        return bool(self.bars) or self.raised is not None or (self.is_time_given and self.run.state not in ENDED)

    @property
    def role(self) -> str:
        """Who raises it besides the operators; empty: nobody."""
        return authority.raises_budgets() or ""

    def amount(self, number: int | None) -> str:
        return amount_of(self.asked.resource, number) if self.asked is not None else ""

    @property
    def most(self) -> str:
        return self.amount(self.asked.at_most) if self.asked is not None else ""

    @property
    def used(self) -> str:
        return self.amount(self.asked.used) if self.asked is not None else ""

    @property
    def reserved(self) -> str:
        """What is set aside for calls whose outcome is not on record; empty where nothing is."""
        return self.amount(self.asked.reserved) if self.asked is not None and self.asked.reserved else ""

    @property
    def wanted(self) -> str:
        """What the next call would take; empty where it asks for time."""
        return self.amount(self.asked.wanted) if self.asked is not None and self.asked.wanted else ""

    @property
    def first(self) -> Bound | None:
        """The field of the cap that it stands still at."""
        known = self.asked is not None and self.asked.resource in _LABELS
        return self.raised.get(self.asked.resource) if known and self.raised and self.asked else None

    @property
    def others(self) -> list[Bound]:
        """The fields of the other caps."""
        first = self.first
        return [field for field in self.raised.all if first is None or field.name != first.name] if self.raised else []

    @property
    def is_other_wrong(self) -> bool:
        return any(field.errors for field in self.others)


def block(
    run: Run, head: Head, waits: list[Wait], *, may: frozenset[str], refused: Refused | None = None
) -> BudgetBlock:  # fmt: skip
    """What the page of a run says of its budget. Where setting it was `refused`, with what was typed."""
    asked = None if run.state in ENDED else spending.exceeded(waits)
    if authority.BUDGET not in may or run.state in ENDED:
        return BudgetBlock(run, head, asked, None)
    ours = refused if refused is not None and refused.act == authority.BUDGET else None
    form = BudgetForm(data=ours.typed) if ours else BudgetForm(shown=_next(asked))
    if asked is not None and asked.resource in _LABELS:
        form.get(asked.resource).field.required = True  # as it is drawn; whether it may be empty, the service says
    if ours:
        form.mark(ours.error)
    return BudgetBlock(run, head, asked, form)


def _next(asked: Exceeded | None) -> dict[str, str]:
    """A cap that lets the run go on for as long again."""
    if asked is None or asked.used is None or asked.at_most is None:
        return {}
    enough = 2 * max(asked.at_most, asked.used + (asked.reserved or 0) + (asked.wanted or 0))
    if asked.resource == "usd":
        return {"usd": usd_of(-(-enough // 10_000) * 10_000)}  # whole cents
    if asked.resource == "wall_seconds":
        return {"wall_seconds": str(-(-enough // HOUR))}
    return {asked.resource: str(enough)}
