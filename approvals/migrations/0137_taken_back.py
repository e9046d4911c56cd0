"""A yes of a standing grant that was taken back lets nothing through: see approvals/sql/0137_taken_back.sql."""

from django.db import migrations

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0137_taken_back.sql")
UNDO = "DROP TRIGGER approvals_yes_used ON runs_wait;\nDROP FUNCTION approvals_on_use();\n"


class Migration(migrations.Migration):
    dependencies = [("approvals", "0151_devices"), ("runs", "0121_stood_in_its_version")]
    operations = [migrations.RunSQL(SQL, UNDO)]
