"""The demo's agents as guests of every heavy schedule: an e-mail before its gate, a review by children."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.system.crash.checker import Expected

DOCUMENTS = 6


@dataclass(frozen=True)
class Guest:
    """An agent, its input, the calls at which it is killed, and its effects and each child's."""

    agent: str
    input: dict[str, Any]
    calls: tuple[str, ...]
    expected: Expected
    childs: Mapping[str, int] = field(default_factory=dict)


MAIL = Guest(
    "mail-before-gate",
    {
        "legal_name": "Acme Pallets Ltd",
        "country": "GB",
        "tax_id": "GB123456789",
        "contact_email": "hello@acme-pallets.example",
        "category": "Pallets",
    },
    ("send_announcement", "create_vendor", "model"),
    Expected({"email.send_announcement": 1, "erp.create_vendor": 1}, gates=1),
)
REVIEW = Guest(
    "literature-review",
    {"topic": "How do transactions and locks behave?", "documents": DOCUMENTS, "at_once": 3, "pace_seconds": 0.1},
    ("embed_document", "publish_report", "model"),
    Expected({"library.publish": 1}, children=DOCUMENTS),
    {"library.embed": 1},
)
GUESTS = (MAIL, REVIEW)


def draw_points(guest: Guest, dice: random.Random) -> tuple[str, ...]:
    """Draw where it dies: at its own calls or, if it has children, at theirs."""
    if dice.random() < 0.3:
        return ()
    call, point = dice.choice(guest.calls), dice.choice(("CP1", "CP2", "CP3", "CP4", "CP6"))
    whose = "" if guest.childs else "/{run}"
    return (f"{point}@{call}{whose}:kill:{dice.choice((1, 1, 2))}",)
