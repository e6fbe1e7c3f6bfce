"""Expressions, scrapes and relabelling: a real Prometheus and ours, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deploy.demo.metrics.__main__ import recipe
from deploy.demo.metrics.discovery import pod_labels
from deploy.demo.metrics.server import MetricSource
from deploy.rig.build import binary
from deploy.rig.prometheus import default_scrape_configs
from tests.controlplane.metrics.real import STALE, RealPrometheus
from tests.demo.gateway.stage import Stage
from tests.demo.metrics.both import Both
from tests.demo.metrics.test_api import Exporter, get, until, values
from tests.demo.metrics.test_discovery import SHIPPED, engine, pod

pytestmark = pytest.mark.rig
Doc = dict[str, Any]
NAMES = ("a_total", "b_total", "g")  # times k and n: at most 18 series
SERIES = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["x", "y", ""]), st.sampled_from(["1", "2"])),
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from([0.0, 1.0, 2.5, 7.0, 1e9, None, "same"])),
        min_size=3,
        max_size=12,
    ),
    min_size=9,
    max_size=14,
)


LABELS = (
    '"k", "new-$1", "n", "(.*)"',
    '"k", "", "", ""',
    '"m", "$1", "__name__", "(.+)_total"',
    '"__name__", "renamed", "", ""',
    '"n", "${1}", "k", "(x|y)"',
)
SIGNS = ("+", "-", "*", "/", "> bool", "==", "!=", "<", ">=", "<= bool")
MATCHED = ("", "on (n)", "ignoring (k)", "on (n, k)")
JOINED = (*MATCHED, "on (n) group_left (k)", "ignoring (k) group_right", "on (n) group_left")


@st.composite
def selections(draw: st.DrawFn) -> str:
    """Series, or what a function makes of their samples. MARK stands for what is the test's own."""
    matchers = draw(st.sampled_from(["", "", "", ',n="1"', ',k!=""', ',k=~"x|z"', ',n!~"2"']))
    series = f'{draw(st.sampled_from(NAMES))}{{mark="MARK"{matchers}}}'
    moved = draw(st.sampled_from(["", "", "", " offset 20s", " offset -7s"]))
    window = draw(st.sampled_from(["10s", "90s", "400s", "400s"]))
    over = [f"{one}_over_time" for one in ("max", "min", "count", "last")]
    function = draw(st.sampled_from(["", "", "timestamp", "rate", "increase", "resets", *over]))
    if not function:
        return f"{series}{moved}"
    return f"{function}({series}{'' if function == 'timestamp' else f'[{window}]'}{moved})"


@st.composite
def expressions(draw: st.DrawFn, depth: int) -> str:
    """Vectors, made of everything that ours evaluates."""

    def one(*choices: str) -> str:
        return draw(st.sampled_from(choices))

    if depth == 0:
        return draw(selections())
    inner, other = draw(expressions(depth - 1)), draw(expressions(draw(st.integers(0, depth - 1))))
    match draw(st.integers(0, 6)):
        case 0:
            groups = one("by (k)", "without (n)", "by (n, k)", "by ()", "")
            return f"{one('sum', 'avg', 'max', 'min', 'count', 'group')} {groups} ({inner})"
        case 1:
            return f"label_replace({inner}, {one(*LABELS)})"
        case 2:
            pair = [inner, one("2", "0", "time()", "1e300")]
            return f"({f' {one(*SIGNS)} '.join(draw(st.permutations(pair)))})"
        case 3:
            return f"({inner} {one(*SIGNS)} {one(*JOINED)} {other})"
        case 4:
            return f"({inner} {one('and', 'or', 'unless')} {one(*MATCHED)} {other})"
        case 5:
            buckets = f'label_replace({inner}, "le", "$1", "n", "(.*)")'
            everything = f'label_replace({other}, "le", "+Inf", "", "")'
            return f"histogram_quantile({one('0', '0.5', '0.99', '1', '2')}, {buckets} or {everything})"
    return f"topk {one('', 'by (n)')} (100, {inner})"


Told = dict[tuple[str, str, str], list[tuple[int, Any]]]


def told_to(both: Both, told: Told, now: float) -> str:
    """Write samples a step of some seconds after the one before, up to now; the mark that they got."""
    mark, found = f"m{time.monotonic_ns()}", []
    for (name, k, n), points in told.items():
        at, last = now - sum(step for step, _ in points) - 1, 0.0
        series: list[tuple[float, float]] = []
        for step, value in points:
            at += step
            last = last if value in ("same", None) else float(value)
            series.append((at, STALE if value is None else last))
        if series:
            found.append(({"__name__": name, "n": n, "k": k, "mark": mark}, series))
    both.write([({key: value for key, value in labels.items() if value}, points) for labels, points in found])
    return mark


@settings(max_examples=200, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    told=SERIES,
    expression=st.integers(0, 3).flatmap(expressions),
    back=st.sampled_from([0.0, 0.0, 0.0, 3.25, 60.0]),
)
def test_any_expression_has_the_same_value(both: Both, told: Told, expression: str, back: float) -> None:
    now = float(int(time.time()))
    mark = told_to(both, told, now)
    both.agree(expression.replace("MARK", mark), now - back)


@settings(max_examples=20, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(told=SERIES, step=st.sampled_from(["1", "7s", "0.5"]))
def test_ranges_are_the_same_step_by_step(both: Both, told: Told, step: str) -> None:
    now = float(int(time.time()))
    mark = told_to(both, told, now)
    for query in (
        'a_total{mark="MARK"}',
        'sum by (n) (increase(a_total{mark="MARK"}[20s]))',
        'g{mark="MARK"} @ end() or b_total{mark="MARK"} @ start()',
        "time() * 2",
    ):
        asked = {
            "query": query.replace("MARK", mark),
            "start": f"{now - 60.5}",
            "end": f"{now}",
            "step": step,
        }
        both.agree_on("query_range", asked)


@pytest.mark.parametrize(
    "query",
    [
        *(
            "1 + 2 * 3 / 4 - 5",
            "1 / 0",
            "-1 / 0",
            "0 / 0",
            "1 > bool 2",
            "time()",
            '"text"',
            "1e-7 * 1",
            "1e21 * 1",
        ),
        *("0.1 + 0.2", "1e20 * 1", "123456789.123", "nothing", "nothing[5m]", "Inf", "NaN", "0x1f"),
        *(
            "sum(",
            "{}",
            'x{y=~"("}',
            "sum(1)",
            "1 and x",
            "x[5m] + 1",
            "1 > 2",
            "x + on (y) 1",
            "rate(x)",
            "time(1)",
        ),
        *("x offset", 'x{a="b"', "histogram_quantile(x, 1)", "topk(x)", "sum by (x", "x group_left y", ""),
        'label_replace(x, "a", "b", "c", "(")',
        "x * on (y) group_left (z) group_right y",
    ],
)
def test_answers_and_refusals_without_samples(both: Both, query: str) -> None:
    both.agree(query, 1_700_000_000.57)


@pytest.mark.parametrize(
    "at",
    [
        "1700000000",
        "1700000000.57",
        "1700000000.0005",
        "1.7e9",
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:13:20.123+01:00",
        "noon",
    ],
)
def test_moments(both: Both, at: str) -> None:
    both.agree_on("query", {"query": "time()", "time": at})


def test_samples_that_have_no_one_answer(both: Both) -> None:
    now = float(int(time.time()))
    mark = f"m{time.monotonic_ns()}"
    both.write(
        [
            ({"__name__": name, "n": n, "mark": mark}, [(now - 1, 1.0)])
            for name in ("one", "two")
            for n in "12"
        ]
    )
    one, two = (f'{name}{{mark="{mark}"}}' for name in ("one", "two"))
    for query in (
        *(
            f"{one} * on (mark) {two}",
            f"{one} * on (mark) group_left {two}",
            f'{one} * on (mark) {two[:-1]},n="1"}}',
        ),
        f'{{mark="{mark}"}} * 2',
        f'label_replace({one}, "n", "", "", "")',
        f"topk(0 / 0, {one})",
        f"topk(-1, {one})",
        f"topk(1.9, {one} * 2)",
    ):
        both.agree(query, now)


# --- scrapes


PAGE = """# HELP h A histogram with \\\\ and\\nlines.
# TYPE h histogram
h_bucket{le="1"} 1
h_bucket{le="2.50"} 2
h_bucket{le="1e6"} 2
h_bucket{le="+Inf"} 3
h_sum 4.5e0
h_count 3
# TYPE s summary
s{quantile="0.50"} 1
s{quantile="1"} 2
# TYPE c_total counter
c_total{pod="own",exported_pod="theirs",quote="a\\"b\\\\c\\nd",empty=""} 7
c_total{job="own", brace="}",comma="a,b",} +Inf
# TYPE g gauge
g NaN
g{le="1"} -0.001
same 1
same 2
spaced  { a = "1" }   2
with_time 5 TIME
no_type{a="ü"} 12345678901234567890
"""


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    stage = Stage()
    opened = Exporter(stage.address())
    yield opened
    opened.close()
    stage.close()


@pytest.fixture
def scraping(exporter: Exporter, tmp_path: Any) -> Iterator[tuple[RealPrometheus, MetricSource]]:
    """Both scrape the exporter."""
    static = [{"targets": [f"{exporter.address}:{exporter.port}"], "labels": {"pod": "p0", "role": "decode"}}]
    jobs = [
        {
            "job_name": "engines",
            "scrape_interval": "100ms",
            "scrape_timeout": "100ms",
            "static_configs": static,
        }
    ]
    with RealPrometheus(binary("prometheus"), tmp_path, jobs) as real, MetricSource(jobs) as ours:
        yield real, ours


Shown = dict[frozenset[tuple[str, str]], str]


def shown(url: str) -> Shown:
    """Values by labels of everything but how long a scrape took."""
    status, document = get(url, "/api/v1/query", query='{job=~".+",__name__!="scrape_duration_seconds"}')
    assert status == 200, document
    return {frozenset(one["metric"].items()): one["value"][1] for one in document["data"]["result"]}


def values_of(seen: Shown, name: str) -> set[str]:
    """The values of one metric."""
    return {value for labels, value in seen.items() if ("__name__", name) in labels}


def steady(seen: Shown) -> bool:
    """The last scrape brought no new series."""
    return values_of(seen, "scrape_series_added") == {"0"}


def test_scraped_pages_become_the_same_series(
    exporter: Exporter, scraping: tuple[RealPrometheus, MetricSource]
) -> None:
    real, ours = scraping

    def agree(look: Callable[[Shown], bool]) -> None:
        def both_and_equal() -> bool:
            wanted, found = shown(real.url), shown(ours.url)
            return look(wanted) and wanted == found

        try:
            until("both to show the same", both_and_equal)
        except AssertionError:
            wanted, found = shown(real.url).items(), shown(ours.url).items()
            raise AssertionError(f"missing {wanted - found}\ntoo many {found - wanted}") from None

    exporter.page = PAGE.replace("TIME", str(round(1000 * time.time())))
    agree(lambda seen: len(seen) > 15 and steady(seen))
    for metric in ("h", "c_total", "s"):
        said = get(real.url, "/api/v1/metadata", metric=metric)[1]["data"]
        assert get(ours.url, "/api/v1/metadata", metric=metric)[1]["data"] == said
    exporter.page = "g 1\n"
    agree(lambda seen: values_of(seen, "g") == {"1"} and not values_of(seen, "h_count") and steady(seen))
    # Broken in its first line: further down, Prometheus keeps the last values of what it has read until then.
    for broken in ("nonsense\ng 1\n", "g one\n", "g{a=1} 2\n", 'g{a="1"} 1 2 3\n', "g 1_0\n"):
        exporter.page = broken
        agree(lambda seen: values_of(seen, "up") == {"0"})
        assert not values(ours.url, "g")
        exporter.page = "g 2\n"
        agree(lambda seen: values_of(seen, "g") == {"2"} and steady(seen))
    exporter.kind = "text/html"
    agree(lambda seen: values_of(seen, "up") == {"0"})


# --- relabelling


@pytest.mark.parametrize("jobs", [default_scrape_configs(), recipe(SHIPPED)], ids=["rig", "shipped"])
def test_the_recipes_find_the_same_targets(jobs: list[Doc], tmp_path: Any) -> None:
    routers = {"name": "epp", "ports": [{"containerPort": 9002}, {"containerPort": 9090, "name": "metrics"}]}
    ports = ({"name": "modelserver", "containerPort": 8200}, {"name": "nixl", "containerPort": 5600})
    sidecar = {"initContainers": [{"name": "sidecar", "ports": [{"name": "metrics", "containerPort": 8000}]}]}
    sliced = {"disaggregatedset.x-k8s.io/slice": "2"}
    pods = [
        engine("plain", address="127.78.0.1"),
        engine("declared", *ports, address="127.78.0.2", spec=sidecar, labels=sliced),
        engine("worker", worker="1", address="127.78.0.3"),
        engine("six", address="fd00::12ab"),
        engine("done", phase="Succeeded", address="127.78.0.4"),
        pod("epp", routers, labels={"llm-d-router-gateway": "x"}, address="127.78.0.5"),
        pod("stranger", routers, address="127.78.0.6"),
        pod("other", {"name": "web"}, address="127.78.0.7"),
    ]
    groups = []
    for labels in (labels for one in pods for labels in pod_labels(one)):
        address = labels.pop("__address__")
        groups.append({"targets": [address], "labels": labels})
    jobs = [{**job, "static_configs": groups} for job in jobs]
    for job in jobs:
        del job["kubernetes_sd_configs"]

    def found(url: str) -> list[tuple[list[tuple[str, str]], str]]:
        active = get(url, "/api/v1/targets", state="active")[1]["data"]["activeTargets"]
        return sorted((sorted(one["labels"].items()), one["scrapeUrl"]) for one in active)

    with RealPrometheus(binary("prometheus"), tmp_path, jobs) as real, MetricSource(jobs) as ours:
        wanted = until("its targets", lambda: found(real.url))
        assert len(wanted) >= 4
        assert found(ours.url) == wanted
