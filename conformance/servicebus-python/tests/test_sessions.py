"""Sessions: accepted, locked, with state."""

import time

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
)


def put(client, *messages):
    with client.get_queue_sender("sessions") as sender:
        sender.send_messages([Message(body, session_id=session) for session, body in messages])


def test_sessions_are_accepted_in_order_and_by_one(client):
    put(client, ("b", "1"), ("a", "2"), ("b", "3"))
    with client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION) as first:
        assert first.session.session_id == "b"
        with pytest.raises(SessionCannotBeLockedError):
            client.get_queue_receiver("sessions", session_id="b").__enter__()
        found = [message for _ in range(2) for message in first.receive_messages(1, max_wait_time=5)]
        assert [str(message) for message in found] == ["1", "3"]
        first.session.set_state(b"so far")
        assert first.session.get_state() == b"so far"
        until = first.session.locked_until_utc
        time.sleep(1)
        assert first.session.renew_lock() > until
        for message in found:
            first.complete_message(message)
        with client.get_queue_receiver("sessions", session_id="a") as second:
            (message,) = second.receive_messages(1, max_wait_time=5)
            second.complete_message(message)
    with client.get_queue_receiver("sessions", session_id="b") as again:
        assert again.session.get_state() == b"so far"
        again.session.set_state(None)
        assert not again.session.get_state()


def test_no_session_is_a_timeout(client):
    receiver = client.get_queue_receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2)
    with pytest.raises(OperationTimeoutError), receiver:
        receiver.receive_messages(1)


def test_what_does_not_fit_sessions_is_refused(client):
    with pytest.raises(ServiceBusError):
        client.get_queue_receiver("sessions").receive_messages(1, max_wait_time=1)
    with pytest.raises(ServiceBusError), client.get_queue_sender("sessions") as sender:
        sender.send_messages(Message("x"))
    with pytest.raises(ServiceBusError):
        client.get_queue_receiver("send", session_id="x").receive_messages(1, max_wait_time=1)
