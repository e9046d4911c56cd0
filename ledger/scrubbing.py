"""Keeps secret values out of recorded texts.

A secret store sets the scrubber when it first reads a value, so processes that read no secret have no cost.
"""

from __future__ import annotations

from typing import Any, Protocol


class Scrubber(Protocol):
    """Replaces secret values by references to them."""

    def text(self, text: str) -> str:
        """Return the text with secret values replaced."""

    def error(self, text: str) -> str:
        """Return an error text with secret values replaced.

        Where the text was truncated, beginnings and ends of values are replaced too.
        """


scrubber: Scrubber | None = None


def use(found: Scrubber | None) -> None:
    """Set the scrubber of this process."""
    global scrubber
    scrubber = found


def scrubbed(value: Any) -> Any:
    """Return plain data with secret values replaced."""
    if scrubber is None:
        return value
    match value:
        case str():
            return scrubber.text(value)
        case dict():
            return {scrubbed(name): scrubbed(each) for name, each in value.items()}
        case list() | tuple():
            return [scrubbed(each) for each in value]
        case _:
            return value


def scrubbed_error(text: str) -> str:
    """Return an error text with secret values replaced, including truncated ones.

    Scrub before truncating it further.
    """
    return text if scrubber is None else scrubber.error(text)
