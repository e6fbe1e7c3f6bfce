"""App configuration."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """The approvals room."""

    name = "controlplane.approvals"
    default_auto_field = "django.db.models.BigAutoField"
