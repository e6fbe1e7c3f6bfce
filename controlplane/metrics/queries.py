"""All named queries, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from controlplane.metrics.engine_queries import ENGINE_QUERIES
from controlplane.metrics.named import Query
from controlplane.metrics.router_queries import ROUTER_QUERIES

QUERIES: Mapping[str, Query] = MappingProxyType(
    {query.name: query for query in (*ENGINE_QUERIES, *ROUTER_QUERIES)}
)
