"""A cluster's metric source, and the version of what people edit of a cluster."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0003_paths_read_at")]
    operations = [
        migrations.AddField("cluster", "metrics_url", models.CharField(blank=True, max_length=500, default=""), preserve_default=False),
        migrations.AddField("cluster", "metrics_options", models.JSONField(blank=True, default=dict)),
        migrations.AddField("cluster", "version", models.PositiveIntegerField(default=1)),
    ]
