"""Messages: sent, received, settled."""

import datetime
import threading
import time
import uuid

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
)
from conftest import drop, fresh, is_empty, missing, partner, put, take, texts

DELETING = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}
LETTERS = {"sub_queue": ServiceBusSubQueue.DEAD_LETTER}


def test_send_receive_complete(client):
    queue = fresh()
    put(client, queue, "one", "two")
    with client.get_queue_receiver(queue) as receiver:
        first, second = take(receiver, 2)
        assert texts([first, second]) == ["one", "two"]
        assert first.delivery_count == 0 and first.sequence_number < second.sequence_number
        assert first.message_id and first.lock_token != second.lock_token
        now = datetime.datetime.now(datetime.timezone.utc)
        assert abs(now - first.enqueued_time_utc) < datetime.timedelta(minutes=1)
        assert now < first.locked_until_utc
        for message in (first, second):
            receiver.complete_message(message)
        assert is_empty(receiver)


def test_properties_come_back(client):
    queue = fresh()
    properties = {"text": "ä", "number": 1 << 30, "truth": True, "real": 1.5}
    properties["uuid"] = uuid.UUID(int=7)
    sent = Message(
        "x", message_id="i", subject="s", content_type="c", correlation_id="k", to="t", reply_to="r",
        session_id="p", partition_key="p", reply_to_session_id="rs",
        application_properties=properties, time_to_live=datetime.timedelta(minutes=5),
    )
    put(client, queue, sent)
    with client.get_queue_receiver(queue) as receiver:
        message = drop(receiver)
        names = ["message_id", "subject", "content_type", "correlation_id", "to", "reply_to", "time_to_live"]
        names += ["session_id", "partition_key", "reply_to_session_id"]
        assert [getattr(message, name) for name in names] == [getattr(sent, name) for name in names]
        found = {key.decode(): value for key, value in message.application_properties.items()}
        found["text"] = found["text"].decode()
        assert found == properties


def test_bodies_of_every_kind_come_back(client):
    queue = fresh()
    bodies = [
        ({"value_body": {b"key": [1, b"two", None]}}, AmqpMessageBodyType.VALUE),
        ({"sequence_body": [[b"one", 2], [True]]}, AmqpMessageBodyType.SEQUENCE),
        ({"data_body": [b"one", b"two", b""]}, AmqpMessageBodyType.DATA),
    ]
    annotations = {b"x-opt-own": b"a"}
    for body, _ in bodies:
        put(client, queue, AmqpAnnotatedMessage(**body, annotations=annotations, footer={b"footer": b"f"}))
    with client.get_queue_receiver(queue) as receiver:
        for (body, kind), message in zip(bodies, take(receiver, 3)):
            raw = message.raw_amqp_message
            assert raw.body_type == kind
            (sent,) = body.values()
            found = raw.body if kind == AmqpMessageBodyType.VALUE else list(raw.body)
            assert found == sent
            assert raw.footer == {b"footer": b"f"} and raw.annotations[b"x-opt-own"] == b"a"


def test_a_batch_is_taken_apart(client):
    queue = fresh()
    count = 0
    with client.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        assert batch.max_size_in_bytes == 1 << 20
        with pytest.raises(ValueError):
            while True:
                batch.add_message(Message(str(count), application_properties={"fill": "x" * 10_000}))
                count += 1
        assert count > 90
        sender.send_messages(batch)
    with client.get_queue_receiver(queue, prefetch_count=1_000, **DELETING) as receiver:
        assert texts(take(receiver, count)) == [str(number) for number in range(count)]
        assert is_empty(receiver)


def test_large_messages(client):
    queue = fresh()
    body = bytes(range(256)) * 3900
    put(client, queue, body)
    with client.get_queue_receiver(queue) as receiver:
        assert b"".join(drop(receiver).body) == body
    with client.get_queue_sender(queue) as sender:
        began_at = time.monotonic()
        with pytest.raises(MessageSizeExceededError, match="exceeds the limit"):
            sender.send_messages(Message(b"x" * (1 << 20)))
        # Without an outcome the SDK would wait for 15 s.
        assert time.monotonic() - began_at < 10
        sender.send_messages(Message("small"))


def test_a_received_message_is_sent_again(client):
    queue = fresh()
    annotations = {b"x-opt-own": b"given"}
    put(client, queue, AmqpAnnotatedMessage(data_body=b"x", delivery_annotations=annotations, footer={b"f": 1}))
    with client.get_queue_receiver(queue) as receiver, client.get_queue_sender(queue) as sender:
        locks = set()

        def check_next():
            (message,) = take(receiver)
            raw = message.raw_amqp_message
            found = dict(raw.delivery_annotations)
            assert found.pop(b"x-opt-lock-token") == message.lock_token
            locks.add(message.lock_token)
            assert (str(message), found, raw.footer) == ("x", annotations, {b"f": 1})
            receiver.complete_message(message)
            return message

        sender.send_messages(check_next())
        batch = sender.create_message_batch()
        batch.add_message(check_next())
        sender.send_messages(batch)
        soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
        assert len(sender.schedule_messages([check_next()], soon)) == 1
        check_next()
        assert len(locks) == 4 and is_empty(receiver)


def test_abandon_counts_and_ends_in_the_dead_letters(client):
    queue = fresh("thrice")
    put(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver:
        for count in range(3):
            (message,) = take(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message)
        assert is_empty(receiver)
    with client.get_queue_receiver(queue, **LETTERS) as letters:
        assert drop(letters).dead_letter_reason == "MaxDeliveryCountExceeded"


def test_dead_letter_with_reason(client):
    queue = fresh()
    put(client, queue, Message("x", application_properties={"kept": 1}))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver)
        receiver.dead_letter_message(message, reason="no good", error_description="at all")
        assert is_empty(receiver)
    with client.get_queue_receiver(queue, **LETTERS) as letters:
        assert texts(letters.peek_messages(5)) == ["x"]
        message = drop(letters)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("no good", "at all")
        assert message.application_properties[b"kept"] == 1
        assert is_empty(letters)


def test_a_lost_lock_is_told(client, monkeypatch):
    queue = fresh("brief")
    put(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(queue) as other:
        (message,) = take(receiver)
        # It is delivered again when the lock has expired.
        (again,) = take(other)
        assert again.delivery_count == 1
        # The SDK would not send a request: by its own clock the lock has expired too.
        monkeypatch.setattr(type(message), "_lock_expired", False)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)
        other.complete_message(again)


def test_a_lock_that_is_renewed_by_the_sdk_holds(client):
    queue = fresh("renewed")
    put(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver, AutoLockRenewer() as renewer:
        (message,) = take(receiver)
        first = message.locked_until_utc
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        while datetime.datetime.now(datetime.timezone.utc) < first + datetime.timedelta(seconds=1):
            time.sleep(0.5)
        assert message.locked_until_utc > first and message.auto_renew_error is None
        with client.get_queue_receiver(queue) as other:
            assert is_empty(other)
        receiver.complete_message(message)


def test_receive_and_delete(client):
    queue = fresh()
    put(client, queue, "x", "y")
    with client.get_queue_receiver(queue, **DELETING) as receiver:
        assert texts(take(receiver, 2)) == ["x", "y"]
    with client.get_queue_receiver(queue) as receiver:
        assert is_empty(receiver)


def test_a_receiver_that_waits_is_served_at_once(door, client):
    queue = fresh()
    waits = []
    with door.connect() as other, other.get_queue_sender(queue) as sender:
        sent_at = []

        def send():
            sender.send_messages(Message("x"))
            sent_at.append(time.monotonic())

        with client.get_queue_receiver(queue) as receiver:
            assert is_empty(receiver)
            for _ in range(10):
                late = threading.Timer(0.1, send)
                late.start()
                (message,) = take(receiver)
                came_at = time.monotonic()
                late.join()
                waits.append(came_at - sent_at[-1])
                receiver.complete_message(message)
    # Each may run while the machine is busy.
    assert min(waits) < 0.05, waits


def test_a_prefetch_of_a_thousand(client):
    queue = fresh()
    for start in range(0, 1_500, 500):
        put(client, queue, *[str(number) for number in range(start, start + 500)])
    with client.get_queue_receiver(queue, prefetch_count=1_000) as receiver:
        for number, message in enumerate(take(receiver, 1_500)):
            assert str(message) == str(number)
            if number % 100 == 99:
                receiver.complete_message(message)
    with client.get_queue_receiver(queue) as receiver:
        assert len(receiver.peek_messages(10)) == 10


def test_what_was_prefetched_and_not_seen_does_not_count(client):
    queue = fresh()
    put(client, queue, "x", "y")
    with client.get_queue_receiver(queue, prefetch_count=10) as receiver:
        drop(receiver)
    with client.get_queue_receiver(queue) as receiver:
        message = drop(receiver)
        assert (str(message), message.delivery_count) == ("y", 0)


def test_competing_receivers_share_messages(door):
    queue = fresh()
    count, seen, mutex = 200, [], threading.Lock()

    def work():
        with door.connect() as client, client.get_queue_receiver(queue, prefetch_count=10) as receiver:
            while len(seen) < count:
                for message in receiver.receive_messages(10, max_wait_time=0.5):
                    receiver.complete_message(message)
                    with mutex:
                        seen.append(str(message))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    with door.connect() as client, client.get_queue_sender(queue) as sender:
        for number in range(0, count, 10):
            sender.send_messages([Message(str(number + more)) for more in range(10)])
    for worker in workers:
        worker.join(60)
    assert sorted(seen, key=int) == [str(number) for number in range(count)]


def test_expiry(client):
    dropping, keeping = fresh("fading"), fresh("expiring")
    # An hour is more than the queue allows.
    put(client, dropping, Message("x", time_to_live=datetime.timedelta(hours=1)))
    with client.get_queue_receiver(dropping) as receiver:
        for peeked in receiver.peek_messages(1, sequence_number=0):
            assert peeked.time_to_live < datetime.timedelta(minutes=1)
    put(client, keeping, Message("y", time_to_live=datetime.timedelta(seconds=1)))
    with client.get_queue_receiver(keeping, **LETTERS) as letters:
        assert drop(letters).dead_letter_reason == "TTLExpiredException"
    with client.get_queue_receiver(dropping) as receiver:
        deadline = time.monotonic() + 20
        while receiver.peek_messages(1, sequence_number=0):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert is_empty(receiver)


def test_duplicates(client):
    queue = fresh("unique")
    put(client, queue, Message("1", message_id="a"), Message("2", message_id="a"))
    put(client, queue, Message("3", message_id="a"), Message("4", message_id="b"))
    with client.get_queue_receiver(queue) as receiver:
        assert texts(take(receiver, 2)) == ["1", "4"]
        assert is_empty(receiver)


def test_forwarding(client):
    queue = fresh("forwarding")
    put(client, queue, "x")
    with client.get_queue_receiver(partner(queue, "forwarded")) as receiver:
        (message,) = take(receiver)
        receiver.dead_letter_message(message, reason="why")
    with client.get_queue_receiver(partner(queue, "letters")) as receiver:
        letter = drop(receiver)
        assert letter.dead_letter_reason == "why"
        assert letter.dead_letter_source == partner(queue, "forwarded")
    with pytest.raises(ServiceBusError):
        client.get_queue_receiver(queue).receive_messages(1, max_wait_time=20)


def test_a_topic_of_the_configuration_file(door, client):
    topic = f"configured-{door.name}"
    with client.get_topic_sender(topic) as sender:
        for color, size in (("red", 1), ("blue", 9), ("red", 9)):
            properties = {"color": color, "size": size}
            sender.send_messages(Message(color, message_id=color, subject="order", application_properties=properties))

    def shown(name):
        with client.get_subscription_receiver(topic, name) as receiver:
            return [
                (str(it), it.application_properties[b"size"], it.application_properties.get(b"RuleName"))
                for it in receiver.peek_messages(10)
            ]

    # It drops duplicates.
    assert shown("all") == [("red", 1, None), ("blue", 9, None)]
    assert shown("red") == [("red", 1, None)]
    assert shown("large") == [("blue", 5, b"size")]
    with client.get_subscription_receiver(topic, "all") as receiver:
        for _ in range(3):
            (first,) = take(receiver)
            assert first.expires_at_utc - first.enqueued_time_utc == datetime.timedelta(minutes=30)
            receiver.abandon_message(first)
    with client.get_subscription_receiver(topic, "all", **LETTERS) as letters:
        letter = drop(letters)
        assert (str(letter), letter.dead_letter_reason) == ("red", "MaxDeliveryCountExceeded")


def test_nothing_is_in_the_transfer_dead_letter_queue(client):
    queue = fresh()
    put(client, queue, "x")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER) as receiver:
        assert is_empty(receiver)
        assert receiver.peek_messages(5) == []


def test_an_absent_queue_is_named(client):
    with missing("absent"):
        client.get_queue_receiver("absent").receive_messages(1, max_wait_time=20)
    with missing("absent"):
        put(client, "absent", "x")
