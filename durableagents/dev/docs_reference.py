"""Generate parts of docs/reference from the code: the text between `<!-- generated: NAME -->` marks."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from django.apps import apps
from django.core.management import get_commands, load_command_class
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import module_has_submodule
from pydantic import BaseModel
from rest_framework.permissions import AllowAny, IsAuthenticated

import durableagents
from approvals import trail
from durableagents import env, openapi, testing
from ledger import events
from ledger.web import problems
from ledger.web.roles import APPROVER, EVERY, HasRole
from runs import models
from runs.engine.context import Context

PAGES = env.CHECKOUT / "docs" / "reference"
_APPS = ("ledger", "runs", "approvals", "durableagents")
_MARK = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
# Options that every Django command has.
_DJANGO = {"help", "version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color"}
_DJANGO |= {"skip_checks"}
# Undocumented: a command that only other commands start, and a method that only the engine calls.
_INTERNAL = {"cluster", "forgotten"}


def pages() -> dict[Path, str]:
    """Return each page of docs/reference that has generated parts, with those parts regenerated from the code."""
    texts = {page: page.read_text() for page in sorted(PAGES.glob("*.md"))}
    return {page: _filled(text) for page, text in texts.items() if _MARK.search(text)}


def stale() -> list[Path]:
    """Return the pages whose generated parts differ from the code."""
    return [page for page, text in pages().items() if page.read_text() != text]


def write() -> list[Path]:
    """Update the pages whose generated parts differ from the code, and return them."""
    changed = {page: text for page, text in pages().items() if page.read_text() != text}
    for page, text in changed.items():
        page.write_text(text)
    return list(changed)


def _filled(text: str) -> str:
    return _MARK.sub(lambda mark: f"{mark[1]}\n{PARTS[mark[2]]()}\n\n{mark[3]}", text)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split()) if "`" not in text else _code_cell(text)


def _code_cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _first_paragraph(text: str | None) -> str:
    return " ".join((inspect.cleandoc(text) if text else "").split("\n\n")[0].split())


# --- settings ---------------------------------------------------------------------------------------------------------


def settings() -> str:
    """Return a table per section of `env.Environment`: variable, default, and the text below the field."""
    source = Path(env.__file__).read_text()
    lines = source.splitlines()
    (declared,) = (
        each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == "Environment"
    )
    parts: dict[str, list[list[str]]] = {}
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if not (isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)):
            raise ValueError(f"{field.target.id} in durableagents/env.py has no text below it")
        above = [line for line in lines[: field.lineno] if line.startswith("    # --- ")]
        section = above[-1].removeprefix("    # --- ").rstrip("- ")
        parts.setdefault(section, []).append(_setting(field.target.id, str(text.value.value)))
    tables = (f"### {name}\n\n{_table(('variable', 'default', 'meaning'), rows)}" for name, rows in parts.items())
    return "\n\n".join(tables)


def _setting(name: str, text: str) -> list[str]:
    field = env.Environment.model_fields[name]
    value, stated = field.default, re.match(r"Default: (.*?)\.\s", text)
    if stated:
        default, text = stated[1], text[stated.end() :]
    elif value is None or value in ("", [], {}):
        default = "none"
    elif isinstance(value, bool):
        default = f"`{int(value)}`"
    elif isinstance(value, float):
        default = f"`{value:g}`"
    else:
        default = f"`{','.join(value) if isinstance(value, list) else value}`"
    found = {type(each).__name__: each for each in field.metadata}
    if "Ge" in found and "Le" in found:
        text = f"{text.rstrip()} {found['Ge'].ge:,} to {found['Le'].le:,}."
    return [f"`{field.validation_alias}`", default, text]


# --- the API ----------------------------------------------------------------------------------------------------------


def operations() -> str:
    """Return the API's operations grouped by the first part of their address, each with the roles that may call it."""
    document, views = openapi.description(), dict(_views())
    found: dict[str, list[list[str]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            row = [f"`{method.upper()} {path}`", operation["summary"].rstrip("."), _allowed(views[path], method)]
            found.setdefault(operation["tags"][0], []).append(row)
    tables = (f"### {tag}\n\n{_table(('operation', 'what it does', 'who'), found[tag])}" for tag in sorted(found))
    return "\n\n".join(tables)


def _views(resolver: Any = None, prefix: str = "/") -> Iterator[tuple[str, Any]]:
    """Yield path, view class and route settings of each address of the API."""
    for entry in (resolver or get_resolver()).url_patterns:
        path = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from _views(entry, path)
        elif isinstance(entry, URLPattern) and path.startswith("/api/") and hasattr(entry.callback, "cls"):
            yield (
                re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path),
                entry.callback.cls(**getattr(entry.callback, "initkwargs", {})),
            )


def _allowed(view: Any, method: str) -> str:
    permissions = view.permission_classes
    if AllowAny in permissions:
        return "anyone"
    if IsAuthenticated in permissions:
        return "any account"
    roles = view.roles.get(method.upper(), ())
    names = ["any role"] if set(roles) >= set(EVERY) else [_role(role) for role in EVERY if role in roles]
    if not all(issubclass(HasRole, each) or each is HasRole for each in permissions):
        names.append("administrator")
    return ", ".join(dict.fromkeys(names)) or "administrator"


def _role(role: str) -> str:
    return "approver" if role == APPROVER else role


# --- errors -----------------------------------------------------------------------------------------------------------


def errors() -> str:
    """Return every problem code.

    Codes come from classes that declare `status, code, title`, from the framework's errors and from calls of
    `document`.
    """
    found: dict[tuple[int, str], str] = {}
    titles: dict[tuple[int, str], str] = {}
    for path in _sources():
        text = path.read_text()
        if "status, code, title" not in text and "document(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                for number, code, title in _declared(node):
                    titles.setdefault((number, code), title)
                    found[number, code] = found.get((number, code)) or _first_paragraph(ast.get_docstring(node))
            elif isinstance(node, ast.Call) and _name(node.func) == "document" and len(node.args) > 3:
                values: list[Any] = [each.value if isinstance(each, ast.Constant) else "" for each in node.args[:4]]
                if isinstance(values[0], int) and values[1]:
                    titles.setdefault((values[0], values[1]), values[2])
                    found[values[0], values[1]] = found.get((values[0], values[1])) or values[3]
    known: Mapping[Any, str] = problems._CODES
    for error, code in known.items():
        at = error.status_code, code
        found[at] = found.get(at) or problems._HINTS.get(error, "") or titles.get(at, str(error.default_detail))
    rows = ([str(at[0]), f"`{at[1]}`", (found[at] or titles.get(at, "")).rstrip(".") + "."] for at in sorted(found))
    return _table(("status", "`code`", "when"), rows)


def _declared(node: ast.ClassDef) -> Iterator[tuple[int, str, str]]:
    for each in node.body:
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "(status, code, title)":
            number, code, title = ast.literal_eval(each.value)
            yield number, code, title


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _sources() -> Iterator[Path]:
    for app in _APPS:
        for path in sorted((env.CHECKOUT / app).rglob("*.py")):
            if "demo" not in path.parts and "migrations" not in path.parts:
                yield path


# --- commands ---------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Return each `manage.py` command of this project, with its verbs and options."""
    commands = {name: app for name, app in get_commands().items() if isinstance(app, str)}
    ours = {name: app for name, app in commands.items() if app.split(".")[0] in _APPS and name not in _INTERNAL}
    return "\n\n".join(_command(name, load_command_class(app, name)) for name, app in sorted(ours.items()))


def _command(name: str, command: Any) -> str:
    parser = command.create_parser("manage.py", name)
    lines = [f"### {name}", str(command.help)]
    verbs = next((each for each in parser._actions if isinstance(each, argparse._SubParsersAction)), None)
    rows = [_option(each) for each in _own(parser) if each is not verbs]
    if verbs is not None:
        helps = {each.dest: str(each.help or "") for each in verbs._choices_actions}
        for verb, sub in verbs.choices.items():
            own = _own(sub)
            rows.append([f"`{' '.join([verb, *map(_argument, own)])}`", helps.get(verb, "")])
            rows += [_option(each, f"{verb} ") for each in own if each.help]
    return "\n\n".join([*lines, *([_table(("argument", "meaning"), rows)] if rows else ())])


def _own(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [each for each in parser._actions if each.dest not in _DJANGO and each.help != argparse.SUPPRESS]


def _option(action: argparse.Action, verb: str = "") -> list[str]:
    text = str(action.help or "")
    if "%(" in text:
        text = text % {**vars(action), "prog": ""}
    return [f"`{verb}{_argument(action, is_bare=True)}`", text]


def _argument(action: argparse.Action, *, is_bare: bool = False) -> str:
    choices = "{" + ",".join(map(str, action.choices or ())) + "}"
    value = action.metavar or (choices if 2 < len(choices) < 100 else action.dest.upper())
    if not action.option_strings:
        return str(value)
    text = action.option_strings[-1] + ("" if action.nargs == 0 else f" {value}")
    return text if is_bare or action.required else f"[{text}]"


# --- events, acts and states ------------------------------------------------------------------------------------------


def event_kinds() -> str:
    """Return the kinds of events, with their metadata fields."""
    rows = (
        [f"`{name}`", _code(kind._CLEAR), _first_paragraph(kind.__doc__)] for name, kind in sorted(events.KINDS.items())
    )
    return _table(("kind", "fields", "meaning"), rows)


def acts() -> str:
    """Return the names of the acts that are recorded for people and programs."""
    return _code(sorted({*trail.ACTS, *trail.OVERRIDES}))


def run_states() -> str:
    """Return the states of runs, each with the states that can follow it."""
    following: dict[str, list[str]] = {state: [] for state in models.State.values}
    for source, target in models.legal_moves():
        following[source].append(target)
    return _table(("state", "can become"), ([f"`{state}`", _code(after)] for state, after in following.items()))


# --- metrics ----------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """Return the metrics declared in the `catalogue` modules of installed apps."""
    catalogues = (
        import_module(f"{config.name}.catalogue")
        for config in apps.get_app_configs()
        if module_has_submodule(config.module, "catalogue")
    )
    rows = (
        [f"`{each.exposed_name}`", each.type, _code(each.labels), each.help]
        for catalogue in catalogues
        for each in getattr(catalogue, "FAMILIES", {}).values()
    )
    return _table(("metric", "type", "labels", "meaning"), rows)


# --- Python -----------------------------------------------------------------------------------------------------------


def python_api() -> str:
    """Return each name of `durableagents`, with its signature and docstring."""
    return "\n\n".join(_documented(name, getattr(durableagents, name)) for name in durableagents.__all__)


def python_testing() -> str:
    return "\n\n".join(_documented(name, getattr(testing, name)) for name in testing.__all__)


def _documented(name: str, value: Any) -> str:
    lines = [f"### {name}"]
    if isinstance(value, type) or callable(value):
        if (signature := _signature(name, value)) != name:
            lines.append(f"```\n{signature}\n```")
        lines.append(_prose(inspect.getdoc(value) if value.__doc__ else ""))
    if isinstance(value, type):
        lines += [_values(value) if issubclass(value, Enum) else _members(value)]
    return "\n\n".join(line for line in lines if line)


def _signature(name: str, value: Any) -> str:
    if isinstance(value, type) and (value is Context or issubclass(value, BaseException | Enum)):
        return name
    found = inspect.signature(value)
    # Types are shown without the constraints that pydantic attaches to them.
    hints = get_type_hints(value) if isinstance(value, type) and issubclass(value, BaseModel) else {}
    parameters = [
        each.replace(annotation=hints.get(each.name, each.annotation))
        for each in found.parameters.values()
        if not each.name.startswith("_") and each.name != "self"
    ]
    texts = [_parameter(each) for each in parameters]
    first = next((n for n, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY), None)
    if first is not None and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        texts.insert(first, "*")
    given = None if isinstance(value, type) else found.return_annotation
    returned = "" if given in (None, "None", found.empty) else f" -> {_type(given)}"
    start = f"async {name}" if inspect.iscoroutinefunction(value) else name
    line = f"{start}({', '.join(texts)}){returned}"
    return line if len(line) <= 100 else f"{start}(\n" + "".join(f"    {each},\n" for each in texts) + f"){returned}"


def _parameter(each: inspect.Parameter) -> str:
    star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    text = f"{star}{each.name}" + ("" if each.annotation is each.empty else f": {_type(each.annotation)}")
    if each.default is each.empty:
        return text
    return f"{text} = {_default(each.default)}"


def _default(value: Any) -> str:
    text = _type(repr(value))
    return "…" if text.startswith("<") or " object at " in text or "RAISE" in text else text


def _type(value: Any) -> str:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)


def _prose(text: str | None) -> str:
    """Return a docstring as Markdown: paragraphs reflowed, examples unchanged."""
    return re.sub(r"(?m)^( {4,}\S)", r"\1", text or "").replace("<", "&lt;")


def _values(value: type[Enum]) -> str:
    return "\n".join(f"- `{value.__name__}.{each.name}`: `{each.value!r}`" for each in value)


def _members(value: type) -> str:
    """Return the public methods and properties. The test kit's include those of base classes, which have no entry."""
    parts = []
    bases = [each for each in value.__mro__[1:] if each.__module__.startswith(testing.__name__)]
    members = {name: member for each in [*reversed(bases), value] for name, member in vars(each).items()}
    for name, member in members.items():
        if (
            name.startswith("_")
            or name in _INTERNAL
            or not (inspect.isfunction(member) or isinstance(member, property))
        ):
            continue
        function: Any = member.fget if isinstance(member, property) else inspect.unwrap(member)
        if text := _prose(inspect.getdoc(function)):
            parts.append(f"#### {value.__name__}.{name}")
            parts += [] if isinstance(member, property) else [f"```\n{_signature(name, function)}\n```"]
            parts.append(text)
    return "\n\n".join(parts)


PARTS: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "operations": operations,
    "errors": errors,
    "commands": commands,
    "events": event_kinds,
    "acts": acts,
    "run-states": run_states,
    "metrics": metrics,
    "python-api": python_api,
    "python-testing": python_testing,
}
