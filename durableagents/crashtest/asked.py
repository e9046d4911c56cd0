"""What a crash test is asked to do, as the command hands it to the process inside the private stack."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

# Where a worker is killed: at a tool's call, and at what belongs to no call.
AT_TOOL = ("CP1", "CP2", "CP3", "CP4", "CP6")
AT_RUN = ("CP0", "CP5", "CP7", "CP8", "CP9")
THE_RUN = ""  # the tool of a case that belongs to none


@dataclass(frozen=True, slots=True)
class Asked:
    """`answers` says what people say: `approve` (true), `answers` and `signals` by name, `receipts` by tool."""

    agent: str
    input: Any
    tools: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    effects: str = ""
    patience: float = 60.0
    workers: int = 3

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Case:
    """One run and where its worker is killed. Without a point it is the run that nobody kills."""

    tool: str
    point: str

    def armed(self, run_id: object) -> str:
        """The crash point, as runs/failpoints.py reads it."""
        return f"{self.point}{f'@{self.tool}' if self.tool else ''}/{run_id}:kill:1"


def filled(value: Any, case: str) -> Any:
    """The input of one run: `{case}` in its texts is another word in each, for what must not be ordered twice."""
    if isinstance(value, dict):
        return {name: filled(each, case) for name, each in value.items()}
    if isinstance(value, list):
        return [filled(each, case) for each in value]
    return value.replace("{case}", case) if isinstance(value, str) else value
