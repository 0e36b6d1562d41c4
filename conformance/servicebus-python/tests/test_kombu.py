"""Kombu, by which Celery sends its tasks: its transport over the SDK, whose options are not ours."""

import os
import socket
import time

import certifi
import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

from conftest import TLS, Door, fresh

# Kombu takes one that does not end in .net for a namespace in the cloud.
HOST = os.environ["KEW_BUS_NAME"]

pytestmark = pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="it creates its queues by port 443")


@pytest.fixture
def connect(monkeypatch):
    """Where a name server, and a store of certificates that are trusted, would do the same."""
    resolve = socket.getaddrinfo

    def resolve_here(host, *arguments, **named):
        return resolve(os.environ["KEW_BUS_HOST"] if host == HOST else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_here)
    monkeypatch.setattr(certifi, "where", lambda: str(TLS / "ca.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(TLS / "ca.pem"))
    given = Door("amqps", os.environ["KEW_BUS_CONNECTION_STRING"]).connection_string
    parts = dict(part.split("=", 1) for part in given.split(";") if part)
    url = f"azureservicebus://{parts['SharedAccessKeyName']}:{parts['SharedAccessKey']}@{HOST}"
    connections = []

    def connect(**options):
        options = {"wait_time_seconds": 1, "retry_total": 0, **options}
        connections.append(Connection(url, transport_options=options))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.release()


def test_a_task_is_sent_and_done(connect):
    name = fresh("x-kombu")
    exchange = Exchange(name, type="direct")
    queue = Queue(name, exchange, routing_key="tasks")
    done = []

    def work(body, message):
        message.ack()
        done.append((body, message.headers))

    with connect().channel() as channel:
        task = {"task": "add", "args": [1, "<&> 🐦"], "kwargs": {"deep": {"list": [None, 2.5]}}}
        Producer(channel, exchange, serializer="json").publish(
            task, routing_key="tasks", declare=[queue], headers={"id": "7"}
        )
        with Consumer(channel, [queue], callbacks=[work]):
            channel.connection.client.drain_events(timeout=20)
            assert done == [(task, {"id": "7"})]
            with pytest.raises(socket.timeout):
                channel.connection.client.drain_events(timeout=1)


def test_a_task_that_nobody_finishes_is_delivered_again(connect):
    name = fresh("x-kombu")
    with connect(peek_lock_seconds=5).SimpleQueue(name) as simple:
        simple.put({"number": 1})
        began = time.monotonic()
        # It is left to its lock.
        simple.get(timeout=20).requeue()
        again = simple.get(timeout=20)
        assert again.payload == {"number": 1}
        assert time.monotonic() - began > 4.5
        again.ack()
        with pytest.raises(simple.Empty):
            simple.get(block=False)


def test_a_task_that_takes_longer_than_its_lock_is_done_once(connect):
    name = fresh("x-kombu")
    connection = connect(peek_lock_seconds=10, use_lock_renewal=True)
    with connection.SimpleQueue(name) as simple:
        simple.put({"number": 1})
        task = simple.get(timeout=20)
        time.sleep(12)
        with connect().SimpleQueue(name) as other, pytest.raises(other.Empty):
            other.get(block=False)
        task.ack()
        with pytest.raises(simple.Empty):
            simple.get(block=False)
        assert simple.qsize() == 0


def test_queues_are_counted_purged_and_deleted(connect):
    name = fresh("x-kombu")
    with connect().channel() as channel:
        queue = Queue(name, Exchange(name), routing_key="tasks")(channel)
        queue.declare()
        for number in range(12):
            Producer(channel, queue.exchange).publish({"n": number}, routing_key="tasks")
        assert queue.queue_declare(passive=True).message_count == 12
        assert queue.purge() == 12
        assert queue.queue_declare(passive=True).message_count == 0
        queue.delete()
        management = channel.queue_mgmt_service
        assert [one.name for one in management.list_queues() if one.name == name] == []
