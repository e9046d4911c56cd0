"""Operations for the migrations of all apps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.db.migrations import CreateModel
from pgtrigger import compiler

from ledger.models import append_only

_TRIGGERS = (
    "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname ~ ('^pgtrigger_' || %s || '_[0-9a-f]{5}$')"
)


class AdoptModel(CreateModel):
    """Create the table of a model that moved from another app, unless that app already created it in this database.

    The former app's first migration no longer creates the table, so a database without the new app doesn't have it.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        table = to_state.apps.get_model(app_label, self.name)._meta.db_table
        if table not in schema_editor.connection.introspection.table_names():
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        for trigger in self.options.get("triggers", ()):  # their names contain a digest of the model's label
            with schema_editor.connection.cursor() as cursor:
                cursor.execute(_TRIGGERS, [table, trigger.name])
                former = [name for (name,) in cursor.fetchall()]
            for name in former:
                schema_editor.execute(f"DROP TRIGGER {name} ON {table}; DROP FUNCTION {name}()", params=None)
            schema_editor.execute(trigger.install_sql, params=None)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Keep the table, because in older code its model belongs to the former app."""


def append_only_triggers(label: str, table: str = "") -> list[compiler.Trigger]:
    """Return the compiled triggers of `append_only()` for the options of a model in a migration.

    `label` is the model's label ("app.Model"), `table` the name of its table if that isn't Django's default.
    """
    app, _, model = label.partition(".")
    named = SimpleNamespace(app_label=app, object_name=model, db_table=table or f"{app}_{model.lower()}")
    named.concrete_model = SimpleNamespace(_meta=named)
    stand_in: Any = SimpleNamespace(_meta=named)  # compiling a trigger needs nothing else from a model
    return [trigger.compile(stand_in) for trigger in append_only()]
