"""Print the end of the audit chain as one JSON line, to be kept where nobody with this database can change it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.audit.chain import last_anchor, seal_events


class Command(BaseCommand):
    """Seals what waits, then gives {seq, hash, sealed_at}; run it daily, from outside, into a file or a mail."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to write besides standard output."""
        parser.add_argument("--append-to", type=Path, help="Also add the line to this file.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the line; fails on an empty chain, which has nothing to anchor."""
        while seal_events():
            pass
        anchor = last_anchor()
        if anchor is None:
            raise CommandError("The chain is empty: nothing to anchor yet.")
        document = {"seq": anchor.seq, "hash": anchor.hash, "sealed_at": anchor.sealed_at.isoformat()}
        line = json.dumps(document)
        if path := options["append_to"]:
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        self.stdout.write(line)
