"""A recorded combination against what is there now, part by part. Both are documents of the same form.

The form (version 1) is made by controlplane/recovery/reading: workload, config_maps, pools with their routers,
objectives, routes, scalers, transfer. Nothing here is guessed: what could not be read is `cannot-tell`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.recovery.bits import Bits, Verdict, judge_bits

Json = Mapping[str, Any]

SAME: tuple[Verdict, ...] = ("same", "same-bits")
WORKLOAD, CONFIG_MAP, ROUTER, OBJECTIVE, ROUTE, SCALER, TRANSFER = (
    "workload", "config-map", "router", "objective", "route", "scaler", "transfer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartDiff:
    """One part: its kind, its name, the verdict, and in words what differs."""

    part: str
    name: str
    verdict: Verdict
    what: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there is nothing to put back."""
        return self.verdict in SAME


def diff_combination(recorded: Json, live: Json) -> tuple[PartDiff, ...]:
    """Every recorded part with its verdict, in a fixed order."""
    return (
        diff_workload(recorded["workload"], live.get("workload"), recorded["set"]["name"]),
        *_config_maps(recorded, live),
        *_routers(recorded, live),
        *_named(OBJECTIVE, recorded, live, "objectives", ("spec",)),
        *_routes(recorded, live),
        *_named(SCALER, recorded, live, "scalers", ("settings",)),
        *_transfer(recorded, live),
    )


def diff_workload(recorded: Json, live: Json | None, name: str) -> PartDiff:
    """Roles, slices, placement, revisions and bits of the set."""
    if live is None:
        return PartDiff(WORKLOAD, name, "differs", ("the set does not exist",))
    what = [
        *roles_changed(recorded["roles"], live["roles"]),
        *(f"{key} is {live[key]!r}, recorded was {recorded[key]!r}" for key in ("slices", "placement")
          if live[key] != recorded[key]),
    ]  # fmt: skip
    same_template = recorded["templates"] == live["templates"]
    serving = list(live.get("revisions") or ())
    if [each for each in serving if each != live.get("revision")]:
        what.append(f"revisions with groups: {', '.join(serving)}")
    if not same_template:
        return PartDiff(WORKLOAD, name, "differs", tuple(what) or ("the order of the roles",))
    bits = judge_bits(recorded["images"], live["images"], same_template=True)
    if live.get("revision") != recorded["revision"]:
        what.append(
            f"the revision is {live.get('revision') or 'not there'}, recorded was {recorded['revision']}"
        )
    if what:
        return PartDiff(WORKLOAD, name, "differs", (*what, *bits.what))
    return PartDiff(WORKLOAD, name, bits.verdict, bits.what)


def roles_changed(recorded: Sequence[Json], live: Sequence[Json]) -> list[str]:
    """What of `spec.roles` differs, role by role, in words."""
    then, now = ({role["name"]: role for role in roles} for roles in (recorded, live))
    found = [f"role {name} is gone" for name in then if name not in now]
    found += [f"role {name} was added" for name in now if name not in then]
    if [n for n in then if n in now] != [n for n in now if n in then]:
        found.append("the order of the roles")
    for name in then:
        if name in now:
            found += _role_changed(name, then[name], now[name])
    return found


def _role_changed(name: str, then: Json, now: Json) -> Iterator[str]:
    words = {"leaderWorkerTemplate": "template", "replicas": "groups", "rolloutStrategy": "pace"}
    before, after = then["spec"], now["spec"]
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            number = f" ({after.get(key)}, recorded was {before.get(key)})" if key == "replicas" else ""
            yield f"{words.get(key, key)} of {name}{number}"
    for key in sorted({*then, *now} - {"spec", "name"}):
        if then.get(key) != now.get(key):
            yield f"{key} of {name}"


def _config_maps(recorded: Json, live: Json) -> Iterator[PartDiff]:
    for name, then in recorded["config_maps"].items():
        now = live["config_maps"].get(name)
        if then is None:
            if now is not None:
                yield PartDiff(CONFIG_MAP, name, "cannot-tell", ("it was not there when this was recorded",))
        elif now is None:
            yield PartDiff(CONFIG_MAP, name, "differs", ("it does not exist",))
        else:
            keys = changed_keys(then, now)
            yield PartDiff(CONFIG_MAP, name, "differs" if keys else "same", tuple(keys))


def changed_keys(then: Json, now: Json) -> list[str]:
    """Keys of a ConfigMap whose content differs, is missing or was added."""
    found = []
    for field in ("data", "binaryData"):
        before, after = then.get(field) or {}, now.get(field) or {}
        found += [f"key {key}" for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    return found


def _routers(recorded: Json, live: Json) -> Iterator[PartDiff]:
    now_by_name = {each["name"]: each for each in live["pools"]}
    for pool in recorded["pools"]:
        now = now_by_name.get(pool["name"])
        if now is None:
            yield PartDiff(ROUTER, pool["name"], "differs", ("the pool does not exist",))
            continue
        yield diff_router(pool["router"], now["router"], pool["name"])


def diff_router(then: Json, now: Json, pool: str) -> PartDiff:
    """Image, configuration and bits of one router."""
    what = [key for key in ("image",) if then[key] != now[key]]
    if then["config"]["kind"] != now["config"]["kind"] or then["config"]["text"] != now["config"]["text"]:
        what.append("configuration")
    if what:
        return PartDiff(ROUTER, pool, "differs", tuple(what))
    if not (then["config"]["sure"] and now["config"]["sure"]):
        said = "the running processes may read another text than the ConfigMap shows"
        return PartDiff(ROUTER, pool, "cannot-tell", (said,))
    bits = _router_bits(then, now)
    return PartDiff(ROUTER, pool, bits.verdict, bits.what)


def _router_bits(then: Json, now: Json) -> Bits:
    one, other = ({"router": {each["container"] or "router": each}} for each in (then, now))
    return judge_bits(one, other, same_template=True)


def _named(part: str, recorded: Json, live: Json, key: str, fields: Sequence[str]) -> Iterator[PartDiff]:
    now_by_name = {_title(each): each for each in live[key]}
    for then in recorded[key]:
        name = _title(then)
        now = now_by_name.get(name)
        if now is None:
            yield PartDiff(part, name, "differs", ("it does not exist",))
        else:
            what = tuple(field for field in fields if then[field] != now[field])
            yield PartDiff(part, name, "differs" if what else "same", what)


def _title(each: Json) -> str:
    return f"{each['kind']} {each['name']}" if "kind" in each else str(each["name"])


def _routes(recorded: Json, live: Json) -> Iterator[PartDiff]:
    now_by_name = {(each["namespace"], each["name"]): each for each in live["routes"]}
    for then in recorded["routes"]:
        now = now_by_name.get((then["namespace"], then["name"]))
        name = f"{then['namespace']}/{then['name']}"
        if now is None:
            yield PartDiff(ROUTE, name, "differs", ("it does not exist",))
        elif now["rules"] == then["rules"]:
            yield PartDiff(ROUTE, name, "same")
        else:
            yield PartDiff(ROUTE, name, "differs", tuple(_weights_changed(then["rules"], now["rules"])))


def _weights_changed(then: Sequence[Any], now: Sequence[Any]) -> list[str]:
    if [_backends(rule) for rule in then] != [_backends(rule) for rule in now]:
        return ["its rules lead to other backends"]
    return [
        f"weight of {ref['name']} is {other['weight']}, recorded was {ref['weight']}"
        for rule, others in zip(then, now, strict=True)
        for ref, other in zip(rule, others, strict=True)
        if ref["weight"] != other["weight"]
    ]


def _backends(rule: Sequence[Json]) -> list[tuple[str, str]]:
    return [(ref["namespace"], ref["name"]) for ref in rule]


def _transfer(recorded: Json, live: Json) -> Iterator[PartDiff]:
    for role, then in recorded["transfer"].items():
        now = (live.get("transfer") or {}).get(role)
        if now is None or then is None:
            yield PartDiff(TRANSFER, role, "cannot-tell", ("the engine's settings were not read",))
        elif now == then:
            yield PartDiff(TRANSFER, role, "same")
        else:
            keys = tuple(key for key in sorted({*then, *now}) if then.get(key) != now.get(key))
            yield PartDiff(TRANSFER, role, "differs", keys)
