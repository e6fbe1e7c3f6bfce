"""To find ended runs by their age."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("operations", "0004_automation_pauses")]
    operations = [
        migrations.AddIndex(
            "run",
            models.Index(
                fields=["done_at"],
                condition=models.Q(("state", "waiting"), _negated=True),
                name="runs_to_prune",
            ),
        ),
    ]
