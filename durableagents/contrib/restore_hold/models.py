"""The mark with which head files are compared, ended lines of marks, and the findings of hosts."""

from __future__ import annotations

from django.db import models

from ledger.models import Coded, Json, append_only


class Mark(models.Model):
    """A single row, renewed about every 100 ms while workers commit.

    A database that has the mark named in a head also has every commit that returned before that mark was set."""

    id = models.SmallIntegerField(primary_key=True)
    line = models.UUIDField(
        help_text="Id of the line of marks; a new one begins when an operator accepts a restored database."
    )
    number = models.BigIntegerField()
    host = models.UUIDField(null=True, help_text="Host that last set the mark.")
    host_name = models.TextField(blank=True, default="")
    at = models.DateTimeField()
    timeline = models.IntegerField(
        help_text="Timeline of the server when this mark began: a promoted server begins a new timeline."
    )
    began_with = models.UUIDField(null=True, help_text="The halt that was lifted before this line of marks began.")


class Voucher(models.Model):
    """A worker that found its host's head in this database.

    The row counts while the worker holds its session lock on the same server. Backups contain the row, but not the
    lock. A promoted or restored server has the row too, and the worker reconnects to it, so the server's start and
    timeline are compared as well."""

    worker = models.UUIDField(primary_key=True)
    timeline = models.IntegerField()
    server_began = models.DateTimeField()


class PastLine(models.Model):
    """A line of marks that has ended.

    Either an operator accepted the database without the marks after `had`, or the server was promoted."""

    line = models.UUIDField()
    had = models.BigIntegerField(null=True, help_text="The line's last mark in this database.")
    accepted = models.BigIntegerField(help_text="Highest mark of a host that may continue with this database.")
    halt = models.UUIDField(null=True)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["line"], name="restore_hold_past_line")]
        triggers = append_only()


class Finding(Coded):
    """The result of a host's comparison of its head file with the database, while a halt is in force.

    Only the host's newest result counts.
    """

    halt = models.UUIDField()
    host = models.UUIDField()
    host_name = models.TextField()
    reason = models.TextField(help_text="A code from comparing.py, `requested` or `found`.")
    head = Json(help_text="The host's head file, without secrets.")
    database = Json(help_text="The database's own identification.")
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["halt", "host", "-id"], name="restore_hold_of_halt")]
        triggers = append_only()
