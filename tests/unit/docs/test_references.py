"""Tests, commands and addresses that the documentation names exist."""

from __future__ import annotations

import ast
import re
from argparse import ArgumentParser, _SubParsersAction
from functools import cache
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from durableagents.openapi import description
from tests.unit.docs.pages import PAGES, ROOT

_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# In a code span or block: the rest of the line up to a pipe, a redirection, a comment, or what belongs to the sentence.
_COMMAND = re.compile(r"manage\.py ([a-z_]+)((?: [^\s`|>#()]+)*)")
PUBLIC_PAGES = ("/healthz", "/readyz", "/metrics")
READMES = sorted((ROOT / "durableagents").rglob("README.md"))


def test_every_test_that_is_named_exists() -> None:
    named = {(page.name, *found) for page in (*PAGES, *READMES) for found in _TEST.findall(page.read_text())}
    assert sorted(found for found in named if found[2] not in _functions(ROOT / found[1])) == []


@pytest.mark.needs  # the pages describe every app
def test_every_command_that_is_named_exists_with_its_options() -> None:
    wrong = []
    for page in (*PAGES, *READMES):
        for name, rest in _COMMAND.findall(page.read_text().replace("\\\n", " ")):
            if problem := _misfit(name, rest.split()):
                wrong.append(f"{page.name}: manage.py {name}{rest}: {problem}")
    assert wrong == []


def test_every_address_that_is_named_is_one_of_the_api() -> None:
    patterns = "|".join(re.sub(r"{\w+}", r"[^/]+", path) for path in description()["paths"])
    named = {found for page in PAGES for found in re.findall(r"`(?:GET|POST) (/[\w/{}-]+)", page.read_text())}
    paths = {path if path.startswith(("/api", *PUBLIC_PAGES)) else f"/api/v1{path}" for path in named}
    assert sorted(path for path in paths if not re.fullmatch(f"{patterns}|{'|'.join(PUBLIC_PAGES)}", path)) == []


@cache
def _functions(file: Path) -> frozenset[str]:
    if not file.exists():
        return frozenset()
    nodes = ast.walk(ast.parse(file.read_text()))
    return frozenset(each.name for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def _parser(name: str) -> ArgumentParser | None:
    app = get_commands().get(name)
    return load_command_class(app, name).create_parser("manage.py", name) if isinstance(app, str) else None


def _misfit(name: str, words: list[str]) -> str:
    """Return why a command line can't be given; empty if it can, as far as its names tell."""
    parser = _parser(name)
    if parser is None:
        return "no such command"
    verbs = [each for each in parser._actions if each.choices and not each.option_strings]
    if verbs and words and re.fullmatch(r"[a-z][a-z_-]*", words[0]):
        if words[0] not in (verbs[0].choices or ()):
            return f"no {words[0]}"
        if isinstance(verbs[0], _SubParsersAction):
            parser = verbs[0].choices[words[0]]
    known = {option for each in parser._actions for option in each.option_strings}
    given = [word.partition("=")[0].rstrip(",.;:]") for word in words if word.startswith("--")]
    unknown = [option for option in given if option not in known]
    return f"no {unknown[0]}" if unknown else ""
