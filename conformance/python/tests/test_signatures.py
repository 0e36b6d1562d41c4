"""Shared access signatures made by the SDK."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import (
    QueueClient,
    QueueServiceClient,
    generate_account_sas,
    generate_queue_sas,
)

PAST, SOON = timedelta(minutes=-10), timedelta(minutes=10)


def when(difference):
    return datetime.now(timezone.utc) + difference


@pytest.fixture
def by(door):
    """A client of a queue with only a signature."""
    clients = []

    def by(name, sas):
        clients.append(QueueClient(door.url(), name, credential=sas, **door.options))
        return clients[-1]

    yield by
    for client in clients:
        client.close()


@pytest.fixture
def signed(door, queue, by):
    """The queue of the scenario with its own signature."""

    def signed(permission="r", expiry=SOON, start=None, **more):
        sas = generate_queue_sas(
            door.account,
            queue.queue_name,
            door.key,
            permission=permission,
            expiry=when(expiry),
            start=when(start) if start else None,
            **more,
        )
        return by(queue.queue_name, sas)

    return signed


# The operation, the rights that an account's signature needs for it, and whether a queue's can allow it.
OPERATIONS = {
    "properties": ("c", "r", lambda q, m: q.get_queue_properties()),
    "metadata": ("c", "w", lambda q, m: q.set_queue_metadata({"a": "b"})),
    "peek": ("o", "r", lambda q, m: q.peek_messages()),
    "send": ("o", "a", lambda q, m: q.send_message("text")),
    "update": ("o", "u", lambda q, m: q.update_message(m, visibility_timeout=0)),
    "receive": ("o", "p", lambda q, m: q.receive_message()),
    "remove": ("o", "p", lambda q, m: q.delete_message(m)),
    "clear": ("o", "d", lambda q, m: q.clear_messages()),
    "delete": ("c", "d", lambda q, m: q.delete_queue()),
}
ADMINISTRATION = {"metadata", "clear", "delete"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_accounts_signature(door, queue, by, refused, operation):
    kind, letter, run = OPERATIONS[operation]
    message = queue.send_message("text")

    def attempt(kinds, letters):
        sas = generate_account_sas(door.account, door.key, kinds, letters, when(SOON))
        run(by(queue.queue_name, sas), message)

    with refused(403, "AuthorizationPermissionMismatch"):
        attempt("sco", "rwdlacup".replace(letter, ""))
    with refused(403, "AuthorizationResourceTypeMismatch"):
        attempt("sco".replace(kind, ""), letter)
    attempt(kind, letter)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_queues_signature(queue, signed, refused, operation):
    _, letter, run = OPERATIONS[operation]
    message = queue.send_message("text")
    if operation in ADMINISTRATION:
        with pytest.raises(HttpResponseError) as caught:
            run(signed("raup"), message)
        assert caught.value.status_code == 403
        return
    with refused(403, "AuthorizationPermissionMismatch"):
        run(signed("raup".replace(letter, "")), message)
    run(signed(letter, start=PAST), message)


def test_a_signature_of_another_queue(door, service, name, by, refused):
    with service.create_queue(f"{name}-other"):
        sas = generate_queue_sas(
            door.account, name, door.key, permission="raup", expiry=when(SOON)
        )
        with refused(403, "AuthenticationFailed"):
            by(f"{name}-other", sas).get_queue_properties()


def test_when_where_and_how_a_signature_is_good(door, signed, refused):
    with refused(403, "AuthenticationFailed"):
        signed(expiry=PAST).get_queue_properties()
    with refused(403, "AuthenticationFailed"):
        signed(start=SOON / 2).get_queue_properties()
    signed(ip="127.0.0.1").get_queue_properties()
    signed(ip="127.0.0.0-127.0.0.255").get_queue_properties()
    with refused(403, "AuthorizationSourceIPMismatch"):
        signed(ip="192.0.2.1").get_queue_properties()
    signed(protocol="https,http").get_queue_properties()
    secret = signed(protocol="https")
    if door.scheme == "https":
        secret.get_queue_properties()
    else:
        with refused(403, "AuthorizationProtocolMismatch"):
            secret.get_queue_properties()


def test_an_accounts_signature_for_the_service(door, name, refused):
    sas = generate_account_sas(door.account, door.key, "sco", "rwdlacup", when(SOON))
    with QueueServiceClient(door.url(), credential=sas, **door.options) as service:
        with service.create_queue(name):
            assert [queue.name for queue in service.list_queues(name_starts_with=name)] == [name]
        service.delete_queue(name)
