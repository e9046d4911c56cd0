"""What models are saying right now: two tables without a log, for nothing in them outlives a crash anyhow."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0028_shares'),
    ]

    operations = [
        migrations.CreateModel(
            name='Listener',
            fields=[
                ('run_id', models.UUIDField(primary_key=True, serialize=False)),
                ('until', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='Overheard',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('slot', models.TextField()),
                ('attempt', models.IntegerField()),
                ('epoch', models.BigIntegerField(help_text='The claim whose worker hears it.')),
                ('text', models.TextField()),
                ('characters', models.IntegerField(help_text='Of the whole so far; the text is its end.')),
                ('at', models.DateTimeField(db_index=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('run_id', 'slot'), name='runs_overheard_once')],
            },
        ),
        migrations.RunSQL(
            "ALTER TABLE runs_listener SET UNLOGGED; ALTER TABLE runs_overheard SET UNLOGGED",
            "ALTER TABLE runs_listener SET LOGGED; ALTER TABLE runs_overheard SET LOGGED",
        ),
    ]
