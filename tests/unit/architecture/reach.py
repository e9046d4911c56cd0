"""Follow a function's names to the functions and files that its readers have to know.

A name leads to what its module defines or imports, a method to its own class. What is reached through a value (a field
of an object, an entry of a table) is behind a seam and doesn't count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@cache
def _module(name: str) -> ast.Module | None:
    path = ROOT.joinpath(*name.split("."))
    file = next((x for x in (path.with_suffix(".py"), path / "__init__.py") if x.is_file()), None)
    return None if file is None else ast.parse(file.read_text())


def _imported(nodes: Iterator[ast.AST]) -> dict[str, tuple[str, str]]:
    """Return, by local name, the module and the name in it that an import means."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


@cache
def _found(module: str, name: str) -> tuple[str, Definition | None] | None:
    """Return where a name of a module is defined, with its definition; None as the definition of a module."""
    tree = _module(module)
    if tree is None:
        return None
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return module, node
    if name not in (imports := _imported(iter(tree.body))):
        return None
    source, original = imports[name]
    if _module(f"{source}.{original}") is not None:
        return f"{source}.{original}", None
    return _found(source, original)


def _local(function: Function) -> set[str]:
    """Return the names that the function itself binds: they lead nowhere."""
    given = function.args
    names = {x.arg for x in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg] if x}
    return names | {x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}


def _method(cls: ast.ClassDef, *names: str) -> Iterator[Function]:
    return (node for node in cls.body if isinstance(node, Function) and node.name in names)


@dataclass
class Reach:
    """Each function reached, by module and name; those of `left_out` (first parts of module names) are not followed."""

    left_out: tuple[str, ...] = ()
    functions: dict[tuple[str, str], Function] = field(default_factory=dict)

    @property
    def files(self) -> set[str]:
        return {module for module, _ in self.functions}

    def follow(self, module: str, function: Function, cls: ast.ClassDef | None = None) -> None:
        key = module, f"{cls.name}.{function.name}" if cls is not None else function.name
        if key in self.functions or module.startswith(self.left_out):
            return
        self.functions[key] = function
        local, imports = _local(function), _imported(ast.walk(function))
        for statement in function.body:
            for node in ast.walk(statement):
                match node:
                    case ast.Attribute(ast.Name("self" | "cls"), name) if cls is not None:
                        for method in _method(cls, name):
                            self.follow(module, method, cls)
                    case ast.Attribute(ast.Name(name), attribute) if name not in local:
                        self._attribute(module, name, attribute, imports)
                    case ast.Call(ast.Name(name)) if name not in local:
                        self._name(module, name, imports, is_called=True)
                    case ast.Name(name, ast.Load()) if name not in local:
                        self._name(module, name, imports, is_called=False)

    def _lookup(
        self, module: str, name: str, imports: Mapping[str, tuple[str, str]]
    ) -> tuple[str, Definition | None] | None:
        if name not in imports:
            return _found(module, name)
        source, original = imports[name]
        return (f"{source}.{original}", None) if _module(f"{source}.{original}") else _found(source, original)

    def _name(self, module: str, name: str, imports: Mapping[str, tuple[str, str]], *, is_called: bool) -> None:
        match self._lookup(module, name, imports):
            case where, ast.ClassDef() as cls if is_called:
                for method in _method(cls, "__init__", "__post_init__"):
                    self.follow(where, method, cls)
            case where, ast.FunctionDef() | ast.AsyncFunctionDef() as function:
                self.follow(where, function)

    def _attribute(self, module: str, name: str, attribute: str, imports: Mapping[str, tuple[str, str]]) -> None:
        match self._lookup(module, name, imports):
            case where, None:
                self._name(where, attribute, {}, is_called=True)
            case where, ast.ClassDef() as cls:
                for method in _method(cls, attribute):
                    self.follow(where, method, cls)


def reach_of(entry: str, *, left_out: tuple[str, ...] = ()) -> Reach:
    """Return what `module.function` reaches."""
    module, _, name = entry.rpartition(".")
    found, reach = _found(module, name), Reach(left_out)
    assert found is not None and isinstance(found[1], Function), f"there is no function {entry}"
    reach.follow(found[0], found[1])
    return reach
