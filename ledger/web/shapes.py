"""Base shapes of the API's documented answers."""

from __future__ import annotations

from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Base of documented answers."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def of(cls, stored: object, **more: Any) -> Self:
        """Build an answer from a stored object; `more` has values with another name or source. Nothing is checked or
        converted, so a damaged row is shown as it is and hides no other. A field with a default is included only if
        `more` names it."""
        given = {
            name: getattr(stored, name)
            for name, field in cls.model_fields.items()
            if name not in more and field.is_required()
        }
        return cast(Self, cls.model_construct(**given, **more))

    def shown(self) -> dict[str, Any]:
        """Return the answer's members: all names that were set."""
        return {name: value for name, value in self.__dict__.items() if name in self.model_fields_set}


class Page(Shape):
    """One page of a list. `next` is the address of the following page."""

    results: list[Any]
    next: str | None


class FieldError(Shape):
    """A wrong field, what is wrong with it, and how to fix it."""

    field: str
    problem: str
    fix: str


class Problem(BaseModel):
    """A problem document (RFC 9457). `code` is stable. Some problems have additional members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError] | None = None
