"""Findings on calls in doubt, for effects and timeline, and their texts for all pages."""

from __future__ import annotations

from runs.engine.tape import CALLED_BACK, Finding
from runs.story.lines import Fact

# Texts of recorded outcomes. See `runs.engine.tape.Finding`.
ON_RECORD = {
    "happened": "it happened",
    "did_not": "it did not happen",
    "fail": "fail the run",
    "refused": "it was refused",
}
UPSTREAM = {"happened": "it happened", "did_not": "it did not happen", "nothing": "no usable answer"}
# Texts for late results: the reporter and the outcome.
WITNESSES = {
    "happened": ("the sending worker of", "reports that it happened"),
    "accepted": ("the sending worker of", "reports that it was accepted"),
    "refused": ("the sending worker of", "reports that it was refused"),
    CALLED_BACK: ("upstream has since answered", ""),
}


def on_record(found: str) -> str:
    """Return a verdict's text; an unknown verdict is returned unchanged."""
    return ON_RECORD.get(found, found)


def source(found: str) -> str:
    return "recorded as" if found == "refused" else "settled as"


def witness(text: str, call: str = "the call") -> str:
    who, what = WITNESSES.get(text, ("the sending worker of", f"reports: {text}"))
    return f"{who} {call} {what}".rstrip()


class Findings:
    """Findings and late results by attempt."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, Finding]] = {}

    def take(self, line: Fact) -> str:
        """Add a finding or a late result. Returns the recorded outcome that this contradicts, if any."""
        attempts = self._of.get(line.slot or "", {})
        known = attempts.get(line.attempt)
        if line.kind in ("ToolReturned", "CallbackReceived"):  # most calls have neither, so nothing is stored for them
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

    def contradicted(self, slot: str) -> str:
        """Return the recorded outcome of an attempt of the call that a late result contradicts.
        "" if there is none."""
        return next((finding.contradicted for finding in self._of.get(slot, {}).values() if finding.contradicted), "")
