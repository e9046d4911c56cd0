"""Console forms, validated with the same model as the API's body, and kept verbatim if refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from django.http import HttpRequest
from pydantic import BaseModel

from ledger.errors import DurableAgentsError, InvalidInput, TooLarge
from ledger.web import strict_json
from ledger.web.bodies import does_not_fit, fit, unstorable

Body = TypeVar("Body", bound=BaseModel)

_OURS = "csrfmiddlewaretoken"
_STRAY_SHOWN = 20


class Sent:
    """A submitted form. `texts` are the fields by name, with the line breaks as typed."""

    def __init__(self, request: HttpRequest) -> None:
        self._lists = {name: [*map(str, given)] for name, given in request.POST.lists() if name != _OURS}
        self._files = [*request.FILES]
        self._aside: set[str] = set()
        self.texts = {name: given[-1].replace("\r\n", "\n").strip() for name, given in self._lists.items() if given}

    @property
    def kept(self) -> dict[str, str]:
        """Return the texts to show again; NUL, which no page can contain, becomes the replacement character."""
        typed = {name: given[-1].replace("\r\n", "\n") for name, given in self._lists.items() if given}
        if "justification" in typed:
            typed["justification"] = typed["justification"].strip()
        return {name: text.replace("\x00", "\ufffd") for name, text in typed.items()}

    def aside(self, name: str) -> str | None:
        """Return a form field that does not belong to the act's body; None if it wasn't sent."""
        self._aside.add(name)
        return self.texts.get(name)

    def check(self, known: Iterable[str]) -> None:
        """Refuse oversized forms, and unknown or repeated fields, which would otherwise be ignored.

        Raises TooLarge, InvalidInput.
        """
        sizes = {name: sum(len(text.encode("utf-8", "replace")) for text in all_) for name, all_ in self._lists.items()}
        if sum(sizes.values()) > strict_json.MAX_BYTES:
            largest = max(sizes, key=lambda name: sizes[name])
            problem = {
                "problem": f"holds {sizes[largest]} bytes",
                "fix": f"at most {strict_json.MAX_BYTES} in the whole form",
            }
            raise TooLarge("form", strict_json.MAX_BYTES, errors=[{"field": largest, **problem}])
        refuse_stray({*self._lists, *self._files} - {*known} - self._aside)
        twice = [name for name, given in self._lists.items() if len(given) > 1]
        if twice:
            problem = {"problem": "was sent more than once", "fix": "send it once"}
            raise does_not_fit([{"field": name, **problem} for name in twice[:_STRAY_SHOWN]], "form")

    def read(self, shape: type[Body], **values: Callable[[str], Any]) -> Body:
        """Return the form as `shape`; empty fields count as not sent.

        `values` convert the text of fields. Raises InvalidInput, TooLarge.
        """
        self.check(shape.model_fields)
        if problems := unstorable(self.texts):
            raise does_not_fit(problems, "form")
        found = {
            name: values[name](text) if name in values else text
            for name, text in self.texts.items()
            if text and name not in self._aside
        }
        if problems := unstorable(found):
            raise does_not_fit(problems, "form")
        return fit(shape, found, "form")


@contextmanager
def told_of(seen: Mapping[str, tuple[str, str]]) -> Iterator[None]:
    """Map errors of the body to visible form fields.

    Raises InvalidInput. `seen` maps the beginning of a body path to the form's field, and to the part of that field
    that the path refers to.
    """
    try:
        yield
    except InvalidInput as error:
        errors = [_as_seen(each, seen) for each in error.extra["errors"]]
        if errors == error.extra["errors"]:
            raise
        raise does_not_fit(errors, "form") from None


def _as_seen(error: dict[str, str], seen: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    place = error["field"]
    for beginning, (field, part) in seen.items():
        if place == beginning or place.startswith(f"{beginning}."):
            return {**error, "field": field, "problem": f"{part}: {error['problem']}"}
    return error


def refuse_stray(names: Iterable[str]) -> None:
    """Refuse fields that the form doesn't have. Raises InvalidInput."""
    if stray := sorted(names):
        problem = {"problem": "is not a field of this form", "fix": "reload the page and try again"}
        raise InvalidInput(
            f"The form was sent with {len(stray)} field{'' if len(stray) == 1 else 's'} that it does not have.",
            errors=[{"field": name.replace("\x00", "\ufffd")[:200], **problem} for name in stray[:_STRAY_SHOWN]],
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused act: the reason, and the person's input, so that nothing is lost."""

    act: str
    error: DurableAgentsError
    typed: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.typed.get("justification", "")

    @property
    def at(self) -> dict[str, str]:
        found: dict[str, list[str]] = {}
        for problem in self.error.extra.get("errors", []):
            name, _, within = str(problem.get("field", "")).partition(".")
            words = in_words(problem)
            found.setdefault(name, []).append(f"{within}: {words}" if within else words)
        return {name: "; ".join(all_) for name, all_ in found.items()}


def in_words(problem: Mapping[str, Any]) -> str:
    return "; ".join(
        part for part in (str(problem.get("problem", "")).rstrip("."), str(problem.get("fix", ""))) if part
    )
