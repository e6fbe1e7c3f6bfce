from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policy.guard import FILTER, Guard, GuardNames, GuardProbe, judge_guard, judge_guard_probe, worst_guard

REVISION = "x-disagg-revision"
OBJECTIVE, OLD_OBJECTIVE = "x-llm-d-inference-objective", "x-gateway-inference-objective"
FAIRNESS, OLD_FAIRNESS = "x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"
ALL = [REVISION, OBJECTIVE, OLD_OBJECTIVE, FAIRNESS, OLD_FAIRNESS]


def modifier(**change: Any) -> dict[str, Any]:
    return {"type": FILTER, "requestHeaderModifier": change}


def backend(*filters: dict[str, Any], name: str = "llama") -> dict[str, Any]:
    found = {"kind": "InferencePool", "group": "inference.networking.k8s.io", "name": name}
    return found | ({"filters": list(filters)} if filters else {})


def rule(*filters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"filters": list(filters), "backendRefs": [backend()]} | fields


def route(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"kind": "HTTPRoute", "spec": {"rules": list(rules), **spec}}


def test_a_route_without_filters_is_open_and_the_filter_to_add_is_shown() -> None:
    guard = judge_guard(route(rule()))
    assert (guard.verdict, guard.reason) == ("open", "headers-pass")
    assert "rules[0] lets x-disagg-revision" in guard.sentence
    assert yaml.safe_load(guard.filters_yaml) == {"filters": [modifier(remove=ALL)]}
    assert judge_guard(route(rule(*yaml.safe_load(guard.filters_yaml)["filters"]))).verdict == "guarded"


def test_removing_every_header_guards_in_any_spelling() -> None:
    guard = judge_guard(route(rule(modifier(remove=[name.title() for name in ALL]))))
    assert guard.verdict == "guarded"
    assert "Probe from the public side" in guard.next_action


def test_one_alias_that_is_forgotten_opens_the_route() -> None:
    guard = judge_guard(route(rule(modifier(remove=[name for name in ALL if name != OLD_FAIRNESS]))))
    assert guard.verdict == "open"
    assert guard.rules[0].passing == (OLD_FAIRNESS,)


def test_a_value_of_our_own_guards_and_makes_the_older_name_harmless() -> None:
    stamped = modifier(set=[{"name": OBJECTIVE, "value": "chat"}], remove=[REVISION, FAIRNESS, OLD_FAIRNESS])
    assert judge_guard(route(rule(stamped))).verdict == "guarded"
    older = modifier(
        set=[{"name": OLD_OBJECTIVE, "value": "chat"}], remove=[REVISION, FAIRNESS, OLD_FAIRNESS]
    )
    assert judge_guard(route(rule(older))).rules[0].passing == (OBJECTIVE,)


def test_adding_a_value_keeps_what_the_client_sent() -> None:
    added = modifier(add=[{"name": name, "value": "x"} for name in ALL])
    assert judge_guard(route(rule(added))).verdict == "open"


def test_the_filter_that_is_there_is_completed_because_a_rule_may_have_one_only() -> None:
    present = modifier(set=[{"name": "x-team", "value": 'a "b"'}], remove=["x-debug"])
    guard = judge_guard(route(rule(present)))
    (shown,) = yaml.safe_load(guard.filters_yaml)["filters"]
    assert shown["requestHeaderModifier"]["set"] == [{"name": "x-team", "value": 'a "b"'}]
    assert shown["requestHeaderModifier"]["remove"] == ["x-debug", *ALL]


def test_every_rule_and_every_backend_counts() -> None:
    good = modifier(remove=ALL)
    assert judge_guard(route(rule(good), rule())).verdict == "open"
    both = rule(backendRefs=[backend(good), backend(good, name="green")])
    half = rule(backendRefs=[backend(good), backend(name="green")])
    assert judge_guard(route(both)).verdict == "guarded"
    assert judge_guard(route(half)).verdict == "open"
    weightless = rule(backendRefs=[backend(good), backend(name="green") | {"weight": 0}])
    assert judge_guard(route(weightless)).verdict == "open"


def test_a_filter_of_the_gateways_own_kind_leaves_it_open_whether_it_is_guarded() -> None:
    own = {
        "type": "ExtensionRef",
        "extensionRef": {"group": "example.com", "kind": "HeaderFilter", "name": "strip"},
    }
    guard = judge_guard(route(rule(own)))
    assert (guard.verdict, guard.reason) == ("cannot-tell", "own-filter")
    assert judge_guard(route(rule(own), rule())).verdict == "open"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "no-route"),
        ({"kind": "GRPCRoute", "spec": {"rules": []}}, "no-route"),
        (route(), "no-rule"),
        (route(rule(backendRefs=[{"kind": "Service", "name": "web"}])), "no-rule"),
    ],
)
def test_documents_that_say_nothing(document: dict[str, Any], reason: str) -> None:
    guard = judge_guard(document)
    assert (guard.verdict, guard.reason) == ("cannot-tell", reason)


def test_other_pools_are_not_looked_at() -> None:
    names = GuardNames(pools=("llama",))
    mixed = route(rule(modifier(remove=ALL)), rule(backendRefs=[backend(name="other")]))
    assert judge_guard(mixed, names).verdict == "guarded"


def test_rules_and_listeners_for_probes_may_keep_the_headers() -> None:
    names = GuardNames(secret_header="X-Probe-Key", probe_listeners=("probes",))
    secret = {"headers": [{"name": "x-probe-key", "value": "s3"}]}
    assert judge_guard(route(rule(modifier(remove=ALL)), rule(matches=[secret])), names).verdict == "guarded"
    either = rule(matches=[secret, {"path": {"value": "/"}}])
    assert judge_guard(route(either), names).verdict == "open"
    loose = rule(matches=[{"headers": [{"name": "x-probe-key", "value": ".*", "type": "RegularExpression"}]}])
    assert judge_guard(route(loose), names).verdict == "open"
    probes = route(rule(), parentRefs=[{"name": "gate", "sectionName": "probes"}])
    assert judge_guard(probes, names).reason == "probe-listener"
    also_public = route(rule(), parentRefs=[{"name": "gate", "sectionName": "probes"}, {"name": "gate"}])
    assert judge_guard(also_public, names).verdict == "open"


def test_the_worst_route_decides() -> None:
    guarded, opened = judge_guard(route(rule(modifier(remove=ALL)))), judge_guard(route(rule()))
    assert worst_guard([guarded, opened, judge_guard({})]).verdict == "open"
    assert worst_guard([guarded, judge_guard({})]).verdict == "cannot-tell"


@given(st.lists(st.sampled_from(ALL), unique=True), st.lists(st.sampled_from(ALL), unique=True))
def test_what_is_shown_always_closes_what_was_open(removed: list[str], stamped: list[str]) -> None:
    present = modifier(
        remove=removed, set=[{"name": name, "value": "v"} for name in stamped if name not in removed]
    )
    guard = judge_guard(route(rule(present)))
    if guard.verdict == "open":
        shown = yaml.safe_load(guard.filters_yaml)["filters"]
        assert len(shown) == 1
        assert judge_guard(route(rule(*shown))).verdict == "guarded"


PLAIN = [GuardProbe("", 200, stamped="7c9e41b2")] * 3
REFUSED = GuardProbe("does-not-exist", 503, dropped_reason="rejected-no-endpoints")
STRIPPED = GuardProbe("does-not-exist", 200, stamped="7c9e41b2")


def probe(*probes: GuardProbe) -> Guard:
    return judge_guard_probe([*PLAIN, *probes])


def test_a_revision_that_cannot_exist_is_refused_only_where_the_header_arrives() -> None:
    assert probe(REFUSED, STRIPPED, STRIPPED).verdict == "open"
    assert probe(*[STRIPPED] * 3).verdict == "guarded"


def test_without_requests_that_are_answered_a_refusal_says_nothing() -> None:
    assert judge_guard_probe([REFUSED] * 5).reason == "no-control"
    empty = [GuardProbe("", 503, dropped_reason="rejected-no-endpoints")] * 3
    assert judge_guard_probe([*empty, *[REFUSED] * 3]).reason == "no-control"


def test_too_few_and_other_errors_have_no_verdict() -> None:
    assert probe(STRIPPED).verdict == "cannot-tell"
    assert probe(*[STRIPPED] * 3, GuardProbe("does-not-exist", 500)).verdict == "cannot-tell"


def test_a_real_revision_tells_only_if_another_one_answers() -> None:
    same = GuardProbe("7c9e41b2", 200, known=True, stamped="7c9e41b2")
    other = GuardProbe("d03fa885", 200, known=True, stamped="7c9e41b2")
    assert probe(*[same] * 10).verdict == "cannot-tell"
    assert probe(*[other] * 3).verdict == "guarded"
