"""Registry of the features that apps add.
The core imports none of them; an app installs its own when Django starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from django.conf import settings

from ledger import observers
from ledger.verification import registers, runs
from runs.engine.certification import Certificates

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from datetime import datetime

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse
    from prometheus_client import Metric

    from approvals.brief import ApprovalDetail
    from approvals.deadlines import Deadlines
    from approvals.guards import ApprovalFilter, ApprovalPanel, DecisionGuard
    from approvals.models import Approval
    from ledger.actors import Actor
    from ledger.change_control import ProposedChange
    from ledger.events import VersionAssigned, WaitOpened
    from ledger.models import Head
    from ledger.observers import Observer
    from ledger.verification.registers import Listed
    from ledger.verification.runs import Check, ReadJournal
    from runs.background import Duty
    from runs.engine.certification import Certificate, CertificateReader
    from runs.engine.content.hooks import Screen
    from runs.engine.gating.proof import Wanted
    from runs.engine.gating.timing import QueueTiming
    from runs.engine.guards import Guard
    from runs.engine.halts import Halts
    from runs.engine.journal import GateOpening, WaitSpec
    from runs.engine.limits import Limits
    from runs.engine.secrets import SecretStore
    from runs.engine.tools import Tool
    from runs.journal.asked.policies import Book
    from runs.journal.libpq import Connection, Pool
    from runs.models import Run, Wait
    from runs.queries.actions import Offer, Reader
    from runs.queries.run_facts import RunFacts
    from runs.queries.searching import AttributePages, AttributeQuery
    from runs.queries.sentences import Sentence
    from runs.queries.shown_attributes import ShownAttribute
    from runs.queries.status import FeatureReason
    from runs.services.version_choice import Key

    OnDue = Callable[[Head, Run, Wait, datetime, Actor], None]
    Statement = tuple[str, list[Any]]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Notification:
    """A notification for people.
    The `kind` decides who is notified. People are notified only once of the same `fact` of a kind. With a `person` only
    that account is notified, if it may see the subject. `about` names a subject that has no id of its own."""

    kind: str
    fact: str
    run_id: UUID | None = None
    approval_id: UUID | None = None
    wait_id: UUID | None = None
    person: int | None = None
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Queues:
    """The queues to which questions are addressed.
    `statement` is an SQL expression of all queues as one JSON document (jsonb), and `is_ours` checks one row of it.
    `role_of` locks a queue's row and returns the role in charge of it, which decides what a queue allows; None if
    there is no such queue. It raises Forbidden if the row was not written by our processes. `escalated` returns the
    queues to which questions of these runs were escalated."""

    statement: str
    is_ours: Callable[[str], bool]
    role_of: Callable[[str], str | None]
    escalated: Callable[[Collection[UUID]], Mapping[UUID, Collection[str]]]


@dataclass(frozen=True, kw_only=True)
class QueueTimings:
    """Rules of queues about time.
    `statement` is an SQL expression of all rules as one JSON document, which `read` turns into rules by queue.
    `default` applies to any other queue."""

    statement: str
    read: Callable[[Any], Mapping[str, QueueTiming]]
    default: QueueTiming


@dataclass(frozen=True, kw_only=True)
class Policies:
    """The policies in force. `statement` selects them as one JSON document, which `made_of` reads."""

    statement: str
    made_of: Callable[[Any], Book]


# Does what is due until a given time (monotonic), except for these ids. Returns failures: what failed, its run, and the
# error.
Sweep = Callable[[list[UUID], float], list[tuple[UUID, UUID, Exception]]]


@dataclass(frozen=True, kw_only=True)
class PromptSweep:
    """A sweep that is called while the SQL condition `is_due` is true."""

    is_due: str
    act: Sweep


@dataclass(frozen=True, kw_only=True)
class StartRules:
    """Rules about the versions that new runs of an agent get.
    `statement` is an SQL expression with the parameter `agent`, read as a run starts, after the agent's lock for starts
    was taken. From its value, `closed_in` returns the versions that accept no new runs, and `assign` returns the
    version for a start that names only the agent, and its tags; None means the newest open version. Both raise
    ChangedOutside if the rules were forged. `store` keeps an assignment with its run. `closed` is an SQL query of the
    closed versions."""

    statement: str
    closed: str
    closed_in: Callable[[Any], Collection[str]]
    assign: Callable[[Any, Collection[str], Key], VersionAssigned | None]
    store: Callable[[Run, VersionAssigned], None]


@dataclass(frozen=True, kw_only=True)
class RunSearch:
    """Search of runs.
    `terms` returns the words by which a new run can be found. `by_words` finds runs that have all these words and
    these column values; it returns their ids, newest first, and whether more may match. `by_attributes` checks a search
    by attributes, and returns its pages. Both raise BadSearch. For an agent (by name; "" for all), `attributes` returns
    the searchable attributes with their kinds, and `orders` the sort orders with labels. `attributes_of` reads the
    attributes of runs."""

    terms: Callable[..., list[str]]
    by_words: Callable[[str, Mapping[str, str]], tuple[list[UUID], bool]]
    by_attributes: Callable[[AttributeQuery], AttributePages]
    attributes: Callable[[str], list[tuple[str, str]]]
    orders: Callable[[str], list[tuple[str, str]]]
    attributes_of: Callable[[Sequence[UUID]], Mapping[UUID, Sequence[ShownAttribute]]]


@dataclass(frozen=True, kw_only=True)
class Certification:
    """Certificates of keyed tools.
    `for_worker` returns the certificates that a worker relies on. `read` reads all of them, and returns a function that
    returns the certificate for an agent (by name) and tool."""

    for_worker: Callable[[Pool], Certificates]
    read: Callable[[], Callable[[str, Tool], Certificate]]


@dataclass(frozen=True, kw_only=True)
class StepUp:
    """Proof of identity at decisions; a guard of decisions checks it.
    `answer` checks the proof in a decision's form, given the approval and a text about what is approved: it returns a
    page that asks again if the proof is wrong, and evidence for the guard. `ask` returns the page that asks for a
    proof.
    Raises DurableAgentsError if the user has no means of proof."""

    answer: Callable[[HttpRequest, str, Approval], tuple[HttpResponse | None, Any]]
    ask: Callable[[HttpRequest, str, Approval, Wanted], HttpResponse]


@dataclass(frozen=True, kw_only=True)
class RunCommand:
    """A subcommand of `manage.py runs`.
    `lines` executes it for a run's id and the options, and yields lines to print. Raises DurableAgentsError, which
    is printed on one line, with exit code 2."""

    add_arguments: Callable[[ArgumentParser], None]
    lines: Callable[[UUID, Mapping[str, Any]], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredCheckpoints:
    """The oldest checkpoints of an ended run, removed on record by a retention policy.
    `number` checkpoints were removed in all, most recently at `at` by `policy`. The newest was at event `last_seq`."""

    last_seq: int
    number: int
    policy: int
    at: datetime

    def __str__(self) -> str:
        return (
            f"the checkpoints of this run up to event {self.last_seq} expired on {self.at:%Y-%m-%d} under retention "
            f"policy {self.policy}"
        )


@dataclass(frozen=True, kw_only=True)
class Feature:
    """The parts that a feature adds, all optional. Hooks run in their caller's transaction."""

    name: str

    # Returns the statement that stores a gate with its wait.
    open_gate: Callable[[GateOpening, WaitSpec], Statement] | None = None
    # Returns WITH clauses that store a gate's documents by digest. They precede the statement that opens the gate.
    store_documents: Callable[[Mapping[str, bytes]], Statement] | None = None
    queues: Queues | None = None
    queue_timings: QueueTimings | None = None
    # Computes the deadlines of approvals, instead of the core's plain rules.
    deadlines: Deadlines | None = None
    policies: Policies | None = None
    secrets: SecretStore | None = None
    start_rules: StartRules | None = None
    # Guards of tool calls, which run after the core's own (runs/engine/pipeline.py).
    guards: Sequence[Guard] = ()
    # Returns the limits on calls that a worker obeys, given its incarnation.
    limits: Callable[[UUID], Limits] | None = None
    # Returns the halts that a worker obeys, given its incarnation.
    halts: Callable[[UUID], Halts] | None = None
    certification: Certification | None = None
    # Returns the hooks that screen content for every agent, in order.
    screens: Callable[[], Sequence[Screen]] | None = None
    search: RunSearch | None = None
    step_up: StepUp | None = None

    # Yields statements that are executed with a run's creation, given its id. The run's first events are packed within
    # the context. Nothing may be kept after the context ends, since the creation may be refused, and another process
    # may create the same run.
    on_birth: Sequence[Callable[[UUID], AbstractContextManager[list[Statement]]]] = ()
    # Called with the ids of runs whose payloads this process is about to read or write in an event loop.
    before_read: Sequence[Callable[[Connection, Collection[UUID]], Awaitable[None]]] = ()

    # Statements executed as a question is opened, with the queue or role as parameter. Raising DA059 refuses the
    # question.
    on_question: Sequence[str] = ()
    # Statements executed after a run's open waits were withdrawn, with the run's id as parameter. They check whether
    # the run has ended, because a worker sends them with the run's end, which may be refused.
    on_withdraw: Sequence[str] = ()
    # Statements executed after a retry has reopened waits that the run's end had withdrawn, with the run's id as
    # parameter.
    on_reopen: Sequence[str] = ()
    # Handlers of a wait's deadline by kind, called with everything locked. Waits of other kinds are marked overdue.
    on_wait_due: Mapping[str, OnDue] = field(default_factory=dict)
    # Called after a halt has deferred a wait's deadline, by kind of wait.
    on_wait_moved: Mapping[str, Callable[[Wait], None]] = field(default_factory=dict)
    # Sweeps that are called every few seconds.
    sweeps: Sequence[Sweep] = ()
    # Sweeps that are called within about a second of being due, regardless of other work.
    prompt_sweeps: Sequence[PromptSweep] = ()
    # Called with a process's kind (web, worker) before it serves. Returns the reason why it must not serve, or None. If
    # it raises django.db.OperationalError during an outage, it is called again.
    on_serving: Sequence[Callable[[str], str | None]] = ()
    # Called by `up` once it has started. Returns lines that tell why runs are not executed.
    start_notices: Sequence[Callable[[], list[str]]] = ()
    # Called with each new connection of a worker's event loop, before its first use. An error keeps the connection from
    # being used.
    on_connection: Sequence[Callable[[Connection], Awaitable[None]]] = ()
    # Called in a worker's event loop, at least every few seconds, before it reads the changes that concern it.
    before_round: Sequence[Callable[[Connection], Awaitable[None]]] = ()
    # Entered while a worker's event loop drives runs, with a function that counts its commits that have returned.
    while_driving: Sequence[Callable[[Callable[[], int]], AbstractContextManager[None]]] = ()
    # Notified of writes and requests, by the observer's class in ledger/observers.py.
    observers: Mapping[type[Any], Observer] = field(default_factory=dict)
    # Called often. Returns whether this process must not claim or send anything at the moment.
    fences: Sequence[Callable[[], bool]] = ()
    # Periodic jobs of workers, each in its own thread.
    periodic: Sequence[Duty] = ()
    # Management commands that each `manage.py worker` keeps running next to its workers. SIGTERM ends them.
    helpers: Sequence[str] = ()
    # Returns metrics for Prometheus, within a few milliseconds. No label may name a run or person.
    metrics: Sequence[Callable[[], Iterable[Metric]]] = ()

    # Called before an answer is recorded that lets a fork repeat a call of the original run, with the fork, the
    # question, the answer and the database's clock. Returns what the answer confirms about the call's sender, or "".
    # Raises DurableAgentsError to refuse the answer.
    attest_repeat: Callable[[Run, WaitOpened, Any, datetime], str] | None = None
    # Called before a session begins, with the account whose first factor was valid, the strength of that factor, and
    # the URL to continue at. Returns the URL of a page that asks for a second factor first, or None.
    second_factors: Sequence[Callable[[HttpRequest, User, str, str], str | None]] = ()
    # Called before an administrator changes something, with a text about the change, and whether the form is free of
    # secrets. Returns the page that asks the administrator to sign in again and then sends the form, or None.
    reauthentications: Sequence[Callable[[HttpRequest, str, bool], HttpResponse | None]] = ()
    # Returns a line that `manage.py up` prints below the URL of a new console without the demo, given its
    # environment.
    greetings: Sequence[Callable[[Any], str]] = ()
    # Further ways to sign in, for the sign-in page: a template and its values.
    sign_in_panels: Sequence[Callable[[HttpRequest], tuple[str, dict[str, Any]]]] = ()

    # Called after each action on a run, with the action's name.
    on_action: Sequence[Callable[[str, Run], None]] = ()
    # Notifies people after the commit. See `notify` below.
    notifiers: Sequence[Callable[[Notification], None]] = ()
    # Called when a rule change is proposed that a second person must confirm.
    on_change_proposed: Sequence[Callable[[ProposedChange], None]] = ()
    # Called before a run's content is removed, by erasure or because of its age. Returns the reason why it must be
    # kept, or None.
    removal_refusals: Sequence[Callable[[UUID], str | None]] = ()
    # Called with the ids of runs whose content was erased, to remove copies elsewhere. An error refuses the erasure.
    on_erased: Sequence[Callable[[Collection[UUID]], None]] = ()
    # Called with a run's id. Returns its checkpoints that a policy removed, or None.
    expired_checkpoints: Callable[[UUID], ExpiredCheckpoints | None] | None = None
    # Called every few seconds with the versions of ready runs that no worker has.
    on_versions_missing: Sequence[Callable[[Sequence[str]], None]] = ()

    # Return the reason for an active run's status. The first reason that is not None replaces that of the core. They
    # make no query.
    status_reasons: Sequence[Callable[[RunFacts], FeatureReason | None]] = ()
    # Return a further sentence about an active run's status, for pages, lists and `why`. These functions make no query
    # either.
    status_notes: Sequence[Callable[[RunFacts], Sentence | None]] = ()
    # Return further actions on the waits of a run, and further sentences of `why` ("" for none).
    offers: Sequence[Callable[[RunFacts, Reader], list[Offer]]] = ()
    remarks: Sequence[Callable[[RunFacts], str]] = ()
    # Called after an account's sessions were ended: all of them or, with a request, all but the one that sent it.
    on_sessions_ended: Sequence[Callable[[int, HttpRequest | None], None]] = ()
    # Sections of the page of the user's own account: a template and its value `p`.
    account_panels: Sequence[Callable[[HttpRequest], tuple[str, Any]]] = ()
    # Returns a template with further details of a halt, and its values; None for most halts.
    halt_panels: Sequence[Callable[[UUID], tuple[str, dict[str, Any]] | None]] = ()
    # Returns an account's open items of runs that it may not see: by run, a value that changes with the item.
    open_items: Sequence[Callable[[int], dict[str, Any]]] = ()

    # Approves a question, and the same questions later if the decision's body has `again`; see approvals/deciding.py.
    approve_again: Callable[..., Approval] | None = None
    # Called with a run's id. Returns its approvals that ended early because the standing approval behind them was
    # revoked, and when they ended.
    revoked_approvals: Sequence[Callable[[UUID], Mapping[UUID, datetime]]] = ()
    # Checks of decisions on approvals, and panels on an approval's page.
    decision_guards: Sequence[DecisionGuard] = ()
    approval_panels: Sequence[Callable[[ApprovalDetail], Sequence[ApprovalPanel]]] = ()
    # Return SQL values that are read with approvals for these panels (True: a page) and lines (False: a list).
    approval_annotations: Sequence[Callable[[bool], Mapping[str, Any]]] = ()
    # For lists of approvals: lines in the console, by approval; further fields in the API, by approval, given also the
    # ids of approvals whose payloads the reader may read; filters by name.
    approval_lines: Sequence[Callable[[Sequence[Approval]], Mapping[UUID, ApprovalPanel]]] = ()
    approval_fields: Sequence[Callable[[Sequence[Approval], Collection[UUID]], Mapping[UUID, Mapping[str, Any]]]] = ()
    approval_filters: Mapping[str, ApprovalFilter] = field(default_factory=dict)
    # Facts about a run, by name: SQL expressions of JSON about a row of `ledger_head`, read with each run that is
    # shown.
    run_facts: Mapping[str, str] = field(default_factory=dict)
    # Panels of a run's page. Each function gets the run, its head with these facts, and the reader's account, and
    # returns a template with its value `p`, or None for no panel.
    run_panels: Sequence[Callable[[Run, Head, Any], tuple[str, Any] | None]] = ()
    # Panels above the list of runs that need an operator: a template and its value `p`; None for no panel.
    reconcile_panels: Sequence[Callable[[], tuple[str, Any] | None]] = ()
    # Verbs of `manage.py runs VERB RUN`, each with its own options.
    run_commands: Mapping[str, RunCommand] = field(default_factory=dict)
    # Links on a run's page: the text and the name of the URL, which takes the run's id.
    run_links: Sequence[tuple[str, str]] = ()
    # Links next to the agent on the page of a run that has not ended, and links on an agent's page: the text and the
    # name of the URL, which takes name@version. The former also pass the run's id as `run`.
    run_agent_links: Sequence[tuple[str, str]] = ()
    agent_links: Sequence[tuple[str, str]] = ()
    # Links above the list of runs, for those who may act: the text and the name of the URL, which gets the list's
    # filter.
    run_list_links: Sequence[tuple[str, str]] = ()
    # Links on the page of an archived run, in the same form.
    archived_run_links: Sequence[tuple[str, str]] = ()
    # Called with a queue's name before it is removed. Returns what still needs the queue, as the beginning of a
    # sentence, or "".
    queue_uses: Sequence[Callable[[str], str]] = ()
    # Extra template values for a queue's page, and for the page of all queues (given the account), and the templates
    # that show them.
    queue_panels: Sequence[Callable[[Any], dict[str, Any]]] = ()
    queue_list_panels: Sequence[Callable[[int | None], dict[str, Any]]] = ()
    queue_templates: Sequence[str] = ()
    queue_list_templates: Sequence[str] = ()
    # Links on the page of all queues: the text and the name of the URL.
    queue_list_links: Sequence[tuple[str, str]] = ()
    # Fields of forms, by form: the anchor on the page and the label of each, for links from errors.
    form_fields: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)
    # Labels of values in records of changes, and functions that describe a value in words, by the value's name.
    change_labels: Mapping[str, str] = field(default_factory=dict)
    change_texts: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)

    # Checks of a run's record; tables about runs, with the column that holds the run's id; checks of records without a
    # run.
    run_checks: Sequence[Callable[[ReadJournal], Check]] = ()
    run_tables: Mapping[str, str] = field(default_factory=dict)
    record_checks: Sequence[Callable[[], Listed | None]] = ()


installed: dict[str, Feature] = {}


def install(*features: Feature) -> None:
    """Add features to this process. A feature replaces one with the same name, whose checks stay registered."""
    for each in features:
        installed.pop(each.name, None)  # so that the new feature comes last
        installed[each.name] = each
        runs.register(*each.run_checks, **each.run_tables)
        registers.register(*each.record_checks)
        observers.register(each.observers)


def parts_of_all(parts: Callable[[Feature], Sequence[T]]) -> Iterator[T]:
    """Yield the parts that `parts` selects from each feature, in the order of installation."""
    for feature in installed.values():
        yield from parts(feature)


def notify(news: Notification) -> None:
    """Call every feature's notifiers in the caller's transaction. Without notifiers, nobody is notified."""
    for tell in parts_of_all(lambda each: each.notifiers):
        tell(news)


@contextmanager
def birth(run_id: UUID) -> Iterator[list[Statement]]:
    """Yield the features' statements for a run's creation.
    Its first events must be packed inside this context."""
    with ExitStack() as stack:
        made = [stack.enter_context(make(run_id)) for make in parts_of_all(lambda each: each.on_birth)]
        yield [statement for statements in made for statement in statements]


async def prepare_reading(connection: Connection, run_ids: Collection[UUID]) -> None:
    """Prepare this process to read and write the payloads of these runs. Raises psycopg.Error."""
    for prepare in parts_of_all(lambda each: each.before_read):
        await prepare(connection, run_ids)


def search_terms(run_id: UUID, **about: Any) -> list[str]:
    """Return the words by which a new run can be found; none if no feature provides search."""
    search = only(lambda each: each.search)
    return [] if search is None else search.terms(run_id, **about)


def worker_certificates(pool: Pool) -> Certificates:
    """Return the certificates that a worker relies on.
    Without a feature for certification, no tool is certified."""
    certification = only(lambda each: each.certification)
    if certification is None:
        return Certificates(settings.DURABLEAGENTS.uncertified_tools)
    return certification.for_worker(pool)


def certificate_reader() -> CertificateReader:
    """Read the certificates, and return a function that gives the one for an agent's name and a tool.
    The function returns None if the tool sends no idempotency key and therefore needs no certificate, or if no feature
    provides certificates."""
    certification = only(lambda each: each.certification)
    certificate_of = certification.read() if certification else None

    def read(agent: str, tool: Tool) -> Certificate | None:
        if certificate_of is None or tool.is_pure or tool.is_unsafe:
            return None
        return certificate_of(agent, tool)

    return read


def removal_refusal(run_id: UUID) -> str | None:
    """Return the first reason why this run's content must be kept, or None if it may be removed."""
    return next((why for ask in parts_of_all(lambda each: each.removal_refusals) if (why := ask(run_id))), None)


def expired_checkpoints(run_id: UUID) -> ExpiredCheckpoints | None:
    """Return this run's checkpoints that a policy removed; None if there are none."""
    find = only(lambda each: each.expired_checkpoints)
    return None if find is None else find(run_id)


def serving_refusal(kind: str) -> str | None:
    """Return the first reason why this kind of process must not serve, or None. Raises OperationalError."""
    return next((why for ask in parts_of_all(lambda each: each.on_serving) if (why := ask(kind))), None)


async def greet(connection: Connection) -> None:
    """Let features check a new connection of a worker's event loop.
    An error keeps the connection from being used."""
    for check in parts_of_all(lambda each: each.on_connection):
        await check(connection)


@contextmanager
def driving(count_commits: Callable[[], int]) -> Iterator[None]:
    """Enter the features' contexts around a worker's event loop."""
    with ExitStack() as stack:
        for accompany in parts_of_all(lambda each: each.while_driving):
            stack.enter_context(accompany(count_commits))
        yield


def handler(parts: Callable[[Feature], Mapping[str, T]], kind: str) -> T | None:
    """Return the handler of this kind; the most recently installed feature wins."""
    return next((found for each in reversed(installed.values()) if (found := parts(each).get(kind)) is not None), None)


def only(part: Callable[[Feature], T | None]) -> T | None:
    """Return the value of a part that at most one feature should have: the first one found."""
    return next((found for each in installed.values() if (found := part(each)) is not None), None)
