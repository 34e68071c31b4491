"""Watches: order, completeness, resumption, initial events, bookmarks, selectors and ends."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, TABLE, Client

END = "k8s.io/initial-events-end"


def revision(thing: dict[str, Any]) -> int:
    return int(thing["metadata"]["resourceVersion"])


def head(api: Client, widgets: Resource) -> str:
    found: str = api.get(widgets.path(namespace=None)).expect(200)["metadata"]["resourceVersion"]
    return found


def brief(event: dict[str, Any]) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


@pytest.fixture
def marking(api: Client) -> None:
    """Skip a test of bookmarks if the server gets no progress reports from its etcd.

    kube-apiserver does not request these reports from etcd before 3.4.31, and from 3.5.0 to 3.5.12.
    """
    asked = DEFINITIONS + "?watch=1&allowWatchBookmarks=1&timeoutSeconds=1&labelSelector=no%3Dsuch"
    if b"storage feature RequestWatchProgress is disabled" in api.request("GET", asked).raw:
        pytest.skip("the etcd of this server does not report progress")


@pytest.mark.rows("RV-009", "RV-010", "RV-011")
def test_each_change_is_one_line(api: Client) -> None:
    widgets = serve(api)
    with api.watch(widgets.path(), resourceVersion=head(api, widgets)) as watch:
        assert watch.headers["content-type"] == "application/json"
        assert watch.headers["transfer-encoding"] == "chunked"
        made = widgets.create("a", color="red")
        changed = api.patch(widgets.path("a"), {"spec": {"color": "blue"}}).expect(200)
        api.delete(widgets.path("a")).expect(200)
        events = [watch.next(), watch.next(), watch.next()]
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event["object"] for event in events[:2]] == [made, changed]
    assert events[2]["object"]["spec"] == changed["spec"]
    assert revision(events[2]["object"]) > revision(changed)


@pytest.mark.rows("RV-009")
@pytest.mark.parametrize("text", ["", "0", "00"])
def test_a_watch_from_an_empty_or_zero_revision_begins_with_the_current_objects(api: Client, text: str) -> None:
    widgets = serve(api)
    widgets.create("a", color="red")
    changed = api.patch(widgets.path("a"), {"spec": {"color": "blue"}}).expect(200)
    with api.watch(widgets.path(), resourceVersion=text) as watch:
        assert watch.next()["object"] == changed
        widgets.create("b")
        assert brief(watch.next()) == ("ADDED", "b")


@pytest.mark.rows("RV-009", "RV-017")
def test_resuming_anywhere_gives_exactly_the_rest(api: Client) -> None:
    widgets = serve(api)
    start = head(api, widgets)
    written = [revision(widgets.create(f"w{number:02}")) for number in range(10)]
    for skipped in range(10):
        since = written[skipped - 1] if skipped else start
        with api.watch(widgets.path(), resourceVersion=since) as watch:
            assert [revision(watch.next()["object"]) for _ in written[skipped:]] == written[skipped:]


@pytest.mark.rows("RV-017", "RV-010")
def test_a_watch_from_a_list_misses_nothing_under_load(api: Client) -> None:
    widgets = serve(api)
    total, letters = 120, "abcd"
    seen: list[dict[str, Any]] = []

    def writer(letter: str) -> None:
        for number in range(total // len(letters)):
            widgets.create(f"{letter}{number}")

    threads = [threading.Thread(target=writer, args=(letter,)) for letter in letters]
    for thread in threads:
        thread.start()
    listed = api.get(widgets.path()).expect(200)
    names = {item["metadata"]["name"] for item in listed["items"]}
    with api.watch(widgets.path(), resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
        while len(names) + len(seen) < total:
            seen.append(watch.next("ADDED")["object"])
    for thread in threads:
        thread.join()
    revisions = [revision(it) for it in seen]
    assert revisions == sorted(set(revisions))
    assert not names & {it["metadata"]["name"] for it in seen}


@pytest.mark.usefixtures("marking")
@pytest.mark.rows("RV-013", "RV-012")
def test_initial_events_end_with_a_bookmark(api: Client) -> None:
    widgets = serve(api)
    for name in "abc":
        widgets.create(name)
    with api.watch(
        widgets.path(), sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    ) as watch:
        assert [brief(watch.next()) for _ in "abc"] == [("ADDED", name) for name in "abc"]
        bookmark = watch.next()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["metadata"]["annotations"] == {END: "true"}
        assert (bookmark["object"]["kind"], bookmark["object"]["apiVersion"]) == ("Widget", f"{widgets.group}/v1")
        late = widgets.create("late")
        assert watch.next("ADDED")["object"] == late
        assert revision(late) > revision(bookmark["object"])


@pytest.mark.rows("RV-009")
@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}], ids=["unset", "zero"])
def test_a_watch_without_a_revision_begins_with_the_current_objects(api: Client, start: dict[str, str]) -> None:
    widgets = serve(api)
    for name in "ab":
        widgets.create(name)
    with api.watch(widgets.path(), **start) as watch:
        assert {brief(watch.next()) for _ in "ab"} == {("ADDED", "a"), ("ADDED", "b")}
        widgets.create("c")
        assert brief(watch.next()) == ("ADDED", "c")


@pytest.mark.rows("RV-014")
def test_a_timeout_ends_the_stream_cleanly(api: Client) -> None:
    widgets = serve(api)
    with api.watch(widgets.path(), resourceVersion=head(api, widgets), timeoutSeconds=1) as watch:
        assert watch.read() == b""


@pytest.mark.rows("SEL-002")
def test_changes_become_added_or_deleted_events_of_a_watch_with_a_selector(api: Client) -> None:
    widgets = serve(api, selectableFields=[{"jsonPath": ".spec.color"}])
    since = head(api, widgets)
    with api.watch(widgets.path(), resourceVersion=since, fieldSelector="spec.color=red") as watch:
        widgets.create("other", color="blue")
        widgets.create("a", color="red")
        api.patch(widgets.path("a"), {"spec": {"size": 1}}).expect(200)
        left = api.patch(widgets.path("a"), {"spec": {"color": "blue"}}).expect(200)
        api.patch(widgets.path("a"), {"spec": {"color": "red"}}).expect(200)
        events = [watch.next() for _ in range(4)]
    assert [brief(event) for event in events] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    gone = events[2]["object"]
    assert gone["spec"]["color"] == "red"
    assert revision(gone) == revision(left)


@pytest.mark.rows("RV-015")
def test_one_name_can_be_watched(api: Client) -> None:
    widgets = serve(api)
    since = head(api, widgets)
    with api.watch(widgets.path(), resourceVersion=since, fieldSelector="metadata.name=b") as watch:
        widgets.create("a")
        widgets.create("b")
        assert brief(watch.next()) == ("ADDED", "b")


@pytest.mark.rows("TAB-005")
def test_tables_are_watched_too(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    with api.watch(widgets.path(), headers={"Accept": TABLE}) as watch:
        first = watch.next()["object"]
        widgets.create("b")
        second = watch.next()["object"]
    assert first["kind"] == second["kind"] == "Table"
    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Age"]
    assert [table["rows"][0]["cells"][0] for table in (first, second)] == ["a", "b"]


@pytest.mark.rows("SRV-015")
def test_a_changed_definition_ends_its_watches_and_no_other(api: Client) -> None:
    widgets, others = serve(api), serve(api)
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    with (
        api.watch(widgets.path(), resourceVersion=head(api, widgets)) as changed,
        api.watch(others.path(), resourceVersion=head(api, others)) as kept,
    ):
        wanted = api.get(name).expect(200)
        properties = wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        properties["weight"] = {"type": "integer"}
        api.put(name, wanted).expect(200)
        assert list(changed) == []
        others.create("a")
        assert brief(kept.next()) == ("ADDED", "a")
    api.post(widgets.path(), widgets.make("a", weight=3)).expect(201)
    assert api.get(widgets.path("a")).expect(200)["spec"]["weight"] == 3


@pytest.mark.rows("RV-010")
def test_definitions_are_watched_like_all_else(api: Client) -> None:
    wanted = definition(fresh_group())
    since = api.get(DEFINITIONS).expect(200)["metadata"]["resourceVersion"]
    selector = f"metadata.name={wanted['metadata']['name']}"
    with api.watch(DEFINITIONS, resourceVersion=since, fieldSelector=selector) as watch:
        establish(api, wanted)
        events = [watch.next()]
        while not any(
            it["type"] == "Established" and it["status"] == "True"
            for it in events[-1]["object"]["status"]["conditions"] or []
        ):
            events.append(watch.next())
    assert events[0]["type"] == "ADDED"
    assert {event["type"] for event in events[1:]} == {"MODIFIED"}


@pytest.mark.rows("RV-009", "RV-013")
def test_a_watch_from_a_future_revision_shows_no_earlier_events(api: Client) -> None:
    widgets = serve(api)
    with api.watch(widgets.path(), resourceVersion="999999999", timeoutSeconds=1) as watch:
        widgets.create("before")
        assert watch.read() == b""
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    with api.watch(widgets.path(), resourceVersion="999999999", timeoutSeconds=1, **initial) as watch:
        event = watch.next()
    assert event["type"] == "ERROR"
    assert event["object"]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.rows("RV-009")
@pytest.mark.differs("a watch from a future revision is silent until the store reaches it")
@pytest.mark.parametrize("form", ["", TABLE])
def test_a_watch_from_a_revision_far_in_the_future_ends_with_an_error(api: Client, form: str) -> None:
    widgets = serve(api)
    start = int(head(api, widgets)) + 100_000
    headers = {"Accept": form} if form else {}
    began = time.monotonic()
    with api.watch(widgets.path(), resourceVersion=start, timeoutSeconds=30, headers=headers) as watch:
        assert watch.status == 200
        told = watch.next()
        assert watch.read() == b""
    assert time.monotonic() - began < 10
    assert told["type"] == "ERROR"
    assert (told["object"]["code"], told["object"]["reason"]) == (410, "Expired")
    text = f"the resourceVersion for the provided watch is too large: {start}, current: "
    assert told["object"]["message"].startswith(text)


@pytest.mark.rows("RV-009")
def test_a_watch_from_the_next_revision_begins_after_it(api: Client) -> None:
    widgets = serve(api)
    coming = revision(widgets.create("a")) + 1
    with api.watch(widgets.path(), resourceVersion=coming) as watch:
        for color in ("red", "blue"):
            api.patch(widgets.path("a"), {"spec": {"color": color}}).expect(200)
        assert revision(watch.next()["object"]) > coming


@pytest.mark.rows("RV-010")
def test_many_watchers_see_the_same_lines(api: Client) -> None:
    widgets = serve(api)
    since = head(api, widgets)
    watches = [api.watch(widgets.path(), resourceVersion=since) for _ in range(50)]
    try:
        for number in range(20):
            widgets.create(f"w{number:02}")
        for watch in watches:
            assert [brief(watch.next())[1] for _ in range(20)] == [f"w{number:02}" for number in range(20)]
    finally:
        for watch in watches:
            watch.close()


@pytest.mark.usefixtures("marking")
@pytest.mark.rows("RV-012", "RV-014")
def test_a_watch_gets_a_bookmark_two_seconds_before_its_end(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    asked = {"resourceVersion": head(api, widgets), "timeoutSeconds": 3, "allowWatchBookmarks": "true"}
    with api.watch(widgets.path(), **asked) as watch:
        made = widgets.create("b")
        first, bookmark = watch
    assert (brief(first), brief(bookmark)) == (("ADDED", "b"), ("BOOKMARK", ""))
    assert revision(bookmark["object"]) >= revision(made)


@pytest.mark.usefixtures("marking")
@pytest.mark.rows("RV-012", "RV-013")
@pytest.mark.parametrize("start", ["", "&resourceVersion=0"], ids=["unset", "zero"])
def test_a_bookmark_ends_the_initial_events_of_a_watch(api: Client, start: str) -> None:
    widgets = serve(api)
    widgets.create("a")
    asked = widgets.path() + "?watch=1&allowWatchBookmarks=1&timeoutSeconds=1" + start
    events = [json.loads(line) for line in api.request("GET", asked).raw.splitlines()]
    marked = [brief(event) for event in events if END in event["object"]["metadata"].get("annotations", {})]
    assert brief(events[0]) == ("ADDED", "a")
    assert marked == [("BOOKMARK", "")]
    # upstream: the parameter ``watch``, not the path, decides if options are validated as those of a watch or a list
    # So an old watch path without this parameter is validated as a list.
    old = asked.replace("/v1/", "/v1/watch/").replace("watch=1&", "")
    assert END not in api.request("GET", old).raw.decode()


@pytest.mark.rows("RV-004", "RV-015")
def test_options_of_old_watch_paths_are_validated_as_those_of_lists(api: Client) -> None:
    widgets = serve(api)
    old = widgets.path().replace("/v1/", "/v1/watch/")
    refused = api.get(old, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", resourceVersion="0")
    assert refused.expect(422)["message"].endswith(
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    )
    refused = api.get(old, resourceVersionMatch="x", resourceVersion="0", watch="1")
    assert refused.expect(422)["message"].endswith('Unsupported value: "x": supported values: "NotOlderThan"]')


@pytest.mark.usefixtures("marking")
@pytest.mark.rows("TAB-005", "RV-012")
def test_a_bookmark_in_a_table_has_no_age(api: Client) -> None:
    widgets = serve(api)
    query = "?watch=1&allowWatchBookmarks=1&timeoutSeconds=1"
    line = api.request("GET", widgets.path() + query, None, {"Accept": TABLE}).raw.splitlines()[0]
    assert json.loads(line)["object"]["rows"][0]["cells"] == ["", None]


@pytest.mark.usefixtures("marking")
@pytest.mark.rows("TAB-004", "RV-012")
def test_a_row_that_marks_the_end_of_initial_events_has_its_object(api: Client) -> None:
    widgets = serve(api)
    mark = {"k8s.io/initial-events-end": "true"}
    for name, value in (("a", "true"), ("b", "false")):
        body = widgets.make(name)
        body["metadata"]["annotations"] = dict.fromkeys(mark, value)
        api.post(widgets.path(), body).expect(201)
    query = "?watch=1&allowWatchBookmarks=1&timeoutSeconds=1&includeObject=None"
    lines = api.request("GET", widgets.path() + query, None, {"Accept": TABLE}).raw.splitlines()[:3]
    # upstream: a row has its object if HasInitialEventsEndBookmarkAnnotation returns true
    # Upstream calls this function for every object, not only for bookmarks.
    listed = api.get(widgets.path(), {"Accept": TABLE}, includeObject="None").expect(200)["rows"]
    first, second, bookmark = (json.loads(line)["object"]["rows"][0]["object"] for line in lines)
    assert [row["object"] for row in listed] == [first, second]
    assert (first["metadata"]["annotations"], second, bookmark["metadata"]["annotations"]) == (mark, None, mark)


@pytest.mark.rows("RV-009")
def test_a_watch_from_revision_00_begins_with_the_current_objects(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    with api.watch(widgets.path(), resourceVersion="00") as watch:
        assert brief(watch.next()) == ("ADDED", "a")


@pytest.mark.usefixtures("marking")
@pytest.mark.rows("RV-012")
def test_bookmarks_of_definitions_are_empty_definitions(api: Client) -> None:
    asked = DEFINITIONS + "?watch=1&allowWatchBookmarks=1&timeoutSeconds=1&labelSelector=no%3Dsuch"
    (bookmark, *_) = [json.loads(line)["object"] for line in api.request("GET", asked).raw.splitlines()]
    names = {"plural": "", "kind": ""}
    assert bookmark["spec"] == {"group": "", "names": names, "scope": "", "versions": None}
    assert bookmark["status"] == {"conditions": None, "acceptedNames": names, "storedVersions": None}
    line = api.request("GET", asked, None, {"Accept": TABLE}).raw.splitlines()[0]
    assert json.loads(line)["object"]["rows"][0]["cells"] == ["", "", "", "0001-01-01T00:00:00Z", "", "", "", False]
