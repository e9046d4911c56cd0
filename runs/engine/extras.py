"""Optional packages: those of requirements-extras.in, which only some settings need."""

from __future__ import annotations

from importlib.util import find_spec

INSTALL = "pip install --no-deps --require-hashes -r requirements-extras.lock"
_MODELS = ("anthropic", "openai")
_STORAGES = ("boto3", "botocore", "storages")


def missing(*packages: str) -> str:
    """Return which of these packages isn't installed, and how to install it; empty if all are installed."""
    found = next((package for package in packages if find_spec(package) is None), None)
    return f"the package {found} is not installed: run `{INSTALL}`" if found else ""


def missing_for_model(model: str) -> str:
    """Return which package a model needs that isn't installed, and how to install it; empty if none."""
    provider = model.partition(":")[0].partition("-")[0]  # openai-chat:… and openai-responses:… are OpenAI's too
    return missing(provider) if provider in _MODELS else ""


def missing_import(error: ModuleNotFoundError) -> str:
    """Return which optional package an import didn't find, and how to install it; empty for other packages."""
    package = (error.name or "").partition(".")[0]
    return missing(package) if package in (*_MODELS, *_STORAGES) else ""
