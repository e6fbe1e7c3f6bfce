"""What engines counted, asked of the engines themselves where workers reach them: the increase over a series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from prometheus_client.parser import text_string_to_metric_families

from controlplane.paths.requests import Line
from policy.probes.facts import GroupCounters

AT_ONCE = 16
TIMEOUT_S = 5.0
ALL_WITHIN_S = 10.0  # however many there are; who has not answered by then is left out

# Counter of a group → names and labels of its series (telemetry 1.2-1.3), summed over the engines of the pod.
_SERIES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "requests": ("vllm:request_success_total", {}),
    "transfers": ("vllm:nixl_xfer_time_seconds_count", {}),
    "failed_transfers": ("vllm:nixl_num_failed_transfers_total", {}),
    "expired_leases": ("vllm:nixl_num_kv_expired_reqs_total", {}),
    "late_notifications": ("vllm:nixl_num_notifications_after_expiry_total", {}),
    "external_tokens": ("vllm:prompt_tokens_by_source_total", {"source": "external_kv_transfer"}),
    "local_tokens": ("vllm:prompt_tokens_by_source_total", {"source": "local_compute"}),
    "error_finishes": ("vllm:request_success_total", {"finished_reason": "error"}),
}
Counts = dict[str, float]


def read_counters(addresses: Mapping[str, str]) -> dict[str, Counts]:
    """Group id → base address of its engine; group id → counters that it exposes now. A group that does not answer is
    left out."""

    def ask(base: str) -> str:
        line = Line(base, timeout_s=TIMEOUT_S)
        try:
            return line.text("/metrics")
        finally:
            line.close()

    workers = ThreadPoolExecutor(AT_ONCE)
    asked = {workers.submit(ask, base): group for group, base in addresses.items()}
    try:
        done, _ = wait(asked, timeout=ALL_WITHIN_S)
        pages = {asked[each]: each.result() for each in done}
    finally:
        workers.shutdown(wait=False, cancel_futures=True)
    return {group: counts for group, page in pages.items() if (counts := parse_counters(page))}


def parse_counters(page: str) -> Counts:
    """The counters on a metrics page; {} where it cannot be read."""
    found: Counts = {}
    try:
        families = list(text_string_to_metric_families(page))
    except ValueError:
        return {}
    for family in families:
        for sample in family.samples:
            for name, (series, labels) in _SERIES.items():
                if sample.name == series and labels.items() <= sample.labels.items():
                    found[name] = found.get(name, 0.0) + sample.value
    return found


def increase(
    before: Mapping[str, Mapping[str, float]],
    after: Mapping[str, Mapping[str, float]],
    *,
    restarts: Mapping[str, int],
) -> dict[str, GroupCounters]:
    """What each group counted between two readings. A counter that fell began anew: its present value counts."""
    found = {}
    for group, now in after.items():
        was = before.get(group)
        if was is None:
            continue
        grown = {
            name: value - was.get(name, 0.0) if value >= was.get(name, 0.0) else value
            for name, value in now.items()
        }
        found[group] = GroupCounters(**grown, restarts=restarts.get(group, 0))
    return found


def engine_addresses(pods: Sequence[tuple[str, str]], port: int) -> dict[str, str]:
    """(name, IP) → base addresses by name; pods without an address are left out."""
    return {name: f"http://{ip}:{port}" for name, ip in pods if ip}
