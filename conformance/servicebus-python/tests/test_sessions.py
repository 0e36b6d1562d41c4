"""Sessions: accepted, locked, with state."""

import datetime
import threading
import time

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, AutoLockRenewer
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from conftest import drop, fresh, missing, take, texts


def put(client, queue, *messages):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([Message(body, session_id=session) for session, body in messages])


def test_sessions_are_accepted_in_order_and_by_one(client):
    queue = fresh("session")
    put(client, queue, ("b", "1"), ("a", "2"), ("b", "3"))
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as first:
        assert first.session.session_id == "b"
        now = datetime.datetime.now(datetime.timezone.utc)
        assert 30 < (first.session.locked_until_utc - now).total_seconds() < 90
        with pytest.raises(SessionCannotBeLockedError):
            client.get_queue_receiver(queue, session_id="b").__enter__()
        assert texts(first.peek_messages(10)) == ["1", "3"]
        found = [message for _ in range(2) for message in take(first)]
        assert texts(found) == ["1", "3"]
        first.session.set_state(b"so far")
        assert first.session.get_state() == b"so far"
        until = first.session.locked_until_utc
        time.sleep(1)
        assert first.session.renew_lock() > until
        first.defer_message(found[0])
        (deferred,) = first.receive_deferred_messages(found[0].sequence_number)
        first.complete_message(deferred)
        with client.get_queue_receiver(queue, session_id="a") as second:
            drop(second)
    # A released session is available at once, and the delivery of its message was not counted.
    with client.get_queue_receiver(queue, session_id="b") as again:
        message = drop(again)
        assert (str(message), message.delivery_count) == ("3", 0)
        assert again.session.get_state() == b"so far"
        again.session.set_state(None)
        assert not again.session.get_state()


def test_no_session_is_a_timeout(client):
    receiver = client.get_queue_receiver(fresh("session"), session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)
    began = time.monotonic()
    with pytest.raises(OperationTimeoutError), receiver:
        receiver.receive_messages(1)
    assert 1 < time.monotonic() - began < 20


def test_a_wait_for_a_session_ends_with_a_message(door, client):
    queue = fresh("session")
    late = threading.Timer(0.5, put, [client, queue, ("late", "x")])
    late.start()
    with door.connect() as waiting:
        with waiting.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as receiver:
            assert receiver.session.session_id == "late"
    late.join()


def test_a_session_lock_is_renewed_by_the_sdk(client):
    queue = fresh("renewed-session")
    put(client, queue, ("s", "x"))
    with client.get_queue_receiver(queue, session_id="s") as receiver, AutoLockRenewer() as renewer:
        first = receiver.session.locked_until_utc
        renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
        (message,) = take(receiver)
        while datetime.datetime.now(datetime.timezone.utc) < first + datetime.timedelta(seconds=1):
            time.sleep(0.5)
        receiver.complete_message(message)


def test_a_session_lock_that_is_lost_is_told(door, client):
    queue = fresh("brief-session")
    put(client, queue, ("s", "x"))
    with client.get_queue_receiver(queue, session_id="s") as receiver:
        (message,) = take(receiver)
        with door.connect() as other:
            with other.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=60) as next_one:
                (again,) = take(next_one)
                assert again.delivery_count == 1
                with pytest.raises((SessionLockLostError, ServiceBusError)):
                    receiver.complete_message(message)
                next_one.complete_message(again)


def test_sessions_are_listed(client):
    queue = fresh("session")
    assert list(client.list_queue_sessions(queue)) == []
    names = [f"s{number:03}" for number in range(130)]
    put(client, queue, *[(name, "x") for name in names])
    assert sorted(client.list_queue_sessions(queue)) == names
    since = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=1)
    with client.get_queue_receiver(queue, session_id="s005") as receiver:
        receiver.session.set_state(b"x")
    assert list(client.list_queue_sessions(queue, state_updated_after=since)) == ["s005"]


def test_what_does_not_fit_sessions_is_refused(client):
    queue = fresh("session")
    with pytest.raises(ServiceBusError, match="not-allowed|requires sessions"):
        client.get_queue_receiver(queue).receive_messages(1, max_wait_time=20)
    with pytest.raises(ServiceBusError), client.get_queue_sender(queue) as sender:
        sender.send_messages(Message("x"))
    with pytest.raises(ServiceBusError):
        client.get_queue_receiver(fresh(), session_id="x").receive_messages(1, max_wait_time=20)
    with missing("absent"):
        client.get_queue_receiver("absent", session_id="x").receive_messages(1, max_wait_time=20)
