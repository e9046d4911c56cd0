"""Protect rows that grant rights: tell whether the application wrote their current state.

Code that grants a right because of a row reads the row together with `proof_sql` and calls `is_authentic`.
"""

# The runtime role may change accounts, roles, keys, invitations, schedules and prices, so injected SQL could too. Such
# a row is valid only with a code under the installation's key (`ledger/codes.py`), which is not in the database.
# `protect` registers a table: from then on every write renews the row's code (`save`, `delete`, changes of many-to-many
# relations).
#
# Each row has one code in `ledger_rowcode`. It stays when the row is deleted, and so shows that the row is missing. The
# code covers its own number, which the database only allows to increase by one, so neither an old state nor an old code
# can be restored. A row is changed only under its lock, and only if its current state has a valid code: changing
# another column of a forged row doesn't give it a code.

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from django.db import connection, models, transaction
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_delete, pre_save

from ledger.acting import end_unnamed_actor, sign_if_nobody_acts
from ledger.codes import row_code
from ledger.errors import DurableAgentsError
from ledger.keys import code_key
from ledger.models import Coded, RowCode

log = logging.getLogger("ledger.protected")
ABSENT = ""  # the state of a missing row


class ChangedOutside(DurableAgentsError):
    """A row was added, changed or deleted without the installation's key."""

    status, code, title = 403, "changed-outside", "Changed outside the application"

    def __init__(self, table: str, key: str) -> None:
        super().__init__(
            f"The {name_of(registry[table], key)} was changed in the database, outside the application, so it grants "
            "nothing. An administrator must compare it with the audit list and confirm it on the server: "
            f"manage.py ledger confirm {table} {key}"
        )


@dataclass(frozen=True, slots=True)
class Protected:
    """A table whose rows carry codes over all columns but `free`.

    If a code also covers or depends on rows of other tables, `proof` is SQL for the proofs of a row `{row}` (see
    ledger/sql/protected.sql), and `holds` are those tables with the column that names the row. A row that does not meet
    the SQL condition `counts` is treated as absent.
    """

    model: type[models.Model]
    what: str
    named_by: str
    free: frozenset[str] = frozenset()
    counts: str = "true"
    proof: str = ""
    holds: list[tuple[str, str]] = field(default_factory=list)

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    @property
    def key(self) -> str:
        return str(self.model._meta.pk.column)

    def proof_sql(self, row: str) -> str:
        """Return SQL (jsonb) for the state and code of the row `row`, as `is_authentic` expects."""
        if self.proof:
            return self.proof.format(row=row)
        counted = f"CASE WHEN {self.counts.format(row=row)} THEN {row} END"
        free = ",".join(sorted(self.free))
        proof = f"ledger_proof('{self.table}', {row}.\"{self.key}\"::text, {counted}, '{{{free}}}', NULL)"
        return f"jsonb_build_array({proof})"

    def absent_sql(self, key: str) -> str:
        """Return SQL for the proof of a missing row; `key` is SQL for its key."""
        return f"jsonb_build_array(ledger_proof('{self.table}', {key}, NULL::{self.table}, NULL, NULL))"

    def gone_sql(self) -> str:
        """Return SQL for the proofs of deleted rows. Any SQL can insert a code, but a valid one needs the key."""
        return f"""
            SELECT {self.absent_sql("c.key")} AS proof FROM ledger_rowcode c
            WHERE c.table_name = '{self.table}' AND NOT EXISTS (
                SELECT FROM {self.table} t WHERE t."{self.key}"::text = c.key AND {self.counts.format(row="t")})"""

    def proofs_sql(self) -> str:
        """Return SQL for the proofs of all rows that meet `counts`, and of deleted rows."""
        there = f"SELECT {self.proof_sql('t')} AS proof FROM {self.table} t WHERE {self.counts.format(row='t')}"
        return f"{there} UNION ALL {self.gone_sql()}"

    def lock_sql(self) -> str:
        """Return SQL that locks a row and its dependents, so that nobody changes them before they get a code."""
        held = [(self.table, self.key), *self.holds]
        locks = [f"{at}_ AS (SELECT 1 FROM {at} WHERE {column} = %(key)s FOR UPDATE)" for at, column in held]
        counted = " + ".join(f"(SELECT count(*) FROM {at}_)" for at, _ in held)
        return f"WITH {', '.join(locks)} SELECT {counted}"


registry: dict[str, Protected] = {}


def protect(model: type[models.Model], what: str, *, named_by: str, **more: Any) -> Protected:
    """Register a model whose rows are to be protected by codes.

    `more` are further fields of `Protected`. If the model has a code column of its own, the code added here only proves
    that a row exists.
    """
    if issubclass(model, Coded):
        more["free"] = frozenset(each.column for each in model._meta.concrete_fields if not each.primary_key)
    protected = registry[model._meta.db_table] = Protected(model, what, named_by, **more)
    belongs_to(model, protected, "pk", free=protected.free)
    return protected


def belongs_to(model: type[models.Model], protected: Protected, key: str, *, free: Collection[str] = ()) -> None:
    """Make rows of a model part of the protected row with the key `key`.

    A save of only fields in `free` doesn't renew the code.
    """

    def keys(instance: Any, update_fields: Collection[str] | None = None) -> list[Any]:
        found = getattr(instance, key)
        return [] if found is None or (update_fields is not None and set(update_fields) <= set(free)) else [found]

    def before(sender: Any, instance: Any, update_fields: Any = None, origin: Any = None, **_: Any) -> None:
        if key == "pk" and instance._state.adding:
            return sign_if_nobody_acts()  # there is no row to lock yet
        for each in keys(instance, update_fields):
            # A forged row may be deleted, with all its dependent rows.
            begin(protected, each, is_end=protected.model in (type(origin), getattr(origin, "model", None)))

    def after(sender: Any, instance: Any, update_fields: Any = None, **_: Any) -> None:
        for each in keys(instance, update_fields):
            end(protected, each)

    held = model._meta.db_table, key
    if key != "pk" and held not in protected.holds:
        protected.holds.append(held)
    model.save_base = _in_one_transaction(model.save_base)  # type: ignore[method-assign]
    uid = f"ledger.protected.{model._meta.db_table}"
    for signal, receiver in ((pre_save, before), (pre_delete, before), (post_save, after), (post_delete, after)):
        signal.connect(receiver, sender=model, weak=False, dispatch_uid=f"{uid}.{receiver.__name__}")


def relates(through: type[models.Model], protected: Protected) -> None:
    """Make the rows of a many-to-many relation part of the protected rows at one of its ends."""

    ends = {each.related_model: each.name for each in through._meta.fields if each.is_relation}

    def changed(sender: Any, instance: Any, action: str, pk_set: Any, **_: Any) -> None:
        if isinstance(instance, protected.model):
            pk_set = {instance.pk}
        elif action == "pre_clear":
            rows = through._base_manager.filter(**{ends[type(instance)]: instance})
            instance.cleared_of = set(rows.values_list(ends[protected.model], flat=True))
        act = begin if action.startswith("pre_") else end
        for key in sorted(instance.cleared_of if pk_set is None else pk_set):
            act(protected, key)

    m2m_changed.connect(changed, sender=through, weak=False, dispatch_uid=f"ledger.protected.{through._meta.db_table}")


def _in_one_transaction(save: Callable[..., None]) -> Callable[..., None]:
    @wraps(save)
    def atomic_save(self: Any, *args: Any, **kwargs: Any) -> None:
        with transaction.atomic():
            save(self, *args, **kwargs)

    return atomic_save


def begin(protected: Protected, key: Any, *, is_end: bool = False) -> None:
    """Lock a row that is about to change, and sign the change.

    Raises ChangedOutside, unless the row is being deleted.
    """
    with connection.cursor() as cursor:
        cursor.execute(protected.lock_sql(), {"key": key})
    if not is_end:
        check(protected, key)
    sign_if_nobody_acts()


def end(protected: Protected, key: Any) -> None:
    """Renew the code of a row that `begin` locked, and clear the actor that `begin` set."""
    end_unnamed_actor()
    seal(protected, key)


def seal(protected: Protected, key: Any) -> None:
    """Store the code of a row's current state. The caller must have locked and checked the row before changing it."""
    _, _, state, last = _read(protected, key)[0]
    if _fits(protected.table, str(key), state, last):
        return
    n = 1 + (last[0] if last else 0)
    code = {"n": n, "state": state, "code": code_of(protected.table, str(key), n, state)}
    if last is None:
        RowCode.objects.create(table_name=protected.table, key=str(key), **code)
    else:
        RowCode.objects.filter(table_name=protected.table, key=str(key)).update(**code)


def is_changed_outside(protected: Protected, key: Any) -> bool:
    """Return whether this row itself was changed outside the application, ignoring its dependencies."""
    return wrong_in(_read(protected, key)[:1]) is not None or bool(forged_rows(protected, pk=key))


def forged_rows(protected: Protected, **which: Any) -> list[Coded]:
    """Return rows whose own code column doesn't match their values."""
    rows = protected.model._base_manager.filter(**which).iterator() if issubclass(protected.model, Coded) else ()
    return [row for row in rows if not row.is_authentic]


def confirm(protected: Protected, key: Any) -> None:
    """Accept a row's current state, or its absence."""
    for row in forged_rows(protected, pk=key):
        row.seal()
        row.save(update_fields=["code"])
    seal(protected, key)


def check(protected: Protected, key: Any) -> None:
    """Check that the application wrote a row's current state. Raises ChangedOutside."""
    if wrong := wrong_in(_read(protected, key)):
        raise ChangedOutside(*wrong)


def _read(protected: Protected, key: Any) -> list[Any]:
    """Return the proof of the row with this key, even if it is deleted."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT coalesce((SELECT {protected.proof_sql("t")} FROM {protected.table} t
                WHERE t."{protected.key}" = %(key)s), {protected.absent_sql("%(text)s")})::text""",
            {"key": key, "text": str(key)},
        )
        return list(json.loads(cursor.fetchone()[0]))


def name_of(protected: Protected, key: Any) -> str:
    """Return a row's name for messages."""
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT "{protected.named_by}" FROM {protected.table} WHERE "{protected.key}" = %s', [key])
        row = cursor.fetchone()
    return f"{protected.what} {str(key if row is None else row[0])!r}"


def is_authentic_row(protected: Protected, key: Any) -> bool:
    """Read a row, and return whether it is authentic."""
    return wrong_in(_read(protected, key)) is None


def is_authentic(proof: str | list[Any]) -> bool:
    """Return whether a row and its dependencies are authentic, from the result of `proof_sql`."""
    return wrong_in(proof) is None


def wrong_in(proof: str | list[Any]) -> tuple[str, str] | None:
    """Return table and key of the first row of a proof that isn't authentic."""
    for table, key, state, last in json.loads(proof) if isinstance(proof, str) else proof:
        if not _fits(table, key, state, last):
            log.warning("%s %s was changed outside the application", table, key)
            return table, key
    return None


def wrong_rows(proofs: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield the key of each row that isn't authentic and whether it exists, from the results of `proofs_sql`."""
    for proof in proofs:
        own = json.loads(proof)[:1]
        if wrong_in(own):
            yield own[0][1], own[0][2] != ABSENT


def _fits(table: str, key: str, state: str, last: list[Any] | None) -> bool:
    if last is None:
        return state == ABSENT
    n, sealed, code = last
    return state == sealed and hmac.compare_digest(code_of(table, key, n, sealed), bytes.fromhex(code))


def is_coded(row: RowCode) -> bool:
    """Return whether a code was made with the installation's key for this row, number and state."""
    return hmac.compare_digest(code_of(row.table_name, row.key, row.n, row.state), bytes(row.code))


def code_of(table: str, key: str, n: int, state: str) -> bytes:
    return row_code(code_key(), table, {"key": key, "n": n, "state": state})
