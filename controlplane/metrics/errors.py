"""What can become of a question to a metric source. Nothing is written there, so every failure is harmless: the
number is missing, and whoever needed it must not go on as if it were zero."""

from __future__ import annotations

from controlplane.errors import Unavailable


class MetricsError(Unavailable):
    """No answer that can be used. Codes: `metrics-unreachable`, `metrics-refused`, `metrics-query-refused`,
    `metrics-failed`, `metrics-bad-answer`, `metrics-too-large`, `metrics-too-slow`.

    Facts name the source (scheme, host and port alone), and where it helps the query and the HTTP status."""


class ForbiddenAddress(Exception):
    """A connection led to an address that nobody may be sent to (see address.py)."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address} may not be asked")
        self.address = address
