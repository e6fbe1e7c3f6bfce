"""How a pool may be probed: facts that no object in the cluster says, set by its owners."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from controlplane.errors import BadInput
from controlplane.metrics.address import is_forbidden
from policy.transfer.links import LINKS

Json = dict[str, Any]
REFERENCES = ("direct", "golden", "none")
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data"})


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """`probe_url` is the base address of the gateway's listener for probes, on which the revision header passes;
    `public_url` the one that clients use. `model` is the served name. `credential` names a file of headers that
    workers hold (LOCKSTEP_PROBE_CREDENTIALS/<credential>). `reference` says with what parity compares: `direct` with a
    decode pod that is asked directly, `golden` with golden outputs of the pool where decode pods cannot be reached,
    `none` with nothing. `rate` caps probes per second; `margin` is the part of tokens by which answers may differ
    beyond the reference's own jitter. `decider_tokens` is the threshold of the router's decider: probes are longer.
    `link` is what KV moves over (an id of policy.transfer.links) and `nics` how many of them a rank has,
    `ttft_budget` in how many seconds the first token shall be there (0: nobody has said): what no object in the
    cluster says."""

    probe_url: str = ""
    public_url: str = ""
    model: str = ""
    credential: str = ""
    objective: str = ""
    fairness_id: str = "lockstep-probe"
    reference: str = "direct"
    rate: float = 5.0
    margin: float = 0.05
    decider_tokens: int = 0
    decode_port: int = 0  # of the engine behind a decode pod's sidecar; 0: the pool's target port
    link: str = ""
    nics: int = 1
    ttft_budget: float = 0.0

    @property
    def can_probe(self) -> bool:
        """Whether a probe knows where to go and what to ask for."""
        return bool(self.probe_url and self.model)


_TEXTS = ("probe_url", "public_url", "model", "credential", "objective", "fairness_id", "reference", "link")
_NUMBERS = {
    "rate": (0.1, 50.0),
    "margin": (0.001, 0.5),
    "decider_tokens": (0, 100_000),
    "decode_port": (0, 65_535),
    "nics": (1, 64),
    "ttft_budget": (0, 600),
}
_WHOLE = ("decider_tokens", "decode_port", "nics")


def read_settings(stored: Mapping[str, Any]) -> PoolSettings:
    """Settings as stored by `checked_settings`."""
    return PoolSettings(**{name: stored[name] for name in (*_TEXTS, *_NUMBERS) if name in stored})


def checked_settings(sent: Mapping[str, Any], *, before: Mapping[str, Any]) -> Json:
    """`before` with what was sent over it. Raises BadInput `pool-setting-invalid` naming the field."""
    for name in sent:
        if name not in (*_TEXTS, *_NUMBERS):
            raise _invalid(name, f"{name!r} is no setting of a pool.")
    found = {**before, **sent}
    _check_forms(found)
    for name in _WHOLE:
        if name in found:
            found[name] = int(found[name])
    for name in ("probe_url", "public_url"):
        _check_url(name, found.get(name, ""))
    if found.get("reference", "direct") not in REFERENCES:
        raise _invalid("reference", f"reference is one of {', '.join(REFERENCES)}.")
    if found.get("link", "") not in ("", *LINKS):
        raise _invalid("link", f"link is one of {', '.join(LINKS)}, or empty where it is not known.")
    credential = found.get("credential", "")
    if credential and not credential.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise _invalid("credential", "credential is the name of a file: letters, digits, dots and hyphens.")
    if credential.startswith("."):
        raise _invalid("credential", "credential is the name of a file and begins with no dot.")
    return found


def _check_forms(found: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if name in found and not (isinstance(found[name], str) and len(found[name]) <= 500):
            raise _invalid(name, f"{name} is a text of at most 500 characters.")
    for name, (least, most) in _NUMBERS.items():
        value = found.get(name, least)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise _invalid(name, f"{name} is a number from {least:g} to {most:g}.")


def _check_url(name: str, value: str) -> None:
    """http or https, no credentials (they would be shown), never a metadata service."""
    if not value:
        return
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise _invalid(name, f"{name} is no address: {error}.") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise _invalid(name, f"{name} is an http or https address without query.")
    if parts.username or parts.password:
        raise _invalid(name, f"{name} must carry no credentials; name a credential file instead.")
    if _is_link_local(host):
        raise _invalid(name, f"{name} is a link-local address; metadata services are reached there.")


def _is_link_local(host: str) -> bool:
    """Also in the other ways to write an IPv4 address (one number, hexadecimal, inside IPv6), and by known names."""
    if host.rstrip(".").lower() in _METADATA_NAMES:
        return True
    with suppress(OSError):
        host = socket.inet_ntoa(socket.inet_aton(host))
    return is_forbidden(host)


def _invalid(name: str, sentence: str) -> BadInput:
    return BadInput("pool-setting-invalid", sentence, next_action="Mend it and send it again.", field=name)
