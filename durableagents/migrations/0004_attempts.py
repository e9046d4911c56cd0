from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("durableagents", "0002_accounts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Attempts",
            fields=[
                ("key", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ("until", models.DateTimeField()),
            ],
        ),
        # Losing the counts in a crash of the database harms nobody; a flush of the log for each guess would.
        migrations.RunSQL(
            "ALTER TABLE durableagents_attempts SET UNLOGGED",
            "ALTER TABLE durableagents_attempts SET LOGGED",
        ),
    ]
