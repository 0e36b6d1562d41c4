"""Bearer tokens, and signatures of a user. The SDK sends tokens only over HTTPS."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.storage.queue import AccessPolicy, QueueClient, QueueServiceClient, generate_queue_sas

from doors import OVER_HTTPS
from issuer import TENANT, USER, Credential

CONTRIBUTOR = "StorageQueueDataContributor"
READER = "StorageQueueDataReader"


pytestmark = OVER_HTTPS


@pytest.fixture
def as_user(door, issuer):
    """The service, with a token."""
    clients = []

    def as_user(*roles, **claims):
        credential = Credential(issuer, *roles, **claims)
        clients.append(QueueServiceClient(door.url(), credential=credential, **door.options))
        return clients[-1]

    yield as_user
    for client in clients:
        client.close()


def test_a_token_of_a_contributor(as_user, name):
    service = as_user(CONTRIBUTOR)
    with service.create_queue(name) as queue:
        queue.send_message("text")
        received = queue.receive_message()
        assert received.content == "text"
        queue.delete_message(received)
        assert [one.name for one in service.list_queues(name_starts_with=name)] == [name]
    service.delete_queue(name)


def test_a_token_of_a_reader(as_user, queue, refused):
    queue.send_message("text")
    reader = as_user(READER).get_queue_client(queue.queue_name)
    assert [one.content for one in reader.peek_messages()] == ["text"]
    for operation in [
        lambda: reader.send_message("x"),
        reader.receive_message,
        reader.clear_messages,
        reader.delete_queue,
    ]:
        with refused(403, "AuthorizationPermissionMismatch"):
            operation()


def test_a_token_for_policies_and_properties(as_user, queue, refused):
    contributor = as_user(CONTRIBUTOR)
    client = contributor.get_queue_client(queue.queue_name)
    client.set_queue_access_policy({"a": AccessPolicy(permission="r")})
    assert list(client.get_queue_access_policy()) == ["a"]
    assert contributor.get_service_properties()["cors"] is not None
    reader = as_user(READER)
    client = reader.get_queue_client(queue.queue_name)
    for operation in [
        lambda: client.set_queue_access_policy({}),
        client.get_queue_access_policy,
        reader.get_service_properties,
    ]:
        with refused(403, "AuthorizationPermissionMismatch"):
            operation()


@pytest.mark.parametrize(
    "claims",
    [{"aud": "https://other.example"}, {"iss": "https://other.example"}, {"exp": 1}],
    ids=["audience", "issuer", "time"],
)
def test_tokens_that_are_not_good(as_user, queue, claims):
    user = as_user(CONTRIBUTOR, **claims).get_queue_client(queue.queue_name)
    with pytest.raises(ClientAuthenticationError) as caught:
        user.get_queue_properties()
    assert caught.value.status_code == 401
    # The SDK reads the challenge, and fails if it is incomplete.
    challenge = caught.value.response.headers["WWW-Authenticate"]
    assert challenge.startswith("Bearer ") and "authorization_uri=" in challenge


def test_a_signature_of_a_user(as_user, door, queue, refused):
    now = datetime.now(timezone.utc)
    key = as_user(CONTRIBUTOR).get_user_delegation_key(
        start=now, expiry=now + timedelta(hours=1)
    )
    assert (key.signed_oid, key.signed_tid) == (USER, TENANT)
    sas = generate_queue_sas(
        door.account,
        queue.queue_name,
        user_delegation_key=key,
        permission="ra",
        expiry=now + timedelta(minutes=10),
    )
    with QueueClient(door.url(), queue.queue_name, credential=sas, **door.options) as signed:
        signed.send_message("text")
        assert [one.content for one in signed.peek_messages()] == ["text"]
        with refused(403, "AuthorizationPermissionMismatch"):
            signed.receive_message()


def test_a_user_signs_no_more_than_they_may(as_user, door, queue):
    now = datetime.now(timezone.utc)
    key = as_user(READER).get_user_delegation_key(
        start=now, expiry=now + timedelta(hours=1)
    )
    sas = generate_queue_sas(
        door.account,
        queue.queue_name,
        user_delegation_key=key,
        permission="rap",
        expiry=now + timedelta(minutes=10),
    )
    with QueueClient(door.url(), queue.queue_name, credential=sas, **door.options) as signed:
        assert signed.peek_messages() == []
        with pytest.raises(HttpResponseError) as caught:
            signed.send_message("text")
        assert caught.value.status_code == 403
