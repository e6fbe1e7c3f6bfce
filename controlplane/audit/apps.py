"""App configuration."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """The audit room."""

    name = "controlplane.audit"
    default_auto_field = "django.db.models.BigAutoField"
