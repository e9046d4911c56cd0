"""What hooks said: each verdict hangs together with the look that it is of, and what was refused went nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ledger import events as e
from ledger.kinds import CONTENT_REFUSED
from ledger.verification.runs import Line, ReadJournal
from runs.engine.tape import payload_of

At = tuple[str | None, int]


@dataclass
class _Look:
    """One ContentScreened, and the verdicts behind it."""

    seq: int
    screened: e.ContentScreened
    found: list[e.ContentWithheld] = field(default_factory=list)


class Screened:
    """Looks, their verdicts, and what the journal tells to have been sent in spite of them."""

    def __init__(self, journal: ReadJournal) -> None:
        self.looks: dict[At, list[_Look]] = {}
        self.refused: dict[At, e.ContentWithheld] = {}
        self.wrong: list[str] = []

    def see(self, line: Line) -> None:
        """Follow the verdicts, and what comes after a no."""
        event, at = line.event, (line.event.slot, line.event.attempt)
        match event:
            case e.ContentScreened():
                self.looks.setdefault(at, []).append(_Look(line.seq, event))
            case e.ContentWithheld():
                self._take(line.seq, at, event)
            case e.ToolInvoked() | e.ToolRead() | e.CachedReadTaken() | e.ApprovalRequested() | e.ModelRouted():
                no = self.refused.get(at)
                if no is not None and (event.KIND != "ModelRouted" or no.place == "0"):
                    self.wrong.append(f"event {line.seq}, {event.KIND}: {no.hook} had refused what it sends")
            case e.ModelFailed(code=code) | e.ToolFailed(code=code) if code == CONTENT_REFUSED:
                # A tool may fail with a code of that name too, once it was called.
                if at not in self.refused and isinstance(event, e.ModelFailed):
                    self.wrong.append(f"event {line.seq}, {event.KIND}: no hook refused it")
            case _:
                pass

    def _take(self, seq: int, at: At, event: e.ContentWithheld) -> None:
        looks = self.looks.get(at)
        if not looks or event.verdict not in ("refused", "replaced"):
            self.wrong.append(f"event {seq}, ContentWithheld, belongs to no look of hooks")
            return
        looks[-1].found.append(event)
        if f"{event.hook}@{event.version}" not in looks[-1].screened.hooks:
            self.wrong.append(f"event {seq}, ContentWithheld: {event.hook}@{event.version} was not asked")
        is_whole = event.to.split(" ")[0] == "tool" or (event.to.split(" ")[0] == "model" and event.place == "0")
        if event.verdict == "refused" and is_whole and event.source.split(" ")[0] != "tool":
            self.refused[at] = event

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        for looks in self.looks.values():
            for look in looks:
                yield from _counted(look)


def _counted(look: _Look) -> Iterator[str]:
    what, said = f"event {look.seq}, ContentScreened,", look.screened
    verdicts = [each.verdict for each in look.found]
    if (said.refused, said.replaced) != (verdicts.count("refused"), verdicts.count("replaced")):
        yield f"{what} tells of {said.refused} refused and {said.replaced} replaced pieces, the verdicts of others"
    stands = payload_of(said).get("stands", {})
    unfounded = set(stands) - {each.place for each in look.found} if isinstance(stands, dict) else {"?"}
    if unfounded:
        yield f"{what} puts something in the place of {', '.join(sorted(unfounded))} that no hook replaced"
