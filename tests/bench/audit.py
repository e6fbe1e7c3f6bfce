"""Verifying an audit chain of a million events. Prints one JSON object.

    python tests/bench/audit.py [--rows 1000000]

A PostgreSQL of its own, events with documents of realistic size, sealed by the product's sealer. Exits 1 when
the verification takes 60 s or more, its memory grows with the chain, or an edit near the end is not found.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from deploy import services

LIMIT_S = 60.0
LIMIT_GROWTH_MIB = 100.0

FILL = """
    WITH made AS (
        INSERT INTO audit_auditevent (at, actor, actor_kind, on_behalf_of, action, outcome, code, target_kind,
            target_id, before, after, reason, request_id, source_ip, fence)
        SELECT clock_timestamp(), 'person' || n %% 40, 'person', '', 'operation.step', 'done', '', 'operation',
            (n %% 5000)::text,
            jsonb_build_object('state', 'working', 'row', n %% 17, 'old', jsonb_build_array(4, 2)),
            jsonb_build_object('state', 'waiting', 'row', n %% 17 + 1, 'new', jsonb_build_array(1, 1),
                'waits_for', jsonb_build_object('what', 'groups to be ready', 'who', '', 'since', n)),
            'row ' || n, md5(n::text), '10.0.0.7', n
        FROM generate_series(%s::bigint, %s::bigint) n
        RETURNING id, at
    )
    INSERT INTO audit_auditpending (event_id, at) SELECT id, at FROM made
"""


def peak_mib() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(rows: int) -> dict[str, Any]:
    """Fill, seal, verify, then edit one late event and verify again."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from django.db import connection

    from controlplane.audit.chain import seal_events, verify_chain
    from controlplane.audit.models import AuditSeal

    begun = time.monotonic()
    with connection.cursor() as cursor:
        for start in range(1, rows + 1, 50_000):
            cursor.execute(FILL, [start, min(start + 49_999, rows)])
        cursor.execute("ANALYZE")
    filled = time.monotonic()
    while seal_events():
        pass
    sealed = time.monotonic()
    before = peak_mib()
    verdict = verify_chain()
    verified = time.monotonic()
    growth = peak_mib() - before

    late = rows - rows // 10
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        event = AuditSeal.objects.get(seq=late).event_id
        cursor.execute("UPDATE audit_auditevent SET reason = 'edited' WHERE id = %s", [event])
    found = verify_chain().bad_seq == late
    seconds = verified - sealed
    return {
        "rows": verdict.checked,
        "intact": verdict.intact,
        "fill_seconds": round(filled - begun, 1),
        "sealed_per_second": round(rows / (sealed - filled)),
        "verify_seconds": round(seconds, 1),
        "verify_limit_seconds": LIMIT_S,
        "verify_memory_growth_mib": round(growth, 1),
        "edit_near_the_end_found": found,
        "reached": verdict.intact
        and verdict.checked == rows
        and seconds < LIMIT_S
        and growth < LIMIT_GROWTH_MIB
        and found,
    }


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        with services.start_postgres(Path(folder)) as url:
            os.environ.update(
                DATABASE_URL=url,
                DJANGO_SETTINGS_MODULE="controlplane.settings",
                LOCKSTEP_SECRET_KEY="bench-only-not-a-secret",
                LOCKSTEP_LOG_LEVEL="WARNING",
            )
            report = measure(rows)
            from django.db import connection

            connection.close()
    print(json.dumps(report, indent=2))
    return 0 if report["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
