"""Where questions may go: an http(s) address without credentials, and never a link-local one.

Link-local addresses hold the metadata services of clouds, which hand out credentials to whoever asks. A name may
resolve to one, now or later, so the address is looked at again on each new connection (see session.py).
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from controlplane.errors import BadInput

MOST_CHARACTERS = 500
# AWS serves its metadata over IPv6 from a unique local address.
_FORBIDDEN = tuple(
    ipaddress.ip_network(text) for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128")
)
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


def is_forbidden(address: str) -> bool:
    """Whether an IP address is link-local, also when it is written as IPv4 inside IPv6. A name is not."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or found
    return any(inner.version == network.version and inner in network for network in _FORBIDDEN)


def read_address(url: str, *, field: str = "") -> str:
    """The address of a metric source as it is stored: no trailing slash. Raises BadInput
    `metric-address-wrong` or `metric-address-credentials`, neither of which repeats the address."""
    if len(url) > MOST_CHARACTERS or not _PRINTABLE.fullmatch(url):
        raise _wrong(f"at most {MOST_CHARACTERS} visible ASCII characters", field)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _wrong("no address at all", field) from error
    if parts.username is not None or parts.password is not None:
        raise BadInput(
            "metric-address-credentials",
            "The address of a metric source may not carry credentials: it is shown, logged and audited.",
            next_action="Name the header that carries them; its value belongs into a mounted secret.",
            field=field,
        )
    if parts.scheme not in {"http", "https"} or not host:
        raise _wrong("an http:// or https:// address with a host", field)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise _wrong("an address without query and fragment", field)
    if is_forbidden(host):
        raise _wrong("no link-local address: metadata services of clouds live there", field)
    return url.rstrip("/")


def origin_of(url: str) -> str:
    """Scheme, host and port of an address: all of it that errors and logs show."""
    parts: SplitResult = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


def _wrong(wanted: str, field: str) -> BadInput:
    return BadInput(
        "metric-address-wrong",
        f"The address of a metric source must be {wanted}.",
        next_action="Give the base address of Prometheus, such as https://prometheus.example:9090.",
        field=field,
    )
