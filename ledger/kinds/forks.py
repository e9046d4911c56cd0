"""The kinds of event that tell of a run that begins again within, or from the input of, another one. The others are in
`ledger/events.py`, which knows these too."""

from __future__ import annotations

from ledger.codec import Event


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
