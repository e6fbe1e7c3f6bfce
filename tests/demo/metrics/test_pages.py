"""The text format, and pages from scrape to scrape."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.demo.metrics.exposition import Line, Malformed, Said, read_line
from deploy.demo.metrics.pages import Page
from deploy.demo.metrics.store import Store
from tests.demo.metrics.asking import ask

TARGET = {"pod": "p0", "job": "engines"}


def page(store: Store, labels: dict[str, str] | None = None) -> Page:
    return Page(store, store.timeline("target"), TARGET if labels is None else labels)


def sample(line: str, kind: str = "") -> tuple[dict[str, str], float, int | None]:
    found = read_line(line, kind)
    assert isinstance(found, Line)
    labels = {name: value for name, value in found.labels.items() if name != "__name__"}
    assert line[found.start :].startswith(line[found.start :].split()[0])
    return labels, found.value, found.at


def test_lines_as_exporters_write_them() -> None:
    assert sample("up 1") == ({}, 1.0, None)
    assert sample('vllm:x{engine="0",model_name="a b"} 1.5e+09') == (
        {"engine": "0", "model_name": "a b"},
        1.5e9,
        None,
    )
    assert sample('x{a="}",b="\\"\\\\\\n",} -3 1700000000123') == (
        {"a": "}", "b": '"\\\n'},
        -3.0,
        1700000000123,
    )
    assert sample("x\t+Inf")[1] == math.inf and math.isnan(sample("x NaN")[1])
    assert sample("x{} 2") == ({}, 2.0, None)
    assert read_line("# HELP x Of what\\nand why", "") == Said("HELP", "x", "Of what\nand why")
    assert read_line("# TYPE x histogram", "") == Said("TYPE", "x", "histogram")
    assert read_line("# anything", "") is None and read_line("", "") is None


def test_bounds_of_buckets_are_written_in_one_way() -> None:
    assert sample('x_bucket{le="1"} 2', "histogram")[0] == {"le": "1.0"}
    assert sample('x_bucket{le="1e6"} 2', "histogram")[0] == {"le": "1e+06"}
    assert sample('x_bucket{le="+Inf"} 2', "histogram")[0] == {"le": "+Inf"}
    assert sample('x{quantile="1"} 2', "summary")[0] == {"quantile": "1.0"}
    assert sample('x{le="1"} 2', "gauge")[0] == {"le": "1"}


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "x{a=1} 2",
        'x{a="1" 2',
        "x 1_000",
        "x 0x10",
        "x one",
        "1x{} 2",
        'x{a="1",a="2"} 3',
        "# TYPE x nonsense",
        "x 1 2 3",
        " x 1",
    ],
)
def test_what_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(Malformed):
        read_line(line, "")


def test_labels_of_the_target_come_first() -> None:
    store = Store()
    page(store).take('x{pod="other",exported_job="a",job="b"} 1\n', 1000)
    (series,) = store.names["x"].values()
    assert series.metric.labels == {
        "__name__": "x",
        "pod": "p0",
        "job": "engines",
        "exported_pod": "other",
        "exported_job": "a",
        "exported_exported_job": "b",
    }


def test_what_a_page_does_not_have_any_more_has_ended() -> None:
    store = Store()
    one = page(store, {})
    one.take("x 1\ny 2\n", 1000)
    one.take("x 1\n", 2000)
    assert (
        ask(store, "y", 1.5) == {"y": 2.0}
        and ask(store, "y", 2.0) == {}
        and ask(store, "x", 2.0) == {"x": 1.0}
    )
    one.fail(3000)
    assert ask(store, "x", 3.0) == {}
    one.take("x 1\n", 4000)
    assert ask(store, "x", 4.0) == {"x": 1.0}
    assert ask(store, "count_over_time(x[10s])", 4.0) == {"": 3.0}


def test_of_two_samples_of_one_series_the_first_counts() -> None:
    store = Store()
    page(store, {}).take("x 1\nx 2\n", 1000)
    assert ask(store, "x", 1.0) == {"x": 1.0}


def test_samples_that_bring_their_own_time_have_it() -> None:
    store = Store()
    one = page(store, {})
    one.take("x 1 500\n", 1000)
    one.take("x 1 500\n", 2000)
    one.take("x 2 1500\n", 3000)
    assert ask(store, "x", 1.2) == {"x": 1.0} and ask(store, "x", 3.0) == {"x": 2.0}
    assert ask(store, "count_over_time(x[10s])", 3.0) == {"": 2.0}


def test_a_page_that_is_broken_anywhere_counts_nowhere() -> None:
    store = Store()
    one = page(store, {})
    one.take("x 1\ny 1\n", 1000)
    for text in ("x 2\ny one\n", "x 2\ny 2\nz\n"):
        with pytest.raises(Malformed):
            one.take(text, 2000)
    assert ask(store, "x", 2.0) == {"x": 1.0}


@given(
    pages=st.lists(
        st.one_of(
            st.none(),
            st.dictionaries(
                st.sampled_from(['a{n="1"}', 'a{n="2"}', "b", "c"]), st.integers(0, 3), max_size=4
            ),
        ),
        max_size=12,
    )
)
def test_any_pages_are_told_as_they_were(pages: list[dict[str, int] | None]) -> None:
    store = Store()
    one = page(store, {})
    for second, shown in enumerate(pages, 1):
        if shown is None:
            one.fail(1000 * second)
        else:
            one.take(
                "# TYPE a counter\n" + "".join(f"{name} {value}\n" for name, value in shown.items()),
                1000 * second,
            )
    for second, shown in enumerate(pages, 1):
        found = {name: value for text in ("a", "b", "c") for name, value in ask(store, text, second).items()}
        names = {'a{n="1"}': "a 1", 'a{n="2"}': "a 2", "b": "b", "c": "c"}
        assert found == {names[name]: value for name, value in (shown or {}).items()}
