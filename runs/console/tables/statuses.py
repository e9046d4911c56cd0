"""A run's status in the console: label, tone and list text, and the page's sentence, by the reason that
`runs/queries/status.py` gives. Everything from outside goes through `visible`, `datum` or `escape`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString

from ledger.templatetags.console import amount, clock, datum, due, since, title_of, took, until, visible, words
from runs.console.run_page import Dossier
from runs.console.tables.event_words import contradicted, witness
from runs.console.tables.waits import began, sentence, sentences, spent, stopped, suspicion, to_run
from runs.models import State
from runs.queries.display import detail_text, name_of, stood_at, undone
from runs.queries.halts import Halted
from runs.queries.run_list import Card
from runs.queries.spending import exceeded
from runs.queries.status import Reason
from runs.services.allowed import why_not

_GOES_ON = "It goes on within seconds when that is lifted; until then it holds no worker."


def notes_of(d: Dossier) -> str:
    """Explain a halt to a run that is driven or waits; "" without one."""
    if d.halted is None or d.reason == "halted":
        return ""
    if d.run.owner is not None:
        return f" {_halted(d.halted)} It stops at its next step."
    return f" {_halted(d.halted)} What it waits for may come, its deadlines stand still, and nothing is sent."


def halt_in_list(card: Card) -> str:
    """Return the halt's note in a list; "" without one."""
    return f" · <b>halted: {visible(card.halted.what)}</b>" if card.halted and card.reason != "halted" else ""


def _halted(halted: Halted | None) -> str:
    if halted is None:
        return "It was halted a moment ago."
    page = reverse("halts")
    return (
        f'<b>Halted:</b> <a href="{page}">{visible(halted.what)}</a>, by <b>{visible(halted.by)}</b> since'
        f" {clock(halted.since)}: {visible(halted.why.removesuffix('.'))}."
    )


def unserved_sentence(d: Dossier) -> str:
    """Return the page's warning that no worker has the version; "" if one has or it is unknown."""
    if not d.facts.is_unserved:
        return ""
    return f" <b>No running worker has {visible(d.run.graph_id)}</b>. The run continues when one does."


def unserved_in_list(card: Card) -> str:
    """Return the same warning for a list."""
    return " · <b>no running worker has its version</b>" if card.facts.is_unserved else ""


@dataclass(frozen=True, slots=True)
class Status:
    """The look of a status; `row` returns the text in a list."""

    label: str
    tone: str
    row: Callable[[Card], str]


@dataclass(frozen=True, slots=True)
class Verb:
    """An action on a run: its opening button, meaning, effect on active children, and button; `view` takes the POST."""

    label: str
    view: str
    opener: str
    button: str
    means: str
    for_children: str = ""


def chip(reason: Reason) -> SafeString:
    status = STATUSES[reason]
    return SafeString(f'<span class="chip {status.tone}">{status.label}</span>\n')


def row(card: Card) -> SafeString:
    return SafeString(STATUSES[card.reason].row(card) + unserved_in_list(card) + halt_in_list(card))


def sentence_of(d: Dossier) -> SafeString:
    """Explain why nothing moves, or what does."""
    if d.reason == "halted":
        return SafeString(f"{_halted(d.halted)} {_GOES_ON}{unserved_sentence(d)}")
    return SafeString(SENTENCES[d.reason](d) + unserved_sentence(d) + notes_of(d))


# --- rows of lists ----------------------------------------------------------------------------------------------------


def _at(card: Card) -> str:
    return f"at <b>{escape(words(node))}</b>" if (node := stood_at(card.run)) else ""


def _muted(html: str) -> str:
    return f'<span class="muted">{html}</span>'


def _behind_row(card: Card) -> str:
    return f"behind other runs of <b>{visible(card.run.business_key)}</b>"


def _early_row(card: Card) -> str:
    return f"starts {clock(card.run.ready_at)}"


def _failed_row(card: Card) -> str:
    at = f" at {escape(words(node))}" if (node := stood_at(card.run)) else ""
    undone = ", its effects undone" if card.run.is_undoing else ""
    return f"<b>{visible(words(card.run.error_code))}</b>{at}{undone}"


def _cancelled_row(card: Card) -> str:
    if card.run.is_undoing:
        return _muted("and its effects undone")
    return _muted(f"at {escape(words(card.run.node) or 'the start')}")


def _person_row(card: Card) -> str:
    if card.wait is None:
        return ""
    headline = detail_text(card.wait, "headline")
    more = _muted(f"and {len(card.facts.waits) - 1} more") if len(card.facts.waits) > 1 else ""
    queue = visible(detail_text(card.wait, "queue", "of") or "a person")
    return f"<b>{queue}</b> · {datum(detail_text(card.wait, 'title'))}\n{amount(headline) if headline else ''}\n{more}"


def _exceeded_row(card: Card) -> str:
    asked = exceeded(card.facts.waits)
    return f"<b>{escape(asked.label)}</b>: {spent(asked)}, {due(asked.until)}" if asked is not None else ""


def _event_row(card: Card) -> str:
    return f"{visible(name_of(card.wait))}, due {until(card.wait.deadline)}" if card.wait else ""


def _children_row(card: Card) -> str:
    n, still = sum(wait.kind == "child" for wait in card.facts.waits), len(stopped(card.facts.waits))
    what = f"{n} child runs" if n > 1 else visible(name_of(card.wait))
    number = f"{still} " if n > 1 else ""
    return f"{what}{f': <b>{number}stopped for a person</b>' if still else ''}"


def _tool_row(card: Card) -> str:
    return f"{visible(name_of(card.wait))}, {since(card.wait.opened_at)}" if card.wait else ""


# --- sentences of a run's page ----------------------------------------------------------------------------------------


def _undoing(d: Dossier) -> str:
    return "The run is undoing its effects."


def _here(d: Dossier) -> str:
    return f"<b>{visible(d.node_title)}</b>"


def _at_node(d: Dossier) -> str:
    return f" at {_here(d)}" if d.node_title else ""


def _by(d: Dossier) -> str:
    return f" by <b>{escape(d.story.requested_by)}</b>" if d.story.requested_by else ""


def _under_way(d: Dossier) -> str:
    return f"<b>{visible(title_of(d.tools, d.story.under_way))}</b>"


def _of_waits(d: Dossier) -> str:
    return sentences(d.waits, d.tools)


def _queued(d: Dossier) -> str:
    ready = d.run.ready_at
    if not d.facts.blocked:
        return f"Ready{_at_node(d)}; queued for a worker since {began(ready)}."
    return f"Ready{_at_node(d)} since {clock(ready)}, but {visible(d.facts.blocked)}."


def _behind(d: Dossier) -> str:
    ahead = d.facts.ahead
    who = f"until {to_run(str(ahead), 'the run before it')} ends" if ahead else "until its turn comes"
    return f"Queued behind the other runs of <b>{visible(d.run.business_key)}</b>, {who}.{_in_time(d)}"


def _early(d: Dossier) -> str:
    return f"Accepted; starts at {clock(d.run.ready_at)}.{_in_time(d)}"


def _in_time(d: Dossier) -> str:
    before = d.run.start_before
    return f" It is cancelled if it doesn't start by {clock(before)}." if before else ""


def _running(d: Dossier) -> str:
    if d.story.under_way:
        text = f"Running at {_here(d)}: {_under_way(d)}"
    else:
        text = f"Running at {_here(d)}" if d.node_title else "Running"
    if owner := d.story.owner:
        pid, host = escape(str(owner.clear["pid"])), visible(owner.clear["host"])
        text += f", in process {pid} on {host} since {clock(owner.at)}"
    return f"{text}."


def _pausing(d: Dossier) -> str:
    ends = f"waits for {_under_way(d)} to end" if d.story.under_way else "stops after the current step"
    return f"Pausing: {ends}{_at_node(d)}. Nothing new is sent."


def _cancelling(d: Dossier) -> str:
    first = f"{_under_way(d)} was sent; its result is recorded first" if d.story.under_way else ""
    return f"Cancelling: {first or 'ends after the current step'}. Nothing new is sent."


def _paused(d: Dossier) -> str:
    at = f", at {_here(d)}" if d.node_title else ""
    # With `is_woken` a worker has something to do, whether news came or the run was paused in between.
    is_due = d.run.is_woken and d.waits and all(wait.kind != "operator" for wait in d.waits)
    goes_on = " It has work to do once resumed." if is_due else ""
    return f"Paused{_by(d)} since {began(d.run.updated_at)}{at}, until someone resumes it.{goes_on}"


def _unknown(d: Dossier) -> str:
    opened, deadline = (d.wait.opened_at, d.wait.deadline) if d.wait else (None, None)
    if d.unknown and d.unknown.contradicted and not d.unknown.is_of_earlier:
        return (
            f"The outcome of <b>{visible(name_of(d.wait))}</b> is unknown again: {contradicted(d.unknown)}, and"
            f" {witness(d.unknown)}. {_who_settles(d)} it;\n"
            f"waiting since {began(opened)}, {due(deadline)}."
        )
    news = f" But {contradicted(d.unknown)}, and {witness(d.unknown)}." if d.unknown and d.unknown.contradicted else ""
    return (
        f"The outcome of <b>{visible(name_of(d.wait))}</b> is unknown. {_who_settles(d)} it;\n"
        f"waiting since {began(opened)}, {due(deadline)}.{news}{suspicion(d.wait)}"
    )


def _who_settles(d: Dossier) -> str:
    return "Two operators have to settle" if d.is_for_two else "An operator has to settle"


def _stopped(d: Dossier) -> str:
    reason = detail_text(d.wait, "reason")
    return (
        f"Stopped for an operator{f': <b>{visible(words(reason))}</b>' if reason else ''},\n"
        f"since {began(d.wait.opened_at if d.wait else None)}. "
    )


def _damaged(d: Dossier) -> str:
    if d.run.state not in State.values or d.is_headless:
        return f"The run's records are damaged. Its state is {visible(d.run.state)}."
    return _stopped(d) if d.wait is not None else "Stopped for an operator."


def _exceeded(d: Dossier) -> str:
    asked = (sentence(wait, d.tools) for wait in d.waits if wait.kind == "budget")
    return " ".join(asked)


def _completed(d: Dossier) -> str:
    return f"Completed at {clock(d.story.ended_at)}."


def _gone_on(how: str, as_what: str) -> Callable[[Dossier], str]:
    def words_for(d: Dossier) -> str:
        successor = to_run(str(d.run.goes_on_as), f"{as_what} <code>{escape(str(d.run.goes_on_as)[-8:])}</code>")
        return f"{how} at {clock(d.story.ended_at)}. It continues as {successor}, which also gets its messages."

    return words_for


def _gone_on_row(card: Card) -> str:
    successor = to_run(str(card.run.goes_on_as), f"<code>{escape(str(card.run.goes_on_as)[-8:])}</code>")
    return _muted(f"continues as {successor}")


def _failed(d: Dossier) -> str:
    at = f" in {_here(d)}" if d.node_title else ""
    then = f" {escape(said)}" if (said := undone(d.run)) else ""
    if why_not("retry", d.facts.stand) is None:
        then = " An operator can retry from this step."
    return f"Failed at {clock(d.story.ended_at)}{at}: {visible(d.story.failure)}{then}"


def _cancelled(d: Dossier) -> str:
    last: Any = d.story.last.clear.get("in_flight") if d.story.last is not None else None
    n = len(last) if isinstance(last, list) else 0
    calls = f" {n} call{'' if n == 1 else 's'} had no answer: see side effects." if n else ""
    said = d.story.output if isinstance(d.story.output, dict) else {}
    reason = said.get("justification")
    because = f": {visible(reason)}" if isinstance(reason, str) and reason.strip() else ""
    return f"Cancelled{_by(d)} at {clock(d.story.ended_at)}{because}.{calls}"


# --- the tables -------------------------------------------------------------------------------------------------------


def _blocked_row(card: Card) -> str:
    return f"<b>{visible(card.facts.blocked)}</b>, since {since(card.run.ready_at)}"


def _stopped_row(card: Card) -> str:
    return visible(words(detail_text(card.wait, "reason", "title") or "see the run"))


_BLOCKED = Status("blocked", "hold", _blocked_row)
STATUSES: dict[Reason, Status] = {
    "queued": Status("queued", "", lambda card: _muted("for a worker")),
    "behind_key": Status("queued behind", "wait", _behind_row),
    "not_due": Status("not due", "wait", _early_row),
    "no_worker": _BLOCKED,
    "no_version": _BLOCKED,
    "draining": _BLOCKED,
    "no_key": _BLOCKED,
    "halted": Status("halted", "hold", lambda card: f"<b>{visible(card.halted.what)}</b>" if card.halted else ""),
    "driven": Status("running", "run", _at),
    "pausing": Status("pausing", "hold", lambda card: f"{_at(card)} after the current step"),
    "cancelling": Status("cancelling", "hold", lambda card: f"{_at(card)} settling calls in progress"),
    "approval": Status("waiting for approval", "wait", _person_row),
    "question": Status("waiting for an answer", "wait", _person_row),
    "callback": Status("waiting for a system", "wait", _tool_row),
    "retry_timer": Status("waiting to retry", "wait", _event_row),
    "timer": Status("waiting for time", "wait", _event_row),
    "limit": Status("at a limit", "wait", _event_row),
    "breaker": Status("at a circuit breaker", "wait", _event_row),
    "pool": Status("at a shared budget", "wait", _event_row),
    "signal": Status("waiting for a signal", "wait", _event_row),
    "message": Status("waiting for a message", "wait", _event_row),
    "child": Status("waiting for child runs", "wait", _children_row),
    "unknown_outcome": Status(
        "outcome unknown", "unsure", lambda card: f"<b>{visible(name_of(card.wait))}</b>: did it happen?"
    ),
    "stopped": Status("needs an operator", "bad", _stopped_row),
    "damaged": Status("damaged", "bad", _stopped_row),
    "budget": Status("needs budget", "wait", _exceeded_row),
    "paused": Status("paused", "hold", _at),
    "undoing": Status("undoing", "hold", lambda card: ""),
    "completed": Status("completed", "ok", lambda card: _muted(f"took {took(card.run.ended_at, card.run.created_at)}")),
    "renewed": Status("renewed", "ok", _gone_on_row),
    "handed_off": Status("handed off", "ok", _gone_on_row),
    "failed": Status("failed", "bad", _failed_row),
    "cancelled": Status("cancelled", "", _cancelled_row),
}

# The page's sentence with links.
SENTENCES: dict[Reason, Callable[[Dossier], str]] = {
    "completed": _completed,
    "renewed": _gone_on("Renewed", "run"),
    "handed_off": _gone_on("Handed off", "another agent's run"),
    "failed": _failed,
    "cancelled": _cancelled,
    "damaged": _damaged,
    "paused": _paused,
    "pausing": _pausing,
    "cancelling": _cancelling,
    "budget": _exceeded,
    "unknown_outcome": _unknown,
    "stopped": _stopped,
    "approval": _of_waits,
    "question": _of_waits,
    "callback": _of_waits,
    "signal": _of_waits,
    "message": _of_waits,
    "child": _of_waits,
    "pool": _of_waits,
    "limit": _of_waits,
    "breaker": _of_waits,
    "retry_timer": _of_waits,
    "timer": _of_waits,
    "not_due": _early,
    "behind_key": _behind,
    "no_worker": _queued,
    "no_version": _queued,
    "draining": _queued,
    "no_key": _queued,
    "queued": _queued,
    "driven": _running,
    "undoing": _undoing,
}

VERBS: dict[str, Verb] = {
    "pause": Verb(
        "Pause",
        "pauses",
        opener="",
        button="main",
        means="The current step ends first. Then nothing happens until someone resumes the run.",
        for_children="paused and resumed together with it.",
    ),
    "resume": Verb(
        "Resume",
        "resumptions",
        opener="go",
        button="go",
        means="The run continues where it stopped. Nothing is repeated.",
        for_children="resumed with it, except those paused separately.",
    ),
    "cancel": Verb(
        "Cancel",
        "cancellations",
        opener="stop",
        button="stop full",
        means="Nothing new is sent. Calls in progress are settled first. This can't be undone.",
        for_children="cancelled with it.",
    ),
    "retry": Verb(
        "Retry",
        "retries",
        opener="main",
        button="main",
        means="The failed node runs again. Calls that succeeded are not repeated. Approvals still in time"
        " are reused; others are requested again. Failed or cancelled child runs are started again.",
        for_children="they continue.",
    ),
    "requeue": Verb(
        "Requeue",
        "requeues",
        opener="",
        button="main",
        means="Another worker takes over the run now, as after a crash. A call in progress is checked,"
        " sent again under its key, or shown to a person.",
    ),
}
