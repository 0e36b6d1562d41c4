"""Accepted messages survive stops and kills of the server, and clients reconnect by themselves."""

import datetime
import gc
import threading
import time

import pytest

from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from conftest import drop, is_empty, put, take, texts


def test_everything_is_there_after_a_kill(killable):
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    with killable.connect() as client:
        put(client, "plain", *[str(number) for number in range(20)])
        with client.get_queue_receiver("plain") as receiver:
            letter, deferred, locked = take(receiver, 3)
            receiver.dead_letter_message(letter, reason="why")
            receiver.defer_message(deferred)
            assert str(locked) == "2"
        with client.get_queue_sender("plain") as sender:
            (number,) = sender.schedule_messages(Message("scheduled"), later)
        put(client, "unique", Message("first", message_id="a"))
        with client.get_topic_sender("unique-topic") as sender:
            sender.send_messages(Message("first", message_id="a"))
        put(client, "session", Message("x", session_id="s"))
        with client.get_queue_receiver("session", session_id="s") as receiver:
            receiver.session.set_state(b"so far")
    killable.restart("KILL")
    with killable.connect() as client:
        with client.get_queue_receiver("plain") as receiver:
            # One is still locked.
            assert texts(take(receiver, 17)) == [str(number) for number in range(3, 20)]
            assert is_empty(receiver)
            (again,) = receiver.receive_deferred_messages(deferred.sequence_number)
            assert str(again) == "1"
            scheduled = receiver.peek_messages(1, sequence_number=number)
            assert [(str(message), message.state.name) for message in scheduled] == [("scheduled", "SCHEDULED")]
        with client.get_queue_receiver("plain", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
            assert drop(letters).dead_letter_reason == "why"
        put(client, "unique", Message("second", message_id="a"))
        with client.get_queue_receiver("unique") as receiver:
            assert str(drop(receiver)) == "first"
            assert is_empty(receiver)
        # A topic remembers ids, too, for all its subscriptions.
        with client.get_topic_sender("unique-topic") as sender:
            sender.send_messages(Message("second", message_id="a"))
            sender.send_messages(Message("third", message_id="b"))
        for name in ["one", "two"]:
            with client.get_subscription_receiver("unique-topic", name) as receiver:
                assert texts(take(receiver, 2)) == ["first", "third"]
                assert is_empty(receiver)
        with client.get_queue_receiver("session", session_id="s") as receiver:
            assert receiver.session.get_state() == b"so far"
            drop(receiver)


# The SDK leaves the sockets of lost connections to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["TERM", "KILL"])
def test_clients_go_on_when_the_server_comes_back(killable, name):
    """One sender and one receiver throughout: the SDK must do everything else."""
    patient = {"retry_total": 20, "retry_backoff_factor": 0.2, "retry_backoff_max": 1}
    sent, seen, done = [], [], threading.Event()

    def send():
        with killable.connect(**patient) as client, client.get_queue_sender("brief") as sender:
            while not done.is_set():
                sender.send_messages(Message(str(len(sent))))
                sent.append(str(len(sent)))
                time.sleep(0.01)

    def receive():
        with killable.connect(**patient) as client, client.get_queue_receiver("brief") as receiver:
            while not done.is_set() or (not set(sent) <= set(seen) and time.monotonic() < last_at):
                try:
                    for message in receiver.receive_messages(5, max_wait_time=1):
                        seen.append(str(message))
                        receiver.complete_message(message)
                except ServiceBusError:
                    # The time was over while the server was down, or a lock is lost: the message is delivered again.
                    continue

    threads = [threading.Thread(target=send), threading.Thread(target=receive)]
    for thread in threads:
        thread.start()

    def are_more(count):
        before = len(sent), len(seen)
        deadline = time.monotonic() + 30
        while len(sent) < before[0] + count or len(seen) < before[1] + count:
            assert time.monotonic() < deadline, (before, len(sent), len(seen))
            assert all(thread.is_alive() for thread in threads)
            time.sleep(0.05)

    try:
        are_more(20)
        for _ in range(2):
            killable.restart(name)
            are_more(20)
    finally:
        last_at = time.monotonic() + 60
        done.set()
        for thread in threads:
            thread.join(70)
    gc.collect()
    # Some may have arrived twice.
    assert set(sent) <= set(seen)


def test_a_copy_of_the_data_brings_back_what_was_there(killable):
    def seen():
        with killable.connect() as client, client.get_queue_receiver("plain") as receiver:
            return texts(receiver.peek_messages(10))

    with killable.connect() as client:
        put(client, "plain", "one", "two")
        with client.get_queue_receiver("plain") as receiver:
            assert str(drop(receiver)) == "one"
    killable.restart("BACKUP")
    with killable.connect() as client:
        put(client, "plain", "three")
        with client.get_queue_receiver("plain") as receiver:
            assert str(drop(receiver)) == "two"
    assert seen() == ["three"]
    killable.restart("RESTORE")
    assert seen() == ["two"]
    with killable.connect() as client:
        put(client, "plain", "four")
    assert seen() == ["two", "four"]
