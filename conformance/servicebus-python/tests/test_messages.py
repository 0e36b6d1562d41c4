"""Messages: sent, received, settled."""

import datetime
import signal
import time

import pytest
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from conftest import connect


def put(client, queue, *messages):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([Message(message) if isinstance(message, (str, bytes)) else message for message in messages])


def take(receiver, count=1):
    messages = []
    while len(messages) < count:
        found = receiver.receive_messages(count - len(messages), max_wait_time=5)
        assert found, f"{len(messages)} of {count} messages"
        messages += found
    return messages


def is_empty(receiver):
    return receiver.receive_messages(1, max_wait_time=1) == []


def test_send_receive_complete(client):
    put(client, "send", "one", "two")
    with client.get_queue_receiver("send") as receiver:
        first, second = take(receiver, 2)
        assert [str(first), str(second)] == ["one", "two"]
        assert first.delivery_count == 0 and first.sequence_number < second.sequence_number
        assert first.message_id and first.lock_token != second.lock_token
        now = datetime.datetime.now(datetime.timezone.utc)
        assert abs(now - first.enqueued_time_utc) < datetime.timedelta(minutes=1)
        assert now < first.locked_until_utc
        for message in (first, second):
            receiver.complete_message(message)
        assert is_empty(receiver)


def test_properties_come_back(client):
    properties = {"text": "ä", "number": 1 << 30, "truth": True, "real": 1.5}
    sent = Message(
        "x", message_id="i", subject="s", content_type="c", correlation_id="k", to="t", reply_to="r",
        application_properties=properties, time_to_live=datetime.timedelta(minutes=5),
    )
    put(client, "props", sent)
    with client.get_queue_receiver("props") as receiver:
        (message,) = take(receiver)
        names = ["message_id", "subject", "content_type", "correlation_id", "to", "reply_to", "time_to_live"]
        assert [getattr(message, name) for name in names] == [getattr(sent, name) for name in names]
        found = {key.decode(): value for key, value in message.application_properties.items()}
        found["text"] = found["text"].decode()
        assert found == properties
        receiver.complete_message(message)


def test_a_batch_is_taken_apart(client):
    with client.get_queue_sender("batch") as sender:
        batch = sender.create_message_batch()
        for number in range(50):
            batch.add_message(Message(str(number)))
        sender.send_messages(batch)
    with client.get_queue_receiver("batch", prefetch_count=100) as receiver:
        messages = take(receiver, 50)
        assert [str(message) for message in messages] == [str(number) for number in range(50)]
        for message in messages:
            receiver.complete_message(message)
        assert is_empty(receiver)


def test_large_messages(client):
    body = bytes(range(256)) * 3900
    put(client, "large", body)
    with client.get_queue_receiver("large") as receiver:
        (message,) = take(receiver)
        assert b"".join(message.body) == body
        receiver.complete_message(message)
    with pytest.raises(MessageSizeExceededError):
        put(client, "large", b"x" * (1 << 20))


def test_abandon_counts_and_ends_in_the_dead_letters(client):
    put(client, "abandon", "x")
    with client.get_queue_receiver("abandon") as receiver:
        for count in range(3):
            (message,) = take(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message)
        assert is_empty(receiver)
    with client.get_queue_receiver("abandon", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        (message,) = take(letters)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"
        letters.complete_message(message)


def test_dead_letter_with_reason(client):
    put(client, "letters", Message("x", application_properties={"kept": 1}))
    with client.get_queue_receiver("letters") as receiver:
        (message,) = take(receiver)
        receiver.dead_letter_message(message, reason="no good", error_description="at all")
        assert is_empty(receiver)
    with client.get_queue_receiver("letters", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        (message,) = take(letters)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("no good", "at all")
        assert message.application_properties[b"kept"] == 1
        letters.complete_message(message)
        assert is_empty(letters)


def test_a_lost_lock_is_told(client, monkeypatch):
    put(client, "lost", "x")
    with client.get_queue_receiver("lost") as receiver:
        (message,) = take(receiver)
        time.sleep(5.5)
        # The SDK would not ask: its own clock says so, too.
        monkeypatch.setattr(type(message), "_lock_expired", False)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        (again,) = take(receiver)
        assert again.delivery_count == 1
        receiver.complete_message(again)


def test_receive_and_delete(client):
    put(client, "delete", "x", "y")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("delete", receive_mode=mode) as receiver:
        assert [str(message) for message in take(receiver, 2)] == ["x", "y"]
    with client.get_queue_receiver("delete") as receiver:
        assert is_empty(receiver)


def test_a_receiver_that_waits_is_served_at_once(client):
    with client.get_queue_receiver("wait") as receiver:
        assert is_empty(receiver)
        put(client, "wait", "x")
        (message,) = take(receiver)
        receiver.complete_message(message)


def test_what_was_prefetched_and_not_seen_does_not_count(client):
    put(client, "release", "x", "y")
    with client.get_queue_receiver("release", prefetch_count=10) as receiver:
        receiver.complete_message(take(receiver)[0])
    with client.get_queue_receiver("release") as receiver:
        (message,) = take(receiver)
        assert (str(message), message.delivery_count) == ("y", 0)
        receiver.complete_message(message)


def test_peek_shows_all_states(client):
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    with client.get_queue_receiver("peek") as receiver, client.get_queue_sender("peek") as sender:
        assert receiver.peek_messages(5) == []
        put(client, "peek", "active", "deferred")
        sender.schedule_messages(Message("scheduled"), later)
        first, second = take(receiver, 2)
        receiver.abandon_message(first)
        receiver.defer_message(second)
        states = [(str(message), message.state.name) for message in receiver.peek_messages(5, sequence_number=1)]
        assert states == [("active", "ACTIVE"), ("deferred", "DEFERRED"), ("scheduled", "SCHEDULED")]


def test_schedule_and_cancel(client):
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)
    later = soon + datetime.timedelta(hours=1)
    with client.get_queue_sender("schedule") as sender, client.get_queue_receiver("schedule") as receiver:
        numbers = sender.schedule_messages([Message("never"), Message("ever")], later)
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
        sender.schedule_messages(Message("soon"), soon)
        assert is_empty(receiver)
        (message,) = take(receiver)
        assert str(message) == "soon" and datetime.datetime.now(datetime.timezone.utc) >= soon
        receiver.complete_message(message)


def test_defer_and_receive_by_number(client):
    put(client, "defer", "x")
    with client.get_queue_receiver("defer") as receiver:
        (message,) = take(receiver)
        receiver.defer_message(message)
        assert is_empty(receiver)
        (again,) = receiver.receive_deferred_messages(message.sequence_number)
        assert str(again) == "x"
        receiver.complete_message(again)
        with pytest.raises(ServiceBusError):
            receiver.receive_deferred_messages(message.sequence_number)


def test_renew(client):
    put(client, "renew", "x")
    with client.get_queue_receiver("renew") as receiver:
        (message,) = take(receiver)
        time.sleep(3)
        until = message.locked_until_utc
        assert receiver.renew_message_lock(message) > until
        time.sleep(3)
        receiver.complete_message(message)
        assert is_empty(receiver)


def test_an_absent_queue_is_named(client):
    with pytest.raises(MessagingEntityNotFoundError, match="absent"):
        client.get_queue_receiver("absent").receive_messages(1, max_wait_time=1)
    with pytest.raises(MessagingEntityNotFoundError):
        put(client, "absent", "x")


def test_a_wrong_key_is_refused(server):
    text = server.connection_string.replace("SAS_KEY_VALUE", "SAS_KEY_VALUF")
    client = type(connect(server)).from_connection_string(text, retry_total=0)
    with client, pytest.raises((ServiceBusAuthenticationError, ServiceBusConnectionError)):
        put(client, "send", "x")


def test_accepted_messages_outlive_a_kill(restartable):
    with connect(restartable) as client:
        put(client, "kill", *[str(number) for number in range(20)])
    restartable.stop(signal.SIGKILL)
    restartable.start()
    with connect(restartable) as client, client.get_queue_receiver("kill") as receiver:
        assert [str(message) for message in take(receiver, 20)] == [str(number) for number in range(20)]
