"""Legs: parts of the suite that need something a machine may not have, listed, never left out silently.

A test belongs to a leg by its marker. Where a leg's need is not met its tests are skipped, and the run ends
with a table of legs: how many tests ran, how many were left out, and why. LOCKSTEP_REQUIRE_RIG=1 turns a
left-out rig into a failure, for a run whose verdict must cover it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

REQUIRE_RIG = "LOCKSTEP_REQUIRE_RIG"


def _rig() -> str:
    from deploy.rig.build import available

    there, reason = available()
    return "" if there else reason


def _lws_main() -> str:
    path = os.environ.get("LOCKSTEP_LWS_BIN", "")
    if not path:
        return "LOCKSTEP_LWS_BIN names no newer LeaderWorkerSet manager (it is on no registry)"
    if not os.access(path, os.X_OK):
        return f"LOCKSTEP_LWS_BIN is not a program: {path}"
    return _rig()


@dataclass(frozen=True)
class Leg:
    """One marker, what the leg shows, and what is missing for it here (empty: nothing)."""

    marker: str
    shows: str
    missing: Callable[[], str]


LEGS = (
    Leg("rig", "the product on a real Kubernetes control plane", _rig),
    Leg("lws_main", "slices and status of a newer LeaderWorkerSet manager", _lws_main),
)


def required(leg: Leg) -> bool:
    """Whether leaving this leg out fails the run."""
    return leg.marker == "rig" and os.environ.get(REQUIRE_RIG, "") in {"1", "true"}


class Legs:
    """The pytest plugin: skips what cannot run, fails what had to, and prints the table."""

    def __init__(self) -> None:
        self.missing = {leg.marker: leg.missing() for leg in LEGS}

    def reason(self, item: pytest.Item) -> tuple[Leg, str] | None:
        """The first leg of the test that cannot run here, and why."""
        for leg in LEGS:
            if item.get_closest_marker(leg.marker) and self.missing[leg.marker]:
                return leg, self.missing[leg.marker]
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip before any fixture starts; fail instead where the leg is required."""
        left_out = self.reason(item)
        if left_out is None:
            return
        leg, why = left_out
        if required(leg):
            pytest.fail(f"{REQUIRE_RIG} is set, but the leg '{leg.marker}' cannot run: {why}", pytrace=False)
        pytest.skip(why)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """A test of a required leg that skips itself is a failure as well."""
        report = yield
        for leg in LEGS:
            if report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker(leg.marker):
                if required(leg):
                    report.outcome = "failed"
                    report.longrepr = f"{REQUIRE_RIG} is set, but this test was skipped: {report.longrepr[2]}"
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
        """The table, after everything else but pytest's closing line."""
        yield
        ran, skipped = count(terminalreporter)
        terminalreporter.section("legs")
        terminalreporter.write_line(f"{'leg':<10}{'ran':>6}{'left out':>10}  why left out")
        for leg in LEGS:
            numbers = f"{leg.marker:<10}{ran[leg.marker]:>6}{skipped[leg.marker]:>10}  "
            loud = bool(self.missing[leg.marker])
            terminalreporter.write_line(numbers + self.why(leg), bold=loud, yellow=loud)
        terminalreporter.write_line(f"{'bench':<10}{0:>6}{'all':>10}  not a test: `make bench`")

    def why(self, leg: Leg) -> str:
        """One line for the table."""
        if not self.missing[leg.marker]:
            return f"- ({leg.shows})"
        word = "REQUIRED BUT LEFT OUT" if required(leg) else "LEFT OUT"
        return f"{word}: {self.missing[leg.marker]} ({leg.shows})"


def count(terminalreporter: pytest.TerminalReporter) -> tuple[Counter[str], Counter[str]]:
    """Tests that ran and that were skipped, by marker."""
    ran: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for outcome, reports in terminalreporter.stats.items():
        for report in reports:
            if not isinstance(report, pytest.TestReport):
                continue
            for leg in LEGS:
                if leg.marker in report.keywords:
                    if outcome == "skipped":
                        skipped[leg.marker] += 1
                    elif report.when == "call" or outcome == "error":
                        ran[leg.marker] += 1
    return ran, skipped


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin once per process."""
    config.pluginmanager.register(Legs(), "legs")
