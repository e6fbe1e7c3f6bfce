"""Lockstep with servers of its own, for benchmarks that measure in their own process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from deploy import services


def prepare(stack: contextlib.ExitStack, folder: Path, **more: str) -> None:
    """Servers that end with the stack, the environment (with `more`), Django, an empty database."""
    os.environ |= {
        "LOCKSTEP_SECRET_KEY": "bench-" + "x" * 50,
        "LOCKSTEP_LOG_LEVEL": "WARNING",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": stack.enter_context(services.start_postgres(folder)),
        "LOCKSTEP_BROKER_URL": stack.enter_context(services.start_valkey(folder)),
        **more,
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
