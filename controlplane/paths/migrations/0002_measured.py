"""What the metric source says of a pool, and when it said so."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("paths", "0001_initial")]
    operations = [
        migrations.AddField("pool", "measured", models.JSONField(default=dict)),
        migrations.AddField("pool", "measured_at", models.DateTimeField(null=True)),
    ]
