"""What became of calls in doubt, as people, the other side and witnesses have it: one fold for the lane of effects and
the timeline, and the words for it on every page."""

from __future__ import annotations

from runs.engine.tape import CALLED_BACK, Finding
from runs.story.lines import Fact

# What may be on record of a call, as people say it. See `runs.engine.tape.Finding`.
ON_RECORD = {
    "happened": "it happened",
    "did_not": "it did not happen",
    "fail": "fail the run",
    "refused": "it was refused",
}
UPSTREAM = {"happened": "it happened", "did_not": "it did not happen", "nothing": "nothing that can be used"}
# What a witness tells when it is over: who, and what.
WITNESSES = {
    "happened": ("the worker that had sent", "says that it happened"),
    "accepted": ("the worker that had sent", "says that it was taken"),
    "refused": ("the worker that had sent", "says that it was refused"),
    CALLED_BACK: ("the other side has answered", "since"),
}


def on_record(found: str) -> str:
    """A verdict in words; one that this version doesn't know as it is."""
    return ON_RECORD.get(found, found)


def source(found: str) -> str:
    return "the record says" if found == "refused" else "the verdict was"


def witness(told: str, call: str = "the call") -> str:
    who, what = WITNESSES.get(told, ("the worker that had sent", f"says: {told}"))
    return f"{who} {call} {what}"


class Findings:
    """Every attempt of which something was found or told."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, Finding]] = {}

    def take(self, line: Fact) -> str:
        """Fold in what became of an attempt, or what a witness tells of it; what of the record that belies, if
        anything."""
        attempts = self._of.get(line.slot or "", {})
        known = attempts.get(line.attempt)
        if line.kind in ("ToolReturned", "CallbackReceived"):  # most calls, and nothing to keep of them
            if known is not None:
                known.found("answered")
            return ""
        finding = known or self._of.setdefault(line.slot or "", attempts).setdefault(line.attempt, Finding())
        match line.kind:
            case "ToolAnsweredLate":
                return finding.hear(line.clear["outcome"])
            case "CallbackArrivedLate":
                return finding.hear(CALLED_BACK)
            case "ToolReconciled":
                finding.found(line.clear["verdict"])
            case "ToolFailed":
                finding.found("refused")
        return ""

    def belied(self, slot: str) -> str:
        """What is on record of a call, whichever attempt, that a witness belies."""
        return next((finding.belied for finding in self._of.get(slot, {}).values() if finding.belied), "")
