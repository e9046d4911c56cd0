"""A Django form from the JSON schema of an agent's input or a question.
Values are passed on as typed, and validated by the agent. `mark` shows the agent's errors at the fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from django import forms
from django.forms.boundfield import BoundField

from ledger.errors import DurableAgentsError
from ledger.web.page_forms import in_words, refuse_stray
from runs.console.forms.fields import Absent, Value
from runs.console.forms.maker import Maker, is_object

_TOKEN = "csrfmiddlewaretoken"
_OURS = "input"  # prefix for field names that would clash


class Bound(BoundField):
    """A bound field of a drawn form."""

    field: Value
    form: SchemaForm

    @property
    def auto_id(self) -> str:
        return "f-" + self.html_name.replace(".", "-")

    @property
    def children(self) -> list[Bound]:
        return self.form.bound(self.field.children)


@dataclass(frozen=True)
class ExtraField:
    """A field of the page outside the form: its label ("" if people don't fill it in) and its id."""

    label: str = ""
    id: str = ""


@dataclass(frozen=True)
class Aside:
    """The errors of an extra field."""

    label: str
    id: str
    errors: list[str]

    @property
    def words(self) -> str:
        return "; ".join(self.errors)


class PartForm(forms.Form):
    """Additional fields of a page, named and validated as in the API."""

    bound_field_class = Bound

    @property
    def all(self) -> list[Bound]:
        """Return the fields in order."""
        return [cast(Bound, self[name]) for name in self.fields]

    @property
    def wrong(self) -> list[Bound]:
        return [field for field in self.all if field.errors]

    def mark(self, error: DurableAgentsError) -> None:
        """Show errors at their fields. Errors of other fields are shown elsewhere."""
        self.full_clean()
        for problem in error.extra.get("errors", []):
            if (name := str(problem.get("field", ""))) in self.fields:
                self.add_error(name, in_words(problem))


class SchemaForm(forms.Form):
    """The fields of an object schema, in their author's order, showing `document` or the input in `data`.

    With both, `document` is being changed, and untouched values stay exactly as they were. With `keeps`, missing values
    stay missing too, and a field may be emptied only where an empty value is valid. The name of a nested field is its
    path, such as `order.amount`. `extra_fields` are the page's other fields, by name; their errors are put into
    `aside`.
    """

    bound_field_class = Bound

    def __init__(
        self,
        schema: Mapping[str, Any],
        *,
        data: Mapping[str, Any] | None = None,
        document: Any = None,
        extra_fields: Mapping[str, ExtraField] = MappingProxyType({}),
        keeps: bool = False,
    ) -> None:
        super().__init__(data=data)
        self.extra_fields = dict(extra_fields)
        self.aside: dict[str, Aside] = {}
        self._is_changing, self._keeps = data is not None and document is not None, keeps
        maker = Maker(schema, typed=lambda name: self.data.get(self.add_prefix(name)), keeps=keeps)
        self._roots = maker.group("", maker.resolved(schema), document)
        self.values = maker.fields
        self.fields.update(self.values)

    def add_prefix(self, field_name: str) -> str:
        is_another_s = field_name in (*self.extra_fields, _TOKEN) or field_name.partition(".")[0] == _OURS
        return f"{_OURS}.{field_name}" if is_another_s else field_name

    @property
    def roots(self) -> list[Bound]:
        return self.bound(self._roots)

    def bound(self, names: Iterable[str]) -> list[Bound]:
        return [cast(Bound, self[name]) for name in names]

    @property
    def wrong(self) -> list[Bound]:
        """Return the fields with errors. Groups show their own errors."""
        return [field for field in self.bound(self.values) if field.errors and not field.field.children]

    def document(self) -> dict[str, Any]:
        """Return the typed values as a document, without empty optional fields.
        Raises InvalidInput for unknown names, whose values would be lost silently."""
        known = {self.add_prefix(name) for name in self.fields} | self.extra_fields.keys() | {_TOKEN}
        refuse_stray(set(self.data) - known)
        self.full_clean()
        return self._filled(self._roots)

    def _filled(self, names: Iterable[str]) -> dict[str, Any]:
        filled = {}
        for name in names:
            field = self.values[name]
            is_untouched = self._is_changing and self._is_untouched(name)
            if is_untouched and (self._keeps or not (field.had is Absent or self._is_there(field))):
                value = field.had
            elif not field.children:
                value = self.cleaned_data[name]
            elif field.required or self._is_typed(field) or (is_untouched and self._is_there(field)):
                value = self._around(field) | self._filled(field.children)
            else:  # an optional group without input is left out
                value = field.empty
            if value is not Absent:
                filled[field.key] = value
        return filled

    def _is_there(self, field: Value) -> bool:
        """Return whether the field is a group that the document contains. If so, all of its fields are included."""
        return bool(field.children) and is_object(field.had)

    def _is_untouched(self, name: str) -> bool:
        field = self.values[name]
        if field.children:
            return all(self._is_untouched(child) for child in field.children)
        return field.is_as_shown(self[name].data)

    def _around(self, group: Value) -> dict[str, Any]:
        keys = {self.values[name].key for name in group.children}
        return {key: value for key, value in group.had.items() if key not in keys} if is_object(group.had) else {}

    def _is_typed(self, group: Value) -> bool:
        """Return whether anything was typed in a group.
        An emptied field counts as input if leaving out the group would mean a default."""
        return any(self._is_said(name, is_nothing_said=group.empty is Absent) for name in group.children)

    def _is_said(self, name: str, *, is_nothing_said: bool) -> bool:
        """Return whether anything was typed in a field. Unticking a box counts."""
        field, sent = self.values[name], self[name].data
        if field.children:
            return any(self._is_said(child, is_nothing_said=is_nothing_said) for child in field.children)
        is_emptied = bool(field.initial) and (field.is_flag or is_nothing_said)
        return is_emptied or bool(sent if field.is_flag else str(sent or "").strip())

    def mark(self, error: DurableAgentsError, within: str, root: str = "") -> None:
        """Show each error at its field, at the nearest group, or above the form.
        If an error's path begins with `within`, that part is replaced by `root`."""
        self.full_clean()
        for problem in error.extra.get("errors", []):
            words = in_words(problem)
            name, near = str(problem.get("field", "")), None
            own = name if name in self.extra_fields else name.partition(".")[0]
            if name == within or name.startswith(f"{within}."):
                name = ".".join(part for part in (root, name[len(within) + 1 :]) if part)
                near = self._nearest(name)
            elif own in self.extra_fields and self.extra_fields[own].label:
                self.aside.setdefault(
                    own, Aside(self.extra_fields[own].label, self.extra_fields[own].id, [])
                ).errors.append(words)
                continue
            elif name in self.fields:
                near = name
            self.add_error(near, words if near or not name else f"{name}: {words}")

    def _nearest(self, name: str) -> str | None:
        matching = [known for known in self.fields if name == known or name.startswith(f"{known}.")]
        return max(matching, key=len, default=None)
