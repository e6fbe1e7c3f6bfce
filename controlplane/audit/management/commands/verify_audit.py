"""Verify the whole audit chain, also against anchors kept outside; exit status 1 where it does not hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.audit.chain import Anchor, verify_chain


class Command(BaseCommand):
    """Walks every link, streaming, and names the first that was edited, moved, or lost."""

    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        """A file of lines that anchor_audit printed."""
        parser.add_argument(
            "--anchors", type=Path, help="Lines of anchor_audit; the chain must contain each."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print how many links hold; fail with the first that does not."""
        path = options["anchors"]
        anchors = read_anchors(path.read_text(encoding="utf-8").splitlines()) if path else []
        verdict = verify_chain(anchors=anchors)
        if not verdict.intact:
            raise CommandError(f"Broken at link {verdict.bad_seq}: {verdict.problem}.")
        self.stdout.write(f"{verdict.checked} links hold; {len(anchors)} anchors agree.")


def read_anchors(lines: Iterable[str]) -> list[Anchor]:
    """Anchors from JSON lines; empty lines are passed over. Raises CommandError on anything else."""
    anchors = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            anchors.append(
                Anchor(int(given["seq"]), str(given["hash"]), datetime.fromisoformat(given["sealed_at"]))
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"Line {number} of the anchors is not a line of anchor_audit.") from error
    return anchors
