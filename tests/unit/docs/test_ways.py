"""The functions named in docs/ways.md exist and call each other."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from tests.cases import each_case
from tests.conftest import CHECKOUT

PAGE = (CHECKOUT / "docs" / "ways.md").read_text()
_STOP = re.compile(r"^(\d+)\. `([\w/.]+)` \*\*([\w.]+)\*\*(?: \((from|by way of) ([^)]*)\))?", re.M)


@dataclass(frozen=True)
class Stop:
    number: int
    path: str
    name: str
    how: str
    whence: str


def ways() -> dict[str, list[Stop]]:
    found = {}
    for part in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        title, _, text = part.partition("\n")
        found[title] = [Stop(int(m[1]), m[2], m[3], m[4] or "", m[5] or "") for m in _STOP.finditer(text)]
    return found


def source_of(stop: Stop) -> str:
    """Return the text of a stop's function. Raises KeyError if it doesn't exist."""
    text = (CHECKOUT / stop.path).read_text()
    if stop.path.endswith(".sql"):
        return text[text.index(f"FUNCTION {stop.name}(") :]
    body = ast.parse(text).body
    for name in stop.name.split("."):
        named = {x.name: x for x in body if isinstance(x, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))}
        node = named[name]
        body = node.body
    return ast.get_source_segment(text, node) or ""


def calls(caller: Stop, called: Stop) -> bool:
    """Return whether one function names the other; SQL may be in a constant of its module."""
    own = re.compile(rf"(?<!def )\b{re.escape(called.name.rpartition('.')[2])}\b")
    if own.search(source_of(caller)):
        return True
    whole = (CHECKOUT / caller.path).read_text()
    return called.path.endswith(".sql") and f"{called.name}(" in whole


WAYS = ways()


@each_case("title", WAYS)
def test_a_way_leads_from_function_to_function(title: str) -> None:
    stops = WAYS[title]
    assert [stop.number for stop in stops] == list(range(1, len(stops) + 1)) and len(stops) > 5
    for stop in stops:
        assert source_of(stop), stop
        if stop.number == 1 or stop.how == "by way of":
            continue
        caller = stops[int(stop.whence) - 1] if stop.how == "from" else stops[stop.number - 2]
        assert calls(caller, stop), f"{caller.path} {caller.name} does not call {stop.name}"


def test_there_are_six_ways() -> None:
    assert [title.partition(",")[0] for title in WAYS] == [
        "A keyed call",
        "A start over the API",
        "A decision",
        "A callback",
        "A crash",
        "A timer",
    ]


_ANSWER = re.compile(
    r"^\| [^|]+ \| `([\w/.]+)` \*\*([\w.]+)\*\*((?:(?!\[a )[^|])*)(?:\[(a [a-z]+)[^|]*\), (\d+))?[^|]*\|$", re.M
)


def test_what_is_asked_first_is_answered_by_a_place_that_is_there() -> None:
    """And where the answer names a stop of a way, that stop is on it."""
    answers = _ANSWER.findall(PAGE)
    assert len(answers) == 7
    assert sum(bool(way) for *_, way, _ in answers) == 4
    for path, name, _, way, number in answers:
        assert source_of(Stop(0, path, name, "", "")), name
        if way:
            (stops,) = (found for title, found in WAYS.items() if title.lower().startswith(way))
            assert path in {stop.path for stop in stops if stop.number == int(number)}, (way, number)
