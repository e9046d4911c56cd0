"""What a page shows beside a call whose outcome is unknown: what one of two people says became of it, and what the
other side said that was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledger.api.present import masked
from ledger.web.seeing.payloads import HIDDEN
from runs.console.run_page import Dossier
from runs.models import Wait
from runs.queries.doubts.links import Link, link_of
from runs.services.settling.agreeing import counts
from runs.services.settling.proposals import Heard, Proposal, heard
from runs.services.settling.upstream import has_hook


@dataclass(frozen=True, slots=True)
class Panel:
    """`heard` is all that was said of it; `is_for_two`: two people settle it; `is_own`: the first one's word is the
    reader's; `can_ask`: the other side can be asked; `is_read`: the reader may read what the run holds; `link`: where
    the other system shows the call."""

    heard: Heard
    is_for_two: bool
    is_own: bool
    counts: bool
    can_ask: bool
    is_read: bool
    link: Link | None

    @property
    def said(self) -> Proposal | None:
        """The first one's word."""
        return self.heard.said

    @property
    def receipt(self) -> Any:
        """What the first one gives as proof, as far as the reader may see it."""
        return self._shown(None if self.said is None else self.said.receipt)

    @property
    def result(self) -> Any:
        """What the other side says came of the call."""
        return self._shown(self.heard.result)

    @property
    def can_agree(self) -> bool:
        """Whether the reader's word could be the second one. Whoever agrees has read what they agree with."""
        return self.said is not None and self.said.is_open and not self.is_own and self.is_read and self.counts

    def _shown(self, value: Any) -> Any:
        return masked(value) if self.is_read else HIDDEN


def panel_of(dossier: Dossier, person: int | None) -> Panel | None:
    """None where no outcome of the run is unknown."""
    wait = dossier.wait
    if wait is None or wait.kind != Wait.Kind.RECONCILE:
        return None
    known = heard([wait])[wait.pk]
    is_own = known.said is not None and known.said.person == person
    link = link_of(dossier.run, wait) if dossier.is_read else None
    is_able = known.said is not None and counts(known.said)
    return Panel(known, dossier.is_for_two, is_own, is_able, has_hook(dossier.run, wait), dossier.is_read, link)
