"""The sum of schedules' results."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tests.system.crash.checker import Finding


@dataclass
class Tally:
    """Figures of one schedule or of many.

    `kills`: effective SIGKILLs; `interrupted`: the claims they ended; `refused`: writes of returning workers; `asked`:
    verdicts on unknown outcomes; `moved`: migrations; `forked`: forks; `halted`: halts set.
    """

    schedules: int = 0
    runs: int = 0
    kills: int = 0
    interrupted: int = 0
    refused: int = 0
    asked: int = 0
    findings: list[Finding] = field(default_factory=list)
    failed_seeds: list[str] = field(default_factory=list)
    moved: int = 0
    forked: int = 0
    halted: int = 0

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    def __str__(self) -> str:
        return (
            f"schedules {self.schedules} runs {self.runs} kills {self.kills} interrupted "
            f"{self.interrupted} refused {self.refused} "
            f"asked {self.asked} moved {self.moved} forked {self.forked} halted {self.halted} "
            f"duplicates {self.count('duplicate')} lost {self.count('lost')} "
            f"stuck {self.count('stuck')} "
            f"broken {self.count('broken')}"
        )
