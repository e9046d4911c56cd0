"""Code by the second scheme: with a function comes what it names of its own module. Only for what older installations
have on record: every byte of it was hashed there."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType
from typing import Any

from runs.engine.fingerprint.source import Module, compiled, content, module_of
from runs.engine.tools import Tool

PLAIN = (str, bytes, int, float, bool, Decimal, timedelta, date, Enum, type(None))


def code(thing: Any) -> str | None:
    """The digest of a function, or of a model's own class, with all of its module that it names."""
    if thing is None:
        return None
    closure = _Closure()
    closure.take(thing, is_root=True)
    return hashlib.sha256(json.dumps(closure.seen, sort_keys=True).encode()).hexdigest()


class _Closure:
    """Everything within reach of one function, by name: what it is made of, in words that every process would use."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = {}
        self._taken: set[int] = set()

    def take(self, thing: Any, *, is_root: bool = False) -> str:
        """Note a value that code refers to; what it is noted as."""
        if isinstance(thing, functools.partial):
            given = [self.take(each) for each in thing.args] + [
                f"{name}={self.take(each)}" for name, each in sorted(thing.keywords.items())
            ]
            return self._note(f"partial {self.take(thing.func)}", ", ".join(given))
        thing = getattr(thing, "__func__", thing)
        if isinstance(thing, type):
            return self._class(thing)
        code = getattr(thing, "__code__", None)
        if isinstance(code, CodeType):
            return self._function(thing, code, is_root)
        if isinstance(thing, PLAIN):
            return repr(thing)
        if isinstance(thing, tuple):
            return f"({', '.join(self.take(each) for each in thing)})"
        if callable(thing) and hasattr(type(thing).__call__, "__code__") and not isinstance(thing, Tool):
            return self.take(type(thing).__call__)
        # Anything else may be another in each process, or change while it runs: only its kind counts, or its name.
        return f"{type(thing).__qualname__} {getattr(thing, '__qualname__', getattr(thing, 'name', ''))}"

    def _function(self, function: Any, code: CodeType, is_root: bool) -> str:
        key = f"{function.__module__}.{function.__qualname__}"
        if id(function) in self._taken:
            return key
        self._taken.add(id(function))
        module = module_of(function)
        tree = module.find(code) if module else None
        if tree is None or module is None:
            return self._note(key, compiled(code))
        # Two functions of one maker have one name and one source: what they were made with tells them apart.
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        self._note(key, module.written(tree, without_decorators=is_root).text)
        for name, cell in sorted(cells.items()):
            self._note(f"{key} {name}", self.take(content(cell)))
        self._named(tree, module, function.__globals__)
        return key

    def _class(self, kind: type[Any]) -> str:
        key = f"{kind.__module__}.{kind.__qualname__}"
        module = module_of(kind)
        if module and kind.__qualname__ in module.top and key not in self.seen:
            self._top(kind.__qualname__, module, vars(inspect.getmodule(kind) or kind))
        return key

    def _named(self, tree: ast.AST, module: Module, known: Any) -> None:
        for name in module.own_names(tree):
            self._top(name, module, known)

    def _top(self, name: str, module: Module, known: Any) -> None:
        """A definition at the top of the module. Tools, agents, nodes and assistants are described by what they
        declare."""
        key = f"{module.name}.{name}"
        if key in self.seen or is_described(known.get(name)):
            return
        self._note(key, "; ".join(module.written(tree).text for tree in module.top[name]))
        for tree in module.top[name]:
            self._named(tree, module, known)

    def _note(self, key: str, text: str) -> str:
        self.seen.setdefault(key, []).append(text)
        return key


def is_described(value: Any) -> bool:
    return type(value).__module__.startswith("runs.engine.") and type(value).__name__ in (
        "Tool",
        "Agent",
        "Node",
        "Assistant",
        "Message",
        "View",
        "Undo",
    )
