"""Records that belong to no run are numbered and linked: see ledger/sql/0010_registers.sql and docs/decisions/0025."""

from django.db import migrations, models

from ledger.sqlfiles import as_before, sql_file

SQL = sql_file(__file__, "0010_registers.sql")
UNDO = (
    """
DROP TRIGGER acts_are_numbered ON ledger_actrecord;
DROP TRIGGER accounts_are_numbered ON ledger_accountrecord;
DROP FUNCTION ledger_number_act();
DROP FUNCTION ledger_number_account();
DROP FUNCTION ledger_act_body(ledger_actrecord);
DROP FUNCTION ledger_account_body(ledger_accountrecord);
DROP FUNCTION ledger_link(bytea, bigint, text);
DROP FUNCTION ledger_next(text);
"""
    + as_before(__file__, "0004_codes.sql", "ledger_demand_codes")
)
# What there is gets its place in the order in which it came. Only the new columns are written; the triggers that refuse every change
# know no columns, so they look away for this transaction.
NUMBER = """
DO $$
DECLARE
    act ledger_actrecord;
    account ledger_accountrecord;
    r ledger_register;
BEGIN
    ALTER TABLE ledger_actrecord DISABLE TRIGGER USER;
    ALTER TABLE ledger_accountrecord DISABLE TRIGGER USER;
    FOR act IN SELECT * FROM ledger_actrecord WHERE run_id IS NULL ORDER BY id LOOP
        r := ledger_next('acts');
        r.n := r.n + 1;
        UPDATE ledger_actrecord SET n = r.n, prev_hash = r.chain, hash = ledger_link(r.chain, r.n, ledger_act_body(act)) WHERE id = act.id
        RETURNING hash INTO r.chain;
        UPDATE ledger_register SET n = r.n, chain = r.chain, uncoded = CASE WHEN act.code IS NULL THEN r.n ELSE uncoded END WHERE name = 'acts';
    END LOOP;
    FOR account IN SELECT * FROM ledger_accountrecord ORDER BY id LOOP
        r := ledger_next('accounts');
        r.n := r.n + 1;
        UPDATE ledger_accountrecord SET n = r.n, prev_hash = r.chain, hash = ledger_link(r.chain, r.n, ledger_account_body(account)) WHERE id = account.id
        RETURNING hash INTO r.chain;
        UPDATE ledger_register SET n = r.n, chain = r.chain WHERE name = 'accounts';
    END LOOP;
    ALTER TABLE ledger_actrecord ENABLE TRIGGER USER;
    ALTER TABLE ledger_accountrecord ENABLE TRIGGER USER;
END $$;
"""


def _columns(model: str) -> list[migrations.AddField]:
    return [
        migrations.AddField(model, "n", models.BigIntegerField(null=True)),
        migrations.AddField(model, "prev_hash", models.BinaryField(max_length=32, null=True)),
        migrations.AddField(model, "hash", models.BinaryField(max_length=32, null=True)),
    ]


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_head_in_range")]
    operations = [
        migrations.CreateModel(
            name="Register",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("n", models.BigIntegerField(default=0)),
                ("chain", models.BinaryField(max_length=32)),
                ("uncoded", models.BigIntegerField(db_default=0, default=0, help_text="Up to which number acts may lack codes.")),
            ],
        ),
        *_columns("actrecord"),
        *_columns("accountrecord"),
        migrations.AddConstraint("actrecord", models.UniqueConstraint(fields=("n",), name="ledger_act_place_once")),
        migrations.AddConstraint("accountrecord", models.UniqueConstraint(fields=("n",), name="ledger_account_place_once")),
        migrations.RunSQL(SQL, UNDO),
        migrations.RunSQL(NUMBER, migrations.RunSQL.noop),
    ]
