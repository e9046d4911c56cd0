"""What lies below knows nothing of what lies above: neither by import, which the contracts hold, nor by name."""

from __future__ import annotations

import re
from pathlib import Path

from durableagents.demo import registration
from tests.conftest import CHECKOUT

APPS = ("ledger", "runs", "approvals", "durableagents", "templates", "static")
# The settings register the demo and `up` starts it. The engine's journal in memory has to name somebody.
MAY = {"durableagents/settings.py", "durableagents/management/commands/up.py", "runs/engine/memory.py"}


def product() -> list[Path]:
    """Every file of the product but the demo's own and what is shipped and never changes again."""
    found = [
        path for app in APPS for path in (CHECKOUT / app).rglob("*") if path.suffix in (".py", ".html", ".js", ".css")
    ]
    return [path for path in found if not {"demo", "migrations", "vendor"} & set(path.relative_to(CHECKOUT).parts)]


def names() -> list[str]:
    """The demo's modules, queues, roles and people; plain words only as a whole text, such as `"legal"`."""
    queues, roles = registration.QUEUES, registration.QUEUES.values()
    people = set(registration.PEOPLE) - {person.role for person in registration.PEOPLE.values()}
    agents = {module.rpartition(".")[2] for module in registration.AGENTS}
    words = {*queues, *people, *agents}
    plain = {word for word in words if "_" not in word}
    return [
        r"durableagents\.demo\b",
        *(rf"\b{word}\b" for word in {*roles, *words} - plain),
        *(rf"([\"'`]|user:){word}\b[\"'`]?" for word in plain),
    ]


def test_nobody_but_the_settings_names_the_demo() -> None:
    pattern = re.compile("|".join(names()))
    found = {
        f"{path.relative_to(CHECKOUT)}: {hit.group()}"
        for path in product()
        if str(path.relative_to(CHECKOUT)) not in MAY
        for hit in pattern.finditer(path.read_text())
    }
    assert found == set()
    assert all(
        re.search("|".join(names()), text) for text in ('"legal"', "approver_legal", "user:finance", "'finance_po'")
    )


def test_a_room_holds_at_most_sixteen_files() -> None:
    """One that is fuller has two trades, or a room is missing."""
    folders = {path.parent for path in product() + list((CHECKOUT / "durableagents/demo").rglob("*.py"))}
    full = {
        str(folder.relative_to(CHECKOUT)): count
        for folder in folders
        if (count := len([path for path in folder.glob("*.py") if path.name != "__init__.py"])) > 16
    }
    assert full == {}
