"""The kind of event that tells what the policies in force said of a call. The others are in `ledger/events.py`, which
knows this one too."""

from __future__ import annotations

from ledger.codec import Event


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
