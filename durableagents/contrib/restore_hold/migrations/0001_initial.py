"""Marks, lines of marks that ended, workers that vouch, and findings. No mark exists at first: nothing was acknowledged."""

from django.db import migrations, models

from ledger.migration_operations import append_only_triggers


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name='Mark',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('line', models.UUIDField(help_text='Id of the line of marks; a new one begins when an operator accepts a restored database.')),
                ('number', models.BigIntegerField()),
                ('host', models.UUIDField(help_text='Host that last set the mark.', null=True)),
                ('host_name', models.TextField(blank=True, default='')),
                ('at', models.DateTimeField()),
                ('timeline', models.IntegerField(help_text='Timeline of the server when this mark began: a promoted server begins a new timeline.')),
                ('began_with', models.UUIDField(help_text='The halt that was lifted before this line of marks began.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='PastLine',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('line', models.UUIDField()),
                ('had', models.BigIntegerField(help_text="The line's last mark in this database.", null=True)),
                ('accepted', models.BigIntegerField(help_text='Highest mark of a host that may continue with this database.')),
                ('halt', models.UUIDField(null=True)),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['line'], name='restore_hold_past_line')],
                'triggers': append_only_triggers('restore_hold.PastLine'),
            },
        ),
        migrations.CreateModel(
            name='Voucher',
            fields=[
                ('worker', models.UUIDField(primary_key=True, serialize=False)),
                ('timeline', models.IntegerField()),
                ('server_began', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Finding',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('code', models.BinaryField(null=True)),
                ('halt', models.UUIDField()),
                ('host', models.UUIDField()),
                ('host_name', models.TextField()),
                ('reason', models.TextField(help_text='A code from comparing.py, `requested` or `found`.')),
                ('head', models.JSONField(help_text="The host's head file, without secrets.")),
                ('database', models.JSONField(help_text="The database's own identification.")),
                ('at', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['halt', 'host', '-id'], name='restore_hold_of_halt')],
                'triggers': append_only_triggers('restore_hold.Finding'),
            },
        ),
    ]
