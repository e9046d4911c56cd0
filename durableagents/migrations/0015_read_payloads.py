"""The right to read what runs hold. Roles that an installation has already get it here where they need it for their
work: operators and auditors. New ones get it as they are made (durableagents/apps.py)."""

from typing import Any

from django.db import migrations

APP, CODENAME, NAME = "durableagents", "read_payloads", "Can read the payloads of runs"


def give(apps: Any, schema_editor: Any) -> None:
    """Django makes the rows of a permission after all migrations, which is too late."""
    using = schema_editor.connection.alias
    group, permission = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    kind, _ = (
        apps.get_model("contenttypes", "ContentType").objects.using(using).get_or_create(app_label=APP, model="owntag")
    )
    right, _ = permission.objects.using(using).get_or_create(
        content_type_id=kind.pk, codename=CODENAME, defaults={"name": NAME}
    )
    for role in group.objects.using(using).filter(name__in=("operator", "auditor")):
        role.permissions.add(right.pk)


class Migration(migrations.Migration):
    dependencies = [
        ("durableagents", "0014_factors"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.AlterModelOptions(name="owntag", options={"permissions": [(CODENAME, NAME)]}),
        migrations.RunPython(give, migrations.RunPython.noop, elidable=False),
    ]
