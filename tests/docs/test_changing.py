"""docs/changing.md leads where a change has to be made: no place is made up, and none of an example's is left out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from runs.api.present import status_of
from runs.api.schemas import RunRow
from runs.models import ACTIVE, State
from runs.queries.run_list import GROUPS
from tests.conftest import CHECKOUT
from tests.docs.newest import newest

PAGE = (CHECKOUT / "docs" / "changing.md").read_text()
APPS = ("durableagents", "approvals", "runs", "ledger")
_PLACE = re.compile(r"^\| `([\w/.]+)` \*\*(\w+(?:\.\w+)?)\*\* \| ([^|]+) \| `([^`]+)` \|$", re.M)
_ROOM = re.compile(r"^\| `([\w/]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.M)
# By section: how the example is written in the code.
EXAMPLES = {
    "Every state": r"(?i)waiting|completed",
    "A state that waits": r"waiting_tool|WAITING",
    "A state that can be claimed": r"(?i)compensating|running",
    "A state that ends": r"(?i)completed",
    "What a new kind of wait needs": r"\bsignal\b|SIGNAL|SignalTaken",
    "What a new event needs": r"\bInputAnswered\b",
    "An event beside a call's result": (
        r"Tool(Returned|Read|Failed|Reconciled)|CallbackReceived|reconciled\(|witnessed\("
    ),
}
# By section: what a file names that has to be in it, or in the other one. A wait's name is an English word: for waits
# the tables' own tests of completeness have to do.
LEFT_OUT = {
    "A state that waits": (r"waiting_tool|WAITING_TOOL|from runs\.models import .*\bWAITING\b", "Every state"),
    "A state that can be claimed": (r"compensating|COMPENSATING", "Every state"),
    "A state that ends": (r'"completed"|\.COMPLETED\b', "Every state"),
    "What a new event needs": (r"\bInputAnswered\b", ""),
    "An event beside a call's result": (
        r"\be\.(?:Tool(?:Returned|Read|Failed|Reconciled)|CallbackReceived)\(\s*slot=|\.reconciled\(|\.witnessed\(",
        "",
    ),
}


def section(title: str) -> str:
    """What stands under a heading, up to the next."""
    parts = (part.partition("\n") for part in re.split(r"^##+ ", PAGE, flags=re.M))
    (found,) = (text for name, _, text in parts if name == title)
    return found


def places(title: str) -> list[tuple[str, str, str]]:
    """A section's places: file, name, test."""
    return [(path, name, test) for path, name, _, test in _PLACE.findall(section(title))]


def named(body: list[ast.stmt], name: str) -> ast.stmt | None:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return node
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def text_of(path: str, name: str) -> str:
    """The text of a place: a function, a class, a method or a constant; of SQL where the function is newest. Empty
    where there is none."""
    text = (CHECKOUT / path).read_text()
    if path.endswith(".sql"):
        return text.partition(f"FUNCTION {name}(")[2].partition("$$;")[0]
    body, node = ast.parse(text).body, None
    for part in name.split("."):
        node = named(body, part)
        body = node.body if isinstance(node, ast.ClassDef) else []
    return "" if node is None else ast.get_source_segment(text, node) or ""


def sources() -> list[Path]:
    """The product's own code, without what is generated or the demo's."""
    found = [path for app in APPS for path in (CHECKOUT / app).rglob("*.py")]
    return [path for path in found if not {"migrations", "demo"} & {*path.relative_to(CHECKOUT).parts}]


@pytest.mark.parametrize("what", EXAMPLES)
def test_each_place_is_there_and_names_the_example(what: str) -> None:
    found = places(what)
    assert len(found) == len(re.findall(r"^\| `", section(what), re.M)) > 4
    example = re.compile(EXAMPLES[what])
    assert [(path, name) for path, name, _ in found if not example.search(text_of(path, name))] == []


@pytest.mark.parametrize("what", LEFT_OUT)
def test_no_file_that_names_the_example_is_left_out(what: str) -> None:
    example, other = re.compile(LEFT_OUT[what][0]), LEFT_OUT[what][1]
    naming = {str(path.relative_to(CHECKOUT)) for path in sources() if example.search(path.read_text())}
    assert naming and naming - {path for path, _, _ in places(what) + (places(other) if other else [])} == set()


def test_a_function_in_sql_is_named_where_it_is_newest() -> None:
    in_sql = {name: path for what in EXAMPLES for path, name, _ in places(what) if path.endswith(".sql")}
    assert in_sql == {name: newest()[name] for name in in_sql}


def test_no_function_in_sql_that_goes_by_a_runs_state_is_left_out() -> None:
    state = re.compile(r"'(?:running|waiting_tool|completed)'")
    naming = {name for name, path in newest().items() if state.search(text_of(path, name))}
    listed = {name for what in EXAMPLES if "state" in what for path, name, _ in places(what) if path.endswith(".sql")}
    assert naming == listed


@pytest.mark.parametrize("what", EXAMPLES)
def test_each_test_is_there(what: str) -> None:
    for _, name, test in places(what):
        path, _, function = test.partition("::")
        assert f"def {function}(" in (CHECKOUT / path).read_text() if function else (CHECKOUT / path).exists(), (
            name,
            test,
        )


def test_the_restore_pauses_every_run_that_may_go_on() -> None:
    page = (CHECKOUT / "docs" / "operations.md").read_text()
    loop = re.search(r"^\$ for state in ([a-z_ ]+); do$", page, re.M)
    assert loop is not None and set(loop[1].split()) == set(ACTIVE)


def test_every_state_is_in_a_group_of_the_list() -> None:
    """One that is in none is counted nowhere, and found only by its run's address."""
    grouped = [state for _, states in GROUPS.values() for state in states]
    assert sorted(grouped) == sorted(State)


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_status_that_the_api_knows(state: State) -> None:
    assert status_of(state) in get_args(RunRow.model_fields["status"].annotation)


def test_every_room_says_what_may_be_changed_in_it() -> None:
    told = {
        room: (free, not_free, caught)
        for room, free, not_free, caught in _ROOM.findall(section("What may be changed in a room without fear"))
    }
    rooms = {
        str(path.parent.relative_to(CHECKOUT))
        for app in APPS
        for path in (CHECKOUT / app).rglob("__init__.py")
        if not {"migrations", "management", "sandbox"} & {*path.relative_to(CHECKOUT).parts}
    }
    assert told.keys() == rooms - {"runs"}  # whose own files are the models and what Django wants there
    for room, (free, not_free, caught) in told.items():
        tests = re.findall(r"`([\w/.]+)`", caught)
        assert tests and all((CHECKOUT / test).exists() for test in tests), room
        assert free.strip() and not_free.strip(), room
        files = re.findall(r"`(\w+\.py)`", free + not_free)
        assert [name for name in files if not (CHECKOUT / room / name).exists()] == [], room
