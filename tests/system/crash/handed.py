"""Judges injections into resumed runs, and requeued runs; draws which schedules do so."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.system.crash.checker import Facts, Kind


def judge_handed(facts: Facts) -> Iterable[tuple[Kind, str]]:
    """Check that each injection came with a resume, on the state seen, and that the last is in the output."""
    events = facts.events
    matching = [event for event in events if event["kind"] == "ContextInjected"]
    by_seq = {event["seq"]: event for event in events}
    for event in matching:
        after = by_seq.get(event["seq"] + 1)
        if after is None or after["kind"] not in ("RunResumed", "RunRetried", "WaitResolved"):
            yield "broken", f"something was handed over at event {event['seq']}, and nobody let the run go on with it"
        if event["data"]["seen"] != event["seq"] - 1:
            yield "broken", f"what was handed over at event {event['seq']} was for the run as of another event"
    output = facts.run.get("output")
    output = output if isinstance(output, dict) and facts.run["state"] == "completed" else {}
    last = matching[-1]["data"]["seen"] if matching else None
    if matching and output.get("handed", last) != last:
        yield "lost", f"it ends with what was handed at event {output['handed']}, and not with {last}"
    for event in events:
        if event["kind"] == "RunRequeued" and event["data"]["worker"]:
            lost = by_seq.get(event["seq"] + 1)
            if lost is None or (lost["kind"], lost["data"]["worker"]) != ("WorkerLost", event["data"]["worker"]):
                yield "broken", f"it was given back at event {event['seq']}, and its worker kept it"


def requeued(seed: str, lengths: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Draw which runs are given back at which event; `lengths` are their numbers of steps."""
    dice = random.Random(f"light requeues {seed}")
    if dice.random() < 0.75:
        return ()
    runs = [dice.randrange(len(lengths)) for _ in range(dice.choice((1, 1, 2)))]
    return tuple((n, dice.randint(2, 4 + 3 * lengths[n])) for n in runs)


def is_handing(seed: str) -> bool:
    """Draw whether people inject something at each resume."""
    return random.Random(f"light hands {seed}").random() < 0.6
