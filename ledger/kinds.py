"""Kinds of event that are not in `ledger/events.py`, by topic. They are one vocabulary."""

from __future__ import annotations

from ledger.codec import Event


class AttributesSet(Event, fact="result"):
    """What the run is found by from here on: those in `named` are as this event says, others stay as they are. `names`,
    `kinds` and `values` belong together by their place; what is named and has no value is unset. At the start it has no
    slot; `by` is whoever set them. Payload of a step: its arguments."""

    by: str
    named: list[str]
    names: list[str]
    kinds: list[str]
    values: list[str]
    requested_hash: str = ""


class ModelRouted(Event, fact="routed"):
    """The `n`-th time that a request goes out: which model is asked, and what is set aside for the answer. `price` is
    the row of the price table that counts; without one `usd_micro` is None: nobody knows what it costs."""

    n: int
    model: str
    price: int | None
    tokens_in: int
    tokens_out: int
    usd_micro: int | None


class BudgetSet(Event):
    """What the run may use from here on, all of it: `caps` by resource (money in millionths of a dollar); what isn't
    named has no cap. `until` is when its time is up. Payload: the justification, where a person changed it."""

    by: str
    caps: dict[str, int]
    until: str


class BudgetDebited(Event, fact="debit"):
    """What the `n`-th request of a slot used. `is_estimate`: its answer was lost, and this is what had been set
    aside."""

    n: int
    model: str
    price: int | None
    model_calls: int
    tokens_in: int
    tokens_out: int
    usd_micro: int | None
    is_estimate: bool = False


class BudgetExceeded(Event):
    """Something that was to be begun would have broken a cap, so it wasn't; the run stands still until somebody raises
    it. `resource` is the cap's, or `time`; `call` is the slot that wanted it."""

    resource: str
    most: int
    used: int
    reserved: int
    wanted: int
    call: str | None = None


class ApprovalTimed(Event, fact="timed"):
    """Until when a question waits was settled in other words than a plain deadline, in the commit that put it: by a
    calendar (name and version; empty: around the clock), or with something else than a no when time runs out. Payload:
    the terms."""

    approval_id: str
    on_timeout: str
    calendar: str
    calendar_version: int
    n: int


class ApprovalReminded(Event, fact="reminded"):
    """People were reminded of a question, for the `n`-th time at its slot. `cause`: before (its deadline comes near),
    no_deadline (it waits until somebody answers; `deadline` is when they are reminded next)."""

    approval_id: str
    cause: str
    deadline: str
    n: int


class ApprovalEscalated(Event, fact="escalated"):
    """Nobody answered in time, so a question was put to a further queue besides, whose role may decide it until
    `deadline`; whoever was asked before still may. The `n`-th time at its slot. `cause`: timeout, away (everybody who
    decides there is away). Payload: when they are reminded."""

    approval_id: str
    to: str
    cause: str
    deadline: str
    n: int


class RunForked(Event):
    """The run begins as a fork of `origin`: at `node`, with the state of that run's `visit`, which began with its event
    `at_seq`; or, with visit 0, from its input. `how`: fork, what_if, start_again. Of the origin's effects after that
    point `effects` are listed; with `fences_all` nobody can say that these are all of them, so each call with an effect
    is asked about. Payload: `state`, and the fingerprint of the `code` that it fits, unless the event is older;
    `effects`; of a what-if the `records` and `answers` that its calls are answered
    from; the justification."""

    origin: str
    how: str
    by: str
    visit: int
    at_seq: int
    node: str
    effects: int
    fences_all: bool = False


class ForkMade(Event):
    """Somebody made `fork` of this run: at its `visit`, 0 from its input. Payload: the justification."""

    fork: str
    how: str
    by: str
    visit: int


class AnswerTakenOver(Event, fact="result"):
    """Nothing was sent: the call of this slot was given what is on record at `of_slot` and `of_attempt` of `of_run`.
    `how`: consent (a person said so at this call), audit (a person said so before the run began), what_if (of a run
    that sends nothing), given (of such a one, what the person gave it). `code`: the refusal that is on record. Payload:
    the result, or the message of the refusal."""

    tool: str
    requested_hash: str
    of_run: str
    of_slot: str
    of_attempt: int
    how: str
    by: str
    external_id: str | None = None
    code: str = ""


class MessageReceived(Event):
    """Somebody sent the run its `n`-th message, a request of a name; it is handled when the run comes to where it may
    be, after those before it. Payload: the request, as it was checked."""

    name: str
    n: int
    by: str


class MessageHandled(Event):
    """What became of the `n`-th message: answered, refused or failed. It was handled in `visit` (generation and
    number), while the node waited at its `place`-th call, or, where that is 0, when the node was done; there a replay
    takes over what it changed. `calls` are the slots of calls that waited for it. Payload: the answer and the state's
    fields that were changed, with the `number` of that state where it isn't 1; or code and message."""

    name: str
    n: int
    outcome: str
    visit: str
    place: int
    calls: list[str]


class ContextInjected(Event):
    """An operator handed this to the run, and let it go on: fields of its state, or a message for the models that its
    node asks. It stood in `visit` (generation and number). The node takes over what was changed when the `place`-th
    call of its own line has ended; 0: before the next node is entered; -1: as it was entered, for it had made no call.
    The run was looked at with `seen` as its last event, whose hash is `head`. Payload: the justification; `change`,
    the fields with their new values, each whole, and `gone`, those that are no more, with the `number` of that state
    where it isn't 1; `before`, what of these fields there was; `message`, the text for the models."""

    by: str
    role: str
    visit: str
    place: int
    seen: int
    head: str


class RunMigrated(Event):
    """From here on the run, which was one of `of`, is one of `to` (name@version); `generation` counts how often it was
    moved. `how`: replayed (the visit under way goes on in the middle, as the node `node`), reentered (what it had done
    is left behind, and `node` is entered from its top), unbegun (it had entered none). It stood in the `visit`-th
    visit, whose calls have `slots` as their generation. `fingerprint` is of the code that it was tried with. Payload:
    the justification, the `state` that it goes on with, the mapping of `nodes`, the function that made the state, and
    what was answered from the record and what is made anew."""

    of: str
    to: str
    generation: int
    how: str
    node: str
    visit: int
    slots: int
    fingerprint: str
    by: str


CONTENT_REFUSED = "content_refused"  # the code of a call, or of a model request, that was not let through


class ContentScreened(Event, fact="screened"):
    """Hooks looked at what was about to reach a model, a tool or the node, for the `n`-th time at its slot. `hooks` are
    those that were asked, as name@version; `pieces` how many there were, of which so many were `refused` or `replaced`.
    What isn't named in a ContentWithheld passed. Payload: what stands for a piece from here on, by its place."""

    n: int
    to: str
    hooks: list[str]
    pieces: int
    refused: int
    replaced: int


class ContentWithheld(Event, fact="withheld"):
    """A hook kept a piece back: it is `refused`, or `replaced` by something else. The content is told by its size in
    characters and a keyed digest only. `n` numbers them at their slot, `place` says which piece, `source` where it came
    from."""

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
# The codes of a ModelFailed that stands in the place of a request: none went out.
NEVER_SENT = frozenset({CONTENT_REFUSED, NO_VALID_ANSWER, TOO_MANY_TURNS})
COMPACTS = "compacts"  # in the payload of a ModelRequested: how many messages its answer is to stand for


class ModelsChosen(Event, fact="models"):
    """From here on the requests of `assistant` (empty: of every one) go to the first of `models` that serves; the slot
    is always `models`, and `n` counts. By `system:settings` where it is what the installation said when the run first
    asked. Payload: the justification, where a person moved it."""

    n: int
    assistant: str
    models: list[str]
    by: str


class TranscriptCompacted(Event, fact="compacted"):
    """The answer of this slot stands for the `messages` oldest of its conversation, the prompt not among them, from
    here on. Tokens are estimates, of the whole conversation. Payload: `of`, a digest of each message that was made
    short."""

    conversation: str
    model: str
    messages: int
    tokens_before: int
    tokens_after: int


class PolicyApplied(Event, fact="policy"):
    """What the policies in force at `revision` said of the call, for the `n`-th time: `effect` allow, require or deny,
    by the strictest that matched, `policy` and its `version` (empty: none did). Written with what came of it: the
    intent, the answer of a read, the question to a queue, the refusal. `queues` are those whose yes was demanded."""

    tool: str
    effect: str
    revision: int
    policy: str
    version: int
    queues: list[str]
    n: int = 0


class CachedReadTaken(Event, fact="result"):
    """A pure call was answered by what another call had read at `read_at`: the one of `slot_read` in `run_read`.
    Payload: arguments and result."""

    tool: str
    requested_hash: str
    read_at: str
    run_read: str
    slot_read: str


class ToolReadAnew(Event, fact="read_anew"):
    """A pure call was made for the `n`-th time more, since what was on record of it had become too old and nothing
    had been made of it yet. Its outcome stands from here on: `code` is that of a definite failure, empty where there is
    an answer. Payload: arguments and result, or message and details."""

    n: int
    tool: str
    requested_hash: str
    code: str = ""


class WorkerLost(Event):
    """The run was taken from the worker that drove it. `is_counted`: proven dead, in a step with nothing written since
    its claim. `cause`: proof, suspicion, host_gone, operator,
    requeued; `proof` says it in words. `reached`: claimed,
    intent_durable, result_durable, visit_entered, wait_opened; `call` is the slot of a call in doubt. `silent_ms`: from
    the worker's last sign of life to this event."""

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
    """An operator gave the run back to the pool: where a `worker` (its incarnation) had it, the next event says that it
    lost it; empty: nobody had, and it is to be taken now. Payload: the justification."""

    by: str
    role: str
    worker: str


class OutcomeProposed(Event, fact="proposed"):
    """Somebody said what became of a call, where two people settle that: it counts once a second one says the same.
    `verdict`: happened, did_not. `says` is the digest of that and of the receipt, `person` the account, `question` the
    number of the wait that it answers. Payload: receipt and justification. The `n`-th about the attempt."""

    tool: str
    verdict: str
    says: str
    by: str
    role: str
    person: int
    question: int
    n: int = 0


class OutcomeWithdrawn(Event, fact="proposal_withdrawn"):
    """Whoever said it takes it back. `n` is the proposal's. Payload: the justification."""

    by: str
    role: str
    n: int = 0


class UpstreamAsked(Event, fact="upstream_asked"):
    """A person wants the other side asked once more what became of the call, by its tool's hook; its worker does that.
    Payload: the justification. The `n`-th about the attempt."""

    by: str
    role: str
    n: int = 0


class UpstreamTold(Event, fact="upstream_told"):
    """What the other side said: `happened`, `did_not`, or `nothing` where it gave no answer that can be used. It
    settles nothing: whoever asked reads it. Payload of what happened: the result. `n` is that of the asking."""

    answer: str
    n: int = 0


class VersionAssigned(Event):
    """A start by the agent's name came while a `ramp` was on, between two versions. `is_new`: it was given the newer
    side's. `why`: share, tag, halted (the ramp stood), unserved (no living worker had the newer one), unknown (whoever
    took the start had not). Of a share: `place`, where the start's key stands among 10,000, and how many of these
    (`share`) went over; `key` says which kind of key that was: business_key, idempotency_key, schedule, run. Of a tag:
    which."""

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
    """With what the run was accepted besides its input: the key of the caller's business and the rule for the case that
    a run of that key lives, from when it may begin and by when it must have (ISO 8601; empty: not said), the run of its
    key that it came after (None: none lived), and the schedule that it is of, with the time that was planned."""

    business_key: str = ""
    on_conflict: str = ""
    start_at: str = ""
    start_before: str = ""
    behind: str | None = None
    schedule: str = ""
    planned_at: str = ""


class RunAdmitted(Event):
    """Its turn has come: no run of its key that came before it is left. `after` is the one that ended last; None: it
    is not known."""

    by: str
    after: str | None


class RunRenewed(Event):
    """The run goes on as `successor`, of the same version, with an empty journal: its end follows."""

    successor: str


class RunHandedOff(Event):
    """The run goes on as `successor`, of another `agent` (name@version): its end follows."""

    successor: str
    agent: str


class RunCarriedOn(Event):
    """The run goes on where `origin` ended; `how`: renewal, handoff. `first` is the run that all began with, `turn` how
    many runs have gone before this one, and `handoffs` how many of them handed off. `business_key` is what it keeps of
    its origin's. A renewal begins at `node`. Payload: `state` of a renewal, and the fingerprint of the `code` that made
    it, unless the event is older; `transcript` of a handoff, if one was given."""

    origin: str
    first: str
    turn: int
    handoffs: int
    how: str
    node: str = ""
    business_key: str = ""


class SignalCarried(Event):
    """A signal that no call of the origin took: there it was the `of_n`-th of its name, here it is the `n`-th. `by` is
    whoever sent it. Payload: what was sent."""

    name: str
    n: int
    of_n: int
    by: str


class UndoRegistered(Event, fact="undo"):
    """If the call of this slot has its effect, it can be undone: written with its intent. `undo` is the name by which
    the agent knows how, `tool` what is called then."""

    undo: str
    tool: str


class UndoAsked(Event):
    """The run is to end for this `code`, and its effects are to be undone first. Payload: the error that it ends
    with."""

    by: str
    code: str


class UndoBegun(Event):
    """From here on the run undoes its effects, and then ends as it would have ended: failed with `code`, or cancelled.
    Nobody's wish to cancel and no cap stands in the way. Payload: what it ends with, and each effect, the last first,
    with what undoes it or why it stays."""

    reason: str
    code: str
    effects: int


class EffectUndone(Event, fact="undone"):
    """The call of this slot undid the effect of `of_slot` and `of_attempt`; `of_run` is empty where that was this run's
    own."""

    of_run: str
    of_slot: str
    of_attempt: int
    tool: str
    external_id: str | None = None


class EffectLeft(Event, fact="left"):
    """A person let the effect of `of_slot` and `of_attempt` stand, asked at this slot. Payload: what was wrong with
    undoing it, and the justification."""

    of_run: str
    of_slot: str
    of_attempt: int
    tool: str
    by: str


class ApprovalVoted(Event, fact="vote"):
    """One person said yes or no to a question, or that they stay out of it (`approve`, `reject`, `fail`, `abstain`).
    Where it was the last word that was needed, `ApprovalDecided` follows. `person` is the account, `principal` that of
    whom they stand in for. Payload: the justification, and under what standing."""

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
        """One person has one vote on one question, whatever they do: the journal takes no second one."""
        return f"vote.{self.n}.{self.person}"

    @property
    def people(self) -> frozenset[int]:
        """Whose word it is: a deputy's is their own and their principal's."""
        return frozenset({self.person} if self.principal is None else {self.person, self.principal})


class PlanAmended(Event, fact="amended"):
    """A person put other arguments in the place of those that a gate had asked about. Its question (`approval_id`, with
    the plan that they had read) is over; `next` asks for the same call with theirs, and where they may approve that,
    their yes to it follows. Payload: the justification, the arguments, and `changes`: by field what it was and what it
    is."""

    approval_id: str
    plan_hash: str
    by: str
    role: str
    next: str
    n: int = 0


class InquiryMade(Event, fact="inquiry"):
    """Somebody who may decide a question asked a named person about it first. `to` is that person's name, `person`
    their account; `deadline` is until when the question is open now, where its clock stops meanwhile, else empty.
    Payload: the words, when, and what the deadline and the reminders were. The `n`-th at its slot."""

    approval_id: str
    by: str
    role: str
    to: str
    person: int
    deadline: str = ""
    n: int = 0


class InquiryEnded(Event, fact="inquiry_ended"):
    """An inquiry is over. `outcome`: answered (by the person who was asked), withdrawn (by whoever asked). `deadline`
    as above, where the clock goes on by that. Payload: the words, and how long it stood. `n` is the inquiry's."""

    approval_id: str
    outcome: str
    by: str
    role: str
    deadline: str = ""
    n: int = 0


class ApprovalDelegated(Event, fact="delegated"):
    """Somebody who may decide a question handed it to a named person, who may decide it in their place from now on.
    `principal` is the account of whoever handed it over, `person` that of whoever has it. Payload: the justification.
    The `n`-th at its slot."""

    approval_id: str
    by: str
    role: str
    principal: int
    to: str
    person: int
    n: int = 0


class DelegationEnded(Event, fact="delegation_ended"):
    """What was handed over was taken back, or given back. `n` is the delegation's. Payload: the justification."""

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
