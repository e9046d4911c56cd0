"""Leave contents out of a bundle: private fields on request, and the tokens of callback addresses always."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings

from durableagents.contrib.evidence.verify import left_out_digest
from durableagents.contrib.replay.redaction import MIN_LENGTH, Redaction
from ledger.api.present import masked
from ledger.errors import InvalidInput
from ledger.web.seeing.payloads import is_open

MAX_PATHS = 50
# How many private values are searched in all texts.
MAX_VALUES = 2000
# Parts of a plan that tell how many people have to approve and who did. They aren't the run's content.
_STRUCTURE = frozenset({"stages", "stage", "passed"})

# Columns of tables that may contain the run's content.
_TEXTS = frozenset({"justification", "standing", "proof", "before", "after"})


def _escaped(name: str) -> str:
    """Escape a name for use in a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


@dataclass(frozen=True)
class Choice:
    """The contents to leave out: fields by path endings such as `iban` or `customer.name`, or all payloads."""

    paths: Sequence[str] = ()
    is_without_payloads: bool = False

    def __post_init__(self) -> None:
        """Check the paths. Raises InvalidInput for an invalid one."""
        try:
            if len(self.paths) > MAX_PATHS:
                raise ValueError(f"{len(self.paths)} paths are too many: give at most {MAX_PATHS}")
            Redaction(self.paths)
        except ValueError as error:
            what = {"field": "redact", "problem": str(error), "fix": "give names of fields, such as customer.name"}
            raise InvalidInput("The list of fields to leave out is invalid.", errors=[what]) from None

    @property
    def is_any(self) -> bool:
        """Return whether anything is left out on request."""
        return bool(self.paths) or self.is_without_payloads

    @property
    def words(self) -> list[str]:
        return ["all payloads"] if self.is_without_payloads else list(self.paths)


def paths_in(text: str) -> list[str]:
    """Return the fields of a comma-separated list.

    Raises InvalidInput if it is empty, since nothing would be left out.
    """
    paths = [each.strip() for each in text.replace("\n", ",").split(",") if each.strip()]
    if not paths:
        what = {"field": "redact", "problem": f"{text[:80]!r} names no field", "fix": "name fields, or leave it out"}
        raise InvalidInput("The list of fields to leave out is invalid.", errors=[what])
    return paths


def check_matched(unmatched: Iterable[str]) -> None:
    """Raise InvalidInput if a field to leave out occurs in no exported run.

    A misspelt name would otherwise leave private values in the bundle.
    """
    errors = [
        {"field": "redact", "problem": f"{path!r} matches no field", "fix": "correct the name, or leave it out"}
        for path in unmatched
    ]
    if errors:
        raise InvalidInput("Nothing was exported: no run has all the fields to leave out.", errors=errors)


def derive_export_key(run_id: UUID) -> bytes:
    """Return the key for digests of the values that this run's bundles leave out. Equal values have equal digests."""
    master = Path(settings.DURABLEAGENTS_MASTER_KEY_FILE).read_bytes().strip()
    return hmac.digest(master, b"durableagents evidence left out 1" + run_id.bytes, hashlib.sha256)


class LeavingOut:
    """Leaves values out of one run's rows.

    `pointers` are the digests of the values that were removed from the last row, by JSON pointer. `count` is how many
    values were left out on request in all rows.
    """

    def __init__(self, run_id: UUID, choice: Choice) -> None:
        self.key, self.choice = derive_export_key(run_id), choice
        self.pointers: dict[str, str] = {}
        self.count = 0
        self._private = Redaction(choice.paths)
        self._texts: re.Pattern[str] | None = None
        self._whole: frozenset[str] = frozenset()

    @property
    def unmatched(self) -> list[str]:
        """Return the chosen fields that no row had; empty if all payloads are left out."""
        return [] if self.choice.is_without_payloads else list(self._private.unmatched)

    @property
    def has_to_learn(self) -> bool:
        """Return whether all payloads must be read before the export, as other texts may quote private values."""
        return bool(self.choice.paths) and not self.choice.is_without_payloads

    def learn(self, payload: Any) -> None:
        """Collect a payload's private values. Raises InvalidInput if there are too many to search for."""
        self._private.learn(payload)
        self._whole = self._private.private_values
        if len(self._whole) > MAX_VALUES:
            raise InvalidInput(
                f"The fields to leave out have more than {MAX_VALUES} different values, too many to look for in other "
                "texts. Leave out all payloads instead.",
                errors=[],
            )

    def prepare(self) -> None:
        """Prepare the search, after all payloads were read."""
        within = sorted((each for each in self._whole if len(each) >= MIN_LENGTH), key=len, reverse=True)
        written = dict.fromkeys(form for each in within for form in (each, json.dumps(each)[1:-1]))
        self._texts = re.compile("|".join(map(re.escape, written))) if written else None

    def payload(self, payload: Any, kind: str) -> Any:
        """Return the payload of an event as it appears in the bundle."""
        self.pointers = {}
        if self.choice.is_without_payloads and not is_open(kind):
            return self._without_values(payload, kept=_STRUCTURE if kind == "ApprovalRequested" else frozenset())
        # A plan contains no token, and the content that a decision is bound to is exported byte for byte.
        return self._shown(payload, "", (), has_tokens=kind != "ApprovalRequested")

    def _without_values(self, payload: Any, *, kept: frozenset[str]) -> Any:
        """Replace each field by its own digest, so that digests still show that the approved content was sent."""
        if not isinstance(payload, dict):
            return self._left_out(payload, "")
        return {
            name: value if name in kept else self._left_out(value, f"/{_escaped(name)}")
            for name, value in payload.items()
        }

    def row(self, row: dict[str, Any], *contents: str) -> dict[str, Any]:
        """Return a table row without its private contents.

        `contents` names the columns that are left out if all payloads are. The columns that show who did what and when
        are always kept.
        """
        fields = dict(row)
        for name in _TEXTS & row.keys():
            fields[name] = self._field(name, row[name], "", (), has_tokens=True)
        if self.choice.is_without_payloads:
            fields |= {name: self._left_out(row[name], name) for name in contents}
        return fields

    def text(self, text: str) -> Any:
        """Return a text that was taken from a payload, or its digest if the payload's copy is left out."""
        if self.choice.is_without_payloads or self._quotes(text):
            return self._left_out(text, "")
        return text

    def _shown(self, value: Any, pointer: str, path: tuple[str, ...], *, has_tokens: bool) -> Any:
        match value:
            case dict():
                return {
                    name: self._field(name, inner, pointer, path, has_tokens=has_tokens)
                    for name, inner in value.items()
                }
            case list():
                return [
                    self._shown(each, f"{pointer}/{n}", path, has_tokens=has_tokens) for n, each in enumerate(value)
                ]
            case str() if has_tokens and "/callbacks/" in value and masked(value) != value:
                return self._left_out(value, pointer, is_requested=False)
            case str() | int() | float() if self._whole and not isinstance(value, bool) and self._quotes(str(value)):
                return self._left_out(value, pointer)
            case _:
                return value

    def _field(self, name: str, value: Any, pointer: str, path: tuple[str, ...], *, has_tokens: bool) -> Any:
        inner = (*path, name.lower())
        pointer = f"{pointer}/{_escaped(name)}"
        self._private.notice(inner)
        if value is not None and self.choice.paths and self._private.is_private(inner):
            return self._left_out(value, pointer)
        if has_tokens and inner == ("callback_token",) and value:
            return self._left_out(value, pointer, is_requested=False)
        return self._shown(value, pointer, inner, has_tokens=has_tokens)

    def _quotes(self, text: str) -> bool:
        """Return whether a text equals or contains a private value."""
        return text in self._whole or (self._texts is not None and self._texts.search(text) is not None)

    def _left_out(self, value: Any, pointer: str, *, is_requested: bool = True) -> Any:
        if value is None:
            return None
        self.count += is_requested
        digest = left_out_digest(self.key, value)
        self.pointers[pointer] = digest
        return {"left out": digest}
