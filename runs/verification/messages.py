"""Messages: each has its row, and came to what the journal says, or to nothing before the run's end."""

from __future__ import annotations

from collections.abc import Iterator

from ledger import events as e
from ledger.verification.runs import Line, ReadJournal, at_most_once, compared
from runs.models import Message


class Messages:
    """Rows against events, both ways; and that each was handled once, in the order in which they came."""

    def __init__(self, journal: ReadJournal) -> None:
        self.journal = journal
        self.known: dict[int, dict[str, object]] = {}
        self.wrong: list[str] = []

    def see(self, line: Line) -> None:
        match line.event:
            case e.MessageReceived() as came:
                self._see(line.seq, came)
            case e.MessageHandled() as handled:
                self._handled(line.seq, handled)
            case e.RunCompleted() | e.RunFailed() | e.RunCancelled():
                for known in self.known.values():
                    known["outcome"] = known["outcome"] or "ended"
            case _:
                pass

    def _see(self, seq: int, came: e.MessageReceived) -> None:
        if came.n != len(self.known) + 1:
            self.wrong.append(f"event {seq} brings message {came.n} after message {len(self.known)}")
        self.known[came.n] = {"name": came.name, "by": came.by, "seq": seq, "outcome": "", "answered_seq": None}

    def _handled(self, seq: int, handled: e.MessageHandled) -> None:
        waiting = [n for n, known in self.known.items() if not known["outcome"]]
        if not waiting or waiting[0] != handled.n or self.known[handled.n]["name"] != handled.name:
            self.wrong.append(f"event {seq} handles message {handled.n}, which was not the one to be handled")
        if handled.n in self.known:
            self.known[handled.n] |= {"outcome": handled.outcome, "answered_seq": seq}

    def problems(self) -> Iterator[str]:
        yield from self.wrong
        rows = list(Message.objects.filter(run_id=self.journal.run_id).order_by("id"))
        yield from at_most_once("the row of message", [row.n for row in rows])
        missing = dict(self.known)
        for row in rows:
            known = missing.pop(row.n, None)
            if known is None:
                yield f"message {row.n} has no event"
                continue
            yield from compared(f"message {row.n}", row, known)
        for n in missing:
            yield f"message {n} has no row"
