"""What a run may do, in a hundred lines that know nothing of the code: states, waits, flags, and the events that each
act leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

HUMAN = ("approval", "reconcile", "operator")
ENDED = ("completed", "failed", "cancelled")
Call = Literal["", "sent", "accepted", "unknown"]


@dataclass
class Model:
    """One run. `waits` are the open ones by kind; `call` is how far the one call in flight is."""

    state: str = "pending"
    is_ready: bool = True
    is_owned: bool = False
    is_woken: bool = False
    wants_pause: bool = False
    wants_cancel: bool = False
    is_paused_by_person: bool = False
    asks_for: str = ""  # what the last question about its budget was about: a cap, or time
    is_broke: bool = False  # it has a cap that lets no call begin
    is_routed: bool = False  # a model request went out, and what it used is not on record
    epoch: int = 0
    call: Call = ""
    tool: str = ""
    grants: int = 0
    is_undoing: bool = False  # it undoes its effects, or has
    is_denied: bool = False  # a person said of a call that it did not happen
    is_belied: bool = False  # and a witness says since that it did
    unanswered: int = 0  # messages that it was sent and has not come to
    waits: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)  # what a failed run waited for, and a retried one does again
    kinds: list[str] = field(default_factory=lambda: ["RunCreated"])

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def may_be_claimed(self) -> bool:
        return self.is_ready and self.state in ("pending", "running", "compensating")

    @property
    def at_work(self) -> str:
        """The state in which it works, whoever wakes or resumes it."""
        return "compensating" if self.is_undoing else "running"

    @property
    def is_in_doubt(self) -> bool:
        return self.call in ("sent", "unknown")

    @property
    def may_be_attempted_again(self) -> bool:
        return not (self.wants_pause or self.wants_cancel or self.is_belied)

    def tells(self, *kinds: str) -> None:
        self.kinds += kinds

    # --- a worker's moves

    def claim(self) -> None:
        self.state, self.is_owned, self.is_ready = self.at_work, True, False
        self.epoch += 1
        self.tells("RunClaimed")

    def let_go(self, state: str, *kinds: str, ready: bool = False, woken: bool = False) -> None:
        self.state = self.at_work if state == "running" else state
        self.is_owned, self.is_ready, self.is_woken = False, ready, woken
        self.tells(*kinds)

    def begin_to_undo(self, *kinds: str) -> None:
        """From here on no wish to cancel and no cap stands in the way; a wish to pause does."""
        self.is_undoing, self.wants_cancel, self.is_broke = True, False, False
        self.state = self.at_work
        self.tells(*kinds)

    def end(self, state: str, kind: str) -> None:
        self.let_go(state, kind)
        self.wants_pause = self.wants_cancel = False
        self.withdrawn, self.waits = self.waits, []
        self.unanswered = 0  # who sent one is told that the run has ended

    @property
    def others(self) -> list[str]:
        """What it waits for besides its budget, which never names a state: it is paused."""
        return [kind for kind in self.waits if kind != "budget"]

    def named(self) -> str:
        """The state that the open waits give: the most human of them names it."""
        if any(kind in HUMAN for kind in self.others):
            return "waiting_human"
        return "waiting_tool" if "webhook" in self.others else "waiting_event"

    # --- what happens to it from outside

    def wake(self) -> None:
        if self.is_owned or self.has_ended:
            return
        if self.state == "paused":
            self.is_woken = True
        elif self.state.startswith("waiting"):
            self.state, self.is_ready = self.at_work, True

    def resolved(self, kind: str, *kinds: str) -> None:
        self.waits.remove(kind)
        self.tells(*kinds)
        self.wake()

    def pause(self) -> bool:
        if self.has_ended or self.wants_pause or self.wants_cancel:
            return False
        if self.state == "paused":
            if self.is_paused_by_person or "budget" not in self.waits:
                return False
            self.tells("RunPaused")  # it stands still for its budget, and now for somebody too
            self.is_paused_by_person = True
            return True
        if self.is_owned:
            self.wants_pause = True
            self.tells("PauseRequested")
        else:
            self.let_go("paused", "RunPaused", woken=self.is_ready)
        self.is_paused_by_person = True
        return True

    def resume(self) -> bool:
        if (self.state != "paused" and not self.wants_pause) or "budget" in self.waits:
            return False
        self.is_paused_by_person = False
        if self.state == "paused":
            self.unpause()
        self.wants_pause = False
        self.tells("RunResumed")
        return True

    def unpause(self) -> None:
        if self.others and not self.is_woken:
            self.state = self.named()
        else:
            self.state, self.is_ready = (self.at_work if self.epoch else "pending"), True
        self.is_woken = False

    def cancel(self) -> bool:
        if self.has_ended or self.wants_cancel or self.is_undoing:
            return False
        if not (self.is_owned or self.is_in_doubt or self.is_routed):
            self.end("cancelled", "RunCancelled")
            return True
        self.wants_cancel, self.wants_pause = True, False
        self.tells("CancelRequested")
        is_asked = self.call == "unknown"
        if not self.is_owned and self.state == "paused":
            self.is_woken = not is_asked
            self.unpause()
        elif not is_asked:
            self.wake()
        return True

    def retry(self) -> bool:
        if self.state != "failed" or self.is_undoing:
            return False
        self.state, self.is_ready, self.is_paused_by_person = "running", True, False
        self.withdrawn, self.waits = [], self.withdrawn
        self.tells("RunRetried")
        return True

    # --- messages

    @property
    def may_be_sent(self) -> int:
        """How many it has to answer; more than any where it takes none."""
        return 99 if self.has_ended or self.wants_cancel else self.unanswered

    def is_sent(self) -> bool:
        self.unanswered += 1
        self.tells("MessageReceived")
        self.wake()
        return True

    # --- its budget

    def set_budget(self, is_broke: bool, *, has_time: bool, is_late: bool) -> bool:
        if self.has_ended or self.wants_cancel or self.is_undoing:
            return False
        self.is_broke = is_broke
        asked = self.waits.count("budget")
        if (self.asks_for == "cap" and is_broke) or (self.asks_for == "time" and not has_time) or is_late:
            asked = 0  # it isn't enough
        else:
            self.waits = self.others
        self.tells("BudgetSet", *["WaitResolved"] * asked)
        if asked and not self.is_paused_by_person and (self.state == "paused" or self.wants_pause):
            if self.state == "paused":
                self.unpause()
            self.wants_pause = False
            self.tells("RunResumed")
        return True

    def time_is_up(self) -> None:
        if self.has_ended or self.wants_cancel or "budget" in self.waits:
            return
        self.waits.append("budget")
        self.asks_for = "time"
        self.tells("BudgetExceeded", "WaitOpened")
        if self.is_owned:
            self.wants_pause = True
        elif self.state != "paused":
            self.let_go("paused", "RunPaused", woken=self.is_ready)

    def is_given_up(self) -> None:
        """Nobody raised it: as a cancel, which comes first where there is one."""
        self.waits.remove("budget")
        self.tells("WaitResolved")
        if not self.cancel():
            self.wake()

    def dies(self) -> None:
        self.is_owned, self.is_ready = False, True
        self.tells("WorkerLost")
