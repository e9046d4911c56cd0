"""Encodes code according to the third scheme.

The code of a function includes everything that it names in its agent's own packages, directly or indirectly. Each
definition appears once in a table, as a digest and its numbers, so that a changed number can be shown.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType
from typing import Any

from runs.engine.fingerprint.source import FUNCTIONS, Module, Target, compiled, content, module_named, module_of
from runs.engine.tools import Tool

PLAIN = (str, bytes, int, float, bool, Decimal, timedelta, date, Enum, type(None))


def code(thing: Any) -> str | None:
    """Return the digest of a function, or of a model's own class, according to the second scheme.

    The digest covers everything that the function names in its own module.
    """
    if thing is None:
        return None
    closure = _Closure()
    closure.take(thing, is_root=True)
    return hashlib.sha256(json.dumps(closure.seen, sort_keys=True).encode()).hexdigest()


class _Closure:
    """Everything that one function refers to, by name, in a form that is the same in every process."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = {}
        self._taken: set[int] = set()

    def take(self, thing: Any, *, is_root: bool = False) -> str:
        """Record a value that code refers to, and return its key or text."""
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
        # Other values may differ between processes or change at run time, so only their type and name are included.
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
        # Functions made by one factory share name and source; their closures distinguish them.
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
        """Record a module-level definition.

        Tools, agents and the like are skipped, because their declarations are described elsewhere.
        """
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


# Library names that make declarations. Other objects that an agent makes count as its code.
_MAKERS = frozenset({"Agent", "Assistant", "Undo", "Message", "View", "Node", "Tool"})
_DECORATORS = frozenset({"tool"})
_OF_AN_AGENT = frozenset({"node", "message", "view"})
_DEEPEST = 50  # maximum depth of definitions made from other definitions
Chain = tuple[str, ...]
End = str | tuple[Module, str]


class Declarations:
    """Finds the declarations (tools, nodes and so on) in an agent's modules.

    `is_ours` tests for the agent's modules, and `is_house` for those of this library.
    """

    def __init__(self, is_ours: Callable[[str], bool], is_house: Callable[[str], bool]) -> None:
        self._is_ours, self._is_house = is_ours, is_house
        self._known: dict[tuple[str, str], str] = {}
        self._depth = 0

    def is_one(self, module: Module, name: str) -> bool:
        """Return whether a module-level name is a declaration, whatever kind of statement made it."""
        return bool(self._kind(module, name))

    def _kind(self, module: Module, name: str) -> str:
        key = (module.name, name)
        if key not in self._known:
            self._known[key] = ""  # a definition made from itself has no kind
            self._depth += 1
            if self._depth <= _DEEPEST:
                made = [self._made(module, each) for each in module.top.get(name, ()) if _binds(each)]
                self._known[key] = made[0] if made and all(made) else ""
            self._depth -= 1
        return self._known[key]

    def _made(self, module: Module, statement: ast.stmt) -> str:
        if isinstance(statement, FUNCTIONS):
            return next((made for each in statement.decorator_list if (made := self._decorated(module, each))), "")
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call):
            if isinstance(value.func, ast.Call):  # the form `tool(…)(function)`
                return self._decorated(module, value.func)
            return self._one_of(module, value.func, _MAKERS)
        kinds = [self._of_end(end) for end in self._ends(module, _chain(value))] if isinstance(value, ast.expr) else []
        return kinds[0] if kinds and all(kinds) else ""

    def _decorated(self, module: Module, tree: ast.expr) -> str:
        """Return the kind of declaration that a decorator makes, such as `@tool(…)` or `@agent.node(…)`.

        The decorator may also be called with the function directly.
        """
        function = tree.func if isinstance(tree, ast.Call) else tree
        if self._one_of(module, function, _DECORATORS):
            return "Tool"
        if not isinstance(function, ast.Attribute) or function.attr not in _OF_AN_AGENT:
            return ""
        ends = self._ends(module, _chain(function.value))
        return function.attr.title() if ends and all(self._of_end(end) == "Agent" for end in ends) else ""

    def _one_of(self, module: Module, tree: ast.expr, wanted: frozenset[str]) -> str:
        names = [end if isinstance(end, str) else "" for end in self._ends(module, _chain(tree))]
        return names[0] if names and all(name in wanted for name in names) else ""

    def _of_end(self, end: End) -> str:
        return "" if isinstance(end, str) else self._kind(*end)

    # --- resolving names ---

    def _ends(self, module: Module, chain: Chain) -> list[End]:
        """Return everything that `a.b.c` may refer to; empty if it is undefined.

        Each is a module and a name for a definition in the agent's packages, a name for something in this library, or
        an empty text for anything else.
        """
        found: list[End] = []
        seen: set[tuple[str, Chain]] = set()
        waiting = [(module, chain)] if chain else []
        while waiting:
            where, (name, *rest) = waiting.pop()
            if (where.name, (name, *rest)) in seen:
                continue
            seen.add((where.name, (name, *rest)))
            targets = where.imports.get(name, [])
            if name in where.top:
                found.append("" if rest else (where, name))
            behind = [(origin, (*(() if each is None else (each,)), *rest)) for origin, each in targets]
            behind += [(star, (name, *rest)) for star in where.stars if name not in where.top and not targets]
            for origin, wanted_name in behind:
                end = self._in(origin, wanted_name)
                waiting += [end] if isinstance(end, tuple) else []
                found += [end] if isinstance(end, str) else []
        return found

    def _in(self, where: str, chain: Chain) -> tuple[Module, Chain] | str:
        """Return the module and the chain with which to continue resolving `chain` in module `where`.

        If there is nothing more to resolve, return a text as in `_ends`.
        """
        while True:
            if self._is_house(where):
                return chain[-1] if chain else ""
            if not chain or not (self._is_ours(where) or self._is_ours(f"{where}.{chain[0]}")):
                return ""
            module = module_named(where)
            if module is not None and (chain[0] in module.top or chain[0] in module.imports):
                return module, chain
            if module_named(f"{where}.{chain[0]}") is None:
                return "" if module is None else (module, chain)
            where, chain = f"{where}.{chain[0]}", chain[1:]


def _binds(statement: ast.stmt) -> bool:
    return not (isinstance(statement, ast.AnnAssign) and statement.value is None)


def _chain(tree: ast.expr) -> Chain:
    names: list[str] = []
    while isinstance(tree, ast.Attribute):
        names.append(tree.attr)
        tree = tree.value
    return (tree.id, *reversed(names)) if isinstance(tree, ast.Name) else ()


# Packages with which agents are written. Such packages are not part of any agent.
_HOUSE = ("durableagents", "runs", "ledger", "approvals")
_NO_HOME = frozenset({*_HOUSE, *sys.stdlib_module_names, "pydantic", "pydantic_core", "pydantic_ai"} - {"__main__"})
_MAX_NUMBERS = 40
_KINDS: dict[type[ast.AST], str] = {
    ast.ClassDef: "class",
    ast.FunctionDef: "function",
    ast.AsyncFunctionDef: "function",
}


def home_of(thing: Any) -> str | None:
    """Return the package to which a function or class belongs; None for a library.

    For agents shipped with this library, this is a subpackage of it.
    """
    thing = getattr(thing, "__func__", getattr(thing, "func", thing))
    module = getattr(thing, "__module__", None) or ""
    top, *below = module.split(".")
    if top in _HOUSE and len(below) > 1:
        return f"{top}.{below[0]}"
    return top if top and top not in _NO_HOME else None


class Reach:
    """The code within reach of one agent. `homes` are the agent's own packages."""

    def __init__(self, homes: Iterable[str | None]) -> None:
        self.table: dict[str, dict[str, Any]] = {}
        self._waiting: list[tuple[str, Module, list[ast.stmt]]] = []
        self._homes = frozenset(home for home in homes if home)
        self._declared = Declarations(self.is_at_home, self.is_house)

    def code(self, thing: Any) -> dict[str, Any] | None:
        """Return digest, numbers and names of table entries for a function or a model's own class."""
        if thing is None:
            return None
        piece = _Piece(self)
        piece.take(thing, is_root=True)
        while self._waiting:
            self._describe(*self._waiting.pop())
        return piece.entry()

    def is_at_home(self, module: str) -> bool:
        return any(module == home or module.startswith(f"{home}.") for home in self._homes)

    def is_house(self, module: str) -> bool:
        return module.partition(".")[0] in _HOUSE and not self.is_at_home(module)

    def define(self, module: Module, name: str) -> str:
        """Add a module-level definition, with everything that it names, to the table. Return its key."""
        key = f"{module.name}.{name}"
        if key in self.table:
            return key
        if self._declared.is_one(module, name):
            return ""
        self.table[key] = {}
        self._waiting.append((key, module, module.top[name]))  # not recursively: a chain of helpers may be long
        return key

    def _describe(self, key: str, module: Module, statements: list[ast.stmt]) -> None:
        piece = _Piece(self)
        for statement in statements:
            piece.add(statement, module)
        piece.name_all(statements, module)
        self.table[key] = {"kind": _KINDS.get(type(statements[0]), "value"), **piece.entry()}


class _Piece:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._texts: list[str] = []
        self._shapes: list[str] = []
        self._numbers: list[str] = []
        self._names: set[str] = set()
        self._taken: set[int] = set()

    def entry(self) -> dict[str, Any]:
        numbers = {} if not 0 < len(self._numbers) <= _MAX_NUMBERS else {"numbers": self._numbers}
        around = {"around": _digest(self._shapes)} if numbers else {}
        return {"is": _digest(self._texts), **around, **numbers, "names": sorted(self._names)}

    def add(self, tree: ast.AST, module: Module, *, without_decorators: bool = False) -> None:
        """Add a module's syntax tree."""
        written = module.written(tree, without_decorators=without_decorators)
        self._texts.append(written.text)
        self._shapes.append(written.around)
        self._numbers.extend(written.numbers)

    def say(self, text: str, around: str | None = None) -> None:
        """Add a text, together with its form without numbers (`around`)."""
        self._texts.append(text)
        self._shapes.append(text if around is None else around)

    def take(self, thing: Any, *, is_root: bool = False) -> None:
        """Add a value that code refers to."""
        if isinstance(thing, functools.partial):
            self.say("partial")
            for name, each in [("", thing.func), *(("", each) for each in thing.args), *sorted(thing.keywords.items())]:
                self.say(f"with {name}")
                self.take(each)
            return
        thing = getattr(thing, "__func__", thing)
        code = getattr(thing, "__code__", None)
        if isinstance(thing, type):
            self._class(thing)
        elif isinstance(code, CodeType):
            self._function(thing, code, is_root)
        elif isinstance(thing, (int, float)) and not isinstance(thing, bool):
            self._numbers.append(repr(thing)[:20])
            self.say(repr(thing), "#")
        elif isinstance(thing, PLAIN):
            self.say(repr(thing))
        elif isinstance(thing, tuple):
            self.say("tuple")
            for each in thing:
                self.take(each)
        elif callable(thing) and hasattr(type(thing).__call__, "__code__") and not isinstance(thing, Tool):
            self.take(type(thing).__call__)
            for name, value in _settings(thing):
                self.say(name)
                self.take(value)
        else:  # the value may differ between processes or change at run time, so only its type and name are included
            self.say(f"{type(thing).__qualname__} {getattr(thing, '__qualname__', getattr(thing, 'name', ''))}")

    def _function(self, function: Any, code: CodeType, is_root: bool) -> None:
        self.say(f"{function.__module__}.{function.__qualname__}")
        if id(function) in self._taken:
            return
        self._taken.add(id(function))
        module = module_of(function)
        tree = module.find(code) if module else None
        if tree is None or module is None:
            self.say(compiled(code))
            return
        self.add(tree, module, without_decorators=is_root)
        # Functions made by one factory share name and source; their closures distinguish them.
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        for name, cell in sorted(cells.items()):
            self.say(f"{name} =")
            self.take(content(cell))
        # The decorators of a tool or a node (its gate, its edges) are covered by its declaration.
        above = getattr(tree, "decorator_list", ()) if is_root else ()
        self.name_all([each for each in ast.iter_child_nodes(tree) if each not in above], module)

    def _class(self, kind: type[Any]) -> None:
        self.say(f"{kind.__module__}.{kind.__qualname__}")
        module = module_of(kind)
        if module and kind.__qualname__ in module.top:
            self._define(module, kind.__qualname__)

    def name_all(self, trees: Sequence[ast.AST], module: Module) -> None:
        """Add everything that these syntax trees of a module name, including through their own imports."""
        chains, here, stars = module.named(trees)
        for name, attributes in chains:
            if name in module.top:
                self._define(module, name)
            for target in [*module.imports.get(name, ()), *here.get(name, ())]:
                self._imported(name, target, attributes, frozenset())
            if name not in module.top and name not in module.imports and name not in here:
                for star in [*module.stars, *stars]:
                    self._from(star, name, attributes, frozenset())

    def _define(self, module: Module, name: str) -> None:
        if key := self._reach.define(module, name):
            self._names.add(key)

    def _imported(self, name: str, target: Target, attributes: tuple[str, ...], seen: frozenset[Target]) -> None:
        """Add an imported name with its origin.

        The origin is also included for library code, because the same name may later be imported from elsewhere.
        """
        module, attribute = target
        if self._reach.is_house(module):
            return
        self.say(f"{name} is {module}{f'.{attribute}' if attribute else ''}")
        if target in seen:
            return
        if attribute is not None:
            self._from(module, attribute, attributes, seen | {target})
        elif attributes:
            self._from(module, attributes[0], attributes[1:], seen | {target})
        else:
            self._whole(module)

    def _from(self, where: str, name: str, attributes: tuple[str, ...], seen: frozenset[Target]) -> bool:
        """Add the definition of `name` in the agent's own module `where`. Return whether there is such a definition."""
        if not self._reach.is_at_home(where) and not self._reach.is_at_home(f"{where}.{name}"):
            return False
        module = module_named(where)
        if module is not None and name in module.top:
            self._define(module, name)
            return True
        if module is not None and name in module.imports:
            for target in module.imports[name]:
                self._imported(name, target, attributes, seen)
            return True
        if self._reach.is_at_home(f"{where}.{name}") and module_named(f"{where}.{name}") is not None:
            self._imported(name, (f"{where}.{name}", None), attributes, seen)
            return True
        return module is not None and any(
            (star, name) not in seen and self._from(star, name, attributes, seen | {(star, name)})
            for star in module.stars
        )

    def _whole(self, where: str) -> None:
        """Add all definitions of a module that is passed as a value, because any of them may be used."""
        module = module_named(where) if self._reach.is_at_home(where) else None
        for name in sorted(module.top if module else ()):
            assert module is not None
            self._define(module, name)


def _settings(thing: Any) -> list[tuple[str, Any]]:
    """Return the fields of a frozen dataclass instance, which can't change; empty for other objects."""
    made = getattr(type(thing), "__dataclass_params__", None)
    if made is None or not made.frozen:
        return []
    return [(each.name, getattr(thing, each.name)) for each in dataclasses.fields(thing)]


def _digest(texts: list[str]) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:32]
