"""The sentence for each kind of wait. Everything from outside goes through `visible` or `datum`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape

from django.urls import NoReverseMatch, reverse

from ledger.templatetags.console import amount, clock, datum, lapse, since, until, visible, words
from runs.engine.budget import usd_of
from runs.models import Wait
from runs.queries.display import detail_text, name_of
from runs.queries.families import ChildRow, child_of
from runs.queries.spending import Exceeded, exceeded
from runs.queries.tool_cards import ToolCard


def to_run(run_id: str, html: str) -> str:
    return _to("run", run_id, html)


def to_approval(approval_id: str, html: str) -> str:
    return _to("approval", approval_id, html)


def _to(page: str, name: str, html: str) -> str:
    try:
        return f'<a href="{escape(reverse(page, args=[name]))}">{html}</a>'
    except NoReverseMatch:
        return html


# A wait, and the tools of its run's agent by name.
Sentence = Callable[[Wait, Mapping[str, ToolCard]], str]


def sentence(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    """Describe a wait with its times. A damaged row may have an unknown kind."""
    return WAITS.get(str(wait.kind), _other_wait)(wait, tools)


def began(at: datetime | None) -> str:
    """Return the start time and how long ago it was."""
    return f"{clock(at)} ({since(at)})"


def _other_wait(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    return f"Waiting for <b>{visible(name_of(wait))}</b> since {began(wait.opened_at)};\ndue {until(wait.deadline)}."


def _approval(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    headline = detail_text(wait, "headline")
    tool = tools.get(detail_text(wait, "tool"))
    name = f"“{visible(tool.title)}”" if tool and tool.title == name_of(wait) else datum(name_of(wait))
    linked = to_approval(detail_text(wait, "approval_id"), name)
    return (
        f"Waiting for <b>{visible(detail_text(wait, 'queue') or 'an approver')}</b> to decide\n"
        f"on {linked}{f' (<b>{amount(headline)}</b>)' if headline else ''},\n"
        f"since {began(wait.opened_at)};\n"
        f"{_IN_TIME.get(detail_text(wait, 'on_timeout'), _DENIED)} {clock(wait.deadline)} ({until(wait.deadline)})."
    )


_DENIED = "rejected if undecided by"
# For queues and gates with another rule for timeouts.
_IN_TIME = {
    "escalate": "escalated if undecided by",
    "remind": "no deadline, next reminder",
}


def _input(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    return (
        f"Asks <b>{visible(detail_text(wait, 'of') or 'someone')}</b>: {datum(name_of(wait))},\n"
        f"since {began(wait.opened_at)};\ndeadline {clock(wait.deadline)} ({until(wait.deadline)})."
    )


def _operator(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    return f"Stopped for an operator: <b>{visible(words(detail_text(wait, 'reason') or 'see below'))}</b>."


def _budget(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    reached_cap = exceeded([wait])
    cap = (
        f" ({escape(reached_cap.label)}: {spent(reached_cap)})"
        if reached_cap is not None and reached_cap.resource
        else ""
    )
    queue = detail_text(wait, "queue")
    title = reached_cap.title if reached_cap is not None else visible(name_of(wait))
    return (
        f"<b>{title}</b>{cap}: waiting for {_raisers(queue)} to raise it,\n"
        f"since {began(wait.opened_at)}; cancelled if nobody does by {clock(wait.deadline)}"
        f" ({until(wait.deadline)})."
    )


def _raisers(queue: str) -> str:
    return f"an operator or <b>{visible(queue)}</b>" if queue else "an operator"


def spent(exceeded: Exceeded) -> str:
    if exceeded.resource == "wall_seconds" or exceeded.wanted is None:
        used, most = amounts_of(exceeded.resource, exceeded.used, exceeded.at_most)
        return f"{used} of {most} used"
    wanted, left, most, aside = amounts_of(
        exceeded.resource, exceeded.wanted, exceeded.left, exceeded.at_most, exceeded.reserved
    )
    return f"needs {wanted}, {left} of {most} left{f', {aside} reserved' if exceeded.reserved else ''}"


def amounts_of(resource: str, *numbers: int | None) -> list[str]:
    """Format amounts with equal decimal places, a dash for missing ones."""
    if resource != "usd":
        return [amount_of(resource, number) for number in numbers]
    texts = [None if number is None else usd_of(number) for number in numbers]
    places = max((len(text.partition(".")[2]) for text in texts if text), default=2)
    return ["–" if text is None else "$" + text + "0" * (places - len(text.partition(".")[2])) for text in texts]


def amount_of(resource: str, number: int | None) -> str:
    """Format an amount; a dash if it is missing."""
    if number is None:
        return "–"
    if resource == "usd":
        return f"${usd_of(number)}"
    return escape(lapse(number)) if resource == "wall_seconds" else f"{number:,}"


def _reconcile(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    return f"An operator has to settle the outcome of <b>{visible(name_of(wait))}</b>.{suspicion(wait)}"


def suspicion(wait: Wait | None) -> str:
    """Describe the suspected duplicate of a call whose key the upstream rejected; "" for others."""
    if detail_text(wait, "suspicion") != "duplicate":
        return ""
    answer = detail_text(wait, "said")
    text = f": <q>{visible(answer)}</q>" if answer else ""
    return (
        f" The upstream system rejected its key{text}. <b>It may be a duplicate</b>: check there before you settle it."
    )


def _signal(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    name = detail_text(wait, "name", "title") or "a signal"
    since_when = began(wait.opened_at)
    return f"Waiting for the signal <b>{visible(name)}</b>\nsince {since_when}; times out {until(wait.deadline)}."


def _message(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    name = visible(name_of(wait))
    return f"Waiting for a message: <b>{name}</b>,\nsince {began(wait.opened_at)}; times out {until(wait.deadline)}."


# Reasons for a missing permit, following the call's name.
_HELD = {
    "rate": "has reached its call rate limit",
    "at_once": "has reached its limit of concurrent calls",
    "asked": "asked to be called later",
    "changed": "has a limit that was changed outside the application; an administrator has to confirm it",
    "breaker": "has an open circuit breaker",
}


def _timer(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    if isinstance(wait.detail, dict) and wait.detail.get("retry"):
        why = visible(detail_text(wait, "error"))
        return f"<b>{visible(name_of(wait))}</b> could not be reached ({why});\nretry {until(wait.deadline)}."
    if limit := detail_text(wait, "limit"):
        held = _HELD.get(detail_text(wait, "why"), "is limited")
        return f"<b>{visible(name_of(wait))}</b> waits: {datum(limit)} {held};\nretry {until(wait.deadline)}."
    if held := detail_text(wait, "held"):
        return f"<b>{visible(name_of(wait))}</b> {visible(held)};\nretry {until(wait.deadline)}."
    return f"Waiting until {clock(wait.deadline)} ({until(wait.deadline)})."


def _shared_budget(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    name = visible(detail_text(wait, "name"))
    refills = _moment(detail_text(wait, "refills_at"))
    again = f"\nrefilled {until(refills)};" if refills is not None else ""
    return (
        f"Waiting for room in the shared budget <b>{name}</b>\nsince {began(wait.opened_at)};{again}\n"
        f"cancelled if there is none by {clock(wait.deadline)} ({until(wait.deadline)})."
    )


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def _webhook(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    name = visible(name_of(wait))
    return f"Waiting for the answer to <b>{name}</b>\nsince {began(wait.opened_at)}; times out {until(wait.deadline)}."


# A stopped child's need for a person, on its parent's page.
_NEEDS = {
    "approval": "an approval",
    "input": "an answer",
    "reconcile": "an outcome to be settled",
    "operator": "an operator",
    "budget": "more budget",
    "resume": "someone to resume it",
}
_CHILDREN_TOLD = 3


def _child(wait: Wait, tools: Mapping[str, ToolCard]) -> str:
    child = child_of(wait)
    name = f"<b>{visible(name_of(wait))}</b>"
    linked = to_run(str(child.id), name) if child is not None else name
    return f"Waiting for the child run {linked}\nsince {began(wait.opened_at)}.{_child_state(child)}"


def _child_state(child: ChildRow | None, one: str = "It") -> str:
    if child is None or not child.need:
        return ""
    who = one if child.need_at == child.id else "A run below it"
    linked = who if who == "It" else to_run(str(child.need_at), who)
    return f" {linked} needs <b>{escape(_NEEDS.get(child.need, child.need))}</b>."


def stopped(waits: Iterable[Wait]) -> list[ChildRow]:
    return [child for wait in waits if (child := child_of(wait)) is not None and child.need]


def sentences(waits: Sequence[Wait], tools: Mapping[str, ToolCard]) -> str:
    """Describe all waits; many children are counted, with those that need a person."""
    of_children = [wait for wait in waits if wait.kind == Wait.Kind.CHILD]
    if len(of_children) <= _CHILDREN_TOLD:
        return " ".join(sentence(wait, tools) for wait in waits)
    texts = [sentence(wait, tools) for wait in waits if wait.kind != Wait.Kind.CHILD]
    texts.append(
        f"Waiting for <b>{len(of_children)} child runs</b>,\nthe first since {began(of_children[0].opened_at)}."
    )
    still = stopped(of_children)
    if len(still) == 1:
        texts.append(_child_state(still[0], "One of them").strip())
    elif still:
        texts.append(f"<b>{len(still)} of them</b> need a person.")
    return " ".join(texts)


WAITS: dict[str, Sentence] = {
    "approval": _approval,
    "input": _input,
    "webhook": _webhook,
    "timer": _timer,
    "signal": _signal,
    "message": _message,
    "reconcile": _reconcile,
    "operator": _operator,
    "budget": _budget,
    "child": _child,
    "pool": _shared_budget,
}
