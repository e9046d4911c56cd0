"""Names: who is on a list, who only sounds like it, and what the registry tells stories about."""

from __future__ import annotations

import pytest

from durableagents.demo.sandbox.names import normalise
from durableagents.demo.sandbox.systems.registry import lookup
from durableagents.demo.sandbox.systems.sanctions import THRESHOLD, screen, the_list
from durableagents.demo.sandbox.web.problems import Problem

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


@pytest.mark.parametrize("name", CLEAR)
def test_ordinary_companies_are_clear(name: str) -> None:
    answer = screen({"name": name})
    assert (answer["is_hit"], answer["matches"]) == (False, [])
    assert 0 <= answer["best"] < THRESHOLD


@pytest.mark.parametrize(("name", "listed"), HITS)
def test_listed_names_and_near_misses_hit(name: str, listed: str) -> None:
    answer = screen({"name": name, "country": "de"})
    assert answer["is_hit"]
    best = answer["matches"][0]
    assert (best["name"], best["score"]) == (listed, answer["best"])
    assert best.keys() == {"name", "score", "list", "reason", "country", "aliases", "matched_on"}
    assert answer["query"] == {"name": name, "country": "DE"}


def test_every_listed_spelling_finds_itself() -> None:
    assert len(the_list()) >= 40
    for listed in the_list():
        for spelling in (listed.name, *listed.aliases):
            answer = screen({"name": spelling})
            assert answer["matches"][0]["score"] == 100
            assert listed.name in {match["name"] for match in answer["matches"]}


@pytest.mark.parametrize("name", [None, "", "   ", "x" * 301, "a\x00b", "\ud800"])
def test_an_unusable_name_is_refused(name: str | None) -> None:
    with pytest.raises(Problem) as refused:
        screen({"name": name})
    assert (refused.value.status, refused.value.field) == (422, "name")


def test_the_registry_always_says_the_same() -> None:
    query = {"name": "Acme Pallets Ltd", "country": "gb", "tax_id": "GB-1234"}
    answer = lookup(query)
    assert answer == lookup(query)
    assert (answer["status"], answer["notes"], answer["country"]) == ("active", [], "GB")
    assert answer["registration_number"] != lookup(query | {"tax_id": "GB-1235"})["registration_number"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("Phoenix Dissolved Trading Ltd", "dissolved"),
        ("PHOENIX DISSOLVED TRADING", "dissolved"),
        ("Orion Ghost Logistics LLC", "dissolved"),
        ("Volga Heavy Industries", "sanctioned"),
        ("Crimson Delta Maritime", "sanctioned"),
    ],
)
def test_the_registry_tells_its_stories(name: str, status: str) -> None:
    answer = lookup({"name": name, "country": "GB", "tax_id": "GB-1234"})
    assert answer["status"] == status
    assert answer["notes"]
    assert bool(answer["dissolved_on"]) == (status == "dissolved")


def test_names_are_compared_without_their_clothes() -> None:
    assert normalise("The Straße & Co. KG") == "strasse"
    assert normalise("Ltd") == "ltd"
    assert normalise("…") == ""
