"""Built-in kinds with the official Python client.

This client writes JSON and times in its own format.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the generated client emits warnings
    pytest.importorskip("kubernetes", reason="the official Python client is not installed")
    from kubernetes import client, config, watch

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def connection(kubeconfig: str) -> Iterator[Any]:
    """A client connection with the kubeconfig of the server."""
    with config.new_client_from_config(kubeconfig) as opened:
        yield opened


@pytest.fixture
def place(connection: Any) -> Iterator[str]:
    """A new namespace."""
    core, name = client.CoreV1Api(connection), f"python-{secrets.token_hex(3)}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    yield name
    core.delete_namespace(name)


@pytest.mark.rows("KUB-006")
def test_python_client_writes_and_watches_secrets(connection: Any, place: str) -> None:
    core = client.CoreV1Api(connection)
    wanted = client.V1Secret(metadata=client.V1ObjectMeta(name="s"), string_data={"a": "b"})
    made = core.create_namespaced_secret(place, wanted)
    assert (made.data, made.type) == ({"a": "Yg=="}, "Opaque")
    changed = core.patch_namespaced_secret("s", place, {"stringData": {"c": "d"}})
    assert changed.data == {"a": "Yg==", "c": "ZA=="}
    seen = watch.Watch().stream(core.list_namespaced_secret, place, timeout_seconds=1)
    assert [(event["type"], event["object"].metadata.name) for event in seen] == [("ADDED", "s")]
    core.delete_collection_namespaced_secret(place)
    assert core.list_namespaced_secret(place).items == []


@pytest.mark.rows("KUB-006")
def test_python_client_replaces_the_holder_of_a_lease(connection: Any, place: str) -> None:
    leases = client.CoordinationV1Api(connection)
    now = datetime.now(UTC).replace(microsecond=5)
    spec = client.V1LeaseSpec(holder_identity="one", lease_duration_seconds=15, acquire_time=now, renew_time=now)
    lease = leases.create_namespaced_lease(place, client.V1Lease(metadata=client.V1ObjectMeta(name="l"), spec=spec))
    assert lease.spec.renew_time == now
    stale = leases.read_namespaced_lease("l", place)
    lease.spec.holder_identity, lease.spec.lease_transitions = "two", 1
    assert leases.replace_namespaced_lease("l", place, lease).spec.lease_transitions == 1
    with pytest.raises(client.ApiException) as lost:
        leases.replace_namespaced_lease("l", place, stale)
    assert lost.value.status == 409


@pytest.mark.rows("KUB-006", "SEL-001")
def test_python_client_creates_events_as_operators_do(connection: Any, place: str) -> None:
    core, events = client.CoreV1Api(connection), client.EventsV1Api(connection)
    now = datetime.now(UTC).replace(microsecond=5)
    about = client.V1ObjectReference(kind="Secret", name="s", namespace=place)
    told = {"reason": "R", "message": "m", "type": "Normal", "action": "Action?"}
    who = {"reporting_component": "kopf", "reporting_instance": "dev"}
    when = {"first_timestamp": now, "last_timestamp": now, "event_time": now}
    meta = client.V1ObjectMeta(generate_name="kopf-event-")
    made = core.create_namespaced_event(
        place, client.CoreV1Event(metadata=meta, involved_object=about, **told, **who, **when)
    )
    assert made.event_time == now
    assert [event.note for event in events.list_namespaced_event(place).items] == ["m"]
    selector = f"involvedObject.name=s,involvedObject.namespace={place}"
    assert [event.message for event in core.list_event_for_all_namespaces(field_selector=selector).items] == ["m"]


@pytest.mark.rows("AUT-001", "AUT-003")
def test_python_client_creates_reviews_and_tokens(connection: Any, place: str) -> None:
    access, tokens = client.AuthorizationV1Api(connection), client.AuthenticationV1Api(connection)
    asked = client.V1ResourceAttributes(verb="get", resource="secrets", namespace=place)
    spec = client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked)
    assert access.create_self_subject_access_review(client.V1SelfSubjectAccessReview(spec=spec)).status.allowed
    assert tokens.create_self_subject_review(client.V1SelfSubjectReview()).status.user_info.username
    core = client.CoreV1Api(connection)
    core.create_namespaced_service_account(place, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="sa")))
    wanted = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
    token = core.create_namespaced_service_account_token("sa", place, wanted).status.token
    seen = tokens.create_token_review(client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))).status
    assert (seen.authenticated, seen.user.username) == (True, f"system:serviceaccount:{place}:sa")
