"""What the controller says on the objects, and that nothing is ignored in silence."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.demo.gateway.running import GATEWAY, NAMESPACE, Gateway, Scene, until

Doc = dict[str, Any]


def accepted(scene: Scene, path: str) -> Doc:
    """The condition Accepted of a route, of the generation that the route has now."""
    name = path.strip("/")

    def look() -> Doc | None:
        found = scene.conditions("HTTPRoute", name).get("Accepted")
        now = scene.api.get("HTTPRoute", NAMESPACE, name)["metadata"]["generation"]
        return found if found and found["observedGeneration"] == now else None

    return until("the route has a status", look)  # type: ignore[return-value]


def test_a_gateway_that_is_served_says_so(scene: Scene, gateway: Gateway) -> None:
    def conditions() -> Doc:
        status = scene.api.get("Gateway", *GATEWAY).get("status", {})
        return {each["type"]: each for each in status.get("conditions", [])}

    until("programmed", lambda: conditions().get("Programmed", {}).get("status") == "True")
    status = scene.api.get("Gateway", *GATEWAY)["status"]
    assert status["addresses"] == [{"type": "IPAddress", "value": gateway.address}]
    assert f"{gateway.address}:{gateway.port}" in conditions()["Programmed"]["message"]
    (listener,) = status["listeners"]
    assert listener["name"] == "http"
    assert {each["status"] for each in listener["conditions"]} == {"True"}
    of_class = scene.api.get("GatewayClass", "", "lockstep-demo")["status"]["conditions"]
    assert [each["status"] for each in of_class] == ["True"]


def test_route_and_pool_are_accepted_and_the_status_follows_the_spec(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = scene.route({pool: 1})
    assert accepted(scene, path)["status"] == "True"
    name = path.strip("/")
    assert scene.conditions("HTTPRoute", name)["ResolvedRefs"]["status"] == "True"
    until("the pool is accepted", lambda: scene.conditions("InferencePool", pool))
    of_pool = scene.api.get("InferencePool", NAMESPACE, pool)["status"]["parents"]
    assert [each["parentRef"]["name"] for each in of_pool] == [GATEWAY[1]], "the default entry is gone"
    assert {each["status"] for each in of_pool[0]["conditions"]} == {"True"}

    before = accepted(scene, path)
    scene.route({pool: 3}, path=path)
    after = accepted(scene, path)
    assert after["observedGeneration"] == before["observedGeneration"] + 1
    assert after["lastTransitionTime"] == before["lastTransitionTime"], "true before and after"

    scene.api.delete("HTTPRoute", NAMESPACE, name)
    until("no route leads to the pool", lambda: not scene.conditions("InferencePool", pool))


def test_statuses_are_written_only_when_they_change(scene: Scene, gateway: Gateway) -> None:
    pool, _, router = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.ask(path).status == 200)
    until("the pool is accepted", lambda: scene.conditions("InferencePool", pool))
    other, engine, _ = scene.served()
    patches = len(scene.api.patches)
    for ready in (False, True):
        scene.router_pod(pool, router, ready=ready)
        until("the router's state is served", lambda r=ready: (gateway.ask(path).status == 200) is r)
    assert len(scene.api.patches) == patches
    second = scene.route({other: 1})  # something to write, so that writing was seen to go on
    until("the second route is served", lambda: gateway.engine_of(second) == engine.name)
    until("the other pool is accepted", lambda: scene.conditions("InferencePool", other))
    assert not any(pool == each.rpartition("/")[2] for each in scene.api.patches[patches:])


def test_entries_of_other_controllers_stay(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = f"/{scene.fresh('path')}"
    doc = scene.route_doc({pool: 1}, path=path)
    foreign = {
        "parentRef": {"name": "other", "namespace": "elsewhere"},
        "controllerName": "example.com/other",
        "conditions": [],
    }
    doc["status"] = {"parents": [foreign]}
    scene.api.put(doc)
    assert accepted(scene, path)["status"] == "True"
    parents = scene.api.get("HTTPRoute", NAMESPACE, path.strip("/"))["status"]["parents"]
    assert foreign in parents and len(parents) == 2


def test_a_route_of_another_gateway_is_left_alone(scene: Scene, gateway: Gateway) -> None:
    pool, engine, _ = scene.served()
    path = f"/{scene.fresh('path')}"
    doc = scene.route_doc({pool: 1}, path=path)
    doc["spec"]["parentRefs"][0]["name"] = "another"
    scene.api.put(doc)
    ours = scene.route({pool: 1})
    until("our route is served", lambda: gateway.engine_of(ours) == engine.name)
    assert gateway.ask(path).status == 404
    assert "status" not in scene.api.get("HTTPRoute", NAMESPACE, path.strip("/"))


def change(*where: str | int, to: Any) -> Callable[[Doc], None]:
    """A change of a route's spec at a place."""

    def do(doc: Doc) -> None:
        at: Any = doc["spec"]
        for step in where[:-1]:
            at = at[step]
        at[where[-1]] = to

    return do


REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"port": 80}}
REWRITE = {"type": "URLRewrite", "urlRewrite": {"hostname": "a.example"}}
STRANGE = {
    "hostnames": change("hostnames", to=["a.example"]),
    "timeouts": change("rules", 0, "timeouts", to={"request": "5s"}),
    "retry": change("rules", 0, "retry", to={"attempts": 2}),
    "sessionPersistence": change("rules", 0, "sessionPersistence", to={"sessionName": "s"}),
    "RequestRedirect": change("rules", 0, "filters", to=[REDIRECT]),
    "URLRewrite": change("rules", 0, "backendRefs", 0, "filters", to=[REWRITE]),
    "RegularExpression": change("rules", 0, "matches", 0, "path", "type", to="RegularExpression"),
    "method": change("rules", 0, "matches", 0, "method", to="GET"),
    "queryParams": change("rules", 0, "matches", 0, "queryParams", to=[{"name": "a", "value": "b"}]),
    "header match type": change(
        "rules", 0, "matches", 0, "headers", to=[{"type": "RegularExpression", "name": "a", "value": "b"}]
    ),
}


def modifier(**edits: Any) -> Callable[[Doc], None]:
    filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": edits}]
    return change("rules", 0, "filters", to=filters)


STRANGE["x-gateway-destination-endpoint"] = modifier(
    set=[{"name": "X-Gateway-Destination-Endpoint", "value": "127.0.0.1:1"}]
)
STRANGE["remove of host"] = modifier(remove=["Host"])
STRANGE["not printable"] = modifier(add=[{"name": "x-a", "value": "a\r\nx-b: c"}])


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_not_understood_is_refused_by_name_and_not_served(
    scene: Scene, gateway: Gateway, what: str
) -> None:
    pool, engine, _ = scene.served()
    path = scene.route({pool: 1})
    until("the plain route is served", lambda: gateway.engine_of(path) == engine.name)
    doc = scene.route_doc({pool: 1}, path=path)
    STRANGE[what](doc)
    scene.api.put(doc)
    until("the route is refused", lambda: accepted(scene, path)["status"] == "False")
    condition = accepted(scene, path)
    assert condition["reason"] == "UnsupportedValue" and what in condition["message"]
    assert gateway.ask(path).status == 404


def test_a_plain_service_is_no_backend(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = f"/{scene.fresh('path')}"
    doc = scene.route_doc({pool: 0}, path=path)
    doc["spec"]["rules"][0]["backendRefs"].append({"name": "web", "port": 80})
    scene.api.put(doc)
    assert accepted(scene, path)["status"] == "True"
    resolved = scene.conditions("HTTPRoute", path.strip("/"))["ResolvedRefs"]
    assert (resolved["status"], resolved["reason"]) == ("False", "InvalidKind")
    assert gateway.ask(path).status == 500


def test_a_pool_of_another_namespace_is_not_permitted(scene: Scene, gateway: Gateway) -> None:
    pool, _, _ = scene.served()
    path = f"/{scene.fresh('path')}"
    doc = scene.route_doc({pool: 1}, path=path)
    doc["metadata"]["namespace"] = "elsewhere"
    doc["spec"]["rules"][0]["backendRefs"][0]["namespace"] = NAMESPACE
    scene.api.put(doc)

    def resolved() -> Doc | None:
        parents = scene.api.get("HTTPRoute", "elsewhere", path.strip("/")).get("status", {}).get("parents")
        return {each["type"]: each for each in parents[0]["conditions"]}["ResolvedRefs"] if parents else None

    assert until("a status", resolved)["reason"] == "RefNotPermitted"  # type: ignore[index]
    assert gateway.ask(path).status == 500


def test_a_pool_whose_router_service_is_missing_says_so_and_recovers(scene: Scene, gateway: Gateway) -> None:
    pool, engine, _ = scene.served()
    scene.api.delete("Service", NAMESPACE, f"{pool}-epp")
    path = scene.route({pool: 1})
    until("the pool has a status", lambda: scene.conditions("InferencePool", pool))
    resolved = scene.conditions("InferencePool", pool)["ResolvedRefs"]
    assert (resolved["status"], resolved["reason"]) == ("False", "InvalidExtensionRef")
    assert f"{pool}-epp" in resolved["message"]
    assert gateway.ask(path).status == 503
    scene.service(pool)
    until("the pool is served", lambda: gateway.engine_of(path) == engine.name)
    until("resolved", lambda: scene.conditions("InferencePool", pool)["ResolvedRefs"]["status"] == "True")


def test_a_listener_that_takes_its_own_namespace_only_refuses_others(scene: Scene, gateway: Gateway) -> None:
    pool, engine, _ = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.engine_of(path) == engine.name)
    before = scene.api.get("Gateway", *GATEWAY)
    narrow = copy.deepcopy(before)
    del narrow["status"]
    narrow["spec"]["listeners"][0]["allowedRoutes"]["namespaces"]["from"] = "Same"
    scene.api.put(narrow)
    try:
        until("the route is refused", lambda: accepted(scene, path)["reason"] == "NotAllowedByListeners")
        assert gateway.ask(path).status == 404
    finally:
        narrow["spec"] = before["spec"]
        scene.api.put(narrow)
    until("the route is served", lambda: gateway.engine_of(path) == engine.name)


def test_of_several_listeners_one_is_served_and_the_others_say_why_not(
    scene: Scene, gateway: Gateway
) -> None:
    pool, engine, _ = scene.served()
    path = scene.route({pool: 1})
    until("the route is served", lambda: gateway.engine_of(path) == engine.name)
    before = scene.api.get("Gateway", *GATEWAY)
    several = copy.deepcopy(before)
    del several["status"]
    first = several["spec"]["listeners"][0]
    several["spec"]["listeners"] += [
        {**first, "name": "ours", "port": gateway.port},
        {**first, "name": "named", "port": 81, "hostname": "a.example"},
    ]
    scene.api.put(several)

    def reasons() -> Doc:
        listeners = scene.api.get("Gateway", *GATEWAY)["status"]["listeners"]
        return {each["name"]: each["conditions"][0]["reason"] for each in listeners}

    wanted = {"http": "PortUnavailable", "ours": "Accepted", "named": "UnsupportedValue"}
    try:
        until("each has its reason", lambda: reasons() == wanted)
        doc = scene.route_doc({pool: 1}, path=path)
        doc["spec"]["parentRefs"][0]["sectionName"] = "http"
        scene.api.put(doc)
        until("no listener for it", lambda: accepted(scene, path)["reason"] == "NoMatchingParent")
        assert gateway.ask(path).status == 404
    finally:
        several["spec"] = before["spec"]
        scene.api.put(several)
    until("the first is served again", lambda: gateway.engine_of(path) == engine.name)


def test_a_gateway_without_a_listener_that_can_be_served_is_not_programmed(
    scene: Scene, gateway: Gateway
) -> None:
    before = scene.api.get("Gateway", *GATEWAY)
    secure = copy.deepcopy(before)
    del secure["status"]
    secure["spec"]["listeners"][0]["protocol"] = "HTTPS"
    scene.api.put(secure)

    def programmed() -> str:
        conditions = scene.api.get("Gateway", *GATEWAY)["status"]["conditions"]
        return next(each["status"] for each in conditions if each["type"] == "Programmed")

    try:
        until("not programmed", lambda: programmed() == "False")
        (listener,) = scene.api.get("Gateway", *GATEWAY)["status"]["listeners"]
        conditions = {each["type"]: each for each in listener["conditions"]}
        assert conditions["Accepted"]["reason"] == "UnsupportedProtocol"
    finally:
        secure["spec"] = before["spec"]
        scene.api.put(secure)
    until("programmed again", lambda: programmed() == "True")
