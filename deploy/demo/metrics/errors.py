"""What is wrong with a question, as Prometheus classes it."""

from __future__ import annotations


class BadData(ValueError):
    """The question cannot be understood, or asks for what is not there in this store (HTTP 400)."""

    status, kind = 400, "bad_data"


class Execution(ValueError):
    """It was understood, but these samples have no answer to it (HTTP 422)."""

    status, kind = 422, "execution"


class TimedOut(ValueError):
    """Its time was over (HTTP 503)."""

    status, kind = 503, "timeout"
