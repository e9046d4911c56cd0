"""Approval requests and decisions, as a projection of the journal without payloads (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from runs.story.lines import EventLine, Fact


@dataclass(slots=True)
class Gate:
    """A request to one queue, and the decision, if any."""

    approval_id: str
    queue: str
    tool: str
    rule: str
    plan_hash: str
    deadline: str
    seq: int
    at: datetime
    verdict: str = ""
    by: str = ""
    role: str = ""
    justification: str = ""
    decided_at: datetime | None = None
    decided_seq: int = 0
    # Queues to which the request was escalated.
    also: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return not self.verdict

    @property
    def took(self) -> float | None:
        return None if self.decided_at is None else (self.decided_at - self.at).total_seconds()

    def open(self, lines: Mapping[int, EventLine]) -> None:
        """Add the justification from the decision's payload."""
        if self.decided_seq in lines:
            self.justification = lines[self.decided_seq].get("justification") or ""


@dataclass
class Gates:
    """A run's gates in the order in which they opened."""

    by_id: dict[str, Gate] = field(default_factory=dict)

    def all(self) -> list[Gate]:
        return list(self.by_id.values())


def _requested(gates: Gates, line: Fact) -> None:
    names = ("approval_id", "queue", "tool", "rule", "plan_hash", "deadline")
    gate = Gate(**{name: line.clear[name] for name in names}, seq=line.seq, at=line.at)
    gates.by_id[gate.approval_id] = gate


def _decided(gates: Gates, line: Fact) -> None:
    if gate := gates.by_id.get(line.clear["approval_id"]):
        gate.verdict, gate.by, gate.role = line.clear["verdict"], line.clear["by"], line.clear["role"]
        gate.decided_at, gate.decided_seq = line.at, line.seq


def _reminded(gates: Gates, line: Fact) -> None:
    if gate := gates.by_id.get(line.clear["approval_id"]):
        gate.deadline = line.clear["deadline"]


def _escalated(gates: Gates, line: Fact) -> None:
    if gate := gates.by_id.get(line.clear["approval_id"]):
        gate.deadline = line.clear["deadline"]
        gate.also.append(line.clear["to"])


def _put_off(gates: Gates, line: Fact) -> None:
    if (gate := gates.by_id.get(line.clear["approval_id"])) and line.clear["deadline"]:
        gate.deadline = line.clear["deadline"]


def _amended(gates: Gates, line: Fact) -> None:
    if gate := gates.by_id.get(line.clear["approval_id"]):
        gate.verdict, gate.by, gate.role = "amended", line.clear["by"], line.clear["role"]
        gate.decided_at, gate.decided_seq = line.at, line.seq


STEPS: dict[str, Callable[[Gates, Fact], None]] = {
    "ApprovalRequested": _requested,
    "ApprovalDecided": _decided,
    "ApprovalReminded": _reminded,
    "ApprovalEscalated": _escalated,
    "PlanAmended": _amended,
    "InquiryMade": _put_off,
    "InquiryEnded": _put_off,
}
