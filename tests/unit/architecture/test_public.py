from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import durableagents
import durableagents.contrib.pydantic_ai
import durableagents.testing
from durableagents.contrib.replay import checkpoints
from tests.cases import each_case

PUBLIC = {name: getattr(durableagents, name) for name in durableagents.__all__}
for module in (durableagents.testing, durableagents.contrib.pydantic_ai):
    PUBLIC |= {name: getattr(module, name) for name in module.__all__}
PUBLIC |= {
    name: getattr(checkpoints, name) for name in ("CheckpointDiffers", "replay_checkpoint", "replay_checkpoints")
}


def unsaid(names: list[str], doc: str | None) -> list[str]:
    """Return the names missing from a docstring as `name`, or as `name(…)` where it is called."""
    return [name for name in names if not re.search(rf"`{name}[`(]", doc or "")]


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")]


def members(kind: type) -> dict[str, Any]:
    own = {name: getattr(value, "fget", value) for name, value in vars(kind).items() if not name.startswith("_")}
    return {name: value for name, value in own.items() if inspect.isfunction(value)}


@each_case("name", PUBLIC)
def test_what_is_public_tells_the_meaning_of_all_it_takes(name: str) -> None:
    thing = PUBLIC[name]
    taken = []
    if dataclasses.is_dataclass(thing):
        taken = [field.name for field in dataclasses.fields(thing) if field.init and not field.name.startswith("_")]
    elif not inspect.isclass(thing) or issubclass(thing, BaseException):
        taken = parameters(thing)
    doc = inspect.getdoc(thing)
    assert doc and unsaid(taken, doc) == []
    for member, function in members(thing).items() if inspect.isclass(thing) else ():
        answer = inspect.getdoc(function)
        assert answer and unsaid(parameters(function), answer) == [], f"{name}.{member}"


def test_a_parameter_that_is_not_told_of_is_found() -> None:
    assert unsaid(["when", "within"], "`when(args)` tells whether a call needs one") == ["within"]
