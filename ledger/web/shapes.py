"""Base models of the API's documented responses."""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """Base of documented responses."""

    model_config = ConfigDict(extra="forbid")

    # Fields that are never stored: null when the response is repeated for an Idempotency-Key.
    shown_once: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, stored: object, **more: Any) -> Self:
        """Build a response from a stored object; `more` contains values with another name or source.

        Nothing is checked or converted, so a damaged row is shown unchanged and doesn't hide others. A field with a
        default is included only if `more` names it.
        """
        given = {
            name: getattr(stored, name)
            for name, field in cls.model_fields.items()
            if name not in more and field.is_required()
        }
        return cast(Self, cls.model_construct(**given, **more))

    def as_kept(self) -> Self:
        """Return a copy to store for repeated requests, without the values that are shown only once."""
        return self.model_copy(update=dict.fromkeys(self.shown_once))

    def shown(self) -> dict[str, Any]:
        """Return the response's members: all fields that were set."""
        return {name: value for name, value in self.__dict__.items() if name in self.model_fields_set}


class Page(Shape):
    """One page of a list. `next` is the URL of the next page."""

    results: list[Any]
    next: str | None = Field(description="URL of the next page; null on the last page.")


class TestRequested(Shape):
    """Confirms that a test message was requested."""

    requested: bool = Field(description="Always true.")


class FieldError(Shape):
    """An invalid field: its path, the problem, and how to fix it."""

    field: str = Field(description="Path of the field, such as `tags.0`; empty for the whole body.")
    problem: str = Field(description="Problem with the field.")
    fix: str = Field(description="How to correct it.")


class Problem(BaseModel):
    """A problem document (RFC 9457). `code` is stable. Some problems have additional members."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="URN of the problem: `urn:durableagents:problem:` and the code.")
    title: str = Field(description="Name of the problem, the same for every occurrence.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="Description of this occurrence.")
    code: str = Field(description="Stable code of the problem.")
    request_id: str | None = Field(default=None, description="Id of the request, as in the header `X-Request-Id`.")
    errors: list[FieldError] | None = Field(default=None, description="Wrong fields, if any.")
