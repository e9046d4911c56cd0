"""A run's budget on its page, the form that raises it, and the caps in the start form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_UP, Decimal
from types import MappingProxyType
from typing import Any, Self

from django import forms

from ledger.errors import DurableAgentsError, InvalidInput
from ledger.models import Head
from ledger.web import strict_json
from ledger.web.bodies import does_not_fit, fit, unstorable
from ledger.web.page_forms import Refused, Sent, in_words
from runs.console.forms.fields import Value
from runs.console.forms.form import Bound, ExtraField, PartForm
from runs.engine.agents import Agent
from runs.engine.budget import A_MILLION, NOTHING_USED, UNLIMITED, Call, Usage, usd_of
from runs.models import ENDED, TIME_TO_LIVE, Run, Wait
from runs.queries import spending
from runs.queries.spending import Exceeded, Share, amount_of, amounts_of, under_way
from runs.services import authority
from runs.services.bodies import BudgetBody
from runs.services.budgets.asked import budget_of, caps_of
from runs.services.budgets.starting import outlook

HOUR = 3600
LABELS = {
    "usd": "US dollars",
    "model_calls": "Model calls",
    "tool_calls": "Tool calls",
    "wall_seconds": "Hours from start",
    "tokens_in": "Tokens in",
    "tokens_out": "Tokens out",
    "steps": "Steps",
}
AT_START = ("usd", "model_calls", "tool_calls", "wall_seconds")
NO_CAP = "none"
SEEN = "if_caps"
_WHOLE = re.compile(r"-?[0-9]{1,16}")
_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+")  # separators, as in 1,000,000
_HOURS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,4})?")


class BudgetForm(PartForm):
    """Fields for caps."""

    def __init__(
        self,
        names: tuple[str, ...] = tuple(LABELS),
        *,
        data: Mapping[str, str] | None = None,
        values: Mapping[str, str] = MappingProxyType({}),
        notes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(data=data)
        for name in names:
            widget = forms.TextInput({"inputmode": "decimal", "autocomplete": "off"})
            schema = {"title": LABELS[name], "description": notes.get(name, "")}
            self.fields[f"budget.{name}"] = Value(
                schema, key=name, required=False, value=values.get(name), widget=widget
            )

    def get(self, name: str) -> Bound:
        bound: Any = self[f"budget.{name}"]
        return bound  # type: ignore[no-any-return]

    def mark(self, error: DurableAgentsError) -> None:
        """Show errors at their fields, or above the form."""
        self.full_clean()
        for problem in error.extra.get("errors", []):
            name = str(problem.get("field", ""))
            is_here = name in self.fields
            self.add_error(
                name if is_here else None, in_words(problem) if is_here else f"{called(name)}: {in_words(problem)}"
            )


def called(field: str) -> str:
    known = {**{f"budget.{name}": label for name, label in LABELS.items()}, SEEN: "The caps as the page showed them"}
    return known.get(field, field)


def extra_fields() -> dict[str, ExtraField]:
    """Return the budget fields of the start form."""
    return {f"budget.{name}": ExtraField(LABELS[name], f"f-budget-{name}") for name in AT_START}


def at_start(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the caps of a sent start form in the API's format, without empty ones. Raises InvalidInput."""
    return {name: _value(name, text) for name, text in _typed(texts, AT_START).items()}


@dataclass(frozen=True, slots=True)
class Beforehand:
    """The default budget of an agent's runs, cap by cap, and why a start would be refused (empty if it wouldn't)."""

    defaults: list[str]
    hindrance: str

    @classmethod
    def of(cls, agent: Agent) -> Self:
        found = outlook(agent)
        time = found.defaults.wall_seconds or int(TIME_TO_LIVE.total_seconds())
        stated = {**found.defaults.stated(), "wall_seconds": time}
        return cls(
            [f"{spending.LABELS[name]} {_cap_text(name, value)}" for name, value in stated.items()], found.hindrance
        )


def _typed(texts: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: text for name in names if (text := texts.get(f"budget.{name}", "").strip())}


def sent(form: Sent) -> BudgetBody:
    """Return the budget form of a run's page as the API's body; `none` removes a cap.
    Raises InvalidInput, TooLarge."""
    form.check([*(f"budget.{name}" for name in LABELS), SEEN, "justification"])
    typed = _typed(form.texts, tuple(LABELS))
    caps = {name: None if text.lower() == NO_CAP else _value(name, text) for name, text in typed.items()}
    found = {"budget": caps, "justification": form.texts.get("justification", "")}
    if seen := form.texts.get(SEEN):
        found[SEEN] = _read(seen)
    if problems := unstorable(found):
        raise does_not_fit(problems, "form")
    return fit(BudgetBody, found, "form")


def _read(seen: str) -> Any:
    """Return the caps that the page showed with the form.
    Raises InvalidInput if the hidden field was changed."""
    try:
        return strict_json.loads(seen.encode("utf-8", "replace"))
    except strict_json.MalformedJSON:
        problem = {"field": SEEN, "problem": "can't be read", "fix": "reload the page"}
        raise InvalidInput("The form is out of date.", errors=[problem]) from None


def _value(name: str, text: str) -> Any:
    if name == "usd":
        return text.removeprefix("$")
    if name != "wall_seconds":
        plain = text.replace(",", "") if _GROUPED.fullmatch(text) else text
        return int(plain) if _WHOLE.fullmatch(plain) else text
    if not _HOURS.fullmatch(text):
        problem = {"field": "budget.wall_seconds", "problem": "isn't a number of hours", "fix": "such as 1.5 or 24"}
        raise InvalidInput("Enter the hours as a number.", errors=[problem])
    return int((Decimal(text) * HOUR).to_integral_value(ROUND_UP))


def in_field(name: str, cap: Any) -> str:
    return f"{Decimal(cap) / HOUR:.4f}".rstrip("0").rstrip(".") if name == "wall_seconds" else str(cap)


def cap_texts(caps: Any) -> list[str]:
    """Return a text for each recorded cap. Damaged caps are left out."""
    known = caps if isinstance(caps, dict) else {}
    return [f"{spending.LABELS[name]} {_cap_text(name, cap)}" for name, cap in known.items() if name in spending.LABELS]


# --- on the run's page ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A cap that the page shows as a bar."""

    share: Share

    @property
    def label(self) -> str:
        return spending.LABELS[self.share.name]

    @property
    def said(self) -> list[str]:
        """Return the amounts used, allowed, left and reserved as text, with equal decimal places."""
        share = self.share
        return amounts_of(share.name, share.used, share.cap, share.left, share.reserved)

    @property
    def tone(self) -> str:
        """Return `bad` if the cap is used up, `hold` if little is left."""
        return "bad" if self.share.percent >= 100 else "hold" if self.share.percent >= 80 else "work"


@dataclass(frozen=True, slots=True)
class Short:
    """A cap that is too small for the next call, with formatted amounts."""

    name: str
    pairs: list[tuple[str, str]]

    @property
    def label(self) -> str:
        return spending.LABELS[self.name]


@dataclass(frozen=True, slots=True)
class Above:
    """A parent run with less budget left than this run may use. `left` contains the parent's amounts as text."""

    run: Run
    left: list[str]


@dataclass(frozen=True, slots=True)
class BudgetBlock:
    """A run's budget on its page. `raised` is the form, for those who may raise the budget."""

    run: Run
    head: Head
    asked: Exceeded | None
    raised: BudgetForm | None
    aside: Usage
    seen: str
    above: Above | None

    @property
    def bars(self) -> list[Bar]:
        return [Bar(share) for share in spending.shares(self.head, self.aside) if share.cap is not None]

    @property
    def cost(self) -> str:
        return spending.cost_words(self.head)

    @property
    def is_time_given(self) -> bool:
        up = self.run.time_up_at
        return up is not None and abs(up - self.run.counts_from - TIME_TO_LIVE) > timedelta(seconds=5)

    @property
    def is_worth_telling(self) -> bool:
        """Return whether there is anything to show besides the cost."""
        return bool(self.bars) or self.raised is not None or (self.is_time_given and self.run.state not in ENDED)

    @property
    def role(self) -> str:
        """Return the role that may raise the budget in addition to operators; "" if none."""
        return authority.raises_budgets() or ""

    @property
    def shorts(self) -> list[Short]:
        if self.asked is None:
            return []
        known = {share.name: share for share in spending.shares(self.head, self.aside)}
        names = [self.asked.resource, *(name for name in self.asked.enough if name != self.asked.resource)]
        return [_short(name, self.asked, known.get(name)) for name in names if name in LABELS]

    @property
    def firsts(self) -> list[Bound]:
        return [self.raised.get(short.name) for short in self.shorts] if self.raised else []

    @property
    def others(self) -> list[Bound]:
        """Return the form's fields for the other caps."""
        firsts = {field.name for field in self.firsts}
        return [field for field in self.raised.all if field.name not in firsts] if self.raised else []

    @property
    def is_other_wrong(self) -> bool:
        return any(field.errors for field in self.others)


def _short(name: str, exceeded: Exceeded, share: Share | None) -> Short:
    if share is None:
        given, passed = (amount_of(name, n) for n in (exceeded.at_most, exceeded.used))
        return Short(name, [("given", given), ("passed", passed)])
    least = exceeded.enough.get(name)
    wanted = None if least is None else max(least - share.used - share.reserved, 0)
    amounts = amounts_of(name, share.cap, share.used, share.reserved, share.left, wanted, least)
    return Short(name, [*zip(("cap", "used", "reserved", "left", "needed next", "enough"), amounts, strict=True)])


def block(
    run: Run,
    head: Head,
    waits: Sequence[Wait],
    *,
    may: frozenset[str],
    parent: tuple[Run, Head] | None = None,
    refused: Refused | None = None,
) -> BudgetBlock:
    """Return a run's budget for its page. If a change was `refused`, the form keeps the typed values."""
    exceeded = None if run.state in ENDED else spending.exceeded(waits)
    around = {run.pk: (run, head)} if caps_of(head) != UNLIMITED else {}
    around |= {parent[0].pk: parent} if parent is not None and run.state not in ENDED else {}
    begun = under_way([of for of, _ in around.values()], {pk: its for pk, (_, its) in around.items()})
    aside = sum(begun.get(run.pk, {}).values(), NOTHING_USED)
    seen = budget_of(run, head, waits).model_dump_json()
    above = _above(*parent, run, head, begun.get(parent[0].pk, {})) if parent and run.state not in ENDED else None
    if authority.BUDGET not in may or run.state in ENDED:
        return BudgetBlock(run, head, exceeded, None, aside, seen, above)
    ours = refused if refused is not None and refused.act == authority.BUDGET else None
    notes = {
        name: f"at least {amount_of(name, least)}" for name, least in (exceeded.enough if exceeded else {}).items()
    }
    form = (
        BudgetForm(data=ours.typed, notes=notes) if ours else BudgetForm(values=_suggested_caps(exceeded), notes=notes)
    )
    for name in exceeded.enough if exceeded is not None else ():
        form.get(name).field.required = True  # for display; the service decides whether the field may be empty
    if ours:
        form.mark(ours.error)
    return BudgetBlock(run, head, exceeded, form, aside, seen, above)


def _above(parent: Run, above: Head, run: Run, head: Head, begun: Mapping[Call, Usage]) -> Above | None:
    """Return the parent if this run's caps exceed the parent's remaining budget plus this run's share, else None.
    The parent has reserved the child's original caps. If the child uses more after a raise, the parent stops at its own
    cap."""
    others = sum(
        (usage for call, usage in begun.items() if call != (run.parent_slot, run.parent_attempt)), NOTHING_USED
    )
    caps = {share.name: share.cap for share in spending.shares(head)}
    narrow = [
        share
        for share in spending.shares(above, others)
        if share.left is not None and ((most := caps[share.name]) is None or most > share.left)
    ]
    words = [_counted(share.name, share.left) for share in narrow]
    return Above(parent, words) if words else None


def _counted(name: str, number: int | None) -> str:
    return amount_of(name, number) + ("" if name == "usd" else f" {spending.LABELS[name]}")


def changes(before: Any, after: Any) -> list[str]:
    """Return the changes to caps between the two states in an action's record."""
    was, is_now = (part.get("caps") if isinstance(part, dict) else None for part in (before, after))
    if not (isinstance(was, dict) and isinstance(is_now, dict)):
        return []
    pairs = [(name, was.get(name), is_now.get(name)) for name in LABELS]
    return [f"{spending.LABELS[name]}: {_cap_text(name, a)} → {_cap_text(name, b)}" for name, a, b in pairs if a != b]


def _cap_text(name: str, value: Any) -> str:
    if value is None:
        return "no cap"
    if isinstance(value, Decimal):
        return f"${usd_of(int(value * A_MILLION))}"
    return f"${value}" if name == "usd" else amount_of(name, value) if isinstance(value, int) else str(value)


def enough_words(exceeded: Exceeded) -> str:
    least = [_counted(name, most) for name, most in exceeded.enough.items()]
    return f"The run needs at least {' and '.join(least)}." if least else "It needs more."


def _suggested_caps(exceeded: Exceeded | None) -> dict[str, str]:
    """Return suggested caps: twice what the run needs to continue, or twice the exceeded cap if that is more."""
    if exceeded is None:
        return {}
    fields: dict[str, str] = {}
    for name, least in exceeded.enough.items():
        most = (exceeded.at_most or 0) if name == exceeded.resource else 0
        enough = 2 * max(most, least)
        fields[name] = str(enough)
        if name == "usd":
            fields[name] = usd_of(-(-enough // 10_000) * 10_000)  # whole cents
        elif name == "wall_seconds":
            fields[name] = str(max(round(enough / HOUR), -(-least // HOUR)))
    return fields
