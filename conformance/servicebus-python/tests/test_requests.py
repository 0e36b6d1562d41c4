"""Requests to $management: peeks, schedules, deferred messages, locks."""

import datetime
import time

import pytest
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError
from conftest import drop, fresh, is_empty, put, take, texts


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc)


def test_peek_shows_all_states_in_pages(client):
    queue = fresh()
    with client.get_queue_receiver(queue) as receiver, client.get_queue_sender(queue) as sender:
        assert receiver.peek_messages(5) == []
        put(client, queue, "active", "locked", "deferred")
        sender.schedule_messages(Message("scheduled"), utc_now() + datetime.timedelta(hours=1))
        first, second, third = take(receiver, 3)
        receiver.abandon_message(first)
        receiver.defer_message(third)
        seen, number = [], 1
        while page := receiver.peek_messages(3, sequence_number=number):
            seen += [(str(message), message.state.name, message.delivery_count) for message in page]
            number = page[-1].sequence_number + 1
        assert seen == [
            ("active", "ACTIVE", 1), ("locked", "ACTIVE", 0), ("deferred", "DEFERRED", 0), ("scheduled", "SCHEDULED", 0),
        ]
        receiver.complete_message(second)


def test_schedule_and_cancel(client):
    queue = fresh()
    with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        later = utc_now() + datetime.timedelta(hours=1)
        numbers = sender.schedule_messages([Message("never"), Message("ever")], later)
        assert len(numbers) == 2
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
        sender.send_messages(Message("past", scheduled_enqueue_time_utc=utc_now() - datetime.timedelta(hours=1)))
        assert str(drop(receiver)) == "past"
        soon = utc_now() + datetime.timedelta(seconds=2)
        sender.schedule_messages(Message("soon"), soon)
        sender.send_messages(Message("later", scheduled_enqueue_time_utc=soon + datetime.timedelta(seconds=1)))
        assert str(drop(receiver)) == "soon" and utc_now() >= soon - datetime.timedelta(milliseconds=50)
        assert str(drop(receiver)) == "later"


def test_deferred_messages_are_settled_in_every_way(client):
    queue = fresh()
    put(client, queue, "complete", "abandon", "defer", "letter")
    with client.get_queue_receiver(queue) as receiver:
        messages = take(receiver, 4)
        numbers = [message.sequence_number for message in messages]
        for message in messages:
            receiver.defer_message(message)
        assert is_empty(receiver)
        complete, abandon, defer, letter = receiver.receive_deferred_messages(numbers)
        assert texts([complete, abandon, defer, letter]) == ["complete", "abandon", "defer", "letter"]
        assert receiver.renew_message_lock(complete) > utc_now()
        receiver.complete_message(complete)
        receiver.abandon_message(abandon)
        receiver.defer_message(defer)
        receiver.dead_letter_message(letter, reason="why", error_description="what")
        # An abandoned message is still deferred.
        assert is_empty(receiver)
        (again,) = receiver.receive_deferred_messages(numbers[1])
        assert again.delivery_count == 1
        receiver.complete_message(again)
        with pytest.raises(ServiceBusError):
            receiver.receive_deferred_messages(numbers[0])
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
        found = drop(letters)
        assert (found.dead_letter_reason, found.dead_letter_error_description) == ("why", "what")
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as deleting:
        assert texts(deleting.receive_deferred_messages(numbers[2])) == ["defer"]
        assert deleting.peek_messages(5) == []


def test_a_lock_is_renewed(client):
    queue = fresh("renewed")
    put(client, queue, "x")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver)
        first = message.locked_until_utc
        while utc_now() < first + datetime.timedelta(seconds=1):
            until = message.locked_until_utc
            time.sleep(1)
            assert receiver.renew_message_lock(message) > until
        receiver.complete_message(message)
        assert is_empty(receiver)
