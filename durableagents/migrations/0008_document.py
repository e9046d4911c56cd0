"""A library of documents with full-text search (durableagents/sql/0008_document.sql)."""

from django.db import migrations

from ledger.sqlfiles import sql_file

SQL = sql_file(__file__, "0008_document.sql")
UNDO = "DROP TABLE durableagents_document"


class Migration(migrations.Migration):
    dependencies = [("durableagents", "0007_key_budget")]

    operations = [migrations.RunSQL(SQL, UNDO)]
