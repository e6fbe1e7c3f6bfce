"""Legs: parts of the suite that need something a machine may not have, listed, never left out silently.

A test belongs to a leg by its marker. Where a leg's need is not met its tests are skipped, and the run ends
with a table of legs: how many tests ran, how many were left out, and why. LOCKSTEP_REQUIRE_RIG=1 turns a
left-out rig into a failure, for a run whose verdict must cover it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Generator
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


def _llm_d_router() -> str:
    path = os.environ.get("LOCKSTEP_ROUTER_BIN", "")
    if not path:
        return "LOCKSTEP_ROUTER_BIN names no llm-d router (it is on no registry); ours plays it"
    if not os.access(path, os.X_OK):
        return f"LOCKSTEP_ROUTER_BIN is not a program: {path}"
    return _rig()


def _chaos_full() -> str:
    if os.environ.get("LOCKSTEP_CHAOS") != "full":
        return "takes long; LOCKSTEP_CHAOS=full runs it"
    return _rig()


@dataclass(frozen=True)
class Leg:
    """One marker, what the leg shows, and what is missing for it here (empty: nothing)."""

    marker: str
    shows: str
    missing: Callable[[], str]


LEGS = (
    Leg("rig", "the product on a real Kubernetes control plane", _rig),
    Leg("emulator", "the product on the emulated Kubernetes API, by the tests of the rig", lambda: ""),
    Leg("lws_main", "slices and status of a newer LeaderWorkerSet manager", _lws_main),
    Leg("llm_d_router", "the same facts on the llm-d router itself", _llm_d_router),
    Leg("chaos_full", "a loss at every single write of an upgrade", _chaos_full),
)


def required(leg: Leg) -> bool:
    """Whether leaving this leg out fails the run."""
    return leg.marker == "rig" and os.environ.get(REQUIRE_RIG, "") in {"1", "true"}


class Legs:
    """The pytest plugin: skips what cannot run, fails what had to, and prints the table."""

    def __init__(self) -> None:
        self.missing = {leg.marker: leg.missing() for leg in LEGS}

    def left_out(self, names: Container[str]) -> Leg | None:
        """The leg that keeps a test with these keywords from running here; a required one only where no other does."""
        found = [leg for leg in LEGS if leg.marker in names and self.missing[leg.marker]]
        return min(found, key=required, default=None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip before any fixture starts; fail instead where the leg is required."""
        leg = self.left_out(item.keywords)
        if leg is None:
            return
        why = self.missing[leg.marker]
        if required(leg):
            pytest.fail(f"{REQUIRE_RIG} is set, but the leg '{leg.marker}' cannot run: {why}", pytrace=False)
        pytest.skip(why)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test of a required leg that skips itself (its rig did not start) is a failure as well."""
        report = yield
        if report.skipped and not hasattr(report, "wasxfail") and self.left_out(item.keywords) is None:
            if any(required(leg) and leg.marker in item.keywords for leg in LEGS):
                report.outcome = "failed"
                report.longrepr = f"{REQUIRE_RIG} is set, but this test was skipped: {report.longrepr}"
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """The table, after everything else but pytest's closing line."""
        yield
        ran, skipped = self.count(terminalreporter)
        terminalreporter.section("legs")
        terminalreporter.write_line(f"{'leg':<12}{'ran':>6}{'left out':>10}  why left out")
        for leg in LEGS:
            numbers = f"{leg.marker:<12}{ran[leg.marker]:>6}{skipped[leg.marker]:>10}  "
            loud = bool(self.missing[leg.marker])
            terminalreporter.write_line(numbers + self.why(leg), bold=loud, yellow=loud)
        terminalreporter.write_line(f"{'bench':<12}{0:>6}{'all':>10}  not a test: `make bench`")

    def count(self, terminalreporter: pytest.TerminalReporter) -> tuple[Counter[str], Counter[str]]:
        """Tests that ran, by marker, and that were skipped, by the leg that kept them (else by marker)."""
        ran: Counter[str] = Counter()
        skipped: Counter[str] = Counter()
        for outcome, reports in terminalreporter.stats.items():
            for report in reports:
                if not isinstance(report, pytest.TestReport):
                    continue
                legs = [leg.marker for leg in LEGS if leg.marker in report.keywords]
                if outcome == "skipped":
                    kept = self.left_out(report.keywords)
                    skipped.update([kept.marker] if kept else legs)
                elif report.when == "call" or outcome == "error":
                    ran.update(legs)
        return ran, skipped

    def why(self, leg: Leg) -> str:
        """One line for the table."""
        if not self.missing[leg.marker]:
            return f"- ({leg.shows})"
        word = "REQUIRED BUT LEFT OUT" if required(leg) else "LEFT OUT"
        return f"{word}: {self.missing[leg.marker]} ({leg.shows})"


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin once per process."""
    config.pluginmanager.register(Legs(), "legs")
