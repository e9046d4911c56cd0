"""Names: on a list, similar to one, and in the registry's adverse news."""

from __future__ import annotations

from durableagents.demo.sandbox.systems.sanctions import THRESHOLD, screen
from tests.cases import each_case

CLEAR = (
    """
Nordlicht Antriebe GmbH|Acme Pallets Ltd|Baltic Cold Chain OÜ|Harbor Analytics Inc
Phoenix Dissolved Trading Ltd|Orion Ghost Logistics LLC|Volga Tours|Heavy Metal Records
Grey Goose Bakery|Black Forest Cakes GmbH|Red Sea Diving Club|Golden Gate Bakery LLC
Northern Lights Energy AS|Sable Interiors Ltd|Siberian Husky Breeders|Crimson Books Ltd
Delta Air Filters|Iron Works Gym|Desert Rose Cosmetics|Caspian Caviar Bar|Kestrel Software Ltd
Horizon Chemicals GmbH|Meridian Labs|Levant Foods|Jade Garden Restaurant|Cedar Point Marina|Ltd|A
Müller & Söhne KG|株式会社山田|Zürich Precision Tooling AG|Palm Shipping Lines|Sunrise Senior Living
Euphrates Carpets|Petrov Anselm Bakery|Diamond Nails Bangui Style|Star Aviation Academy
""".strip()
    .replace("\n", "|")
    .split("|")
)

HITS = [
    ("Volga Heavy Industries", "Volga Heavy Industries"),
    ("Volga Hevy Industrys", "Volga Heavy Industries"),
    ("VOLGA HEAVY INDUSTRIES, O.A.O.", "Volga Heavy Industries"),
    ("Industries Heavy Volga", "Volga Heavy Industries"),
    ("Volga Heavy Industries Export House", "Volga Heavy Industries"),
    ("Volga Heavyindustries", "Volga Heavy Industries"),
    ("Vo\u200blga Heavy\u202e Industries", "Volga Heavy Industries"),
    ("Вольга Heavy Industries", "Volga Heavy Industries"),
    ("Vólgà Héavy Ìndustries", "Volga Heavy Industries"),
    ("Crimson Delta Maritime Ltd", "Crimson Delta Maritime"),
    ("Red Delta Marine", "Crimson Delta Maritime"),
    ("Zarya Nova Electroniks", "Zarya Nova Electronics"),
    ("Taklimakan Cotton Mills", "Taklamakan Cotton Spinners"),
]


@each_case("name", CLEAR)
def test_ordinary_companies_are_clear(name: str) -> None:
    answer = screen({"name": name})
    assert (answer["is_hit"], answer["matches"]) == (False, [])
    assert 0 <= answer["best"] < THRESHOLD


@each_case(("name", "listed"), HITS)
def test_listed_names_and_near_misses_hit(name: str, listed: str) -> None:
    answer = screen({"name": name, "country": "de"})
    assert answer["is_hit"]
    best = answer["matches"][0]
    assert (best["name"], best["score"]) == (listed, answer["best"])
    assert best.keys() == {"name", "score", "list", "reason", "country", "aliases", "matched_on"}
    assert answer["query"] == {"name": name, "country": "DE"}
