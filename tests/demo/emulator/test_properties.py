"""What holds for every document: patches, field ownership, quantities, pages, and watches that replay a history."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.demo.emulator.fields import leaves, nested, paths_of
from deploy.demo.emulator.frozen import encoded, freeze, thaw
from deploy.demo.emulator.listing import Lists
from deploy.demo.emulator.ownership import apply, track_update
from deploy.demo.emulator.patches import json_patch, merge_patch
from deploy.demo.emulator.problems import ApiProblem
from deploy.demo.emulator.quotas import quantity as value_of
from deploy.demo.emulator.respelling import quantity
from deploy.demo.emulator.store import Store, User

Doc = dict[str, Any]
KEYS = st.sampled_from(["a", "b", "c", "x/y", "t~z"])
SCALARS = st.one_of(st.booleans(), st.integers(-5, 5), st.text("ab", max_size=2))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3))
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)
WRITERS = st.sampled_from(["one", "two", "three"])
DATA = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)


def config(data: dict[str, str]) -> Doc:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "here"},
        "data": data,
    }


def fresh() -> Store:
    store = Store(seed=1)
    acting = store.acting_as(User("admin", ("system:masters",)))
    acting.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "here"}})
    return store


def difference(old: Any, new: Any) -> Any:
    """A merge patch from one object to another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old or old[key] != value or type(old[key]) is not type(value):
            patch[key] = difference(old.get(key), value)
    return patch


@given(OBJECTS)
def test_freezing_and_thawing_changes_nothing(doc: Doc) -> None:
    frozen = freeze(doc)
    assert thaw(frozen) == doc == frozen and json.loads(encoded(frozen)) == doc


@given(OBJECTS, OBJECTS)
def test_what_two_versions_have_in_common_is_there_once(old: Doc, new: Doc) -> None:
    before = freeze(old)
    assert freeze(json.loads(json.dumps(old)), before) is before
    after = freeze(new, before)
    assert json.dumps(after) == json.dumps(new) or after is before
    shared = [key for key in new if key in old and json.dumps(new[key]) == json.dumps(old[key])]
    assert all(after[key] is before[key] or type(new[key]) in (int, bool, str) for key in shared)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_of_a_difference_gives_the_other_one(old: Doc, new: Doc) -> None:
    before = json.dumps(old)
    assert merge_patch(freeze(old), difference(old, new)) == new
    assert json.dumps(old) == before


@given(OBJECTS, KEYS, VALUES)
def test_a_json_patch_adds_reads_and_removes_at_any_key(doc: Doc, key: str, value: Any) -> None:
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    added = json_patch(freeze(doc), [{"op": "add", "path": path, "value": value}])
    assert added == {**doc, key: value}
    assert json_patch(added, [{"op": "test", "path": path, "value": value}]) == added
    assert json_patch(added, [{"op": "remove", "path": path}]) == {k: v for k, v in doc.items() if k != key}


@given(
    st.decimals(0, 10**6, allow_nan=False, allow_infinity=False, places=2),
    st.sampled_from(["", "m", "k", "M", "Gi", "Mi"]),
)
def test_a_quantity_keeps_its_value_and_is_spelled_once(number: Decimal, suffix: str) -> None:
    if suffix == "m":
        number = number.to_integral_value()
    spelled = quantity(f"{number}{suffix}")
    # Bytes that no binary suffix fits are written plainly, and read again as decimal; Go does the same.
    assert quantity(spelled) == spelled or (suffix in ("Gi", "Mi") and spelled.isdigit())
    wanted, got = value_of(f"{number}{suffix}"), value_of(spelled)
    assert 0 <= got - wanted < 1, "rounded up to a whole unit, where binary suffixes leave a rest"
    assert got == wanted or suffix in ("Gi", "Mi")


@given(st.dictionaries(st.sampled_from(["spec", "data", "status"]), OBJECTS, max_size=3))
def test_fields_are_written_and_read_back(doc: Doc) -> None:
    paths = set(leaves({"metadata": {"name": "x", "labels": {"a": "b"}}, **doc}))
    assert set(paths_of(nested(paths))) == paths


@settings(max_examples=60)
@given(st.lists(st.tuples(WRITERS, st.booleans(), DATA), min_size=1, max_size=8))
def test_every_field_has_an_owner_and_updates_share_none(
    steps: list[tuple[str, bool, dict[str, str]]],
) -> None:
    """Writers apply (by force) and replace in any order: what is there is owned, what is owned is there."""
    kind = Store().kinds.of("configmaps")
    live: Doc | None = None
    for manager, applies, data in steps:
        if applies or live is None:
            settings_ = {"manager": manager, "force": True, "subresource": "", "time": "2026-01-01T00:00:00Z"}
            live = apply(kind, live, config(data), **settings_)
            assert data.items() <= live.get("data", {}).items()
            again = apply(kind, live, config(data), **{**settings_, "time": "2027-01-01T00:00:00Z"})
            assert again == live, "applying the same again changes nothing"
        else:
            new = {**thaw(live), "data": dict(data)}
            track_update(kind, live, new, manager=manager, subresource="", time="2026-01-01T00:00:00Z")
            live = new
        rows = live["metadata"].get("managedFields") or []
        owned = [(row["operation"], set(paths_of(row["fieldsV1"]))) for row in rows]
        there = set(leaves(live))
        # Who has written a map when it was empty owns the map; what is in it may be others'.
        assert set().union(*(paths for _, paths in owned)) - {("f:data",)} == there - {("f:data",)}
        updates = [path for operation, paths in owned if operation == "Update" for path in paths]
        assert len(updates) == len(set(updates))


@settings(max_examples=40)
@given(st.integers(0, 12), st.integers(1, 5))
def test_pages_of_any_size_are_the_list(number: int, limit: int) -> None:
    store = fresh()
    acting = store.acting_as(User("admin"))
    for index in range(number):
        acting.create({**config({}), "metadata": {"name": f"c{index:02d}", "namespace": "here"}})
    lists, kind = Lists(store), store.kinds.of("configmaps")
    names, token, pages = [], "", 0
    while True:
        page = json.loads(lists.answer(kind, "v1", "here", limit=limit, token=token))
        names += [each["metadata"]["name"] for each in page["items"]]
        pages += 1
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == [f"c{index:02d}" for index in range(number)]
    assert pages == max(1, -(-number // limit))


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "patch", "delete"]), NAMES, st.integers(0, 3)), max_size=25
)


@settings(max_examples=60)
@given(STEPS, st.integers(0, 25))
def test_a_watch_from_any_moment_ends_at_what_is_there(steps: list[tuple[str, str, int]], begin: int) -> None:
    """A list at one moment and the changes after it give the list of the last moment; versions only rise."""

    async def run() -> None:
        store = fresh()
        acting = store.acting_as(User("admin"))
        kind = store.kinds.of("configmaps")
        copy: dict[str, Doc] = {}
        since = store.version
        for index, (verb, name, value) in enumerate(steps):
            if index == begin:
                copy = {each["metadata"]["name"]: each for each in store.list(kind, "here")}
                since = store.version
            try:
                if verb == "create":
                    metadata = {"name": name, "namespace": "here"}
                    acting.create({**config({"v": str(value)}), "metadata": metadata})
                elif verb == "patch":
                    acting.patch(kind, "here", name, {"data": {"v": str(value)}})
                else:
                    acting.delete(kind, "here", name)
            except ApiProblem as problem:
                assert problem.status in (404, 409)
        versions = []
        for change in store.memory.since(kind, since):
            versions.append(change.version)
            assert (change.old is None) == (change.type == "ADDED")
            if change.type == "DELETED":
                assert copy.pop(change.new["metadata"]["name"]) == change.old
            else:
                assert copy.get(change.new["metadata"]["name"]) == change.old
                copy[change.new["metadata"]["name"]] = change.new
        assert versions == sorted(set(versions)) and all(each > since for each in versions)
        assert copy == {each["metadata"]["name"]: each for each in store.list(kind, "here")}

    asyncio.run(run())
