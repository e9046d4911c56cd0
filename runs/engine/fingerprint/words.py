"""Describes to people how two versions differ: `refund: gate limit 10000 → 20000`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MAX_NUMBERS = 3
_MAX_HELPERS = 4
_NOT_KNOWN: Mapping[str, Any] = {}


class Code:
    """The tables of definitions of two versions.

    Earlier schemes have no tables, so for those the only thing that can be reported is that code changed.
    """

    def __init__(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        table, other = before.get("code"), now.get("code")
        self._before = table if isinstance(table, Mapping) else {}
        self._now = other if isinstance(other, Mapping) else {}
        self._told = set(_told_by_fields(before, now))

    def said(self, was: Any, ist: Any, words: str = "code", number: str = "") -> Iterator[str]:
        """Yield the differences between two pieces of code, including everything that they name.

        `words` is the label of the code, and `number` the label of a number in it.
        """
        if was is None or ist is None:
            if was is not ist:
                yield f"{words} {'added' if was is None else 'dropped'}"
            return
        if not isinstance(was, Mapping) or not isinstance(ist, Mapping):
            if was != ist:
                yield f"{words} changed"
            return
        helpers = list(self._helpers(was, ist))
        values = [each for each in helpers if each[1] == "value"]
        # A changed value is described under its own name; changed code is described together with the helpers that
        # changed.
        for key, _, steps in values:
            label = _called(key)
            if number:
                yield f"{words} {label.lower().strip('_').replace('_', ' ')} {steps or 'changed'}"
            else:
                yield f"{label} {steps or 'changed'} ({_file(key)})"
        texts = [self._helper(key, kind, steps) for key, kind, steps in helpers if kind != "value"]
        more = f" and {len(texts) - _MAX_HELPERS} more" if len(texts) > _MAX_HELPERS else ""
        is_changed = was.get("is") != ist.get("is")
        if is_changed and not texts and (steps := _steps(was, ist)):
            yield f"{number or words} {steps}"
        elif is_changed or texts or (was.get("names") != ist.get("names") and not values):
            inside = f" ({', '.join(texts[:_MAX_HELPERS])}{more})" if texts else ""
            yield f"{words} changed{inside}"

    def _helpers(self, was: Mapping[str, Any], ist: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield the definitions reachable from both that differ: key, kind, and the changed numbers.

        The numbers are empty if anything else changed as well.
        """
        one, other = _reached(was, self._before), _reached(ist, self._now)
        for key in sorted(one & other):
            a, b = self._before.get(key, _NOT_KNOWN), self._now.get(key, _NOT_KNOWN)
            if a.get("is") != b.get("is") and key not in self._told:
                yield key, str(b.get("kind", "value")), _steps(a, b)

    def _helper(self, key: str, kind: str, steps: str) -> str:
        what = f"helper {_called(key)}()" if kind == "function" else f"{kind} {_called(key)}"
        return f"{what} in {_file(key)}{f': {steps}' if steps else ''}"


def _told_by_fields(was: Any, ist: Any) -> Iterator[str]:
    """Yield the classes of models whose fields differ.

    They are reported once for the model, not for everything that uses it.
    """
    if not isinstance(was, Mapping) or not isinstance(ist, Mapping):
        return
    if "schema" in was and "schema" in ist and isinstance(ist.get("code"), Mapping):
        if was["schema"] != ist["schema"]:
            yield from ist["code"].get("names", ())
        return
    for name in was.keys() & ist.keys():
        yield from _told_by_fields(was[name], ist[name])


def _reached(entry: Mapping[str, Any], table: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = list(entry.get("names", ()))
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting.extend(table.get(key, _NOT_KNOWN).get("names", ()))
    return found


def _steps(was: Mapping[str, Any], ist: Mapping[str, Any]) -> str:
    one, other = was.get("numbers"), ist.get("numbers")
    if not one or not other or was.get("around") != ist.get("around") or len(one) != len(other):
        return ""
    steps = [f"{a} → {b}" for a, b in zip(one, other, strict=True) if a != b]
    return ", ".join(steps) if 0 < len(steps) <= _MAX_NUMBERS else ""


def _called(key: str) -> str:
    return key.rpartition(".")[2]


def _file(key: str) -> str:
    return key.rpartition(".")[0].replace(".", "/") + ".py"


Parts = Mapping[str, Any]
# Pairs of an owner's label and a description of what changed about it.
DifferenceTexts = Iterator[tuple[str, str]]
_TIMES = {"timeout": "timeout", "key_ttl": "key lifetime", "cache": "cache"}
_PLAIN = {
    "class": "replay class",
    "answers_later": "answers later",
    "external_id": "external id",
    "sequential": "sequential",
    "shared": "shared",
    "risk": "risk",
}
_HOOKS = {
    "code": "code",
    "reconcile": "reconcile",
    "on_receipt": "on_receipt",
    "check_answer": "check_answer",
}
_KNOWN_OF_A_TOOL = {*_TIMES, *_PLAIN, *_HOOKS, "input", "output", "gate", "description", "undo"}
_MAX_DIFFERENCES = 12


def differences(before: Parts, now: Parts) -> list[str]:
    """Return the differences between the `parts` of two versions according to the same scheme, one line each."""
    of: dict[str, list[str]] = {}
    for owner, what in _all_differences(before, now):
        owners = of.setdefault(what, [])
        if owner not in owners:
            owners.append(owner)
    texts = [f"{', '.join(owners)}: {what}" for what, owners in of.items()]
    if not texts and before != now:
        texts = [f"{where}: changed" for where in changed(before, now)]
    return texts


def join_differences(texts: Iterable[str], most: int = _MAX_DIFFERENCES) -> str:
    """Join the differences into one line."""
    every = list(texts)
    more = f"; and {len(every) - most} more" if len(every) > most else ""
    return "; ".join(every[:most]) + more


def changed(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield the paths at which two `parts` differ, such as `tools.refund.gate.when`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in sorted(before.keys() | now.keys()):
            yield from changed(before.get(name), now.get(name), f"{where}.{name}" if where else name)
    elif before != now:
        yield where


def next_version(version: str, taken: Iterable[str] = ()) -> str:
    """Return the version with the next patch number that isn't taken."""
    major, minor, patch = (int(each) for each in version.split("."))
    others = set(taken)
    while (proposed := f"{major}.{minor}.{(patch := patch + 1)}") in others:
        pass
    return proposed


def _all_differences(before: Parts, now: Parts) -> DifferenceTexts:
    code = Code(before, now)
    yield from _nodes(_named_part(before, "nodes"), _named_part(now, "nodes"), code)
    if before.get("start") != now.get("start"):
        yield "agent", f"begins at {before.get('start')} → {now.get('start')}"
    yield from _for("first state", code.said(before.get("initial"), now.get("initial")))
    yield from _differences_of_kind("tool", _named_part(before, "tools"), _named_part(now, "tools"), _tool, code)
    models, others = _named_part(before, "models"), _named_part(now, "models")
    for name in sorted({*models, *others}):
        yield from _model(name, models.get(name), others.get(name), code)
    yield from _differences_of_kind(
        "assistant", _named_part(before, "assistants"), _named_part(now, "assistants"), _assistant, code
    )
    yield from _differences_of_kind(
        "message", _named_part(before, "messages"), _named_part(now, "messages"), _message, code
    )
    was, ist = _named_part(before, "attributes"), _named_part(now, "attributes")
    for name in sorted({*was, *ist}):
        if was.get(name) != ist.get(name):
            yield f"attribute {name}", _step(was.get(name), ist.get(name))
    if before.get("signals") != now.get("signals"):
        yield "signals", _step(_listed(before.get("signals")), _listed(now.get("signals")))
    undos, others = _named_part(before, "undos"), _named_part(now, "undos")
    for name in sorted({*undos, *others}):
        yield from _for(f"undo {name}", _undo(undos.get(name), others.get(name), code))
    steps, others = _named_part(before, "upgraders"), _named_part(now, "upgraders")
    for number in sorted({*steps, *others}, key=int):
        yield from _for(f"upgrader {number}", code.said(steps.get(number), others.get(number)))
    if before.get("on_failure") != now.get("on_failure"):
        yield "on_failure", _step(before.get("on_failure") or "undo", now.get("on_failure") or "undo")
    known = {
        "nodes",
        "start",
        "initial",
        "tools",
        "models",
        "assistants",
        "messages",
        "attributes",
        "signals",
        "code",
        "undos",
        "on_failure",
        "upgraders",
    }
    yield from _rest("agent", before, now, known)


def _nodes(before: Parts, now: Parts, code: Code) -> DifferenceTexts:
    for name in sorted({*before, *now}):
        was, ist = before.get(name), now.get(name)
        if was is None or ist is None:
            yield f"node {name}", "new" if was is None else "gone"
            continue
        if was.get("edges") != ist.get("edges"):
            yield f"node {name}", f"leads to {_listed(was.get('edges'))} → {_listed(ist.get('edges'))}"
        yield from _for(f"node {name}", code.said(was.get("code"), ist.get("code")))
        yield from _rest(f"node {name}", was, ist, {"edges", "code"})


def _tool(name: str, was: Parts, ist: Parts, code: Code) -> DifferenceTexts:
    for field, words in _PLAIN.items():
        if was.get(field) != ist.get(field):
            yield name, f"{words} {_step(was.get(field), ist.get(field))}"
    for field, words in _TIMES.items():
        if was.get(field) != ist.get(field):
            yield name, f"{words} {_step(_time(was.get(field)), _time(ist.get(field)))}"
    if was.get("description") != ist.get("description"):
        yield name, "description changed"
    for field in ("input", "output"):
        yield from _model(f"{name} {field}", was.get(field), ist.get(field), code)
    yield from _for(name, _gate(was.get("gate"), ist.get("gate"), code))
    for field, words in _HOOKS.items():
        yield from _for(name, code.said(was.get(field), ist.get(field), words))
    yield from _for(name, _undo(was.get("undo"), ist.get("undo"), code))
    yield from _rest(name, was, ist, _KNOWN_OF_A_TOOL)


def _undo(was: Parts | None, ist: Parts | None, code: Code) -> Iterator[str]:
    if was is None or ist is None:
        if was is not ist:
            yield "undo added" if was is None else "undo dropped"
        return
    for field, words in (("tool", "undo by"), ("name", "undo name")):
        if was.get(field) != ist.get(field):
            yield f"{words} {_step(was.get(field), ist.get(field))}"
    yield from code.said(was.get("args"), ist.get("args"), "undo")


def _gate(was: Parts | None, ist: Parts | None, code: Code) -> Iterator[str]:
    if was is None or ist is None:
        if was is not ist:
            yield "gate added" if was is None else "gate dropped"
        return
    for field in ("queue", "rule"):
        if was.get(field) != ist.get(field):
            yield f"gate {field} {_step(was.get(field), ist.get(field))}"
    if was.get("within") != ist.get("within"):
        yield f"gate time {_step(_time(was.get('within')), _time(ist.get('within')))}"
    yield from code.said(was.get("when"), ist.get("when"), "gate", number="gate limit")
    yield from code.said(was.get("headline"), ist.get("headline"), "gate headline")
    if was.get("stages") != ist.get("stages"):
        yield f"gate stages {_step(_stages(was), _stages(ist))}"
    if was.get("on_timeout") != ist.get("on_timeout"):
        yield f"gate on time-out {_step(*(str((each.get('on_timeout') or ['reject'])[0]) for each in (was, ist)))}"
    for field in sorted((was.keys() | ist.keys()) - _GATE):
        if was.get(field) != ist.get(field):
            yield f"gate {field} changed"


_GATE = {"queue", "rule", "within", "when", "headline", "stages", "on_timeout"}


def _stages(gate: Parts) -> str:
    stages = gate.get("stages") or [{"queue": gate.get("queue"), "quorum": 1}]
    return ", then ".join(f"{x['quorum']} of {x['queue']}" if x["quorum"] > 1 else str(x["queue"]) for x in stages)


def _assistant(name: str, was: Parts, ist: Parts, code: Code) -> DifferenceTexts:
    owner = f"assistant {name}"
    if was.get("instructions") != ist.get("instructions"):
        yield owner, "instructions changed"
    if was.get("tools") != ist.get("tools"):
        yield owner, f"tools {_step(_listed(was.get('tools')), _listed(ist.get('tools')))}"
    if was.get("max_turns") != ist.get("max_turns"):
        yield owner, f"max_turns {_step(was.get('max_turns'), ist.get('max_turns'))}"
    settings, others = _named_part(was, "settings"), _named_part(ist, "settings")
    for field in sorted({*settings, *others}):
        if settings.get(field) != others.get(field):
            yield owner, f"{field} {_step(settings.get(field), others.get(field))}"
    yield from _model(f"{owner}, answer", was.get("output"), ist.get("output"), code)
    whole, other = _named_part(was, "agent"), _named_part(ist, "agent")
    for field in sorted({*whole, *other}):
        if whole.get(field) != other.get(field):
            yield owner, f"{field} changed"
    yield from _rest(owner, was, ist, {"instructions", "tools", "max_turns", "settings", "output", "agent"})


def _message(name: str, was: Parts, ist: Parts, code: Code) -> DifferenceTexts:
    for field in ("takes", "answers"):
        yield from _model(f"message {name}, {field}", was.get(field), ist.get(field), code)
    for field in ("code", "check"):
        yield from _for(f"message {name}", code.said(was.get(field), ist.get(field), field))
    yield from _rest(f"message {name}", was, ist, {"takes", "answers", "code", "check"})


def _model(owner: str, was: Any, ist: Any, code: Code) -> DifferenceTexts:
    """Describe how a model's schema differs: its fields by name, and the fields of the models in it."""
    if was is None or ist is None:
        if was is not ist:
            yield owner, "added" if was is None else "dropped"
        return
    texts = list(_schema(owner, was.get("schema"), ist.get("schema")))
    # Changed fields explain a changed class. Without changed fields, it was validators or helpers that changed.
    yield from texts or _for(owner, code.said(was.get("code"), ist.get("code")))


def _schema(owner: str, was: Any, ist: Any) -> DifferenceTexts:
    if was == ist:
        return
    if not isinstance(was, Mapping) or not isinstance(ist, Mapping):
        yield owner, "changed"
        return
    found = False
    places = [(owner, was, ist)]
    inner, others = _named_part(was, "$defs"), _named_part(ist, "$defs")
    places += [(f"{owner}, {name}", inner[name], others[name]) for name in sorted({*inner} & {*others})]
    for place, one, other in places:
        for line in _fields(one, other):
            found = True
            yield place, line
    if not found:
        yield owner, "changed"


def _fields(was: Parts, ist: Parts) -> Iterator[str]:
    fields, others = _named_part(was, "properties"), _named_part(ist, "properties")
    needed, needs = set(was.get("required", ())), set(ist.get("required", ()))
    for name in sorted({*fields, *others}):
        if name not in fields:
            yield f"field {name} added{', required' if name in needs else ''}"
        elif name not in others:
            yield f"field {name} gone"
        elif fields[name] != others[name]:
            yield f"field {name} changed"
        elif (name in needed) != (name in needs):
            yield f"field {name} is now {'required' if name in needs else 'optional'}"


# --- shared helpers ---------------------------------------------------------------------------------------------------


def _differences_of_kind(kind: str, before: Parts, now: Parts, differ: Any, code: Code) -> DifferenceTexts:
    for name in sorted({*before, *now}):
        if name not in before or name not in now:
            yield f"{kind} {name}", "new" if name not in before else "gone"
        else:
            yield from differ(name, before[name], now[name], code)


def _rest(owner: str, was: Parts, ist: Parts, known: set[str]) -> DifferenceTexts:
    for field in sorted(({*was} | {*ist}) - known):
        if was.get(field) != ist.get(field):
            yield owner, f"{field} changed"


def _for(owner: str, lines: Iterable[str]) -> DifferenceTexts:
    for line in lines:
        yield owner, line


def _named_part(parts: Parts, name: str) -> Parts:
    found = parts.get(name)
    return found if isinstance(found, Mapping) else {}


def _step(was: Any, ist: Any) -> str:
    return f"{_value(was)} → {_value(ist)}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _listed(names: Any) -> str:
    return ", ".join(names) if names else "none"


def _time(seconds: Any) -> str | None:
    """Format seconds in the largest whole unit; texts (working hours) are returned unchanged."""
    if isinstance(seconds, str):
        return seconds
    if not isinstance(seconds, (int, float)):
        return None
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
