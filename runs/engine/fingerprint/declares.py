"""Whether a definition is a tool, an agent, a node or the like, which is described by what it declares. Its source
alone decides: a module that isn't loaded yet can't be asked, and that must make no difference.

What makes one is known by where it comes from: somebody's own function that is called `tool` too makes none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from runs.engine.fingerprint.source import FUNCTIONS, Module, module_named

# What agents are written with makes these; what an agent makes is its own besides.
_MAKERS = frozenset({"Agent", "Assistant", "Undo", "Message", "View", "Node", "Tool"})
_DECORATORS = frozenset({"tool"})
_OF_AN_AGENT = frozenset({"node", "message", "view"})
_DEEPEST = 50  # definitions that are made of one another
Chain = tuple[str, ...]
End = str | tuple[Module, str]


class Declarations:
    """What definitions of an agent's own modules declare. `is_ours` says of a module whether it is the agent's own,
    `is_house` whether it is of what agents are written with."""

    def __init__(self, is_ours: Callable[[str], bool], is_house: Callable[[str], bool]) -> None:
        self._is_ours, self._is_house = is_ours, is_house
        self._known: dict[tuple[str, str], str] = {}
        self._depth = 0

    def is_one(self, module: Module, name: str) -> bool:
        """Whether what stands at the top of a module under that name declares something, whichever of its statements
        made it."""
        return bool(self._kind(module, name))

    def _kind(self, module: Module, name: str) -> str:
        """What it declares; empty for anything else."""
        key = (module.name, name)
        if key not in self._known:
            self._known[key] = ""  # of what is made from itself nobody can say
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
            if isinstance(value.func, ast.Call):  # tool(…)(function)
                return self._decorated(module, value.func)
            return self._one_of(module, value.func, _MAKERS)
        kinds = [self._of_end(end) for end in self._ends(module, _chain(value))] if isinstance(value, ast.expr) else []
        return kinds[0] if kinds and all(kinds) else ""

    def _decorated(self, module: Module, tree: ast.expr) -> str:
        """What a decorator makes of a function: `@tool(…)`, `@agent.node(…)`; also where it is called with one."""
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

    # --- where a name leads ---

    def _ends(self, module: Module, chain: Chain) -> list[End]:
        """What `a.b.c` in a module may be: definitions of the agent's own modules; names of what agents are written
        with; the empty text for what is neither. None where nobody has that name."""
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
            for origin, asked in behind:
                end = self._in(origin, asked)
                waiting += [end] if isinstance(end, tuple) else []
                found += [end] if isinstance(end, str) else []
        return found

    def _in(self, where: str, chain: Chain) -> tuple[Module, Chain] | str:
        """Where to go on for what module `where` has under `chain`; else what that is."""
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
    """Not a mere annotation."""
    return not (isinstance(statement, ast.AnnAssign) and statement.value is None)


def _chain(tree: ast.expr) -> Chain:
    """`a.b.c` as its names; empty for anything else."""
    names: list[str] = []
    while isinstance(tree, ast.Attribute):
        names.append(tree.attr)
        tree = tree.value
    return (tree.id, *reversed(names)) if isinstance(tree, ast.Name) else ()
