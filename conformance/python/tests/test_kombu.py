"""Kombu, with which Celery sends its tasks: its transport uses the SDK, with options of its own."""

import socket

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

from kew import TLS


@pytest.fixture
def connection(door, monkeypatch):
    """With only the key: with this account's name in the address, Kombu mistakes the credential for the key."""
    if door.scheme == "https":
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(TLS / "ca.pem"))
    url = f"azurestoragequeues://{door.key}@{door.url()}"
    with Connection(url, transport_options={"polling_interval": 0.05}) as connection:
        yield connection


def test_a_task_is_sent_and_done(connection, name):
    exchange = Exchange(name, type="direct")
    queue = Queue(name, exchange, routing_key="tasks")
    done = []

    def work(body, message):
        message.ack()
        done.append((body, message.headers))

    with connection.channel() as channel:
        task = {"task": "add", "args": [1, "<&> 🐦"], "kwargs": {"deep": {"list": [None, 2.5]}}}
        Producer(channel, exchange, serializer="json").publish(
            task, routing_key="tasks", declare=[queue], headers={"id": "7"}
        )
        with Consumer(channel, [queue], callbacks=[work]):
            connection.drain_events(timeout=20)
            assert done == [(task, {"id": "7"})]
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.2)


def test_a_task_that_is_put_back_is_delivered_again(connection, name):
    with connection.SimpleQueue(name) as simple:
        simple.put({"number": 1})
        simple.get(timeout=20).requeue()
        again = simple.get(timeout=20)
        assert again.payload == {"number": 1}
        again.ack()
        with pytest.raises(simple.Empty):
            simple.get(block=False)


def test_queues_are_counted_purged_and_deleted(connection, name, service):
    with connection.channel() as channel:
        queue = Queue(name, Exchange(name), routing_key="tasks")(channel)
        queue.declare()
        for number in range(3):
            Producer(channel, queue.exchange).publish({"n": number}, routing_key="tasks")
        assert queue.queue_declare(passive=True).message_count == 3
        assert queue.purge() == 3
        assert queue.queue_declare(passive=True).message_count == 0
        queue.delete()
        assert [one.name for one in service.list_queues(name_starts_with=name)] == []
