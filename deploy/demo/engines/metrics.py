"""One engine's metrics, written as prometheus_client writes them.

Hand-written because one process serves hundreds of registries: what has not changed since the last scrape is a string
that is there already.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from prometheus_client.utils import floatToGoString

from deploy.demo.engines.families import Family, families_of, token_buckets
from deploy.demo.engines.spec import EngineSpec

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Key = tuple[str, str]


class _Histogram:
    def __init__(self, bounds: list[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Metrics:
    """Counters, gauges and histograms of one incarnation of one engine.

    Names are as declared (no ``_total``). Names that this release does not have are accepted and lead nowhere, so
    that callers need not know releases. ``refresh`` is called before every exposition to set gauges.
    """

    def __init__(self, spec: EngineSpec, *, created: float) -> None:
        self.refresh: Callable[[], None] = lambda: None
        self._spec = spec
        self._created = created
        self._families = {family.name: family for family in families_of(spec)}
        self._numbers: dict[str, dict[str, float]] = {}
        self._histograms: dict[str, _Histogram] = {}
        for family in self._families.values():
            if family.kind == "histogram":
                bounds = (
                    token_buckets(spec.max_length) if family.tokens else [float(b) for b in family.buckets]
                )
                self._histograms[family.name] = _Histogram(bounds)
            else:
                self._numbers[family.name] = dict.fromkeys(family.values, 0.0)
        self._cached: dict[str, str] = {}
        self._info = _cache_config(spec)

    def count(self, name: str, by: float = 1, label: str = "") -> None:
        """Raise a counter."""
        numbers = self._numbers.get(name)
        if numbers is not None and by:
            numbers[label] = numbers.get(label, 0.0) + by
            self._cached.pop(name, None)

    def set(self, name: str, value: float, label: str = "") -> None:
        """Set a gauge."""
        numbers = self._numbers.get(name)
        if numbers is not None and numbers.get(label) != value:
            numbers[label] = float(value)
            self._cached.pop(name, None)

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Add ``times`` equal observations."""
        histogram = self._histograms.get(name)
        if histogram is not None and times:
            histogram.observe(value, times)
            self._cached.pop(name, None)

    def value(self, name: str, label: str = "") -> float:
        """A counter or gauge as it is now; 0 for what does not exist."""
        return self._numbers.get(name, {}).get(label, 0.0)

    def observations(self, name: str) -> tuple[int, float]:
        """(count, sum) of a histogram."""
        histogram = self._histograms.get(name)
        return (sum(histogram.counts), histogram.sum) if histogram else (0, 0.0)

    def exposition(self) -> str:
        """The text of GET /metrics."""
        self.refresh()
        parts = [self._text(name, family) for name, family in self._families.items()]
        return "".join([*parts, self._info])

    def _text(self, name: str, family: Family) -> str:
        text = self._cached.get(name)
        if text is None:
            write = self._write_histogram if family.kind == "histogram" else self._write_numbers
            text = self._cached[name] = write(family)
        return text

    def _labels(self, family: Family, value: str) -> str:
        pairs = [("engine", "0")] if family.engine else []
        pairs.append(("model_name", self._spec.served_name))
        if family.label:
            pairs.append((family.label, value))
        return ",".join(f'{key}="{_escape(text)}"' for key, text in pairs)

    def _write_numbers(self, family: Family) -> str:
        total = family.name + ("_total" if family.kind == "counter" else "")
        lines = [f"# HELP {total} {family.text}", f"# TYPE {total} {family.kind}"]
        labelled = [
            (self._labels(family, value), number) for value, number in self._numbers[family.name].items()
        ]
        lines += [f"{total}{{{labels}}} {_number(number)}" for labels, number in labelled]
        if family.kind == "counter":
            lines += self._write_created(family, [labels for labels, _ in labelled])
        return "\n".join(lines) + "\n"

    def _write_histogram(self, family: Family) -> str:
        histogram, labels = self._histograms[family.name], self._labels(family, "")
        lines = [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} histogram"]
        below = 0
        for bound, count in zip([*histogram.bounds, math.inf], histogram.counts, strict=True):
            below += count
            lines.append(f'{family.name}_bucket{{{labels},le="{_number(bound)}"}} {below}.0')
        lines.append(f"{family.name}_count{{{labels}}} {below}.0")
        lines.append(f"{family.name}_sum{{{labels}}} {_number(histogram.sum)}")
        lines += self._write_created(family, [labels])
        return "\n".join(lines) + "\n"

    def _write_created(self, family: Family, labelled: list[str]) -> list[str]:
        name = f"{family.name}_created"
        if not labelled:
            return []
        head = [f"# HELP {name} {family.text}", f"# TYPE {name} gauge"]
        return head + [f"{name}{{{labels}}} {_number(self._created)}" for labels in labelled]


def _cache_config(spec: EngineSpec) -> str:
    """cache_config_info: one label per field of the cache configuration, and no model name."""
    window = spec.shape.window if spec.shape.window and not spec.shape.window_layers else None
    fields = {
        "block_size": spec.block_size,
        "cache_dtype": spec.kv_cache_dtype,
        "enable_prefix_caching": spec.prefix_caching,
        "engine": 0,
        "gpu_memory_utilization": spec.utilisation,
        "num_gpu_blocks": spec.blocks,
        "sliding_window": window,
    }
    if spec.release >= (0, 30):
        fields["kv_cache_layout"] = _layout_name(spec.layout, spec.release)
    labels = ",".join(f'{key}="{_escape(str(value))}"' for key, value in fields.items())
    name = "vllm:cache_config_info"
    text = "Information of the LLMEngine CacheConfig"
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n{name}{{{labels}}} 1.0\n"


def _layout_name(layout: str, release: tuple[int, int]) -> str:
    return {"HND": "LBHNC", "NHD": "LBNHC"}.get(layout, layout) if release >= (0, 29) else layout


def _number(value: float) -> str:
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
