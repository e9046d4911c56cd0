"""Table-driven tests: one test runs all cases and reports every case that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

Test = Callable[..., Any]


def each_case(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run the test with every case in turn (`pytest.mark.parametrize` makes a test of each).

    A transaction around the test is rolled back between cases; other fixtures are shared.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()] if isinstance(names, str) else list(names)
    listed = [_arguments(wanted, case) for case in cases]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            failed = []
            for arguments in listed:
                try:
                    with _rolled_back():
                        test(*args, **fixtures, **arguments)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(_with_case(error, arguments))
            _report(failed, len(listed))

        @functools.wraps(test)
        async def run_async(*args: Any, **fixtures: Any) -> None:
            failed = []
            for arguments in listed:
                try:
                    await test(*args, **fixtures, **arguments)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(_with_case(error, arguments))
            _report(failed, len(listed))

        made: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        assert {*wanted} <= {*signature.parameters}, f"{test.__name__} does not take {names}"
        left = [each for name, each in signature.parameters.items() if name not in wanted]
        made.__signature__ = signature.replace(parameters=left)
        return made  # type: ignore[no-any-return]

    return decorate


def _arguments(names: Sequence[str], case: Any) -> dict[str, Any]:
    values = getattr(case, "values", None) if type(case).__name__ == "ParameterSet" else None
    if values is None:
        values = (case,) if len(names) == 1 else case
    return dict(zip(names, values, strict=True))


def _with_case(error: BaseException, arguments: dict[str, Any]) -> BaseException:
    error.add_note("case: " + ", ".join(f"{name}={_short(value)}" for name, value in arguments.items()))
    return error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _report(failed: Sequence[BaseException], count: int) -> None:
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise BaseExceptionGroup(f"{len(failed)} of {count} cases failed", failed)


@contextmanager
def _rolled_back() -> Iterator[None]:
    """Undo what one case wrote, if the test runs in a transaction."""
    from runs.journal.asked.queues import QUEUES

    if connection.connection is None or not connection.in_atomic_block:
        yield
        return
    savepoint = transaction.savepoint()
    try:
        yield
    finally:
        transaction.savepoint_rollback(savepoint)
        QUEUES.forget()
