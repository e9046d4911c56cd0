"""Budgets: what an intent may not break and what a debit books (runs/sql/0017_budgets.sql), prices, and how long a run may take."""

import datetime

import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0017_budgets.sql")
UNDO = "\n".join(
    (
        "DROP FUNCTION runs_afford(ledger_head, ledger_line[]);",
        "DROP FUNCTION runs_debit(ledger_head, ledger_line);",
    )
)
KINDS = ("approval", "input", "reconcile", "operator", "webhook", "timer", "signal", "child", "budget")


class Migration(migrations.Migration):
    dependencies = [("runs", "0016_steps"), ("ledger", "0012_budgets")]
    operations = [
        migrations.RunSQL(SQL, UNDO),
        migrations.CreateModel(
            name="Price",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("model", models.TextField()),
                ("usd_micro_in", models.BigIntegerField()),
                ("usd_micro_out", models.BigIntegerField()),
                ("valid_from", models.DateTimeField()),
                ("set_by", models.TextField()),
                ("set_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="BudgetDefault",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "agent",
                    models.TextField(
                        blank=True, default="", help_text="A name, or name@version; empty: not by agent."
                    ),
                ),
                (
                    "tag",
                    models.TextField(blank=True, default="", help_text="One of a run's tags; empty: not by tag."),
                ),
                (
                    "budget",
                    models.JSONField(help_text='The caps, for example {"usd": "5.00", "model_calls": 200}.'),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name="budgetdefault",
            constraint=models.CheckConstraint(
                condition=models.Q(("agent", ""), ("tag", ""), _connector="XOR"),
                name="runs_budgetdefault_of_one_kind",
            ),
        ),
        migrations.AddConstraint(
            model_name="budgetdefault",
            constraint=models.UniqueConstraint(fields=("agent", "tag"), name="runs_budgetdefault_once"),
        ),
        migrations.AddField(
            model_name="run",
            name="time_up_at",
            field=models.DateTimeField(
                db_default=CombinedExpression(Now(), "+", models.Value(datetime.timedelta(days=90))),
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="wait",
            name="kind",
            field=models.TextField(choices=[(kind, kind.capitalize()) for kind in KINDS]),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True), ("time_up_at__isnull", False)),
                fields=["time_up_at"],
                name="runs_run_time_up",
            ),
        ),
        migrations.AddIndex(
            model_name="price",
            index=models.Index(fields=["model", "-valid_from", "-id"], name="runs_price_in_force"),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(("usd_micro_in__gte", 0), ("usd_micro_out__gte", 0)), name="runs_price_not_negative"
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="price",
            trigger=pgtrigger.compiler.Trigger(
                name="append_only",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'pgtrigger: Cannot update or delete rows from % table', TG_TABLE_NAME;",
                    hash="bd71e3de18cf98bfb15716c20141bff7baad35bc",
                    operation="UPDATE OR DELETE",
                    pgid="pgtrigger_append_only_fbb92",
                    table="runs_price",
                    when="BEFORE",
                ),
            ),
        ),
        pgtrigger.migrations.AddTrigger(
            model_name="price",
            trigger=pgtrigger.compiler.Trigger(
                name="no_truncate",
                sql=pgtrigger.compiler.UpsertTriggerSql(
                    func="RAISE EXCEPTION 'append-only: % can not be truncated', TG_TABLE_NAME;",
                    hash="c683608774dfbfbcb57cae60daffdb3565af3cda",
                    level="STATEMENT",
                    operation="TRUNCATE",
                    pgid="pgtrigger_no_truncate_b2e81",
                    table="runs_price",
                    when="BEFORE",
                ),
            ),
        ),
    ]
