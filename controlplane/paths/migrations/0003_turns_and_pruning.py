"""Who sends through a pool, in turns; and when the tokens of a series were let go."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("paths", "0002_measured")]
    operations = [
        migrations.AddField("pool", "turn_until", models.DateTimeField(null=True)),
        migrations.AddField("pool", "turn_next", models.BigIntegerField(null=True)),
        migrations.AddField("probeseries", "pruned_at", models.DateTimeField(null=True)),
        migrations.AddIndex(
            "probeseries",
            models.Index(
                fields=["finished_at"],
                condition=models.Q(("pruned_at", None), models.Q(("state", "running"), _negated=True)),
                name="series_to_prune",
            ),
        ),
    ]
