"""Whether people may be asked at a queue, where the question is opened: see approvals/sql/0009_asked.sql."""

from django.db import migrations

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0009_asked.sql")
UNDO = "DROP FUNCTION approvals_may_ask(text);"


class Migration(migrations.Migration):
    dependencies = [("approvals", "0008_queues")]
    operations = [migrations.RunSQL(SQL, UNDO)]
