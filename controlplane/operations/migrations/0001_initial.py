import django.db.models.constraints
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('fleet', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Installation',
            fields=[
                ('id', models.UUIDField(primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField()),
                ('only', models.BooleanField(default=True, unique=True)),
                ('reconciled_at', models.DateTimeField(null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('only', True)), name='one_installation')],
            },
        ),
        migrations.CreateModel(
            name='Operation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=40)),
                ('subject_id', models.CharField(max_length=120)),
                ('digest', models.CharField(max_length=80)),
                ('namespace', models.CharField(max_length=63)),
                ('title', models.CharField(max_length=300)),
                ('reason', models.TextField(blank=True)),
                ('state', models.CharField(choices=[('working', 'Working'), ('waiting', 'Waiting'), ('held', 'Held'), ('succeeded', 'Succeeded'), ('aborted', 'Aborted'), ('superseded', 'Superseded'), ('rolled-back', 'Rolled Back'), ('failed', 'Failed')], default='working', max_length=12)),
                ('phase', models.CharField(choices=[('forward', 'Forward'), ('aborting', 'Aborting')], default='forward', max_length=10)),
                ('abort_step', models.CharField(max_length=80)),
                ('stop_step', models.CharField(blank=True, max_length=80)),
                ('adopt_step', models.CharField(blank=True, max_length=80)),
                ('memory', models.JSONField(default=dict)),
                ('waits_for', models.JSONField(default=dict)),
                ('promoted', models.JSONField(default=dict)),
                ('finding', models.JSONField(default=dict)),
                ('started_at', models.DateTimeField()),
                ('finished_at', models.DateTimeField(null=True)),
                ('changed_at', models.DateTimeField()),
                ('version', models.PositiveIntegerField(default=1)),
                ('fence', models.BigIntegerField(default=0)),
                ('settled', models.BooleanField(default=False)),
                ('lease_owner', models.CharField(blank=True, max_length=100)),
                ('lease_until', models.DateTimeField(null=True)),
                ('not_before', models.DateTimeField()),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('woken', models.BooleanField(default=False)),
                ('rung_at', models.DateTimeField(null=True)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='operations', to='fleet.cluster')),
                ('started_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='operations', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='OperationTarget',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=20)),
                ('uid', models.CharField(max_length=120)),
                ('released', models.BooleanField(default=False)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='fleet.cluster')),
                ('operation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='targets', to='operations.operation')),
            ],
        ),
        migrations.CreateModel(
            name='Run',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=80)),
                ('args', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('done', 'Done'), ('failed', 'Failed')], default='waiting', max_length=10)),
                ('result', models.JSONField(default=dict)),
                ('problem', models.JSONField(default=dict)),
                ('lease_owner', models.CharField(blank=True, max_length=100)),
                ('lease_until', models.DateTimeField(null=True)),
                ('not_before', models.DateTimeField()),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('rung_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField()),
                ('done_at', models.DateTimeField(null=True)),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, to='fleet.cluster')),
            ],
        ),
        migrations.CreateModel(
            name='Step',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('index', models.PositiveIntegerField()),
                ('name', models.CharField(max_length=80)),
                ('args', models.JSONField(default=dict)),
                ('state', models.CharField(choices=[('pending', 'Pending'), ('done', 'Done'), ('skipped', 'Skipped')], default='pending', max_length=10)),
                ('attempt', models.PositiveIntegerField(default=1)),
                ('first_claimed_at', models.DateTimeField(null=True)),
                ('done_at', models.DateTimeField(null=True)),
                ('result', models.JSONField(default=dict)),
                ('operation', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='steps', to='operations.operation')),
            ],
        ),
        migrations.AddIndex(
            model_name='operation',
            index=models.Index(condition=models.Q(('state__in', ['working', 'waiting'])), fields=['not_before'], name='due_operations'),
        ),
        migrations.AddConstraint(
            model_name='operationtarget',
            constraint=models.UniqueConstraint(condition=models.Q(('released', False)), fields=('cluster', 'kind', 'uid'), name='one_operation_per_target'),
        ),
        migrations.AddIndex(
            model_name='run',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['not_before'], name='due_runs'),
        ),
        migrations.AddConstraint(
            model_name='step',
            constraint=models.UniqueConstraint(deferrable=django.db.models.constraints.Deferrable['IMMEDIATE'], fields=('operation', 'index'), name='one_step_per_index'),
        ),
    ]
