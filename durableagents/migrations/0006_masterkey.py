"""The value by which a process sees whether its master key is this database's."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("durableagents", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="MasterKey",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("salt", models.BinaryField(max_length=16)),
                ("proof", models.BinaryField(max_length=32)),
                ("stored_at", models.DateTimeField()),
            ],
            options={"constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="durableagents_masterkey_is_one")]},
        ),
    ]
