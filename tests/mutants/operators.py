"""Mutation operators: small, structural changes to one Python function or one SQL function.

A Python operator selects nodes of a function's syntax tree by the names they mention, an SQL operator selects
statements of a function's body by what they call or raise, so neither depends on how a line is written. Pure.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass


class DoesNotApply(Exception):
    """The operator selects nothing in the function that it names."""


@dataclass(frozen=True)
class Operator:
    """Change a Python function at every node of `kind` that mentions `name`.

    `function` is "package.module:function" or "package.module:Class.method". Kinds: `if_false` and `if_true` fix a
    condition; `drop` removes a statement that calls, assigns or raises; `negate` inverts a comparison; `closer` turns
    `>=` into `>` and the others likewise; `returns` replaces the body by returning the expression `name`.
    """

    function: str
    kind: str
    name: str

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    def mutate(self, tree: ast.Module) -> ast.Module:
        """Return the tree with the change. Raises DoesNotApply."""
        function = _find(tree, self.function.partition(":")[2])
        change = _Change(self.kind, self.name)
        if self.kind == "returns":
            function.body = [ast.Return(ast.parse(self.name, mode="eval").body)]
        else:
            function.body = [node for statement in function.body for node in _as_list(change.visit(statement))]
            if not change.count:
                raise DoesNotApply(f"{self.function}: nothing to {self.kind} mentions {self.name!r}")
            function.body = function.body or [ast.Pass()]
        return ast.fix_missing_locations(tree)


@dataclass(frozen=True)
class SqlOperator:
    """Change the SQL function `function` at the one place that fits.

    Kinds: `no_raise` drops the RAISE of SQLSTATE `name`; `no_call` drops PERFORM of the function `name`; `if_false`
    fixes the IF condition that mentions `name`; `replace` exchanges the token sequence `name` for `by`.
    """

    function: str
    kind: str
    name: str
    by: str = ""

    def mutate(self, text: str) -> str:
        """Return the definition with the change. Raises DoesNotApply."""
        pattern, by = {
            "no_raise": (rf"RAISE EXCEPTION [^;]*ERRCODE = '{self.name}'[^;]*;", "NULL;"),
            "no_call": (rf"PERFORM {self.name}\([^;]*;", "NULL;"),
            "if_false": (rf"IF (?:(?!\bTHEN\b)[^;])*\b{self.name}\b(?:(?!\bTHEN\b)[^;])*\bTHEN\b", "IF false THEN"),
            "replace": (r"\s+".join(map(re.escape, self.name.split())), self.by),
        }[self.kind]
        changed, count = re.subn(pattern, lambda _: by, text)
        if count != 1:
            raise DoesNotApply(f"{self.function}: {self.kind} {self.name!r} applies {count} times, not once")
        return changed


def _find(tree: ast.Module, path: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    body: list[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for name in path.split("."):
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((node for node in body if isinstance(node, named) and node.name == name), None)
        if found is None:
            raise DoesNotApply(f"there is no {path}")
        body = found.body
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        raise DoesNotApply(f"{path} is not a function")
    return found


def _as_list(node: ast.AST | list[ast.AST] | None) -> list[ast.stmt]:
    return [] if node is None else node if isinstance(node, list) else [node]  # type: ignore[list-item]


def mentions(node: ast.AST, name: str) -> bool:
    """Return whether a name, attribute, keyword or string constant of the node is `name`."""
    for each in ast.walk(node):
        found = (
            getattr(each, "id", None),
            getattr(each, "attr", None),
            getattr(each, "value", None) if isinstance(each, ast.Constant) else None,
            getattr(each, "arg", None),
        )
        if name in found:
            return True
    return False


_CLOSER = {ast.GtE: ast.Gt, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.Lt: ast.LtE}
_OPPOSITE = {
    **{
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
        ast.In: ast.NotIn,
        ast.NotIn: ast.In,
        ast.Is: ast.IsNot,
        ast.IsNot: ast.Is,
    },
    **{ast.GtE: ast.Lt, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt},
}


class _Change(ast.NodeTransformer):
    def __init__(self, kind: str, name: str) -> None:
        self.kind, self.name, self.count = kind, name, 0

    def visit_If(self, node: ast.If) -> ast.AST:
        self._fix(node)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self._fix(node)
        return self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        if self.kind in ("if_false", "if_true"):
            fixed = ast.Constant(self.kind == "if_true")
            self.count += sum(mentions(test, self.name) for test in node.ifs)
            node.ifs = [fixed if mentions(test, self.name) else test for test in node.ifs]
        return self.generic_visit(node)

    def _fix(self, node: ast.If | ast.IfExp) -> None:
        if self.kind in ("if_false", "if_true") and mentions(node.test, self.name):
            node.test = ast.Constant(self.kind == "if_true")
            self.count += 1

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return self._dropped(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return self._dropped(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        return self._dropped(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return self._dropped(node)

    def _dropped(self, node: ast.stmt) -> ast.AST:
        if self.kind == "drop" and mentions(node, self.name):
            self.count += 1
            return ast.Pass()
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        table = {"closer": _CLOSER, "negate": _OPPOSITE}.get(self.kind)
        if table and mentions(node, self.name) and type(node.ops[0]) in table:
            node.ops[0] = table[type(node.ops[0])]()  # type: ignore[index]
            self.count += 1
        return self.generic_visit(node)


# --- every small change that can be made --------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """One place in a module: the `number`-th node that `sites` lists."""

    module: str
    number: int
    line: int
    change: str

    def mutate(self, tree: ast.Module) -> ast.Module:
        """Return the tree with the change at this place."""
        for number, (_, _, apply) in enumerate(_all_sites(tree)):
            if number == self.number:
                apply()
                return ast.fix_missing_locations(tree)
        raise DoesNotApply(f"{self.module} has no place {self.number}")


def sites(module: str, tree: ast.Module) -> list[Site]:
    """List every place in a module's functions at which one small change can be made."""
    return [Site(module, n, line, change) for n, (line, change, _) in enumerate(_all_sites(tree))]


def _all_sites(tree: ast.Module):  # type: ignore[no-untyped-def]
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.If | ast.IfExp | ast.While):
                yield node.lineno, "negate condition", lambda n=node: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
            elif isinstance(node, ast.BoolOp):
                other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                yield node.lineno, "swap and/or", lambda n=node, o=other: setattr(n, "op", o)
            elif isinstance(node, ast.Compare) and type(node.ops[0]) in _CLOSER:
                closer = _CLOSER[type(node.ops[0])]()
                yield node.lineno, "move boundary", lambda n=node, c=closer: n.ops.__setitem__(0, c)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
                yield node.lineno, "drop call", lambda n=node: setattr(n, "value", ast.Constant(None))
            elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
                yield node.lineno, "return None", lambda n=node: setattr(n, "value", ast.Constant(None))
