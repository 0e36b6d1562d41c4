"""Kombu, with which Celery sends its tasks: its transport uses the SDK, with options of its own."""

import socket
import time

import pytest
from azure.servicebus.exceptions import OperationTimeoutError
from conftest import assert_emptied, fresh
from kombu import Connection, Consumer, Exchange, Producer, Queue


@pytest.fixture
def connect(kombu_url):
    connections = []

    def connect(**options):
        options = {"wait_time_seconds": 1, "retry_total": 0, **options}
        connections.append(Connection(kombu_url, transport_options=options))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.release()


def has_nothing(simple):
    """Whether no task is there. Kombu gives the SDK a second for it, in which a busy machine may not open a link."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            simple.get(block=False)
        except simple.Empty:
            return True
        except OperationTimeoutError:
            continue
        return False
    raise AssertionError("no link was opened")


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
        assert_emptied(lambda: queue(channel).queue_declare(passive=True).message_count)


def test_a_task_that_nobody_finishes_is_delivered_again(connect):
    name = fresh("x-kombu")
    with connect(peek_lock_seconds=15).SimpleQueue(name) as simple:
        simple.put({"number": 1})
        began = time.monotonic()
        # It stays locked until its lock expires.
        simple.get(timeout=20).requeue()
        again = simple.get(timeout=60)
        assert again.payload == {"number": 1}
        assert time.monotonic() - began > 14.5
        again.ack()
        assert_emptied(simple.qsize)


def test_a_task_that_takes_longer_than_its_lock_is_done_once(connect):
    name = fresh("x-kombu")
    connection = connect(peek_lock_seconds=15, use_lock_renewal=True)
    with connection.SimpleQueue(name) as simple:
        simple.put({"number": 1})
        task = simple.get(timeout=20)
        time.sleep(17)
        with connect().SimpleQueue(name) as other:
            assert has_nothing(other)
        task.ack()
        assert_emptied(simple.qsize)


def test_queues_are_counted_purged_and_deleted(connect):
    name = fresh("x-kombu")
    with connect().channel() as channel:
        queue = Queue(name, Exchange(name), routing_key="tasks")(channel)
        queue.declare()
        for number in range(12):
            Producer(channel, queue.exchange).publish({"n": number}, routing_key="tasks")
        assert queue.queue_declare(passive=True).message_count == 12

        # It gives each ten messages 200 ms, and stops if that is not enough.
        def purged():
            assert queue.purge() <= 12
            return queue.queue_declare(passive=True).message_count

        assert_emptied(purged)
        queue.delete()
        management = channel.queue_mgmt_service
        assert [one.name for one in management.list_queues() if one.name == name] == []
