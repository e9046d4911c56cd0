"""The company registry: knows every well-formed company, and always says the same about it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from durableagents.demo.sandbox.settings import legal_form, normalise

from ..web.fields import Country, Fields, Name, TaxId

_STREETS = (
    "Harbour Street",
    "Mill Lane",
    "Foundry Road",
    "Quay",
    "Station Square",
    "Orchard Way",
    "Ropewalk",
    "Kiln Street",
)
_CITIES = (
    "Northport",
    "Elmsford",
    "Grauhafen",
    "Vieux-Moulin",
    "Tamsalu",
    "Porto Claro",
    "Brackwater",
    "Oster Holm",
)
_FOUNDED_FIRST = date(1958, 1, 2)

# Names with a story, by their normalised form. The package docstring documents them.
_STORIES: dict[str, tuple[str, str | None, str]] = {
    normalise("Phoenix Dissolved Trading Ltd"): (
        "dissolved",
        "2021-03-31",
        "Struck off the register for failing to file accounts.",
    ),
    normalise("Orion Ghost Logistics LLC"): (
        "dissolved",
        "2023-11-15",
        "Wound up voluntarily; no successor is registered.",
    ),
    normalise("Volga Heavy Industries"): (
        "sanctioned",
        None,
        "Sanctions note: assets frozen, see list SDN-X entry 1.",
    ),
    normalise("Crimson Delta Maritime"): (
        "sanctioned",
        None,
        "Sanctions note: vessels and owners listed, see list EU-C entry 7.",
    ),
}


class Company(Fields):
    """A company that is looked up."""

    name: Name
    country: Country
    tax_id: TaxId


def lookup(query: Mapping[str, Any]) -> dict[str, Any]:
    """Raises Problem 422. The answer is a function of the query alone, so a replayed run sees what the first one
    saw."""
    asked = Company.read(query)
    name, country, tax_id = asked.name, asked.country, asked.tax_id
    dice = hashlib.sha256("|".join((normalise(name), country, tax_id.upper())).encode()).digest()
    status, dissolved_on, note = _STORIES.get(normalise(name), ("active", None, ""))
    founded = _FOUNDED_FIRST + timedelta(days=int.from_bytes(dice[0:3]) % 22_000)
    return {
        "legal_name": name,
        "country": country,
        "tax_id": tax_id,
        "registration_number": f"{country}{int.from_bytes(dice[3:7]) % 10**8:08d}",
        "status": status,
        "legal_form": legal_form(name),
        "incorporated_on": founded.isoformat(),
        "dissolved_on": dissolved_on,
        "address": {
            "street": f"{_STREETS[dice[7] % len(_STREETS)]} {dice[8] % 180 + 1}",
            "city": _CITIES[dice[9] % len(_CITIES)],
            "postal_code": f"{int.from_bytes(dice[10:13]) % 90_000 + 10_000}",
            "country": country,
        },
        "notes": [note] if note else [],
    }
