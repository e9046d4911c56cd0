"""What a version of an agent is made of, and the digest by which another process sees that it has the same.

Code counts as its syntax tree: layout, comments and docstrings change nothing (what a model reads of them is in the
tools' descriptions and the models' schemas). With a function come the functions, classes and constants of its own
module that it names, and theirs. What is imported from elsewhere does not: a library is not the agent. See
docs/decisions/0019.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import linecache
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from runs.engine.tools import FOR_DISPATCH, Gate, Tool

SCHEME = "2:"  # before every digest: what is compared are digests of one scheme
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# A model keeps its schema, and is asked for it by each tool and agent that takes or gives it.
_schemas: WeakKeyDictionary[type[BaseModel], Any] = WeakKeyDictionary()
_PLAIN = (str, bytes, int, float, bool, Decimal, timedelta, date, Enum, type(None))


class Described(Protocol):
    """What an agent is made of: see `runs.engine.agents.Agent`, which knows this module; this one doesn't know it."""

    @property
    def nodes(self) -> Mapping[str, Any]: ...
    @property
    def start(self) -> str: ...
    @property
    def initial(self) -> Callable[[Any], BaseModel] | None: ...
    @property
    def input(self) -> type[BaseModel]: ...
    @property
    def state(self) -> type[BaseModel]: ...
    @property
    def output(self) -> type[BaseModel] | None: ...
    @property
    def assistants(self) -> Iterable[Any]: ...
    @property
    def attributes(self) -> Mapping[str, Any]: ...
    @property
    def messages(self) -> Mapping[str, Any]: ...
    @property
    def signals(self) -> list[str] | None: ...
    def all_tools(self) -> Iterable[Tool]: ...


def parts(agent: Described) -> dict[str, Any]:
    """What makes a version what it is, as plain data: schemas and settings as they are, code as digests."""
    return {
        "nodes": {n.name: {"edges": list(n.edges), "code": _code(n.function)} for n in agent.nodes.values()},
        "start": agent.start,
        "initial": _code(agent.initial),
        "tools": {t.name: _tool(t) for t in agent.all_tools()},
        "models": {"input": _schema(agent.input), "state": _schema(agent.state), "output": _schema(agent.output)},
        "assistants": {
            a.name: {
                "instructions": a.instructions,
                "output": _schema(a.output),
                "tools": [t.name for t in a.tools],
                "max_turns": a.max_turns,
                **({"agent": _with_code(described)} if (described := a.described()) else {}),
            }
            for a in agent.assistants
        },
        # One without any is described as it was when there were none.
        **({"attributes": {n: a.kind for n, a in agent.attributes.items()}} if agent.attributes else {}),
    } | _told(agent)


def _told(agent: Described) -> dict[str, Any]:
    """What others may say to its runs; nothing for an agent that declares none, as those of before do."""
    messages = {
        m.name: {
            "takes": _schema(m.takes), "answers": _schema(m.answers), "code": _code(m.function), "check": _code(m.check)
        }
        for m in agent.messages.values()
    }  # fmt: skip
    signals = {} if agent.signals is None else {"signals": sorted(agent.signals)}
    return ({"messages": messages} if messages else {}) | signals


def digest(of: dict[str, Any]) -> str:
    """The digest of `parts`."""
    return SCHEME + hashlib.sha256(json.dumps(of, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def is_current(stored: str) -> bool:
    """Whether a stored digest can be compared with one made by this code."""
    return stored.startswith(SCHEME)


def first_scheme(agent: Described) -> str:
    """The digest as it was made before schemes had names: what an older installation has on record is compared with it,
    once."""
    whole = {
        "nodes": {n.name: {"edges": list(n.edges), "source": _text(n.function)} for n in agent.nodes.values()},
        "start": agent.start,
        "tools": {
            t.name: {
                "class": str(t.replay_class),
                "input": t.input.model_json_schema(),
                "output": t.output.model_json_schema(),
            }
            for t in agent.all_tools()
        },
        "state": agent.state.model_json_schema(),
        "prompts": {a.name: a.instructions for a in agent.assistants},
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def changed(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """The places where two `parts` differ, as `tools.refund.gate.when`."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now.keys()):
            yield from changed(before.get(name), now.get(name), f"{where}.{name}" if where else name)
    elif before != now:
        yield where


def tool_digest(tool: Tool) -> str:
    """The digest of one tool: two that differ don't share what they have read."""
    known = _DIGESTS.get(id(tool))
    if known is None or known[0] is not tool:
        known = _DIGESTS[id(tool)] = tool, digest(_tool(tool))
    return known[1]


_DIGESTS: dict[int, tuple[Tool, str]] = {}


def _tool(tool: Tool) -> dict[str, Any]:
    cached = {} if tool.cache is None else {"cache": tool.cache.total_seconds(), "shared": tool.shared}
    return cached | {
        "class": str(tool.replay_class), "input": _schema(tool.input), "output": _schema(tool.output),
        "code": _code(_written(tool)), "gate": None if tool.gate is None else _gate(tool.gate),
        "timeout": tool.timeout, "answers_later": tool.answers_later,
        "key_ttl": None if tool.key_ttl is None else tool.key_ttl.total_seconds(),
        "external_id": tool.external_id, "sequential": tool.sequential, "description": tool.description,
        "reconcile": _code(tool.reconcile), "on_receipt": _code(tool.on_receipt),
        "check_answer": _code(tool.check_answer),
    }  # fmt: skip


def _written(tool: Tool) -> Callable[..., Any]:
    """The function that somebody wrote: a Pydantic AI agent's tool has this library's around it."""
    function = tool.opened(FOR_DISPATCH)
    return getattr(function, "author", function)


def _with_code(value: Any) -> Any:
    """Plain data, with each function in it as its code."""
    if isinstance(value, dict):
        return {name: _with_code(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_code(each) for each in value]
    return _code(value) if callable(value) else value


def _gate(gate: Gate) -> dict[str, Any]:
    headline = _code(gate.headline)
    return {
        "queue": gate.queue,
        "rule": gate.rule,
        "when": _code(gate.when),
        "headline": headline,
        "within": gate.within.total_seconds(),
    }


def _schema(model: type[BaseModel] | None) -> Any:
    if model is None:
        return None
    if model not in _schemas:
        try:
            _schemas[model] = model.model_json_schema()
        except PydanticInvalidForJsonSchema:
            _schemas[model] = model.__qualname__
    return {"schema": _schemas[model], "code": _code(model)}


# --- code -------------------------------------------------------------------------------------------------------------


def _code(thing: Any) -> str | None:
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
        if isinstance(thing, _PLAIN):
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
        module = _module_of(function)
        tree = module.find(code) if module else None
        if tree is None or module is None:
            return self._note(key, _compiled(code))
        # Two functions of one maker have one name and one source: what they were made with tells them apart.
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        self._note(key, dump(tree, without_decorators=is_root))
        for name, cell in sorted(cells.items()):
            self._note(f"{key} {name}", self.take(_content(cell)))
        self._named(tree, module, function.__globals__)
        return key

    def _class(self, kind: type[Any]) -> str:
        key = f"{kind.__module__}.{kind.__qualname__}"
        module = _module_of(kind)
        if module and kind.__qualname__ in module.top and key not in self.seen:
            self._top(kind.__qualname__, module, vars(inspect.getmodule(kind) or kind))
        return key

    def _named(self, tree: ast.AST, module: _Module, known: Any) -> None:
        for each in ast.walk(tree):
            if isinstance(each, ast.Name) and each.id in module.top:
                self._top(each.id, module, known)

    def _top(self, name: str, module: _Module, known: Any) -> None:
        """A definition at the top of the module. Tools, agents, nodes and assistants are described by what they
        declare."""
        key = f"{module.name}.{name}"
        if key in self.seen or _is_described(known.get(name)):
            return
        self._note(key, "; ".join(dump(tree) for tree in module.top[name]))
        for tree in module.top[name]:
            self._named(tree, module, known)

    def _note(self, key: str, text: str) -> str:
        self.seen.setdefault(key, []).append(text)
        return key


def _is_described(value: Any) -> bool:
    return type(value).__module__.startswith("runs.engine.") and type(value).__name__ in (
        "Tool",
        "Agent",
        "Node",
        "Assistant",
        "Message",
        "View",
    )


class _Module:
    """A module's source: every function by the line where it begins, and what stands at its top by name."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name = name
        self.top: dict[str, list[ast.stmt]] = {}
        self._at: dict[int, list[ast.AST]] = {}
        for each in ast.walk(tree):
            if isinstance(each, (*_FUNCTIONS, ast.Lambda)):
                first = min([each.lineno, *(d.lineno for d in getattr(each, "decorator_list", ()))])
                self._at.setdefault(first, []).append(each)
        for statement in _statements(tree.body):
            for defined in _defined(statement):
                self.top.setdefault(defined, []).append(statement)

    def find(self, code: CodeType) -> ast.AST | None:
        """The function or lambda that was compiled to this code."""
        candidates = [
            each for each in self._at.get(code.co_firstlineno, ()) if getattr(each, "name", "<lambda>") == code.co_name
        ]
        if len(candidates) > 1:  # several lambdas in one line: the one around the code's own places
            spots = {(line, column) for line, _, column, _ in code.co_positions() if line and column}
            candidates = [
                each
                for each in candidates
                if isinstance(each, ast.Lambda) and any(_is_in(spot, each.body) for spot in spots)
            ] or candidates
            candidates = [min(candidates, key=lambda each: len(dump(each)))]
        return candidates[0] if candidates else None


def _is_in(spot: tuple[int, int], tree: ast.expr) -> bool:
    return (tree.lineno, tree.col_offset) <= spot <= (tree.end_lineno or 0, tree.end_col_offset or 0)


def _module_of(thing: Any) -> _Module | None:
    """The source of the module that a function or class stands in; None where there is none to read, as in a shell."""
    try:
        file = inspect.getsourcefile(thing) or ""
    except TypeError:
        return None
    text = "".join(linecache.getlines(file, getattr(thing, "__globals__", None)))
    return _parsed(thing.__module__, text) if text else None


# Early 3.11 and 3.12 count the parser's depth over all threads: of two at once one may fail (CPython gh-106905).
_parsing = threading.Lock()


@functools.lru_cache(maxsize=128)
def _parsed(name: str, text: str) -> _Module | None:
    try:
        with _parsing:
            return _Module(name, ast.parse(text))
    except (SyntaxError, ValueError):
        return None  # no Python: a page that holds some


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """A module's own statements, those under an `if` or `try` too."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            for part in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
        else:
            yield statement


def _defined(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [
        name.id for target in targets if target is not None for name in ast.walk(target) if isinstance(name, ast.Name)
    ]


def dump(tree: Any, *, without_decorators: bool = False) -> str:
    """A syntax tree as text, the same in every Python that can read it: `ast.dump` says more with each release."""
    if isinstance(tree, list):
        return f"[{', '.join(dump(each) for each in tree)}]"
    if not isinstance(tree, ast.AST):
        return repr(tree)
    if isinstance(tree, ast.Constant):
        return repr(tree.value)
    fields = []
    for name in tree._fields:
        value = getattr(tree, name, None)
        if name == "body" and isinstance(tree, (*_FUNCTIONS, ast.ClassDef)):
            value = value[1:] if value and ast.get_docstring(tree, clean=False) is not None else value
        if (
            value is None
            or value == []
            or name in ("ctx", "type_comment", "kind")
            or (without_decorators and name == "decorator_list")
        ):
            continue
        fields.append(f"{name}={dump(value)}")
    return f"{type(tree).__name__}({', '.join(fields)})"


def _compiled(code: CodeType) -> str:
    """Where there is no source: what it was compiled to, which another Python does otherwise."""
    consts = [
        _compiled(each) if isinstance(each, CodeType) else repr(each)
        for each in code.co_consts
        if not isinstance(each, frozenset)
    ]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {consts}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _text(function: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return getattr(function, "__qualname__", "?")
