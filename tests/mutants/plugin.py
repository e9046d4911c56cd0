"""pytest plugin that puts one mutation into the code under test; `MUTATION` holds it as JSON (see __main__.py)."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.mutants.operators import Operator, Site, SqlOperator


class _Mutating(SourceFileLoader):
    def __init__(self, name: str, path: str, mutation: Operator | Site) -> None:
        super().__init__(name, path)
        self.mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = self.mutation.mutate(ast.parse(self.get_data(path)))
        return compile(tree, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Operator | Site) -> None:
        self.mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            loader: Loader = _Mutating(fullname, spec.origin, self.mutation)
            spec.loader = loader
        return spec


def _mutate_sql(mutation: SqlOperator) -> None:
    """Let `migrate` install the mutated definition, since each run makes its own database."""
    from ledger import definitions

    parse = definitions.parse

    def mutated(path: Path) -> Iterator[Any]:
        for each in parse(path):
            is_it = each.kind == "FUNCTION" and each.name == mutation.function
            yield replace(each, text=mutation.mutate(each.text)) if is_it else each

    definitions.parse = mutated


def install(said: str) -> None:
    """Read a mutation from JSON and apply it to what is imported or installed from now on."""
    fields = json.loads(said)
    kind = {"operator": Operator, "site": Site, "sql": SqlOperator}[fields.pop("type")]
    mutation = kind(**fields)
    if isinstance(mutation, SqlOperator):
        _mutate_sql(mutation)
    elif mutation.module in sys.modules:
        raise RuntimeError(f"{mutation.module} is imported before the mutation is in place")
    else:
        sys.meta_path.insert(0, _Finder(mutation))


if "MUTATION" in os.environ:
    install(os.environ["MUTATION"])
