"""Fields of models that hold content of runs (texts, documents, statements of people).

Content is encrypted with the run's data key if there is one, like payloads, and otherwise stored unencrypted; both
forms can be read. All fields use this module, and SQL that writes such columns gets its parameters from `stored_text`,
`stored_json` and `stored_bytes`.
"""

# Stored content names its run (see `HEADER` in codec.py), so that a row can be decrypted without further context. A row
# read from the database keeps the stored form and is decrypted when its field is used, because by then all rows of the
# list are known, and their keys can be read in one query.
#
# A text is encrypted as the mark and base64 of the codec's bytes; JSON as such a text, or as an object with such a text
# under the mark next to the keys that SQL needs; bytes as the codec's bytes. Clear content that looks encrypted is
# escaped with a second mark.

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import models
from django.db.models.fields.json import KeyTransform
from django.db.models.query_utils import DeferredAttribute

from ledger import codec
from ledger.codec import ENCRYPTED, HEADER

if TYPE_CHECKING:
    _Field = models.Field[Any, Any]
else:
    _Field = models.Field

MARK = ENCRYPTED.decode()
# Used as the run's id for content that belongs to no run; its key is the installation's.
INSTALLATION = UUID(int=0)
_FILE = b"durableagents/encrypted file/1\x00"  # no other file type begins with this
_HEAD_TEXT = -(-HEADER.size // 3) * 4  # number of base64 characters that contain a header


class Unreadable(str):
    """Placeholder for a text that can't be decrypted: it was changed, or its key no longer exists."""


UNREADABLE = Unreadable("(can't be read)")


def stored_text(text: str, run_id: UUID | None) -> str:
    """Return a text in its stored form. Raises KeyMissing, ValueError for a run whose key is damaged."""
    if text and (packed := codec.encrypted(text, run_id)) is not None:
        return MARK + base64.b64encode(packed).decode()
    return MARK + text if text.startswith(MARK) else text


def text_in(stored: str) -> str:
    """Return a stored text. Raises KeyMissing, and ValueError if it can't be decrypted."""
    if not stored.startswith(MARK):
        return stored
    if stored.startswith(MARK, 1):
        return stored[1:]
    text = codec.unpack(_bytes_in(stored))
    if not isinstance(text, str):
        raise ValueError("encrypted content is not text")
    return text


def readable_text(stored: str | None) -> str:
    """Return a stored text, or `UNREADABLE`. Raises KeyMissing."""
    try:
        return text_in(stored or "")
    except ValueError:
        return UNREADABLE


def stored_json(value: Any, run_id: UUID | None, clear: Collection[str] | None = None) -> Any:
    """Return JSON in its stored form; an object's keys in `clear` stay unencrypted.

    Raises the same as `stored_text`.
    """
    if value is None:
        return None
    if clear is not None and isinstance(value, dict):
        hidden = {name: inner for name, inner in value.items() if name not in clear}
        packed = codec.encrypted(hidden, run_id) if hidden else None
        if packed is None:
            return value
        return {name: value[name] for name in value if name in clear} | {MARK: base64.b64encode(packed).decode()}
    if value not in ([], {}) and (packed := codec.encrypted(value, run_id)) is not None:
        return MARK + base64.b64encode(packed).decode()
    return MARK + value if isinstance(value, str) and value.startswith(MARK) else value


def stored_list(value: list[Any], run_id: UUID | None, in_clear: Any) -> Any:
    """Return a list in its stored form: encrypted, but with the parts that SQL needs in `in_clear`.

    Raises the same as `stored_text`.
    """
    packed = codec.encrypted(value, run_id) if value else None
    return value if packed is None else {MARK: base64.b64encode(packed).decode(), "shown": in_clear}


def json_in(stored: Any) -> Any:
    """Return stored JSON. Raises KeyMissing, and ValueError if it can't be decrypted."""
    if isinstance(stored, dict) and isinstance(packed := stored.get(MARK), str):
        hidden = codec.unpack(_bytes_in(MARK + packed))
        if isinstance(hidden, list):
            return hidden
        if not isinstance(hidden, dict):
            raise ValueError("encrypted content is not an object")
        return {name: value for name, value in stored.items() if name != MARK} | hidden
    if isinstance(stored, str) and stored.startswith(MARK):
        return stored[1:] if stored.startswith(MARK, 1) else codec.unpack(_bytes_in(stored))
    return stored


def stored_bytes(content: bytes, run_id: UUID | None) -> bytes:
    """Return bytes of UTF-8 text in their stored form. Raises the same as `stored_text`."""
    packed = codec.encrypted(content.decode(), run_id)
    if packed is not None:
        return packed
    return ENCRYPTED + content if content.startswith(ENCRYPTED) else content


def bytes_in(stored: bytes | memoryview) -> bytes:
    """Return stored bytes. Raises KeyMissing, and ValueError if they can't be decrypted."""
    data = bytes(stored)
    if not data.startswith(ENCRYPTED):
        return data
    if data.startswith(ENCRYPTED, 1):
        return data[1:]
    text = codec.unpack(data)
    if not isinstance(text, str):
        raise ValueError("encrypted content is not text")
    return text.encode()


def stored_file(content: bytes, run_id: UUID | None) -> bytes:
    """Return the bytes of any file in their stored form. Raises the same as `stored_text`."""
    packed = codec.encrypted(base64.b64encode(content).decode(), run_id)
    return content if packed is None else _FILE + packed


def file_in(stored: bytes | memoryview) -> bytes:
    """Return a stored file. Raises KeyMissing, and ValueError if it can't be decrypted."""
    data = bytes(stored)
    if not data.startswith(_FILE + ENCRYPTED):
        return data
    text = codec.unpack(data[len(_FILE) :])
    if not isinstance(text, str):
        raise ValueError("encrypted content is not a file")
    return base64.b64decode(text)


def _bytes_in(marked: str) -> bytes:
    try:
        packed = base64.b64decode(marked[1:], validate=True)
    except binascii.Error as error:
        raise ValueError("encrypted content is not base64") from error
    if not packed.startswith(ENCRYPTED):
        raise ValueError("encrypted content has no header")
    return packed


class Json(models.JSONField):
    """Return JSON, or None if it is unreadable or too deeply nested.

    The database accepts such values, but we never write them.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            found = super().from_db_value(value, expression, connection)
            return found if _fits(found) else None
        except (ValueError, RecursionError):
            return None

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs


def _fits(value: Any, levels: int = 100) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_fits(part, levels - 1) for part in parts)


class Stored:
    """A field's value in its stored form.

    Row codes cover `raw`, so that a code can be checked without the run's key and stays valid when that is destroyed.
    """

    __slots__ = ("_content", "_is_known", "field", "raw")

    def __init__(self, field: ContentField, raw: Any) -> None:
        self.field, self.raw = field, raw
        self._content, self._is_known = None, False
        if (run_id := _run_of(raw)) is not None:
            codec.expect(run_id)

    def __eq__(self, other: object) -> bool:
        """Compare the stored forms, or the content with a plain value, since `values()` returns both."""
        return bool(self.raw == other.raw if isinstance(other, Stored) else self.content == other)

    def __hash__(self) -> int:
        return hash(self.content)

    @property
    def content(self) -> Any:
        """Return the content; the field's substitute if it can't be decrypted. Raises KeyMissing."""
        if not self._is_known:
            try:
                self._content = self.field.opened(self.raw)
            except ValueError:
                self._content = self.field.substitute
            self._is_known = True
        return self._content

    def keep(self, content: Any) -> None:
        """Cache the content of this stored form, when the caller knows it."""
        self._content, self._is_known = content, True


def _run_of(raw: Any) -> UUID | None:
    """Return the run whose key encrypts this; None for unencrypted content, even if it looks encrypted."""
    if isinstance(raw, dict):
        raw = MARK + inner if isinstance(inner := raw.get(MARK), str) else None
    try:
        if isinstance(raw, str) and raw.startswith(MARK):
            raw = base64.b64decode(raw[1 : 1 + _HEAD_TEXT])
        if isinstance(raw, bytes) and raw.startswith(ENCRYPTED) and len(raw) >= HEADER.size:
            return UUID(bytes=HEADER.unpack(raw[: HEADER.size])[2])
    except ValueError:
        pass  # damaged, which `opened` reports
    return None


class _ContentAttribute(DeferredAttribute):
    """Attribute of model instances for a content field; it decrypts the value on access."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        name = self.field.attname
        value = instance.__dict__[name] if name in instance.__dict__ else super().__get__(instance, cls)
        return value.content if isinstance(value, Stored) else value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.field.attname] = value


class ContentField(_Field):
    """Base of the content fields.

    `run` is the path from the row to its run's id; empty for content that belongs to no run. A value is encrypted when
    its instance is saved; assign a new value to change it. `update()` and `bulk_update()` are refused, because they
    don't know which key to use.
    """

    descriptor_class = _ContentAttribute
    substitute: Any = None
    PLAIN = ""  # the Django field that migrations refer to

    def __init__(self, *args: Any, run: str = "run_id", **kwargs: Any) -> None:
        self.run = run
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, f"django.db.models.{self.PLAIN}", args, kwargs

    def opened(self, raw: Any) -> Any:
        raise NotImplementedError

    def closed(self, content: Any, run_id: UUID | None) -> Any:
        raise NotImplementedError

    def stored_in(self, instance: models.Model) -> Any:
        """Return the value in its stored form.

        Repeated calls return the same bytes, because the nonce is drawn once.
        """
        name = self.attname
        value = instance.__dict__[name] if name in instance.__dict__ else getattr(instance, name)
        if value is None:
            return None
        if not isinstance(value, Stored):
            run_id = attrgetter(self.run)(instance) if self.run else INSTALLATION
            stored = Stored(self, self.closed(value, run_id))
            stored.keep(value)
            instance.__dict__[self.attname] = value = stored
        return value.raw

    def from_row(self, raw: Any) -> Any:
        """Wrap a stored value that a statement returned."""
        return None if raw is None else Stored(self, raw)

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        return self.from_row(self.stored_in(model_instance))

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        if value is not None and not isinstance(value, Stored):
            raise TypeError(
                f"{self.model._meta.label}.{self.name} holds content of runs, which an update() or bulk_update() would "
                "store in the clear: set the attribute and save the object"
            )
        return super().get_db_prep_save(value, connection)

    def get_prep_value(self, value: Any) -> Any:
        return super().get_prep_value(value.raw if isinstance(value, Stored) else value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        raw = value.raw if isinstance(value, Stored) else value
        return super().get_db_prep_value(raw, connection, prepared)


def keep_clear(instance: models.Model, name: str, content: Any) -> None:
    """Set a field to a value that is saved unencrypted, even if the run has a key."""
    field: Any = instance._meta.get_field(name)
    instance.__dict__[field.attname] = Stored(field, content)


class ContentText(ContentField, models.TextField):
    """A text; `UNREADABLE` if it can't be decrypted."""

    substitute = UNREADABLE
    PLAIN = "TextField"

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return self.from_row(value)

    def opened(self, raw: str) -> str:
        return text_in(raw)

    def closed(self, content: str, run_id: UUID | None) -> str:
        return stored_text(content, run_id)


class ContentBytes(ContentField, models.BinaryField):
    """Bytes of a UTF-8 text. Empty if they can't be decrypted."""

    substitute = b""
    PLAIN = "BinaryField"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return self.from_row(None if value is None else bytes(value))

    def opened(self, raw: bytes) -> bytes:
        return bytes_in(raw)

    def closed(self, content: bytes, run_id: UUID | None) -> bytes:
        return stored_bytes(bytes(content), run_id)


class ContentJson(ContentField, Json):
    """JSON; None if it can't be decrypted.

    An object's keys in `clear` stay readable for SQL, and for a list, so does the result of `shown`.
    """

    PLAIN = "JSONField"

    def __init__(
        self,
        *args: Any,
        clear: Collection[str] | None = None,
        in_clear: Callable[[list[Any]], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.clear, self.shown = clear, in_clear
        super().__init__(*args, **kwargs)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        found = super().from_db_value(value, expression, connection)
        return found if isinstance(expression, KeyTransform) else self.from_row(found)

    def opened(self, raw: Any) -> Any:
        content = json_in(raw)
        return content if _fits(content) else None

    def closed(self, content: Any, run_id: UUID | None) -> Any:
        if self.shown is not None and isinstance(content, list):
            return stored_list(content, run_id, self.shown(content))
        return stored_json(content, run_id, self.clear)
