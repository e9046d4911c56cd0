"""What people were asked and what they answered. A pure fold over the journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runs.story.lines import Line


@dataclass
class Gate:
    """One question to one queue and its answer, if there is one."""

    approval_id: str
    queue: str
    tool: str
    rule: str
    plan_hash: str
    deadline: str
    seq: int
    at: datetime
    arguments: Any = None
    verdict: str = ""
    by: str = ""
    role: str = ""
    justification: str = ""
    decided_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return not self.verdict

    @property
    def took(self) -> float | None:
        return None if self.decided_at is None else (self.decided_at - self.at).total_seconds()


@dataclass
class Gates:
    """Every gate of a run in the order in which they opened."""

    by_id: dict[str, Gate] = field(default_factory=dict)

    def all(self) -> list[Gate]:
        return list(self.by_id.values())

    def take(self, line: Line) -> None:
        """Fold one event in."""
        if line.kind == "ApprovalRequested":
            names = ("approval_id", "queue", "tool", "rule", "plan_hash", "deadline")
            gate = Gate(**{name: line.clear[name] for name in names}, seq=line.seq, at=line.at)
            gate.arguments = line.get("arguments")
            self.by_id[gate.approval_id] = gate
        elif line.kind == "ApprovalDecided" and line.clear["approval_id"] in self.by_id:
            gate = self.by_id[line.clear["approval_id"]]
            gate.verdict, gate.by, gate.role = line.clear["verdict"], line.clear["by"], line.clear["role"]
            gate.justification, gate.decided_at = line.get("justification") or "", line.at
