"""The shipped scrape recipe and the named queries on a served path: real Prometheus, discovery, router and engines."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.metrics.asked import Incarnation
from controlplane.metrics.client import Prometheus
from controlplane.metrics.measured import Measured, State
from controlplane.metrics.reading import measure_all
from controlplane.metrics.source import Source
from deploy.demo.engines.roles import engine_pair
from deploy.demo.path import ServedPath
from deploy.rig import Rig
from deploy.rig.api import until

pytestmark = pytest.mark.rig
RECIPE = Path(__file__).resolve().parents[2] / "deploy" / "target" / "scrape.yaml"
REQUESTS = 60


@pytest.fixture
def prometheus(rig: Rig) -> Iterator[Prometheus]:
    """A Prometheus that follows the recipe as it is shipped, only more often."""
    jobs: list[dict[str, Any]] = next(iter(yaml.safe_load_all(RECIPE.read_text())))["scrape_configs"]
    often = [job | {"scrape_interval": "1s", "scrape_timeout": "1s"} for job in jobs]
    with Prometheus(rig.start_prometheus(often), timeout_s=5) as client:
        yield client
    rig.stop_part("prometheus")


def test_every_number_of_a_served_path(rig: Rig, namespace: str, prometheus: Prometheus) -> None:
    began = time.time()
    with ServedPath(rig, namespace) as path:
        label = path.serve("chat", engine_pair())
        for number in range(REQUESTS):
            status, _, _ = path.ask(f"{number} " + "Once upon a time there was a long prompt. " * 20)
            assert status == 200
        seen = until(
            "all requests are in the numbers", lambda: _all_of_it(prometheus, namespace, label, began)
        )
    numbers = {(one.name, one.role, one.stat): one for one in seen if not one.labels}
    attempts = Counter[tuple[str, str]]()
    for one in seen:
        if one.name == "scheduler_attempts":
            attempts[one.revision, one.role] += round(one.value or 0)
    # The one that `serve` asks until the path answers is among them.
    assert attempts.keys() == {(label, "decode")}
    assert attempts[label, "decode"] >= REQUESTS
    finished = {
        ((one.labels or {})["pod"], one.role): one.value for one in seen if one.name == "finished_requests"
    }
    assert {role for _, role in finished} == {"prefill", "decode"}
    assert sum(value or 0 for (_, role), value in finished.items() if role == "prefill") >= REQUESTS
    share = numbers["disaggregated_share", "decode", "value"]
    assert share.value is not None and share.value > 0.9
    assert numbers["failed_transfers_ratio", "decode", "value"].value == 0
    assert numbers["error_ratio", "decode", "value"].value == 0
    assert numbers["decode_only_share", "", "value"].value is not None
    assert numbers["router_error_ratio", "", "value"].state in (State.VALUE, State.NO_TRAFFIC)
    for name in ("ttft", "itl", "e2e", "transfer_time", "user_ttft"):
        assert name == "user_ttft" or numbers[name, "decode", "mean"].value
    gating = [one for one in seen if one.name == "gating_share"]
    assert [(one.revision, one.value) for one in gating] == [(label, 1)]
    bytes_per_token = numbers["transfer_bytes_per_token", "", "value"].value
    assert bytes_per_token is not None and bytes_per_token > 0


def _all_of_it(client: Prometheus, namespace: str, label: str, began: float) -> list[Measured]:
    names = [
        "requests_running", "requests_waiting", "queue_per_group", "kv_usage", "ttft", "itl", "e2e", "error_ratio",
        "failed_transfers_ratio", "expired_leases", "transfer_time", "transfer_bytes_per_token", "disaggregated_share",
        "finished_requests", "scheduler_attempts", "gating_share", "disagg_decisions", "decode_only_share",
        "ready_endpoints", "router_error_ratio", "user_ttft",
    ]  # fmt: skip
    seen = measure_all(
        client,
        Source(),
        names,
        namespace=namespace,
        set="chat",
        router="chat-epp",
        revisions=[Incarnation(label, began, "0.33.0")],
        roles=["prefill", "decode"],
        window_s=120,
    )
    # Each pod and the router are scraped at moments of their own.
    counted = Counter[tuple[str, str]]()
    for one in seen:
        if one.name in ("finished_requests", "scheduler_attempts"):
            counted[one.name, one.role] += round(one.value or 0)
    wanted = [
        ("finished_requests", "prefill"),
        ("finished_requests", "decode"),
        ("scheduler_attempts", "decode"),
    ]
    return seen if min(counted[each] for each in wanted) >= REQUESTS else []
