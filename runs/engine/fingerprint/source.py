"""Source of modules: their definitions and imports, and code as text that is the same in every Python version."""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import inspect
import linecache
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# The target of an import: the module, and the name in it (None for the module itself).
Target = tuple[str, str | None]


class Written(NamedTuple):
    """A syntax tree as text, the same text with placeholders for numbers, and those numbers."""

    text: str
    around: str
    numbers: tuple[str, ...]


class Named(NamedTuple):
    """The names in syntax trees, each with the attributes read from it, and the imports within the trees."""

    chains: list[tuple[str, tuple[str, ...]]]
    imports: dict[str, list[Target]]
    stars: list[str]


class Module:
    """A module's source.

    Results are cached, because agents and tools share helpers and the trees never change.
    """

    def __init__(self, name: str, tree: ast.Module, *, is_package: bool = False) -> None:
        self.name = name
        self._parent = name if is_package else name.rpartition(".")[0]
        self.imports, self.stars = self.imported(_executed(tree.body))
        self.top: dict[str, list[ast.stmt]] = {}
        self._at: dict[int, list[ast.AST]] = {}
        self._written: dict[tuple[int, bool], Written] = {}
        self._named: dict[tuple[int, ...], Named] = {}
        self._own: dict[int, list[str]] = {}
        for each in ast.walk(tree):
            if isinstance(each, (*FUNCTIONS, ast.Lambda)):
                first = min([each.lineno, *(d.lineno for d in getattr(each, "decorator_list", ()))])
                self._at.setdefault(first, []).append(each)
        for statement in _statements(tree.body):
            for defined in _defined(statement):
                self.top.setdefault(defined, []).append(statement)

    def find(self, code: CodeType) -> ast.AST | None:
        """Return the function or lambda from which this code was compiled."""
        candidates = [
            each for each in self._at.get(code.co_firstlineno, ()) if getattr(each, "name", "<lambda>") == code.co_name
        ]
        if (
            len(candidates) > 1
        ):  # if several lambdas start in one line, choose the one that contains the code's positions
            spots = {(line, column) for line, _, column, _ in code.co_positions() if line and column}
            candidates = [
                each
                for each in candidates
                if isinstance(each, ast.Lambda) and any(_is_in(spot, each.body) for spot in spots)
            ] or candidates
            candidates = [min(candidates, key=lambda each: len(dump(each)))]
        return candidates[0] if candidates else None

    def written(self, tree: ast.AST, *, without_decorators: bool = False) -> Written:
        """Return one of this module's trees as text."""
        key = id(tree), without_decorators
        if key not in self._written:
            numbers: list[str] = []
            around = dump(tree, without_decorators=without_decorators, numbers=numbers)
            text = dump(tree, without_decorators=without_decorators) if numbers else around
            self._written[key] = Written(text, around, tuple(numbers))
        return self._written[key]

    def named(self, trees: Sequence[ast.AST]) -> Named:
        """Return the names in some of this module's trees, in the same order in every process."""
        key = tuple(map(id, trees))
        if key not in self._named:
            imports = (
                each for tree in trees for each in ast.walk(tree) if isinstance(each, (ast.Import, ast.ImportFrom))
            )
            self._named[key] = Named(
                sorted({chain for tree in trees for chain in _chains(tree)}), *self.imported(imports)
            )
        return self._named[key]

    def own_names(self, tree: ast.AST) -> list[str]:
        """Return the module-level names that a tree uses, one entry for each use."""
        if id(tree) not in self._own:
            self._own[id(tree)] = [
                each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id in self.top
            ]
        return self._own[id(tree)]

    def imported(self, statements: Iterable[ast.stmt]) -> tuple[dict[str, list[Target]], list[str]]:
        """Return the targets that imports bind to each name, and the modules imported with `*`."""
        names: dict[str, list[Target]] = {}
        stars: list[str] = []
        for each in statements:
            if isinstance(each, ast.Import):
                for alias in each.names:  # `import a.b` binds `a`
                    bound = alias.asname or alias.name.partition(".")[0]
                    names.setdefault(bound, []).append((alias.name if alias.asname else bound, None))
            elif isinstance(each, ast.ImportFrom):
                origin = self._origin(each)
                for alias in each.names:
                    if alias.name == "*":
                        stars.append(origin)
                    else:
                        names.setdefault(alias.asname or alias.name, []).append((origin, alias.name))
        return names, stars

    def _origin(self, each: ast.ImportFrom) -> str:
        if not each.level:
            return each.module or ""
        above = self._parent.split(".")[: len(self._parent.split(".")) - (each.level - 1)]
        return ".".join([*above, *([each.module] if each.module else [])])


def _chains(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every name in a syntax tree with its attributes: `a.b.c` is a, (b, c)."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        attributes: list[str] = []
        inner = each
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield inner.id, tuple(reversed(attributes))
        elif inner is not each:
            waiting.append(inner)
        else:
            waiting.extend(ast.iter_child_nodes(each))


def _is_in(spot: tuple[int, int], tree: ast.expr) -> bool:
    return (tree.lineno, tree.col_offset) <= spot <= (tree.end_lineno or 0, tree.end_col_offset or 0)


def module_of(thing: Any) -> Module | None:
    """Return the source of the module of a function or class; None if it can't be read, as in an interactive shell."""
    try:
        file = inspect.getsourcefile(thing) or ""
    except TypeError:
        return None
    text = "".join(linecache.getlines(file, getattr(thing, "__globals__", None)))
    is_package = hasattr(sys.modules.get(thing.__module__), "__path__")
    return parsed(thing.__module__, text, is_package) if text else None


def module_named(name: str) -> Module | None:
    """Return a module's source without importing it; None if not found.

    The result doesn't depend on whether the module is loaded.
    """
    loaded = sys.modules.get(name)
    try:
        spec = None if loaded is not None else _module_spec(name)
        file = (inspect.getsourcefile(loaded) if loaded is not None else spec and spec.origin) or ""
    except (TypeError, ImportError, ValueError):  # a built-in module, or none at all
        return None
    if not file.endswith(".py"):
        return None
    text = "".join(linecache.getlines(file))
    is_package = hasattr(loaded, "__path__") if loaded is not None else bool(spec and spec.submodule_search_locations)
    return parsed(name, text, is_package) if text else Module(name, ast.Module([], []), is_package=is_package)


def _module_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Return a module's spec without importing its parent packages."""
    parent, _, _ = name.rpartition(".")
    if not parent:
        return importlib.machinery.PathFinder.find_spec(name)
    package = sys.modules.get(parent)
    if package is not None:
        path = getattr(package, "__path__", None)
    else:
        spec = _module_spec(parent)
        path = None if spec is None else spec.submodule_search_locations
    return None if path is None else importlib.machinery.PathFinder.find_spec(name, path)


# Early 3.11 and 3.12 releases count the parser's depth over all threads, so parsing in two at once may fail (CPython
# gh-106905).
_parsing = threading.Lock()


@functools.lru_cache(maxsize=512)
def parsed(name: str, text: str, is_package: bool) -> Module | None:
    try:
        with _parsing:
            return Module(name, ast.parse(text), is_package=is_package)
    except (SyntaxError, ValueError):
        return None  # the file isn't a Python module, for example a notebook cell


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a module's own statements, including those under an `if` or `try`."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
        else:
            yield statement


def _executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a module's own statements, except those that only type checkers execute."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING"):
            yield from _executed(statement.orelse)
        elif isinstance(statement, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from _executed(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _executed(handler.body)
        else:
            yield statement


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [
        name.id for target in targets if target is not None for name in ast.walk(target) if isinstance(name, ast.Name)
    ]


def dump(tree: Any, *, without_decorators: bool = False, numbers: list[str] | None = None) -> str:
    """Return a syntax tree as text that is the same in every Python version.

    With `numbers`, numbers are appended to that list and replaced in the text by `#`.
    """
    if isinstance(tree, list):
        return f"[{', '.join(dump(each, numbers=numbers) for each in tree)}]"
    if not isinstance(tree, ast.AST):
        return repr(tree)
    if isinstance(tree, ast.Constant):
        if numbers is not None and (number := _number(tree.value)) is not None:
            numbers.append(number)
            return "#"
        return repr(tree.value)
    fields = []
    for name in tree._fields:
        value = getattr(tree, name, None)
        if name == "body" and isinstance(tree, (*FUNCTIONS, ast.ClassDef)):
            value = value[1:] if value and ast.get_docstring(tree, clean=False) is not None else value
        if (
            value is None
            or value == []
            or name in ("ctx", "type_comment", "kind")
            or (without_decorators and name == "decorator_list")
        ):
            continue
        fields.append(f"{name}={dump(value, numbers=numbers)}")
    return f"{type(tree).__name__}({', '.join(fields)})"


def _number(value: Any) -> str | None:
    """Return a number as it is written, even within a string (as for decimals); else None.

    Other strings may be secret.
    """
    if isinstance(value, str):
        return value if len(value) <= 20 and _NUMBER.fullmatch(value) else None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return repr(value)[:20] if is_number else None


def compiled(code: CodeType) -> str:
    """Return bytecode as text, for functions without source. The text differs between Python versions."""
    consts = [
        compiled(each) if isinstance(each, CodeType) else repr(each)
        for each in code.co_consts
        if not isinstance(each, frozenset)
    ]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {consts}"


def content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable isn't assigned yet
        return None
