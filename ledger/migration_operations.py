"""Operations for the migrations of all apps."""

from __future__ import annotations

from typing import Any

from django.db.migrations import CreateModel


class AdoptModel(CreateModel):
    """Create the table of a model that was in another app before, unless the database has it from then. The former
    app's first migration no longer has it, so that a database without the new app doesn't get the table."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        table = to_state.apps.get_model(app_label, self.name)._meta.db_table
        if table not in schema_editor.connection.introspection.table_names():
            super().database_forwards(app_label, schema_editor, from_state, to_state)
