"""From an InferencePool to the router that picks its pods: Service, pods, image, flags, configuration.

The way there: router-policy 4.4. Nothing is guessed: what cannot be found is a sentence in `problems`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controlplane.fleet.names import created_at, read_time
from controlplane.paths.objects import Lookup, PathObjects, is_ready
from policy.canonical import digest
from policy.router.settings import RouterSettings, read_settings

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where the configuration comes from: `config-map` (name, key), `inline`, `built-in` or `unknown`.

    `sure`: the ready processes read this very text, because the ConfigMap was made, and unless it is immutable last
    written, before the oldest of them started. The file is read once, at start (router-policy 1.5).
    """

    kind: str
    name: str = ""
    key: str = ""
    text: str = ""
    sure: bool = False

    @property
    def digest(self) -> str:
        """Digest of the text; "" where there is none."""
        return digest(self.text) if self.text else ""


@dataclass(frozen=True, slots=True)
class Router:
    """The router of one pool. `owner` is the Deployment that makes its pods, as (kind, name, uid)."""

    service: str
    owner: tuple[str, str, str] | None
    container: str
    image: str
    image_ids: tuple[str, ...]
    flags: Mapping[str, str]
    replicas: int
    ready: int
    config: ConfigSource
    settings: RouterSettings
    problems: tuple[str, ...]

    def as_json(self) -> Json:
        """For pages and documents; the text of the configuration is left to those who may read it."""
        screener = self.settings.screener
        return {
            "service": self.service,
            "owner": {"kind": self.owner[0], "name": self.owner[1]} if self.owner else None,
            "image": self.image,
            "image_ids": list(self.image_ids),
            "replicas": self.replicas,
            "ready": self.ready,
            "config": {
                "kind": self.config.kind,
                "name": self.config.name,
                "key": self.config.key,
                "digest": self.config.digest,
                "sure": self.config.sure,
            },
            "screener": {"mode": screener.mode, "required_roles": list(screener.required_roles)}
            if screener
            else None,
            "strict_header": self.settings.strict_header,
            "decider": self.settings.decider,
            "problems": [*self.problems, *self.settings.problems],
        }


def find_router(pool: Mapping[str, Any], objects: PathObjects, lookup: Lookup | None = None) -> Router:
    """The router that the pool names, as far as it can be found. `lookup` is over the same objects."""
    lookup = lookup or Lookup(objects)
    namespace = pool["metadata"]["namespace"]
    picker = (pool.get("spec") or {}).get("endpointPickerRef") or {}
    if not picker:
        return _missing("", "the pool names no endpoint picker")
    name = str(picker.get("name") or "")
    service = lookup.service(namespace, name)
    if service is None:
        return _missing(name, f"the Service {name} of the endpoint picker does not exist")
    selector = service["spec"]["selector"]
    # Ready ones first: what is shown is what serves.
    pods = sorted((pod for pod in lookup.pods(namespace, selector) if not _over(pod)), key=_waits)
    owner = lookup.deployment(namespace, selector)
    template = ((owner or {}).get("spec") or {}).get("template") or {}
    programs = [_program(each.get("spec") or {}, pool["metadata"]["name"]) for each in pods or [template]]
    program = next((each for each in programs if each is not None), None)
    if program is None:
        return _missing(name, f"nothing behind the Service {name} has --pool-name={pool['metadata']['name']}")
    container, flags = program.container, program.flags
    config = _with_text(program.source, namespace, pods, objects)
    problems = [] if pods else ["the router has no pods"]
    if any(each is None or (each.flags, each.source) != (flags, program.source) for each in programs):
        problems.append("its pods run different configurations")
    if config.kind in ("config-map", "inline") and not config.text:
        problems.append("the router's configuration cannot be read")
    return Router(
        service=name,
        owner=("Deployment", owner["metadata"]["name"], owner["metadata"]["uid"]) if owner else None,
        container=str(container.get("name") or ""),
        image=str(container.get("image") or ""),
        image_ids=_image_ids(pods, str(container.get("name") or "")),
        flags=flags,
        replicas=int(((owner or {}).get("spec") or {}).get("replicas", len(pods))),
        ready=sum(is_ready(pod) for pod in pods),
        config=config,
        settings=read_settings(config.text) if config.text else RouterSettings(readable=False),
        problems=tuple(problems),
    )


def read_flags(args: list[Any]) -> dict[str, str]:
    """`--name=value`, `--name value` and `--name` (true) of a Go program; a later one wins."""
    flags: dict[str, str] = {}
    words = [str(word) for word in args]
    for index, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[index + 1] if index + 1 < len(words) else "-"
        flags[name] = value if equals else "true" if following.startswith("-") else following
    return flags


def _missing(service: str, problem: str) -> Router:
    return Router(
        service,
        None,
        "",
        "",
        (),
        {},
        0,
        0,
        ConfigSource("unknown"),
        RouterSettings(readable=False),
        (problem,),
    )


def _waits(pod: Mapping[str, Any]) -> bool:
    return not is_ready(pod)


def _over(pod: Mapping[str, Any]) -> bool:
    """On its way out, or ended: an evicted pod stays as an object."""
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["metadata"].get("deletionTimestamp")) or phase in ("Failed", "Succeeded")


def _container(pod_spec: Mapping[str, Any], pool: str) -> Json | None:
    containers: list[Json] = list(pod_spec.get("containers") or ())
    return next(
        (each for each in containers if read_flags(each.get("args") or []).get("pool-name") == pool), None
    )


def _image_ids(pods: list[Json], container: str) -> tuple[str, ...]:
    found = {
        str(each.get("imageID") or "")
        for pod in pods
        for each in pod["status"]["containerStatuses"]
        if each.get("name") == container
    }
    return tuple(sorted(found - {""}))


@dataclass(frozen=True, slots=True)
class _Program:
    """The router's container in one pod, and where its configuration comes from; a ConfigMap is not yet read."""

    container: Json
    flags: dict[str, str]
    source: ConfigSource


def _program(pod_spec: Mapping[str, Any], pool: str) -> _Program | None:
    container = _container(pod_spec, pool)
    if container is None:
        return None
    flags = read_flags(container.get("args") or [])
    return _Program(container, flags, _source(flags, container, pod_spec))


def _source(
    flags: Mapping[str, str], container: Mapping[str, Any], pod_spec: Mapping[str, Any]
) -> ConfigSource:
    if text := flags.get("config-text"):
        return ConfigSource("inline", text=text, sure=True)
    path = flags.get("config-file", "")
    if not path:
        return ConfigSource("built-in", sure=True)
    for mount in container.get("volumeMounts") or ():
        at = str(mount.get("mountPath") or "").rstrip("/")
        if path != at and not path.startswith(at + "/"):
            continue
        volume: Json = next(
            (v for v in pod_spec.get("volumes") or () if v.get("name") == mount.get("name")), {}
        )
        source = volume.get("configMap")
        if not source:
            return ConfigSource("unknown")
        inside = mount.get("subPath") or path[len(at) + 1 :]
        key = next((i["key"] for i in source.get("items") or () if i.get("path") == inside), inside)
        return ConfigSource("config-map", str(source.get("name") or ""), key)
    return ConfigSource("unknown")


def _with_text(
    source: ConfigSource, namespace: str, pods: Sequence[Json], objects: PathObjects
) -> ConfigSource:
    if source.kind != "config-map":
        return source
    found = objects.config_map(namespace, source.name)
    text = str(((found or {}).get("data") or {}).get(source.key) or "")
    return replace(source, text=text, sure=bool(found and text and _read_by(found, source.name, text, pods)))


def _read_by(config_map: Mapping[str, Any], name: str, text: str, pods: Sequence[Json]) -> bool:
    """Whether every ready pod started after the ConfigMap was made and last written. An immutable one can be deleted
    and made anew under its name, so its making counts too. Times are whole seconds: within one, the file that was read
    may be the one before, unless the name of what is immutable is made of this very text."""
    immutable = bool(config_map.get("immutable"))
    entries = () if immutable else config_map["metadata"].get("managedFields") or ()
    writes = [created_at(config_map), *(read_time(entry.get("time")) for entry in entries)]
    starts = [read_time(pod["status"].get("startTime")) for pod in pods if is_ready(pod)]
    if not starts or None in writes or None in starts:
        return False
    last = max(write for write in writes if write)
    first = min(start for start in starts if start)
    return first > last or (first == last and immutable and _names_content(name, text))


def _names_content(name: str, text: str) -> bool:
    end = name.rpartition("-")[2]
    return len(end) >= 8 and hashlib.sha256(text.encode()).hexdigest().startswith(end)
