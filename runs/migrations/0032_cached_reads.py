
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0030_succession'),
    ]

    operations = [
        migrations.CreateModel(
            name='CachedRead',
            fields=[
                ('key', models.BinaryField(help_text='A keyed digest of tool, arguments and scope.', max_length=32, primary_key=True, serialize=False)),
                ('tool', models.TextField()),
                ('run_id', models.UUIDField(help_text='The run whose call made it, so that it can be forgotten with that run.')),
                ('slot', models.TextField()),
                ('at', models.DateTimeField(help_text='When that call began.')),
                ('expires_at', models.DateTimeField()),
                ('size', models.IntegerField()),
                ('sealed', models.BinaryField()),
                ('code', models.BinaryField()),
            ],
            options={
                'indexes': [models.Index(fields=['expires_at'], name='runs_cachedread_by_end'), models.Index(fields=['run_id'], name='runs_cachedread_by_run')],
            },
        ),
    ]
