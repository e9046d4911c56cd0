"""API keys, own tags, sessions and documents, and changes of the tables of Django and django-q2."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

# Losing the counts in a crash of the database does no harm; flushing the log for each guess would.
UNLOGGED = "ALTER TABLE durableagents_attempts SET UNLOGGED"
# Each start and each wake-up takes a number, in its own transaction, so they may pass 2,147,483,647. django-q2's model still says integer,
# but reads larger numbers. Its rows live for milliseconds, so the table is vacuumed by their number.
WIDE_QUEUE = """
ALTER TABLE django_q_ormq ALTER COLUMN id TYPE bigint;
ALTER TABLE django_q_ormq SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
"""
# Documents to search in, by edition. A name is words too: `django.db.transaction` is found by "transaction".
DOCUMENT = """
CREATE TABLE durableagents_document (
    edition text NOT NULL,
    id text NOT NULL,
    source text NOT NULL,
    body text NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    words tsvector NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('english'::regconfig, translate(id, '._', '  ')), 'A') || to_tsvector('english'::regconfig, body)
    ) STORED,
    PRIMARY KEY (edition, id)
);
CREATE INDEX durableagents_document_words ON durableagents_document USING gin (words);
"""



class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("approvals", "0001_initial"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name='Attempts',
            fields=[
                ('key', models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                ('until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='ApiKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.TextField()),
                ('prefix', models.TextField()),
                ('hash', models.BinaryField(max_length=32, unique=True)),
                ('created_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField(blank=True, null=True)),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='api_keys', to=settings.AUTH_USER_MODEL)),
                ('budget', models.JSONField(blank=True, help_text='The highest budget that it may grant to a run: {"usd": "5.00", "steps": 200}. Empty: no limit.', null=True)),
            ],
            options={
                'permissions': [('issue_own_key', 'Can issue API keys to themselves')],
            },
        ),
        migrations.CreateModel(
            name='MasterKey',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('salt', models.BinaryField(max_length=16)),
                ('proof', models.BinaryField(max_length=32)),
                ('stored_at', models.DateTimeField()),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('id', 1)), name='durableagents_masterkey_is_one')],
            },
        ),
        migrations.CreateModel(
            name='EndedSession',
            fields=[
                ('session_key', models.TextField(primary_key=True, serialize=False)),
                ('ended_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='OwnTag',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tag', models.CharField(help_text='In the form used on runs: late, or tenant:acme.', max_length=200)),
                ('given_at', models.DateTimeField()),
                ('given_for', models.TextField(help_text='Why the account may see runs with this tag.', max_length=2000, verbose_name='reason')),
                ('taken_at', models.DateTimeField(blank=True, null=True)),
                ('taken_for', models.TextField(blank=True, db_default='', default='', max_length=2000, verbose_name='reason to take it')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='own_tags', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'permissions': [('read_payloads', 'Can read the payloads of runs')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('taken_at__isnull', True)), fields=('user', 'tag'), name='durableagents_owntag_once'), models.CheckConstraint(condition=models.Q(models.Q(('tag', ''), _negated=True), models.Q(('given_for', ''), _negated=True)), name='durableagents_owntag_says_why'), models.CheckConstraint(condition=models.Q(('taken_at__isnull', True), models.Q(('taken_for', ''), _negated=True), _connector='OR'), name='durableagents_owntag_says_why_not')],
            },
        ),
        migrations.RunSQL(
            [UNLOGGED, WIDE_QUEUE, DOCUMENT],
            "DROP TABLE durableagents_document",
        ),
    ]
