from django.db import migrations, models

from ledger.migration_operations import AdoptModel


class Migration(migrations.Migration):
    is_removable = True  # read by ledger/schema.py

    initial = True

    dependencies = [
        ('runs', '0004_run_by_trace'),
    ]

    operations = [
        AdoptModel(
            name='SearchTerm',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'term', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('term', models.TextField(db_collation='C')),
            ],
            options={
                'db_table': 'runs_searchterm',
                'indexes': [models.Index(models.F('term'), models.OrderBy(models.F('run_id'), descending=True), name='runs_searchterm_by_term')],
            },
        ),
        AdoptModel(
            name='Attribute',
            fields=[
                ('pk', models.CompositePrimaryKey('run_id', 'name', 'n', blank=True, editable=False, primary_key=True, serialize=False)),
                ('run_id', models.UUIDField()),
                ('name', models.TextField(db_collation='C')),
                ('n', models.SmallIntegerField(help_text='Position among the values of a list.')),
                ('kind', models.TextField(db_collation='C')),
                ('word', models.TextField(db_collation='C', null=True)),
                ('number', models.DecimalField(decimal_places=9, max_digits=40, null=True)),
                ('created_at', models.DateTimeField(help_text="The run's.")),
            ],
            options={
                'db_table': 'runs_attribute',
                'indexes': [models.Index(condition=models.Q(('word__isnull', False)), fields=['name', 'kind', 'word', 'created_at', 'run_id'], name='runs_attribute_by_word'), models.Index(condition=models.Q(('number__isnull', False)), fields=['name', 'kind', 'number', 'created_at', 'run_id'], name='runs_attribute_by_number')],
            },
        ),
    ]
