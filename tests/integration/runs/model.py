"""A model of a run that shares no code with the product: states, waits, flags, and each action's events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

HUMAN = ("approval", "reconcile", "operator")
ENDED = ("completed", "failed", "cancelled")
Call = Literal["", "sent", "accepted", "unknown"]
Place = tuple[str, str, int]  # the run, slot and attempt of a call
# What a node without calls has not made, and what is not made again from its start.
MADE = {"ToolRead", "ToolInvoked", "ApprovalRequested", "ModelRequested"}
COUNTS = {"ToolInvoked", "ApprovalDecided"}


def visit_of(place: Place) -> int:
    return int(place[1].partition("/")[0].partition(".")[2])


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
    asks_for: str = ""  # the last budget question: a cap, or time
    is_broke: bool = False  # a cap lets no call begin
    is_routed: bool = False  # a model request was sent, and its usage is not recorded
    epoch: int = 0
    call: Call = ""
    tool: str = ""
    grants: int = 0
    is_undoing: bool = False  # it undoes or has undone its effects
    is_denied: bool = False  # a person said that a call did not happen
    is_contradicted: bool = False  # and a late result since says that it did
    unanswered: int = 0  # messages sent and not yet handled
    waits: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)  # what a failed run waited for, and its retry waits for again
    kinds: list[str] = field(default_factory=lambda: ["RunCreated"])
    version: str = "1.0.0"
    generation: int = 0  # number of migrations
    visit: int = 0
    slots: int = 0  # the generation in which its visit began, which numbers the visit's calls
    is_between: bool = False  # it is before a node, with the state to enter it with
    is_renewed: bool = False  # it began before a node, with another run's result
    effects: dict[Place, str] = field(default_factory=dict)  # its possible effects: committed, or open
    carried: dict[Place, str] = field(default_factory=dict)  # of a fork: its origin's effects after the fork's point
    is_fenced: bool = False  # and there may be more
    forks: int = 0  # living forks

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def may_be_claimed(self) -> bool:
        return self.is_ready and self.state in ("pending", "running", "compensating")

    @property
    def at_work(self) -> str:
        return "compensating" if self.is_undoing else "running"

    @property
    def is_in_doubt(self) -> bool:
        return self.call in ("sent", "unknown")

    @property
    def may_be_attempted_again(self) -> bool:
        return not (self.wants_pause or self.wants_cancel or self.is_contradicted)

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
        """Begin to undo: from now on a cancel or cap has no effect, but a pause does."""
        self.is_undoing, self.wants_cancel, self.is_broke = True, False, False
        self.state = self.at_work
        self.tells(*kinds)

    def end(self, state: str, kind: str) -> None:
        self.let_go(state, kind)
        self.wants_pause = self.wants_cancel = False
        self.withdrawn, self.waits = self.waits, []
        self.unanswered = 0  # senders are told that the run has ended

    @property
    def others(self) -> list[str]:
        """Return its waits without the budget's, which only pauses it."""
        return [kind for kind in self.waits if kind != "budget"]

    def named(self) -> str:
        """Return the state that the open waits give; those for people come first."""
        if any(kind in HUMAN for kind in self.others):
            return "waiting_human"
        return "waiting_tool" if "webhook" in self.others else "waiting_event"

    # --- outside events ---

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
            self.tells("RunPaused")  # it is paused for its budget, and now for a person too
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
        if (self.state != "paused" and not self.wants_pause) or "budget" in self.waits or self.forks:
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
        is_left_waiting = self.state.startswith("waiting") and not self.is_owned and "reconcile" not in self.waits
        if self.has_ended or self.is_undoing or (self.wants_cancel and not is_left_waiting):
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
        if self.is_undoing and self.state.startswith("waiting") and not self.is_owned:
            self.tells("RunRequeued")
            self.wake()
            return True
        if self.state != "failed" or self.is_undoing or self.forks:
            return False
        self.state, self.is_ready, self.is_paused_by_person = "running", True, False
        self.withdrawn, self.waits = [], self.withdrawn
        self.tells("RunRetried")
        return True

    # --- messages

    @property
    def may_be_sent(self) -> int:
        """Return how many messages it has to answer; 99 where it takes none."""
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
        count = self.waits.count("budget")
        if (self.asks_for == "cap" and is_broke) or (self.asks_for == "time" and not has_time) or is_late:
            count = 0  # it isn't enough
        else:
            self.waits = self.others
        self.tells("BudgetSet", *["WaitResolved"] * count)
        if count and not (self.is_paused_by_person or self.forks) and (self.state == "paused" or self.wants_pause):
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
        """Give up on the budget: a cancel if one is requested, else a wake-up."""
        self.waits.remove("budget")
        self.tells("WaitResolved")
        if not self.cancel():
            self.wake()

    # --- visits, and other versions

    def enters(self) -> None:
        self.visit, self.slots, self.is_between = self.visit + 1, self.generation, False
        self.tells("VisitEntered")

    @property
    def here(self) -> list[str]:
        return self.kinds[len(self.kinds) - self.kinds[::-1].index("VisitEntered") :] if self.visit else []

    @property
    def has_done(self) -> bool:
        has_slept = self.here.count("WaitOpened") > self.here.count("BudgetExceeded")
        return bool(MADE & {*self.here}) or has_slept

    @property
    def may_be_handed(self) -> bool:
        """Return whether values may be injected: its node has made no call and can start again."""
        is_still = not self.is_owned and self.state in ("paused", "failed")
        is_at_a_place = not self.visit or self.is_between or not self.has_done
        return is_still and is_at_a_place and not (self.is_undoing or self.wants_cancel)

    @property
    def may_move(self) -> str:
        """Return how a migration continues it (its node makes no calls), or the reason against it."""
        in_doubt = self.is_in_doubt or "reconcile" in self.waits
        for is_so, why in (
            (self.has_ended, "ended"),
            (self.is_owned, "driven"),
            (self.is_undoing, "undoing"),
            (self.wants_cancel, "cancelled"),
            (in_doubt, "in_doubt"),
        ):
            if is_so:
                return why
        if not (self.visit or self.is_between):
            return "unbegun"
        if not self.is_between:
            if not self.has_done:
                return "replayed"
            if COUNTS & {*self.here} or self.is_routed:
                return "would_repeat"
        return "budget" if "budget" in self.waits else "reentered"

    def moves(self, version: str, how: str) -> None:
        self.version, self.generation = version, self.generation + 1
        left = self.others if how == "reentered" else []
        self.tells("RunMigrated", *["WaitResolved"] * len(left))
        self.waits = [kind for kind in self.waits if kind not in left]
        if how == "reentered":
            self.is_between = True
            self.wake()

    # --- restarts ---

    def done_since(self, visit: int) -> dict[Place, str]:
        """Return possible effects since it entered a visit, including those carried over from its origin."""
        return self.carried | {at: what for at, what in self.effects.items() if visit_of(at) >= visit}

    @property
    def fences_all(self) -> bool:
        """Return whether a fork of it has to ask about every call."""
        return not self.has_ended or self.forks > 0 or self.is_fenced

    def is_given_back(self) -> bool:
        """Give it back from its worker; False for a run in the pool."""
        if not self.is_owned or self.has_ended:
            return False
        self.is_owned, self.is_ready = False, True
        self.tells("RunRequeued", "WorkerLost")
        return True

    def dies(self) -> None:
        self.is_owned, self.is_ready = False, True
        self.tells("WorkerLost")
