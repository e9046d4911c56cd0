
import pgtrigger.compiler
import pgtrigger.migrations
from django.db import migrations, models


# The account that bears the name now: the best that is known of what was written before accounts were.
WHO = """
UPDATE runs_run r SET creator = u.id FROM auth_user u
WHERE r.created_by IN ('user:' || u.username, 'key:' || u.username) AND r.creator IS NULL
"""
# What people did before it was a record of its own, as the runs and journals tell it.
STARTED = """
INSERT INTO ledger_actrecord (run_id, action, subject, queue, by, person, role, auth, address, justification, seq, chain, before, after, at)
SELECT r.id, 'start', r.graph_id, '', r.created_by, r.creator, '', CASE WHEN r.created_by LIKE 'key:%' THEN 'api_key' ELSE 'session' END,
       '', '', e.seq, e.hash, '{}', '{"state": "pending"}', r.created_at
FROM runs_run r JOIN ledger_event e ON e.run_id = r.id AND e.seq = 1
WHERE r.created_by ~ '^(user|key):'
"""
TOLD = """
INSERT INTO ledger_actrecord (run_id, action, subject, queue, by, person, role, auth, address, justification, seq, chain, before, after, at)
SELECT t.run_id, t.action, t.subject, '', t.by, u.id, t.role, CASE WHEN t.by LIKE 'key:%' THEN 'api_key' ELSE 'session' END,
       '', '', t.seq - 1, t.prev_hash, '{}', '{}', t.at
FROM (
    SELECT e.run_id, e.seq, e.prev_hash, e.at, c.said ->> 'by' AS by, coalesce(c.said ->> 'role', '') AS role,
           CASE e.kind WHEN 'InputAnswered' THEN 'answer' ELSE 'signal' END AS action,
           CASE e.kind WHEN 'InputAnswered' THEN '' ELSE (c.said ->> 'name') || ' ' || (c.said ->> 'n') END AS subject
    FROM ledger_event e, LATERAL (SELECT convert_from(e.clear, 'UTF8')::jsonb AS said) c
    WHERE e.kind IN ('InputAnswered', 'SignalReceived')
) t LEFT JOIN auth_user u ON t.by IN ('user:' || u.username, 'key:' || u.username)
WHERE t.by ~ '^(user|key):'
"""


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('ledger', '0005_acts'),
        ("runs", "0008_upkeep"),
    ]

    operations = [
        migrations.AddField(
            model_name='run',
            name='creator',
            field=models.BigIntegerField(help_text='The account of whoever started it: names can be changed.', null=True),
        ),
        migrations.RunSQL([WHO, STARTED, TOLD], migrations.RunSQL.noop),
        pgtrigger.migrations.AddTrigger(
            model_name='run',
            trigger=pgtrigger.compiler.Trigger(name='starter_is_frozen', sql=pgtrigger.compiler.UpsertTriggerSql(condition='WHEN (OLD."created_by" IS DISTINCT FROM (NEW."created_by") OR OLD."creator" IS DISTINCT FROM (NEW."creator"))', func="RAISE EXCEPTION 'who started a run never changes: run %', OLD.id;", hash='aa1997d4663cc21144ed772e59ee713776ff63e6', operation='UPDATE OF "created_by", "creator"', pgid='pgtrigger_starter_is_frozen_5bb08', table='runs_run', when='BEFORE')),
        ),
    ]
