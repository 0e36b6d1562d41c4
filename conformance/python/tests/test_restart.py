"""Acknowledged operations survive a stop and a crash."""

import time

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

from kew import NO_RETRIES, PATIENCE_SECONDS


@pytest.fixture(params=["stop", "kill"])
def restart(request, restartable):
    """Ends the server by a stop or a kill, and starts it again."""

    def restart():
        getattr(restartable, request.param)()
        restartable.start()

    return restart


@pytest.fixture
def connect(restartable, name):
    """A new client of the scenario's queue; after a restart the port differs."""
    clients = []

    def connect():
        text = restartable.connection_string
        client = QueueClient.from_connection_string(text, name, **NO_RETRIES)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


def test_queues_and_metadata(restartable, restart, name):
    text = restartable.connection_string
    with QueueServiceClient.from_connection_string(text, **NO_RETRIES) as service:
        for number in range(5):
            service.create_queue(f"{name}-{number}", metadata={"number": str(number)})
        service.delete_queue(f"{name}-1")
        service.get_queue_client(f"{name}-2").set_queue_metadata({"changed": "yes"})
        service.get_queue_client(f"{name}-3").set_queue_metadata()
    restart()
    text = restartable.connection_string
    with QueueServiceClient.from_connection_string(text, **NO_RETRIES) as service:
        listed = service.list_queues(include_metadata=True)
        assert {queue.name: queue.metadata or {} for queue in listed} == {
            f"{name}-0": {"number": "0"},
            f"{name}-2": {"changed": "yes"},
            f"{name}-3": {},
            f"{name}-4": {"number": "4"},
        }


def test_messages_and_their_order(restart, connect):
    queue = connect()
    queue.create_queue()
    sent = [queue.send_message(f"{number} <&> 🐦 " + "x" * number * 100) for number in range(40)]
    queue.delete_message(sent.pop(7))
    restart()
    queue = connect()
    assert queue.get_queue_properties().approximate_message_count == len(sent)
    received = list(queue.receive_messages(messages_per_page=32, visibility_timeout=600))
    described = [(m.id, m.content, m.inserted_on, m.expires_on) for m in received]
    assert described == [(m.id, m.content, m.inserted_on, m.expires_on) for m in sent]
    assert {message.dequeue_count for message in received} == {1}


def test_leases_receipts_and_counts(restart, connect):
    queue = connect()
    queue.create_queue()
    for text in ["deleted", "updated", "held", "free"]:
        queue.send_message(text)
    deleted = queue.receive_message(visibility_timeout=600)
    queue.delete_message(deleted)
    updated = queue.receive_message(visibility_timeout=600)
    old = updated.pop_receipt
    new = queue.update_message(updated.id, old, visibility_timeout=600, content="new").pop_receipt
    held = queue.receive_message(visibility_timeout=600)
    queue.send_message("later", visibility_timeout=600)
    restart()

    queue = connect()
    assert queue.get_queue_properties().approximate_message_count == 4
    assert [m.content for m in queue.receive_messages(visibility_timeout=600)] == ["free"]
    for identifier, receipt in [(deleted.id, deleted.pop_receipt), (updated.id, old)]:
        with pytest.raises(ResourceNotFoundError) as caught:
            queue.delete_message(identifier, receipt)
        assert caught.value.error_code == "MessageNotFound"
    queue.update_message(updated.id, new, visibility_timeout=0)
    again = queue.receive_message(visibility_timeout=600)
    assert (again.id, again.content, again.dequeue_count) == (updated.id, "new", 2)
    queue.delete_message(held)
    restart()

    queue = connect()
    assert queue.get_queue_properties().approximate_message_count == 3
    assert queue.receive_message() is None
    queue.delete_message(again)


def test_a_lease_ends_in_time_after_a_restart(restart, connect):
    queue = connect()
    queue.create_queue()
    queue.send_message("text")
    began = time.monotonic()
    first = queue.receive_message(visibility_timeout=3)
    restart()
    queue = connect()
    while (again := queue.receive_message(visibility_timeout=600)) is None:
        assert time.monotonic() < began + PATIENCE_SECONDS, "the message did not become visible"
        time.sleep(0.02)
    assert time.monotonic() - began > 2.5
    assert (again.id, again.dequeue_count) == (first.id, 2)


def test_an_expired_message_stays_away(restart, connect):
    queue = connect()
    queue.create_queue()
    queue.send_message("short", time_to_live=1)
    queue.send_message("stays")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(queue.peek_messages(max_messages=32)) > 1:
        assert time.monotonic() < deadline, "the message did not expire"
        time.sleep(0.05)
    restart()
    queue = connect()
    assert [message.content for message in queue.peek_messages(max_messages=32)] == ["stays"]


def test_a_clear_and_what_came_after_it(restart, connect):
    queue = connect()
    queue.create_queue()
    for _ in range(10):
        queue.send_message("before")
    queue.clear_messages()
    queue.send_message("after")
    restart()
    queue = connect()
    assert queue.get_queue_properties().approximate_message_count == 1
    assert [message.content for message in queue.receive_messages()] == ["after"]


def test_many_restarts(restart, connect):
    queue = connect()
    queue.create_queue()
    for number in range(5):
        queue.send_message(str(number))
        restart()
        queue = connect()
        assert queue.get_queue_properties().approximate_message_count == number + 1
    messages = list(queue.receive_messages(visibility_timeout=600))
    assert [message.content for message in messages] == list("01234")
    assert len({message.id for message in messages}) == 5
