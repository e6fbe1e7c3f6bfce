"""Pools, request paths, probes and parity."""

from __future__ import annotations

from django.apps import AppConfig


class PathsConfig(AppConfig):
    """The room of request paths."""

    name = "controlplane.paths"
    default_auto_field = "django.db.models.BigAutoField"
