"""What a patch makes of a state: a JSON merge patch (RFC 7396), held against the agent's own model. Where it doesn't
fit it is refused by the field, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ledger.web import misfit
from runs.engine.canonical import plain
from runs.engine.messages.changes import difference
from runs.engine.migrating.trying import lost_of


@dataclass(frozen=True, slots=True)
class Patched:
    """A state after a patch: `told` is what the record says of it (`change`, `gone`, `before`), `lines` each value that
    is another one: its path, what it was and what it is; None: there was, or is, nothing."""

    state: dict[str, Any]
    told: dict[str, Any]
    lines: list[tuple[str, Any, Any]]

    @property
    def fields(self) -> list[str]:
        """The state's fields that are changed."""
        return sorted([*self.told.get("change", ()), *self.told.get("gone", ())])


class Misfit(ValueError):
    """A patch that does not fit: each problem with its field and how to mend it."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(f"{field} {problem}" for field, problem, _ in problems))
        self.problems = problems


def merged(state: Any, patch: Any) -> Any:
    """As RFC 7396 has it: an object is merged member by member, where null takes one away; all else replaces."""
    if not isinstance(patch, dict):
        return patch
    made = dict(state) if isinstance(state, dict) else {}
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name), value)
    return made


def patched(model: type[BaseModel], number: int, state: dict[str, Any], patch: dict[str, Any]) -> Patched:
    """The state after the patch, which has the `number` of the model's states. Raises Misfit."""
    wanted = merged(state, patch)
    try:
        fitting = plain(model.model_validate(wanted))
        model.model_validate(fitting)
    except ValidationError as error:
        problems = [(f"patch.{where}" if where else "patch", what) for where, what in misfit.problems(error)]
        raise Misfit([(field, what, "see the schema of the agent's state") for field, what in problems]) from error
    except ValueError as error:
        raise Misfit([("patch", f"gives no plain data: {error}", "give JSON that fits the agent's state")]) from error
    if nowhere := sorted(set(lost_of(wanted, fitting))):
        fix = f"one of {', '.join(model.model_fields)}"
        raise Misfit([(f"patch.{path}", "is no field of the agent's state", fix) for path in nowhere[:20]])
    told = difference(state, fitting)
    if not told:
        raise Misfit([("patch", "changes nothing of the state that the run has there", "leave it out")])
    names = {*told.get("change", ()), *told.get("gone", ())}
    told["before"] = {name: state[name] for name in sorted(names) if name in state}
    if number > 1:
        told["number"] = number
    return Patched(fitting, told, list(lines_of(state, fitting)))


def lines_of(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each value that is another one."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from lines_of(before.get(name), after.get(name), f"{path}.{name}" if path else str(name))
    elif before != after or type(before) is not type(after):
        yield path, before, after
