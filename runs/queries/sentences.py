"""The sentence for each reason of a run's status, in parts: the API prints them, and pages add links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from string import Formatter
from typing import Literal
from uuid import UUID

from ledger.clock import lapse
from runs.models import State, Wait
from runs.queries.code_here import agent_here, titles_of
from runs.queries.display import detail_text, name_of, stood_at, undone
from runs.queries.families import ChildRow, child_of
from runs.queries.halts import halt_of
from runs.queries.run_facts import RunFacts
from runs.queries.spending import exceeded, spent
from runs.services import authority
from runs.services.allowed import why_not


def at(moment: datetime | None) -> str:
    """Return a time in UTC as text; a dash if unknown."""
    return "–" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a sentence.

    This is a text, possibly from outside (a `name` is emphasised, `data` is quoted), or a time in `at`, to which pages
    add its distance from now. `to` is the linked page: the name of its URL, and the arguments.
    """

    text: str = ""
    look: Literal["plain", "name", "data", "amount", "id", "since", "until", "due"] = "plain"
    at: datetime | None = None
    to: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.at is not None:
            return f"due {at(self.at)}" if self.look == "due" else at(self.at)
        return f"“{self.text}”" if self.look == "data" else self.text


Text = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A reason in words. A list shows only `lead`. `rest` is a function if it costs a query."""

    lead: Text
    rest: Text | Callable[[], Text] = ()

    @property
    def parts(self) -> Text:
        return self.lead + (self.rest() if callable(self.rest) else self.rest)

    def __str__(self) -> str:
        return plain(self.parts)


def plain(text: Text) -> str:
    """Return the text for printing. Callers must escape it."""
    return "".join(map(str, text))


def write(template: str, **values: str | datetime | Part | Text | None) -> Text:
    """Return the parts of a text in which names in braces are replaced by these values."""
    return tuple(_parts(template, values))


def _parts(template: str, values: Mapping[str, str | datetime | Part | Text | None]) -> Iterator[Part]:
    for words, field, _, _ in Formatter().parse(template):
        if words:
            yield Part(words)
        match values[field] if field else ():
            case tuple() as text:
                yield from text
            case Part() as part:
                yield part
            case datetime() as moment:
                yield Part(at=moment)
            case other:
                yield Part("–" if other is None else other)


def name(text: str, to: tuple[str, ...] = ()) -> Part:
    return Part(text, "name", to=to)


def data(text: str, to: tuple[str, ...] = ()) -> Part:
    return Part(text, "data", to=to)


def since(moment: datetime | None) -> Part:
    return Part("–", "since", at=moment)


def until(moment: datetime | None) -> Part:
    return Part("–", "until", at=moment)


def run_link(run_id: UUID | str) -> Part:
    return Part(str(run_id), "id", to=("run", str(run_id)))


# --- what a run waits for ---------------------------------------------------------------------------------------------

MAX_WAITS_TOLD = 3
# The consequence of a passed deadline, by kind of wait; for gates by their rule for timeouts.
_IN_TIME: Mapping[str, str] = {
    Wait.Kind.APPROVAL: "rejected if undecided by {at}",
    "escalate": "escalated if undecided by {at}",
    "remind": "it has no deadline, next reminder {at}",
    Wait.Kind.INPUT: "deadline {at}",
    Wait.Kind.WEBHOOK: "times out {at}",
    Wait.Kind.SIGNAL: "times out {at}",
    Wait.Kind.MESSAGE: "times out {at}",
    Wait.Kind.POOL: "cancelled if there is none by {at}",
    Wait.Kind.BUDGET: "cancelled if nobody does by {at}",
    Wait.Kind.RECONCILE: "{due}",
    Wait.Kind.TIMER: "until {at}",
}
# Names of the needs for which a child run waits for a person.
_NEEDS = {
    "approval": "an approval",
    "input": "an answer",
    "reconcile": "an outcome to be settled",
    "operator": "an operator",
    "budget": "more budget",
    "resume": "someone to resume it",
}


def of_wait(facts: RunFacts, wait: Wait, lead: Text, in_time: str = "") -> Sentence:
    """Return the sentence about a wait, with its start and its deadline.
    The deadline is left out under a halt, which defers it."""
    rule = in_time or _IN_TIME.get(detail_text(wait, "on_timeout")) or _IN_TIME.get(str(wait.kind), "")
    then = "" if halt_of(facts.head) is not None else rule
    again = "; ".join(filter(None, [", since {since}", then])) + "."
    due = Part(look="due", at=wait.deadline)
    return Sentence(lead, write(again, since=since(wait.opened_at), at=until(wait.deadline), due=due))


def wait_sentence(facts: RunFacts, wait: Wait) -> Sentence:
    """Return the sentence for a wait with its times. A damaged row may have an unknown kind."""
    if wait.kind == Wait.Kind.TIMER:
        return _timer(facts, wait)
    lead = LEADS.get(str(wait.kind), _other)(wait)
    if wait.kind == Wait.Kind.POOL and (refills := _moment(detail_text(wait, "refills_at"))) is not None:
        lead += write("; refilled {at}", at=until(refills))
    return of_wait(facts, wait, lead)


def _other(wait: Wait) -> Text:
    return write("Waiting for {what}", what=name(name_of(wait)))


def _approval(wait: Wait) -> Text:
    asked = [name(each) for each in authority.asked_of(wait.detail, wait.also)] or [Part("an approver")]
    who = tuple(part for each in asked for part in (Part(" or "), each))[1:]
    approval = detail_text(wait, "approval_id")
    what = data(name_of(wait), to=("approval", approval) if approval else ())
    headline = detail_text(wait, "headline")
    told = write(" ({much})", much=Part(headline, "amount")) if headline else ()
    return write("Waiting for {who} to decide on {what}{told}", who=who, what=what, told=told)


def _input(wait: Wait) -> Text:
    return write("Asks {who}: {what}", who=name(detail_text(wait, "of") or "someone"), what=data(name_of(wait)))


def _operator(wait: Wait) -> Text:
    return write(
        "Stopped for an operator: {why}", why=name(_words(detail_text(wait, "reason", "title") or "see the run"))
    )


def _budget(wait: Wait) -> Text:
    asked = exceeded([wait])
    if asked is None or not asked.resource:
        return write("{what}: waiting for {who} to raise it", what=name(name_of(wait)), who=_raisers(wait))
    cap = f" ({asked.label}: {spent(asked)})"
    return write("{what}{cap}: waiting for {who} to raise it", what=name(asked.title), cap=cap, who=_raisers(wait))


def _raisers(wait: Wait) -> Text:
    queue = detail_text(wait, "queue")
    return write("an operator or {queue}", queue=name(queue)) if queue else write("an operator")


def _child(wait: Wait) -> Text:
    child = child_of(wait)
    told = name(name_of(wait), to=() if child is None else ("run", str(child.id)))
    return write("Waiting for the child run {child}{need}", child=told, need=_need(child))


def _need(child: ChildRow | None) -> Text:
    if child is None or not child.need:
        return ()
    need = name(_NEEDS.get(child.need, child.need))
    if child.need_at in (None, child.id):
        return write(". It needs {need}", need=need)
    return write(". {below} below it needs {need}", below=Part("A run", to=("run", str(child.need_at))), need=need)


def _timer(facts: RunFacts, wait: Wait) -> Sentence:
    if isinstance(wait.detail, dict) and wait.detail.get("retry"):
        lead = "{what} could not be reached ({why}) and is retried automatically"
        told = write(lead, what=name(name_of(wait)), why=detail_text(wait, "error"))
        return of_wait(facts, wait, told, "retry {at}")
    if held := detail_text(wait, "held"):  # set by an app's guard
        return of_wait(facts, wait, write("{what} {held}", what=name(name_of(wait)), held=held), "retry {at}")
    return of_wait(facts, wait, write("Waiting for a timer"))


def _words(text: str) -> str:
    return text.replace("_", " ").replace("-", " ")


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


LEADS: Mapping[str, Callable[[Wait], Text]] = {
    Wait.Kind.APPROVAL: _approval,
    Wait.Kind.INPUT: _input,
    Wait.Kind.WEBHOOK: lambda wait: write("Waiting for the answer to {what}", what=name(name_of(wait))),
    Wait.Kind.SIGNAL: lambda wait: write(
        "Waiting for the signal {what}", what=name(detail_text(wait, "name", "title") or "a signal")
    ),
    Wait.Kind.MESSAGE: lambda wait: write("Waiting for a message: {what}", what=name(name_of(wait))),
    Wait.Kind.OPERATOR: _operator,
    Wait.Kind.BUDGET: _budget,
    Wait.Kind.CHILD: _child,
    Wait.Kind.POOL: lambda wait: write(
        "Waiting for room in the shared budget {what}", what=name(detail_text(wait, "name"))
    ),
}


def _stopped(children: Sequence[Wait]) -> Text:
    """Return how many of the awaited child runs need a person, with a link if there is only one."""
    found = [child for wait in children if (child := child_of(wait)) is not None and child.need]
    if len(found) == 1:
        one, need = Part("One of them", to=("run", str(found[0].id))), found[0].need or ""
        return write(". {one} needs {need}", one=one, need=name(_NEEDS.get(need, need)))
    return write(f". {len(found)} of them need a person") if found else ()


def _waiting(s: RunFacts) -> Sentence:
    """Return the sentence about the main wait and a few others.
    If the run waits for several children, it gives their number, and how many of them need a person."""
    if s.wait is None:
        return Sentence(write("Waiting, but the record doesn't say for what"), write("."))
    children = [wait for wait in s.waits if wait.kind == Wait.Kind.CHILD]
    if s.wait.kind == Wait.Kind.CHILD and len(children) > 1:
        lead = write("Waiting for {many}", many=name(f"{len(children)} child runs"))
        first = of_wait(s, children[0], lead + _stopped(children))
        others = [wait for wait in s.waits if wait.kind != Wait.Kind.CHILD]
    else:
        first, others = wait_sentence(s, s.wait), [wait for wait in s.waits if wait is not s.wait]
    told = [part for wait in others[: MAX_WAITS_TOLD - 1] for part in (Part(" "), *wait_sentence(s, wait).parts)]
    more = len(others) - MAX_WAITS_TOLD + 1
    also = write(f" And {more} more.") if more > 0 else ()
    return Sentence(first.lead, (*first.parts[len(first.lead) :], *told, *also))


def _unknown(s: RunFacts) -> Sentence:
    lead = write("The outcome of {what} is unknown", what=name(name_of(s.wait)))
    return Sentence(lead, partial(_who_settles, s))


def _who_settles(s: RunFacts) -> Text:
    if s.wait is None:
        return write(".")
    if s.proposal is not None:
        found = "it happened" if s.proposal.verdict == "happened" else "it did not happen"
        settle = f". {s.proposal.by} says that {found}. A second operator must confirm it"
    else:
        settle = f". {'Two operators have' if s.related.is_for_two else 'An operator has'} to settle it"
    return (Part(settle), *of_wait(s, s.wait, ()).parts, *_suspicion(s.wait))


def _suspicion(wait: Wait) -> Text:
    """Return the text about the suspected duplicate of a call whose key the upstream system rejected."""
    if detail_text(wait, "suspicion") != "duplicate":
        return ()
    said = detail_text(wait, "said")
    told = write(": {said}", said=data(said)) if said else ()
    duplicate = name("It may be a duplicate")
    return write(
        " The upstream system rejected its key{told}. {duplicate}: check there before you settle it.",
        told=told,
        duplicate=duplicate,
    )


# --- other reasons ----------------------------------------------------------------------------------------------------


def _at_node(s: RunFacts, how: str = "at") -> Text:
    node = stood_at(s.run)
    title = titles_of(agent_here(s.run.graph_id)).get(node, node)
    return write(f" {how} {{node}}", node=name(title)) if title else ()


def _completed(s: RunFacts) -> Sentence:
    ended, began = s.run.ended_at, s.run.created_at
    took = f" after {lapse(ended - began)}" if ended is not None and began is not None else ""
    return Sentence(write("Completed{took}", took=Part(took)), write(" at {at}. Nothing more happens.", at=ended))


def _gone_on(how: str) -> Callable[[RunFacts], Sentence]:
    def sentence(s: RunFacts) -> Sentence:
        lead = write("Continues as run {run}", run=run_link(str(s.run.goes_on_as)))
        return Sentence(lead, write(f", which also gets its messages; {how} at {{at}}.", at=s.run.ended_at))

    return sentence


def _failed(s: RunFacts) -> Sentence:
    code = name(_words(s.run.error_code or "no code on record"))
    lead = write("Failed{node}: {code}", node=_at_node(s), code=code)
    if s.run.is_undoing:
        lead += write(", its effects undone")
    final = f" {said}" if (said := undone(s.run)) else ""
    if why_not("retry", s.stand) is None:
        final = " An operator can retry from this step."
    return Sentence(lead, write(f", at {{at}}.{final}", at=s.run.ended_at))


def _cancelled(s: RunFacts) -> Sentence:
    lead = write("Cancelled, its effects undone") if s.run.is_undoing else write("Cancelled{node}", node=_at_node(s))
    rest = "{by}, at {at}. Nothing more happens."
    return Sentence(lead, lambda: write(rest, by=_by(s.cancelled_by), at=s.run.ended_at))


def _by(person: str | None) -> Text:
    return write(" by {by}", by=name(person)) if person else ()


def _damaged(s: RunFacts) -> Sentence:
    if s.run.state not in State.values:
        lead = write("The run's records are damaged: its state is {state}", state=name(str(s.run.state)))
        return Sentence(lead, write(". `manage.py ledger verify` lists the problems."))
    if s.head is None:
        lead = write("The run's head row is missing")
        return Sentence(lead, write(". The database administrator has to restore it."))
    if s.wait is not None:
        return wait_sentence(s, s.wait)
    lead = write("The run's rows contradict each other")
    return Sentence(lead, write(": `manage.py ledger verify` lists the problems."))


def _paused(s: RunFacts) -> Sentence:
    # With `is_woken` a worker has something to do: a wait was resolved, or the run was paused midway.
    is_due = s.run.is_woken and s.waits and all(wait.kind != Wait.Kind.OPERATOR for wait in s.waits)
    then = " It has work to do once resumed." if is_due else ""
    rest = f"{{by}} since {{at}}, until someone resumes it.{then}"
    lead = write("Paused{node}", node=_at_node(s))
    return Sentence(lead, lambda: write(rest, by=_by(s.paused_by), at=since(s.run.updated_at)))


def _budget_reason(s: RunFacts) -> Sentence:
    wait = next((wait for wait in s.waits if wait.kind == Wait.Kind.BUDGET), None)
    return Sentence(write("Needs a higher budget"), write(".")) if wait is None else wait_sentence(s, wait)


def _in_time(s: RunFacts) -> Text:
    before = s.run.start_before
    return write(" It is cancelled if it doesn't start by {at}.", at=before) if before else ()


def _behind(s: RunFacts) -> Sentence:
    lead = write("Queued behind the other runs of {key}", key=name(str(s.run.business_key)))
    return Sentence(lead, lambda: write(", until {ahead}.{in_time}", ahead=_ahead(s), in_time=_in_time(s)))


def _ahead(s: RunFacts) -> Text:
    return write("run {run} ends", run=run_link(s.ahead)) if s.ahead else write("its turn comes")


def _not_due(s: RunFacts) -> Sentence:
    return Sentence(write("Accepted; starts at {at}", at=s.run.ready_at), write(".{in_time}", in_time=_in_time(s)))


def _blocked(s: RunFacts) -> Sentence:
    return Sentence(write("Ready since {at}, but {why}", at=s.run.ready_at, why=name(s.blocked or "")), write("."))


def _queued(s: RunFacts) -> Sentence:
    lead = write("Ready{node} since {at}, waiting for a worker", node=_at_node(s), at=s.run.ready_at)
    return Sentence(lead, write("."))


def _doing(what: str, then: str) -> Callable[[RunFacts], Sentence]:
    return lambda s: Sentence(write(f"{what}{{node}}", node=_at_node(s)), write(then))


def _driven(s: RunFacts) -> Sentence:
    return Sentence(
        write("Running{node}", node=_at_node(s)), write(" in worker process {owner}.", owner=str(s.run.owner))
    )


SENTENCES: dict[str, Callable[[RunFacts], Sentence]] = {
    "completed": _completed,
    "renewed": _gone_on("renewed"),
    "handed_off": _gone_on("handed off"),
    "failed": _failed,
    "cancelled": _cancelled,
    "damaged": _damaged,
    "paused": _paused,
    "pausing": _doing("Pausing", ": it stops after the current step. Nothing new is sent."),
    "cancelling": _doing("Cancelling", ": nothing new is sent. It ends when calls in progress are settled."),
    "budget": _budget_reason,
    "unknown_outcome": _unknown,
    **dict.fromkeys(
        ("stopped", "approval", "question", "callback", "signal", "message", "child", "pool", "retry_timer", "timer"),
        _waiting,
    ),
    "not_due": _not_due,
    "behind_key": _behind,
    **dict.fromkeys(("no_worker", "no_version", "draining", "no_key"), _blocked),
    "queued": _queued,
    "driven": _driven,
    "undoing": _doing("Undoing its effects", ". It ends after that."),
}


def unserved(facts: RunFacts) -> Sentence | None:
    """Return the warning that no worker has the version of a parked run."""
    if not facts.is_unserved:
        return None
    return Sentence(write("{none}", none=name(f"No running worker has {facts.run.graph_id}")), write("."))
