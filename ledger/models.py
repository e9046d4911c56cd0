"""The run's journal and the records of acts, written only by the functions in `sql/` and by `append.py`."""

# Events, ledger entries and all act records are append-only: triggers refuse UPDATE, DELETE and TRUNCATE, and the
# runtime role has no right to them either. `person` is the account's primary key: another person can get the same name,
# but never the same key. The column is not a foreign key, since the record outlives the account.

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pgtrigger
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models.functions import Now

from ledger.chain import microseconds
from ledger.codes import is_rows_code, number_text, row_code
from ledger.contents import ContentField, ContentText
from ledger.contents import Json as Json
from ledger.keys import code_key


def append_only() -> list[pgtrigger.Trigger]:
    """Return triggers that refuse every change to written rows."""
    return [pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete), no_truncate()]


def no_truncate() -> pgtrigger.Trigger:
    """Return a trigger that refuses TRUNCATE, which `Protect` doesn't cover."""
    return pgtrigger.Trigger(
        name="no_truncate",
        level=pgtrigger.Statement,
        when=pgtrigger.Before,
        operation=pgtrigger.Truncate,
        func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;",
    )


class Coded(models.Model):
    """A row with a keyed authentication code (see codes.py), so that forged rows have no effect.

    The code covers all columns except a generated key and `FREE`.
    """

    code = models.BinaryField(null=True)  # see codes.py
    FREE: frozenset[str] = frozenset()

    class Meta:
        abstract = True

    def coded(self) -> dict[str, Any]:
        """Return the values that the code covers, by column.

        Nulls are left out, so that the codes of older rows stay valid when a nullable column is added.
        """
        fields = [each for each in self._meta.concrete_fields if not isinstance(each, models.AutoField)]
        values = {each.attname: _coded(each, self) for each in fields if each.attname not in {"code", *self.FREE}}
        return {name: value for name, value in values.items() if value is not None}

    def seal(self) -> None:
        """Set the code for the row's current values."""
        self.code = row_code(code_key(), self._meta.db_table, self.coded())

    @property
    def is_authentic(self) -> bool:
        """Return whether one of our processes wrote exactly these values.

        The result is False, not an error, if the values have types that our processes never write.
        """
        try:
            return self.code is not None and is_rows_code(
                code_key(), self._meta.db_table, self.coded(), bytes(self.code)
            )
        except (TypeError, ValueError, ArithmeticError, AttributeError, RecursionError):
            return False


def _coded(field: models.Field[Any, Any], row: models.Model) -> Any:
    """Return a column's value in the form that codes cover, which is the same before storing and after reading.

    For content this is the stored form: a code can then be checked without the run's key, and stays valid after that
    key is destroyed.
    """
    match value := field.stored_in(row) if isinstance(field, ContentField) else getattr(row, field.attname):
        case None:
            return None
        case _ if isinstance(field, models.DecimalField):
            return number_text(value)
        case datetime():
            return microseconds(value)
        case UUID() | str():
            return str(value)
        case bytes() | memoryview():
            return bytes(value).hex()
        case _:
            return value


class Head(models.Model):
    """The one narrow row of a run that every step touches.

    It contains the fence, sequence, chain head, control flags and usage. The primary key is the only index, so
    that updates can stay in the same page (HOT).
    """

    run_id = models.UUIDField(primary_key=True)
    epoch = models.BigIntegerField(default=0)
    lease = models.UUIDField(null=True)
    seq = models.BigIntegerField(default=0)
    claimed_seq = models.BigIntegerField(default=0)
    deaths = models.SmallIntegerField(default=0)
    chain = models.BinaryField(max_length=32)
    is_pause_requested = models.BooleanField(default=False)
    is_cancel_requested = models.BooleanField(default=False)
    is_on_hold = models.BooleanField(default=False)
    steps = models.IntegerField(default=0)
    tokens_in = models.BigIntegerField(default=0)
    tokens_out = models.BigIntegerField(default=0)
    usd_micro = models.BigIntegerField(default=0)
    tool_calls = models.IntegerField(default=0)
    model_calls = models.IntegerField(default=0)
    unpriced_calls = models.IntegerField(
        default=0,
        db_default=0,
        help_text="Number of model requests without a known cost, because the model has no price.",
    )
    bytes = models.BigIntegerField(
        null=True,
        db_default=0,
        help_text="Stored bytes of its events; null if the run is older than this count.",
    )
    # Caps on the run's usage; null means uncapped.
    cap_steps = models.IntegerField(null=True)
    cap_tokens_in = models.BigIntegerField(null=True)
    cap_tokens_out = models.BigIntegerField(null=True)
    cap_usd_micro = models.BigIntegerField(null=True)
    cap_tool_calls = models.IntegerField(null=True)
    cap_model_calls = models.IntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(epoch__gte=0, seq__gte=0, claimed_seq__gte=0, deaths__gte=0),
                name="ledger_head_in_range",
            )
        ]

    @classmethod
    def standing_in(cls, run_id: UUID) -> Head:
        """Return an unsaved substitute for a missing head, so that the run can still be shown."""
        return cls(run_id=run_id, chain=b"")


class Event(models.Model):
    """An event of a run's journal.

    `clear` and `sealed` (the packed payload) are exact bytes; other columns derive from them.
    """

    pk = models.CompositePrimaryKey("run_id", "seq")
    run_id = models.UUIDField()
    seq = models.BigIntegerField()
    epoch = models.BigIntegerField()
    at = models.DateTimeField()
    kind = models.TextField()
    slot = models.TextField(null=True)
    attempt = models.SmallIntegerField(default=0)
    fact = models.TextField(null=True)
    clear = models.BinaryField()
    sealed = models.BinaryField(null=True)
    prev_hash = models.BinaryField(max_length=32)
    hash = models.BinaryField(max_length=32)
    code = models.BinaryField(
        null=True, help_text="Proof that its writer had the installation's key: see ledger/codes.py."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "slot", "attempt", "fact"],
                condition=models.Q(slot__isnull=False),
                name="ledger_event_one_fact_per_slot",
            )
        ]
        indexes = [  # To find, in journals of any length, runs with effects to undo and retried runs.
            models.Index(fields=["run_id"], condition=models.Q(kind="UndoRegistered"), name="ledger_event_to_undo"),
            models.Index(fields=["run_id"], condition=models.Q(kind="RunRetried"), name="ledger_event_retried"),
            # To find undone effects and version moves of a run.
            models.Index(
                fields=["run_id"],
                condition=models.Q(kind__in=["UndoAsked", "UndoBegun", "EffectUndone", "EffectLeft", "RunMigrated"]),
                name="ledger_event_turned",
            ),
            # To find the events since a given time, for seals and traces. The index holds the first and last time of
            # each megabyte of events: a few pages for gigabytes. An append only reads the summary of its own range,
            # which only older ranges have; autovacuum summarizes each range once it is full.
            BrinIndex(fields=["at"], name="ledger_event_by_time", autosummarize=True),
        ]
        triggers = append_only()


class LedgerEntry(models.Model):
    """One fact about one side effect. A call's history is a series of rows, never an updated one."""

    class Fact(models.TextChoices):
        PENDING = "pending"
        COMMITTED = "committed"
        FAILED = "failed"
        UNKNOWN = "unknown"
        RECONCILED = "reconciled"
        COMPENSATED = "compensated"

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    seq = models.BigIntegerField(help_text="The journal event written with this fact.")
    slot = models.TextField()
    attempt = models.SmallIntegerField(default=0)
    fact = models.TextField(choices=Fact.choices)
    tool = models.TextField()
    replay_class = models.TextField()
    key = models.TextField(null=True)
    input_hash = models.TextField(null=True)
    external_id = models.TextField(null=True)
    digest = models.TextField(null=True)
    actor = models.TextField()
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["run_id", "seq"], name="ledger_entry_by_run"),
            models.Index(
                fields=["external_id"],
                condition=models.Q(external_id__isnull=False),
                name="ledger_entry_by_external_id",
            ),
            models.Index(fields=["tool", "-id"], condition=models.Q(fact="reconciled"), name="ledger_entry_reconciled"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "slot", "attempt"],
                condition=models.Q(fact="pending"),
                name="ledger_entry_one_intent_per_attempt",
            )
        ]
        triggers = append_only()


class OverrideRecord(Coded):
    """A person's act that changed a run's course: actor, role, reason, exact state, values before and after."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField()
    action = models.TextField()
    by = models.TextField()
    person = models.BigIntegerField(null=True)
    role = models.TextField()
    auth = models.TextField()
    address = models.TextField(blank=True)
    justification = ContentText()
    seq = models.BigIntegerField(help_text="The journal's last event when the person acted.")
    chain = models.BinaryField(max_length=32)
    before = Json()
    after = Json()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["code"], name="ledger_override_code_once")]
        indexes = [
            models.Index(fields=["run_id", "id"], name="ledger_override_by_run"),
            models.Index(fields=["-at", "-id"], name="ledger_override_by_moment"),
            models.Index(fields=["action", "-at", "-id"], name="ledger_override_by_action"),
            models.Index(fields=["by", "-at", "-id"], name="ledger_override_by_who"),
        ]
        triggers = append_only()


class ActRecord(Coded):
    """A person's act that neither overrides a run nor decides a gate.

    Examples are starting a run, answering a question and declaring a host dead. The content of an act that concerns no
    run is not encrypted.
    """

    id = models.BigAutoField(primary_key=True)
    run_id = models.UUIDField(null=True)
    action = models.TextField()
    subject = ContentText(blank=True, help_text="Object of the act if it isn't the run: a question, a signal, a host.")
    queue = models.TextField(blank=True, help_text="Queue or role that a request was addressed to.")
    by = models.TextField()
    person = models.BigIntegerField(null=True)
    role = models.TextField(blank=True)
    auth = models.TextField(blank=True)
    address = models.TextField(blank=True)
    justification = ContentText(blank=True)
    seq = models.BigIntegerField(null=True, help_text="The journal's last event when the person acted.")
    chain = models.BinaryField(max_length=32, null=True)
    before = Json(default=dict)
    after = Json(default=dict)
    at = models.DateTimeField()
    # Place and links of an act without a run (ledger/sql/registers.sql); a run's acts are in its journal. The database
    # computes the hash.
    FREE = frozenset({"hash"})
    n = models.BigIntegerField(null=True)
    prev_hash = models.BinaryField(max_length=32, null=True)
    hash = models.BinaryField(max_length=32, null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["n"], name="ledger_act_place_once"),
            models.UniqueConstraint(fields=["code"], name="ledger_act_code_once"),
        ]
        indexes = [
            models.Index(fields=["run_id", "id"], name="ledger_act_by_run"),
            models.Index(fields=["-at", "-id"], name="ledger_act_by_moment"),
            models.Index(fields=["action", "-at", "-id"], name="ledger_act_by_action"),
            models.Index(fields=["by", "-at", "-id"], name="ledger_act_by_who"),
        ]
        triggers = append_only()


class AccountRecord(models.Model):
    """A change of accounts, roles, permissions or API keys, written by triggers; the runtime role only reads."""

    id = models.BigAutoField(primary_key=True)
    action = models.TextField()
    subject = models.TextField(help_text="`user:ada`, `role:operator` or `key:ada/laptop`, with the name of that time.")
    subject_person = models.BigIntegerField(null=True)
    by = models.TextField(help_text="Actor, or `database:ROLE` for a change made outside the application.")
    person = models.BigIntegerField(null=True)
    auth = models.TextField(blank=True)
    address = models.TextField(blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    at = models.DateTimeField()
    # The application's signature and its transaction: see acting.py. None if it did not sign.
    reason = models.TextField(blank=True, default="", db_default="")
    tx = models.TextField(blank=True, default="", db_default="")
    code = models.BinaryField(null=True)
    # The record's place in the list, and its link to the previous record.
    n = models.BigIntegerField(null=True)
    prev_hash = models.BinaryField(max_length=32, null=True)
    hash = models.BinaryField(max_length=32, null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["n"], name="ledger_account_place_once")]
        indexes = [
            models.Index(fields=["-at", "-id"], name="ledger_account_by_moment"),
            models.Index(fields=["action", "-at", "-id"], name="ledger_account_by_action"),
            models.Index(fields=["by", "-at", "-id"], name="ledger_account_by_who"),
            models.Index(fields=["subject_person"], name="ledger_account_by_subject"),
        ]
        triggers = append_only()

    @property
    def is_signed(self) -> bool:
        """Return whether the application named the actor in this transaction."""
        actor = {"by": self.by, "person": self.person, "auth": self.auth, "address": self.address, "tx": self.tx}
        actor |= {"reason": self.reason} if self.reason else {}
        return self.code is not None and is_rows_code(code_key(), "actor", actor, bytes(self.code))


class RowCode(models.Model):
    """The code of a protected row's current state, or of its absence: see protected.py."""

    pk = models.CompositePrimaryKey("table_name", "key")
    table_name = models.TextField()
    key = models.TextField()
    n = models.BigIntegerField()
    state = models.TextField(help_text="Digest of the row; empty if the row was absent.")
    code = models.BinaryField()

    class Meta:
        triggers = [
            pgtrigger.Protect(name="kept", operation=pgtrigger.Delete),
            no_truncate(),
            pgtrigger.Trigger(
                name="in_order",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update,
                func="""
                IF NEW.n <> 1 + coalesce(OLD.n, 0)
                    OR (NEW.table_name, NEW.key) <> (OLD.table_name, OLD.key) THEN
                    RAISE EXCEPTION 'code % of % % is not the next one', NEW.n, NEW.table_name, NEW.key;
                END IF;
                RETURN NEW;
                """,
            ),
        ]


class Register(models.Model):
    """The last number and hash of a list (`acts` or `accounts`), set by database functions.

    These lists contain the records that belong to no run.
    """

    name = models.TextField(primary_key=True)
    n = models.BigIntegerField(default=0)
    chain = models.BinaryField(max_length=32)


class VerificationJob(models.Model):
    """A verification of every run, requested in the console and carried out by a separate process."""

    asked_by = models.TextField()
    asked_at = models.DateTimeField(db_default=Now())
    since = models.DateTimeField(null=True, help_text="Only runs with events since then; null for every run.")
    runner = models.UUIDField(null=True, help_text="The process that carries it out.")
    alive_at = models.DateTimeField(null=True)
    after = models.UUIDField(null=True, help_text="Runs up to this id are done.")
    runs = models.BigIntegerField(default=0)
    events = models.BigIntegerField(default=0)
    problems = models.BigIntegerField(default=0)
    # The first problems, each with the name of a list or a run's id.
    findings = models.JSONField(default=list)
    # Name, number of records and last hash of each list of records without a run.
    lists = models.JSONField(default=list)
    is_open = models.BooleanField(default=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            # Only one job may be open, because a second one would only slow down the first.
            models.UniqueConstraint(
                fields=["is_open"], name="ledger_one_verification_at_a_time", condition=models.Q(is_open=True)
            ),
        )
