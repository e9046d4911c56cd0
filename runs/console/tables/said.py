"""What a page shows beside a call whose outcome is unknown: what one of two people says became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.api.present import masked
from ledger.web.seeing.payloads import HIDDEN
from runs.console.run_page import Dossier
from runs.models import Wait
from runs.services.settling.agreeing import is_for_two
from runs.services.settling.proposals import Proposal, newest


@dataclass(frozen=True, slots=True)
class Panel:
    """`said` is the first one's word, where two people settle it (`is_for_two`); `is_own`: it is the reader's."""

    is_for_two: bool
    said: Proposal | None
    is_own: bool
    is_read: bool

    @property
    def receipt(self) -> Any:
        """What the first one gives as proof, as far as the reader may see it."""
        if self.said is None:
            return None
        return masked(self.said.receipt) if self.is_read else HIDDEN

    @property
    def can_agree(self) -> bool:
        """Whether the reader's word could be the second one. Whoever agrees has read what they agree with."""
        return self.said is not None and self.said.is_open and not self.is_own and self.is_read


def panel_of(dossier: Dossier, person: int | None) -> Panel | None:
    """None where no outcome of the run is unknown."""
    wait = dossier.wait
    if wait is None or wait.kind != Wait.Kind.RECONCILE:
        return None
    said = newest([wait]).get(wait.pk)
    return Panel(is_for_two(), said, said is not None and said.person == person, dossier.is_read)
