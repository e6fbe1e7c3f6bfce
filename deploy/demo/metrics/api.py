"""The HTTP API, as far as Lockstep and a person who looks at the demo ask it."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from deploy.demo.metrics import answers
from deploy.demo.metrics.errors import BadData, Execution, TimedOut
from deploy.demo.metrics.evaluation import matching_series
from deploy.demo.metrics.expressions import Match, read_selector
from deploy.demo.metrics.questions import ask_instant, ask_range, invalid, moment
from deploy.demo.metrics.scraping import Scraper, Target
from deploy.demo.metrics.store import Series, Store

VERSION = "3.0.0-lockstep-demo"
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_MOST_BODY = 1 << 20
_EVER = (-(2**62), 2**62)
Handler = Callable[[web.Request], Any]


class Api:
    """Answers from a store and the targets of a scraper; ``clock`` gives unix seconds."""

    def __init__(self, store: Store, scraper: Scraper, clock: Callable[[], float] = time.time) -> None:
        self._store, self._scraper, self._clock = store, scraper, clock

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=_MOST_BODY, middlewares=[_errors])
        for path, handler in (
            ("query", self._query),
            ("query_range", self._query_range),
            ("series", self._series),
            ("labels", self._labels),
        ):
            app.router.add_get(f"/api/v1/{path}", handler)
            app.router.add_post(f"/api/v1/{path}", handler)
        app.router.add_get("/api/v1/label/{name}/values", self._values)
        app.router.add_get("/api/v1/targets", self._targets)
        app.router.add_get("/api/v1/metadata", self._metadata)
        app.router.add_get("/api/v1/status/buildinfo", self._build)
        for path in ("/-/ready", "/-/healthy"):
            app.router.add_get(path, _ready)
        return app

    async def _query(self, request: web.Request) -> web.Response:
        parameters = await _parameters(request)
        return _json(ask_instant(self._store, _first(parameters), self._clock()))

    async def _query_range(self, request: web.Request) -> web.Response:
        return _json(ask_range(self._store, _first(await _parameters(request))))

    async def _series(self, request: web.Request) -> web.Response:
        parameters = await _parameters(request)
        if not parameters.get("match[]"):
            raise BadData("no match[] parameter provided")
        found = {series.metric.key: series.metric.labels for series in self._chosen(parameters)}
        ordered = sorted(found.values(), key=lambda labels: sorted(labels.items()))
        return _json(answers.success(ordered))

    async def _labels(self, request: web.Request) -> web.Response:
        names = {name for series in self._chosen(await _parameters(request)) for name in series.metric.labels}
        return _json(answers.success(sorted(names)))

    async def _values(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if not _LABEL.fullmatch(name):
            raise BadData(f'invalid label name: "{name}"')
        chosen = self._chosen(await _parameters(request))
        return _json(answers.success(sorted({one.metric.labels.get(name, "") for one in chosen} - {""})))

    def _chosen(self, parameters: Mapping[str, list[str]]) -> list[Series]:
        """Series by selectors (any of them; all series without one) that have a sample in the given time."""
        first = _first(parameters)
        start, end = (
            moment(first, name) if first.get(name) else ever
            for name, ever in zip(("start", "end"), _EVER, strict=True)
        )
        selectors: list[tuple[Match, ...]] = [()]
        if texts := parameters.get("match[]"):
            try:
                selectors = [read_selector(text) for text in texts]
            except BadData as problem:
                raise invalid("match[]", str(problem)) from None
        return [
            series
            for matches in selectors
            for series in matching_series(self._store, matches)
            if series.runs(series.timeline.after(start - 1), series.timeline.until(end))
        ]

    async def _targets(self, request: web.Request) -> web.Response:
        state = request.query.get("state", "any")
        found = self._scraper.targets.values() if state in ("any", "active", "") else ()
        active = [_target(one) for one in sorted(found, key=lambda one: one.wanted.labels)]
        data = {"activeTargets": active, "droppedTargets": [], "droppedTargetCounts": None}
        return _json(answers.success(data))

    async def _metadata(self, request: web.Request) -> web.Response:
        wanted, limit = request.query.get("metric", ""), request.query.get("limit", "")
        if limit and not limit.lstrip("-").isdigit():
            raise BadData("limit must be a number")
        found: dict[str, list[dict[str, str]]] = {}
        for target in self._scraper.targets.values():
            for name, one in _said_of(target.page.said).items():
                if wanted in ("", name) and one not in found.setdefault(name, []):
                    found[name].append(one)
        most = int(limit) if limit and int(limit) >= 0 else len(found)
        return _json(answers.success(dict(list(found.items())[:most])))

    async def _build(self, _: web.Request) -> web.Response:
        parts = ("revision", "branch", "buildUser", "buildDate", "goVersion")
        return _json(answers.success({"version": VERSION, **dict.fromkeys(parts, "")}))


async def _ready(_: web.Request) -> web.Response:
    return web.Response(text="Prometheus Server is Ready.\n")


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except (BadData, Execution, TimedOut) as problem:
        return _json(answers.failure(problem.kind, str(problem)), problem.status)


async def _parameters(request: web.Request) -> dict[str, list[str]]:
    """All values by name; those of a form before those of the address."""
    found: dict[str, list[str]] = {}
    form = await request.post() if request.method == "POST" else {}
    for name, value in [*form.items(), *request.query.items()]:
        found.setdefault(name, []).append(str(value))
    return found


def _first(parameters: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in parameters.items()}


def _json(document: answers.Json, status: int = 200) -> web.Response:
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    return web.Response(body=body, status=status, content_type="application/json")


def _target(target: Target) -> answers.Json:
    wanted = target.wanted
    at = dt.datetime.fromtimestamp(target.scraped_at, dt.UTC).isoformat().replace("+00:00", "Z")
    return {
        "discoveredLabels": dict(wanted.discovered),
        "labels": dict(wanted.labels),
        "scrapePool": wanted.job,
        "scrapeUrl": wanted.url,
        "globalUrl": wanted.url,
        "lastError": target.problem,
        "lastScrape": at,
        "lastScrapeDuration": target.took_s,
        "health": target.health,
        "scrapeInterval": f"{wanted.interval_s:g}s",
        "scrapeTimeout": f"{wanted.timeout_s:g}s",
    }


def _said_of(said: Mapping[tuple[str, str], str]) -> dict[str, dict[str, str]]:
    names: Iterable[str] = dict.fromkeys(name for _, name in said)
    return {
        name: {
            "type": said.get(("TYPE", name), "unknown").replace("untyped", "unknown"),
            "help": said.get(("HELP", name), ""),
            "unit": "",
        }
        for name in names
    }
