"""How workers speak to the broker."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Consumer, Message, Queue

from controlplane import queue
from tests.chaos.engine.processes import Broker


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    """`app(url)`: the app as configured for a broker at that address; the product's own stays as it is."""

    def make(url: str) -> Celery:
        settings.LOCKSTEP_BROKER_URL = url
        monkeypatch.setattr(queue, "app", Celery("other"))
        return queue.configure.__wrapped__()

    return make


def test_rediss_checks_the_certificate(app: Any) -> None:
    assert app("redis://broker:6379/0").connection_for_read().ssl is False
    assert app("rediss://:secret@broker:6380/0").connection_for_read().ssl == {
        "ssl_cert_reqs": ssl.CERT_REQUIRED
    }
    told = app("rediss://:secret@broker:6380/0?ssl_cert_reqs=none").connection_for_read()
    assert told.ssl == {"ssl_cert_reqs": ssl.CERT_NONE}


def test_a_worker_outlives_its_broker(app: Any, tmp_path: Path) -> None:
    """What a worker does when the broker goes away while it works: collect, close, and in the end acknowledge. Two
    channels are polling, as those of its bells and of its remote control are."""
    broker = Broker(tmp_path)
    broker.start()
    connection = app(broker.url).connection_for_read()
    bells: list[Message] = []
    channels = [connection.default_channel, connection.channel()]
    for number, channel in enumerate(channels):
        Consumer(channel, [Queue(f"bells-{number}")], on_message=bells.append).consume()
    channels[0].basic_publish(channels[0].prepare_message("bell"), exchange="", routing_key="bells-0")
    while not bells:
        connection.drain_events(timeout=5)
    with suppress(TimeoutError):
        connection.drain_events(timeout=0.2)
    broker.kill()
    with suppress(Exception):
        connection.collect()
    connection.close()
    bells[0].ack()
