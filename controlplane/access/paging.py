"""Pages of lists: `?page=2&page_size=100`, with the whole count."""

from __future__ import annotations

from rest_framework.pagination import PageNumberPagination


class Pages(PageNumberPagination):
    """50 rows a page unless asked otherwise, 500 at most. Lists need an order that is total."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500
