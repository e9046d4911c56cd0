"""What a page says of a parked run whose version no living worker has."""

from __future__ import annotations

from ledger.templatetags.console import visible
from runs.console.run_page import Dossier
from runs.fleet.agent_versions import is_left_alone
from runs.queries.run_list import Card


def sentence(d: Dossier) -> str:
    """For the run's page; empty where one has it, or where nobody could tell."""
    drivable = getattr(d.head, "drivable", None)
    if drivable is None or not is_left_alone(d.run, frozenset(drivable)):
        return ""
    return (
        f" <b>No running worker has {visible(d.run.graph_id)}</b>: the run loses nothing, what it waits for may come"
        " and its deadlines stand; it goes on when a worker has that version again."
    )


def in_list(card: Card) -> str:
    """For its row in a list."""
    return " · <b>no running worker has its version</b>" if card.is_unserved else ""
