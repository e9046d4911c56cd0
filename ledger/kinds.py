"""Further event kinds, by topic. Together with `ledger/events.py` they form one vocabulary."""

from __future__ import annotations

from ledger.codec import Event


class AttributesSet(Event, fact="result"):
    """Search attributes were set: those in `named` change, others stay. `names`, `kinds` and `values` are parallel
    lists; an attribute without a value is removed. Attributes set at the start have no slot. `by` is the actor who set
    them. Payload of a step: its arguments."""

    by: str
    named: list[str]
    names: list[str]
    kinds: list[str]
    values: list[str]
    requested_hash: str = ""


class ModelRouted(Event, fact="routed"):
    """A request is sent for the `n`-th time: its model and its reserved budget. `price` is the row of the price table;
    without one, the cost is unknown and `usd_micro` is None."""

    n: int
    model: str
    price: int | None
    tokens_in: int
    tokens_out: int
    usd_micro: int | None


class BudgetSet(Event):
    """The run's budget from here on.

    `caps` are by resource (money in millionths of a dollar); other resources are uncapped. `until` is its time limit.
    Payload: the justification, if a person changed it.
    """

    by: str
    caps: dict[str, int]
    until: str


class BudgetDebited(Event, fact="debit"):
    """The usage of a slot's `n`-th request. `is_estimate`: the answer was lost, and the amounts are those reserved."""

    n: int
    model: str
    price: int | None
    model_calls: int
    tokens_in: int
    tokens_out: int
    usd_micro: int | None
    is_estimate: bool = False


class BudgetExceeded(Event):
    """A step would have broken a cap, so the step wasn't begun; the run waits until someone raises the cap. `resource`
    is the cap's, or `time`; `call` is the slot of the step."""

    resource: str
    most: int
    used: int
    reserved: int
    wanted: int
    call: str | None = None


class ApprovalTimed(Event, fact="timed"):
    """A request's deadline has terms other than the default, committed with the event that opened it: time counted by a
    calendar (name and version; empty: around the clock), or an action at the deadline other than denial. Payload: the
    terms."""

    approval_id: str
    on_timeout: str
    calendar: str
    calendar_version: int
    n: int


class ApprovalReminded(Event, fact="reminded"):
    """People were reminded of a request, for the `n`-th time at its slot.

    `cause`: before (its deadline is near), no_deadline (it waits without limit; `deadline` is the time of the next
    reminder).
    """

    approval_id: str
    cause: str
    deadline: str
    n: int


class ApprovalEscalated(Event, fact="escalated"):
    """A request was escalated to a further queue, whose role may decide it until `deadline`; earlier deciders may still
    decide it. `n` counts the escalations at its slot. `cause`: timeout, away (every decider is away). Payload: the
    reminder times."""

    approval_id: str
    to: str
    cause: str
    deadline: str
    n: int


class RunForked(Event):
    """The run is a fork of `origin`: at `node`, with the state of that run's `visit`, which began with its event
    `at_seq`; or, with visit 0, from its input. `how`: fork, start_again. `effects` counts the origin's effects after
    that point; with `fences_all` the list may be incomplete, so a person is asked about each call with an effect.
    Payload: `state`, and the fingerprint of the `code` that it fits (absent in older events); `effects`; the
    justification."""

    origin: str
    how: str
    by: str
    visit: int
    at_seq: int
    node: str
    effects: int
    fences_all: bool = False


class ForkMade(Event):
    """A person made the run `fork` from this one: from its `visit`, or from its input if that is 0.

    Payload: the justification.
    """

    fork: str
    how: str
    by: str
    visit: int


class ContentErased(Event):
    """A person had the key to the run's content destroyed: nobody can read the payloads before this event any more. It
    is the last event of a run. The reason is unencrypted, because there is no key for a payload."""

    by: str
    role: str
    reason: str


class AnswerTakenOver(Event, fact="result"):
    """The slot's call was not sent; it took over the recorded outcome of `of_slot` and `of_attempt` of `of_run`. `how`:
    consent (a person agreed at this call), audit (a person agreed before the run began). Payload: the result."""

    tool: str
    requested_hash: str
    of_run: str
    of_slot: str
    of_attempt: int
    how: str
    by: str
    external_id: str | None = None


class MessageReceived(Event):
    """The run received its `n`-th message (a named request). Messages are handled in order, when the run reaches a
    point that allows it. Payload: the validated request."""

    name: str
    n: int
    by: str


class MessageHandled(Event):
    """The outcome of the `n`-th message: answered, refused or failed. It was handled in `visit` (generation and number)
    while the node waited at its `place`-th call (0: after the node was done), where a replay applies its changes.
    `calls` are the slots of calls that waited for it. Payload: the answer and the changed state fields, with the
    `number` of that state if it isn't 1; or code and message."""

    name: str
    n: int
    outcome: str
    visit: str
    place: int
    calls: list[str]


class ContextInjected(Event):
    """An operator changed the run's state or added a message for the models of its node, and let it continue. The run
    was in `visit` (generation and number). The change applies when the `place`-th call of the node's own branch has
    ended; 0: before the next node is entered; -1: on entry to the node, if it had made no call. The operator saw the
    run with `seen` as its last event, whose hash is `head`. Payload: the justification; `change`, the fields with their
    complete new values, and `gone`, the removed fields, with the `number` of that state if it isn't 1; `before`, their
    old values; `message`, the text for the models."""

    by: str
    role: str
    visit: str
    place: int
    seen: int
    head: str


class RunMigrated(Event):
    """The run moved from version `of` to `to` (name@version); `generation` counts its moves. `how`: replayed (the
    current visit continues in the middle, as the node `node`), reentered (the visit is dropped, and `node` is entered
    from its top), unbegun (the run had not entered a node). The run was in its `visit`-th visit, whose calls have the
    generation `slots`. `fingerprint` identifies the code with which the move was tried. Payload: the justification, the
    `state` it continues with, the mapping of `nodes`, the function that made the state, and which calls are answered
    from the record or repeated."""

    of: str
    to: str
    generation: int
    how: str
    node: str
    visit: int
    slots: int
    fingerprint: str
    by: str


CONTENT_REFUSED = "content_refused"  # the code of a call or model request that a hook refused


class ContentScreened(Event, fact="screened"):
    """Hooks screened content for a model, a tool or the node, for the `n`-th time at its slot. `hooks` lists the hooks
    that were called, as name@version; `pieces`, `refused` and `replaced` are numbers of pieces. Pieces without a
    ContentWithheld event passed. Payload: the replacements, by place."""

    n: int
    to: str
    hooks: list[str]
    pieces: int
    refused: int
    replaced: int


class ContentWithheld(Event, fact="withheld"):
    """A hook withheld a piece, which was `refused` or `replaced`. The content is recorded only by its size in
    characters and a keyed digest. `n` counts the withheld pieces at their slot, `place` names the piece, and `source`
    its origin."""

    n: int
    place: str
    source: str
    to: str
    verdict: str
    hook: str
    version: str
    digest: str
    size: int
    reason: str
    is_restored: bool = False


CHOICE = "models"
BY_SETTING = "system:settings"
NO_VALID_ANSWER, TOO_MANY_TURNS = "no_valid_answer", "too_many_turns"
# Codes of a ModelFailed that was written instead of sending a request.
NEVER_SENT = frozenset({CONTENT_REFUSED, NO_VALID_ANSWER, TOO_MANY_TURNS})
COMPACTS = "compacts"  # in the payload of a ModelRequested: the number of messages that its answer replaces


class ModelsChosen(Event, fact="models"):
    """From here on, the requests of `assistant` (empty: all) go to the first available one of `models`; the slot is
    always `models`, and `n` counts the events. `by` is `system:settings` for the installation's choice at the run's
    first request. Payload: the justification, if a person changed it."""

    n: int
    assistant: str
    models: list[str]
    by: str


class TranscriptCompacted(Event, fact="compacted"):
    """From here on, the slot's answer replaces the oldest messages of its conversation: `messages` of them, not
    counting the prompt. Tokens are estimates of the whole conversation. Payload: `of`, a digest of each compacted
    message."""

    conversation: str
    model: str
    messages: int
    tokens_before: int
    tokens_after: int


class PolicyApplied(Event, fact="policy"):
    """The policies of `revision` decided the call for the `n`-th time: `effect` is allow, require or deny, from the
    strictest match: `policy` and its `version` (empty: none). The event is written together with its consequence: the
    intent, the answer of a read, the request to a queue, the refusal. `queues` must approve."""

    tool: str
    effect: str
    revision: int
    policy: str
    version: int
    queues: list[str]
    n: int = 0


class CachedReadTaken(Event, fact="result"):
    """A pure call was answered from the cache, with the result that slot `slot_read` of run
    `run_read` recorded at `read_at`. Payload: arguments and result."""

    tool: str
    requested_hash: str
    read_at: str
    run_read: str
    slot_read: str


class ToolReadAnew(Event, fact="read_anew"):
    """A pure call was repeated for the `n`-th time, since its recorded result was stale and not yet used. The new
    outcome applies from here on: `code` is the code of a definite failure, or empty for an answer. Payload: arguments
    and result, or message and details."""

    n: int
    tool: str
    requested_hash: str
    code: str = ""


class WorkerLost(Event):
    """The run was taken from its worker. `is_counted`: the worker was proven dead in a step, without having written
    anything since its claim. `cause`: proof, suspicion, host_gone, operator, requeued; `proof` describes it. `reached`:
    claimed, intent_durable, result_durable, visit_entered, wait_opened; `call` is the slot of a call with unknown
    outcome. `silent_ms`: from the worker's last heartbeat to this event."""

    worker: str
    epoch: int
    pid: int
    proof: str
    is_counted: bool
    deaths: int
    cause: str = "proof"
    host: str = ""
    reached: str = ""
    call: str | None = None
    silent_ms: int | None = None


class RunRequeued(Event):
    """An operator returned the run to the queue. If a worker had it (`worker` names its incarnation), a WorkerLost
    follows; otherwise `worker` is empty, and the run is ready now. Payload: the justification."""

    by: str
    role: str
    worker: str


class OutcomeProposed(Event, fact="proposed"):
    """A person proposed a call's outcome, where two people must settle it: it takes effect once a second person agrees.
    `verdict`: happened, did_not. `says` is the digest of verdict and receipt, `person` the account, `question` the
    number of the wait. Payload: receipt and justification. `n` counts the proposals about the attempt."""

    tool: str
    verdict: str
    says: str
    by: str
    role: str
    person: int
    question: int
    n: int = 0


class OutcomeWithdrawn(Event, fact="proposal_withdrawn"):
    """The author withdrew a proposed outcome. `n` is the number of the proposal. Payload: the justification."""

    by: str
    role: str
    n: int = 0


class UpstreamAsked(Event, fact="upstream_asked"):
    """A person asked for the tool's hook to query the upstream system again for the call's outcome; the worker does it.
    Payload: the justification. `n` counts the requests about the attempt."""

    by: str
    role: str
    n: int = 0


class UpstreamTold(Event, fact="upstream_told"):
    """The upstream system's answer to the query of an UpstreamAsked event. `answer`: happened, did_not, or nothing (no
    usable answer).

    The answer only informs the person who asked; it settles nothing. Payload of `happened`: the result. `n` is the
    number of the UpstreamAsked event.
    """

    answer: str
    n: int = 0


class VersionAssigned(Event):
    """A start by the agent's name was assigned a version during a `ramp`. `is_new`: the newer one. `why`: share, tag,
    halted (the ramp was halted), unserved (no living worker had the newer version), unknown (the process that accepted
    the start did not know it). For `share`: `place`, the position of the start's key among 10,000, and how many of
    these (`share`) get the newer version; `key` is the kind of key: business_key, idempotency_key, schedule, run. `tag`
    is the tag that decided."""

    ramp: int
    from_version: str
    to_version: str
    is_new: bool
    why: str
    share: int
    place: int
    key: str
    tag: str = ""


class StartPlanned(Event):
    """The run's start options other than its input: the business key and what happens if a run with this key is
    active, the earliest and the latest start (ISO 8601; empty: none), the run with the same key that it queues behind
    (None: no such run), and its schedule with the planned time."""

    business_key: str = ""
    on_conflict: str = ""
    start_at: str = ""
    start_before: str = ""
    behind: str | None = None
    schedule: str = ""
    planned_at: str = ""


class RunAdmitted(Event):
    """No earlier run with the key is left, so this one may start. `after` is the run that ended last; None: unknown."""

    by: str
    after: str | None


class RunRenewed(Event):
    """The run continues as run `successor`, of the same version and with an empty journal. The next event ends this
    run."""

    successor: str


class RunHandedOff(Event):
    """The run continues as run `successor`, of another `agent` (name@version). The next event ends this run."""

    successor: str
    agent: str


class RunCarriedOn(Event):
    """The run continues `origin`; `how`: renewal, handoff. `first` is the first run of the chain, `turn` the number of
    runs before this one, and `handoffs` the number of handoffs among them. `business_key` is the key that the run keeps
    from its origin, if any. A renewal begins at `node`. Payload: `state` of a renewal, and the fingerprint of the
    `code` that made it (absent in older events); `transcript` of a handoff, if given."""

    origin: str
    first: str
    turn: int
    handoffs: int
    how: str
    node: str = ""
    business_key: str = ""


class SignalCarried(Event):
    """A signal that no call of the origin took was carried over: in the origin it was the `of_n`-th of its name, in
    this run it is the `n`-th. `by` is its sender. Payload: the signal's content."""

    name: str
    n: int
    of_n: int
    by: str


class UndoRegistered(Event, fact="undo"):
    """The effect of the slot's call, if it happens, can be undone. This event is written together with the call's
    intent. `undo` is the agent's name for the undo, `tool` the tool that it calls."""

    undo: str
    tool: str


class UndoAsked(Event):
    """The run is to end with this `code`, and its effects are to be undone first. Payload: the error."""

    by: str
    code: str


class UndoBegun(Event):
    """The run undoes its effects and then ends: failed with `code`, or cancelled. Neither cancel requests nor caps stop
    it. Payload: how it ends, and each effect, last first, with what undoes it or why it stays."""

    reason: str
    code: str
    effects: int


class EffectUndone(Event, fact="undone"):
    """The slot's call undid the effect of `of_slot` and `of_attempt`; `of_run` is empty for an effect of the run
    itself."""

    of_run: str
    of_slot: str
    of_attempt: int
    tool: str
    external_id: str | None = None


class EffectLeft(Event, fact="left"):
    """A person left the effect of `of_slot` and `of_attempt` in place, in answer to a question at this slot. Payload:
    the problem with undoing it, and the justification."""

    of_run: str
    of_slot: str
    of_attempt: int
    tool: str
    by: str


class ApprovalVoted(Event, fact="vote"):
    """A person voted on a request (`approve`, `reject`, `fail`, `abstain`). If it was the last vote needed,
    ApprovalDecided follows. `person` is the account, `principal` that of the person they deputize for. Payload: the
    justification, and their capacity."""

    approval_id: str
    verdict: str
    plan_hash: str
    by: str
    role: str
    person: int
    principal: int | None = None
    n: int = 0

    @property
    def fact(self) -> str:
        """Return one fact per person and request: the journal accepts no second vote."""
        return f"vote.{self.n}.{self.person}"

    @property
    def people(self) -> frozenset[int]:
        """Return the people for whom the vote counts: a deputy's vote counts for deputy and principal."""
        return frozenset({self.person} if self.principal is None else {self.person, self.principal})


class PlanAmended(Event, fact="amended"):
    """A person replaced a request's arguments. The old request (`approval_id`, with the plan that they read) is over;
    `next` requests the same call with the new arguments, and that person's approval of it follows if they may give it.
    Payload: the justification, the arguments, and `changes`: old and new value by field."""

    approval_id: str
    plan_hash: str
    by: str
    role: str
    next: str
    n: int = 0


class InquiryMade(Event, fact="inquiry"):
    """A person who may decide a request asked a named person about it. `to` is their name, `person` their
    account; `deadline` is the request's new deadline if its clock stops meanwhile, else empty. Payload: the text, the
    time, and the old deadline and reminders. `n` counts the inquiries at the slot."""

    approval_id: str
    by: str
    role: str
    to: str
    person: int
    deadline: str = ""
    n: int = 0


class InquiryEnded(Event, fact="inquiry_ended"):
    """An inquiry ended.

    `outcome`: answered (by the person asked), withdrawn (by the asker). `deadline` is the new deadline if the clock
    resumes. Payload: the text, and how long the inquiry was open. `n` is the number of the inquiry.
    """

    approval_id: str
    outcome: str
    by: str
    role: str
    deadline: str = ""
    n: int = 0


class ApprovalDelegated(Event, fact="delegated"):
    """A person who may decide a request delegated it to a named person. `principal` is the delegator's account,
    `person` the delegate's. Payload: the justification. `n` counts the delegations at the slot."""

    approval_id: str
    by: str
    role: str
    principal: int
    to: str
    person: int
    n: int = 0


class DelegationEnded(Event, fact="delegation_ended"):
    """A delegation was ended, by either side. `n` is the number of the delegation. Payload: the justification."""

    approval_id: str
    by: str
    role: str
    n: int = 0


__all__ = [
    "AnswerTakenOver",
    "ApprovalDelegated",
    "ApprovalEscalated",
    "ApprovalReminded",
    "ApprovalTimed",
    "ApprovalVoted",
    "AttributesSet",
    "BudgetDebited",
    "BudgetExceeded",
    "BudgetSet",
    "CachedReadTaken",
    "ContentErased",
    "ContentScreened",
    "ContentWithheld",
    "ContextInjected",
    "DelegationEnded",
    "EffectLeft",
    "EffectUndone",
    "ForkMade",
    "InquiryEnded",
    "InquiryMade",
    "MessageHandled",
    "MessageReceived",
    "ModelRouted",
    "ModelsChosen",
    "OutcomeProposed",
    "OutcomeWithdrawn",
    "PlanAmended",
    "PolicyApplied",
    "RunAdmitted",
    "RunCarriedOn",
    "RunForked",
    "RunHandedOff",
    "RunMigrated",
    "RunRenewed",
    "RunRequeued",
    "SignalCarried",
    "StartPlanned",
    "ToolReadAnew",
    "TranscriptCompacted",
    "UpstreamAsked",
    "UpstreamTold",
    "VersionAssigned",
    "UndoAsked",
    "UndoBegun",
    "UndoRegistered",
    "WorkerLost",
]
