"""Scenarios with a requested duration: `conformance/soak` runs them for minutes."""

import datetime
import os
import time

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import AutoLockRenewer
from azure.servicebus import ServiceBusMessage as Message
from conftest import fresh, put, take
from test_administration import connect

SECONDS = int(os.environ.get("KEW_SOAK_SECONDS", "20"))
# The shortest possible time, and the time that the server may take to notice.
IDLE_SECONDS = 300
SLACK_SECONDS = 45


def described(messages):
    return [
        (str(it), it.sequence_number, it.delivery_count, it.locked_until_utc, it.auto_renew_error) for it in messages
    ]


def came(receiver):
    return described(receiver.receive_messages(1, max_wait_time=0.5))


def test_locks_are_renewed_by_the_sdk(client):
    queue, sessions = fresh("renewed"), fresh("renewed-session")
    put(client, queue, "a", "b", "c")
    put(client, sessions, Message("d", session_id="s"))
    end = time.monotonic() + SECONDS
    renewed_for = {"max_lock_renewal_duration": SECONDS + 60}
    with client.get_queue_receiver(queue) as receiver, client.get_queue_receiver(sessions, session_id="s") as session:
        with AutoLockRenewer() as renewer, client.get_queue_receiver(queue) as other:
            messages = take(receiver, 3)
            (in_session,) = take(session)
            for message in messages:
                renewer.register(receiver, message, **renewed_for)
            renewer.register(session, session.session, **renewed_for)
            while time.monotonic() < end:
                # The locks last 15 s.
                assert came(other) == [], (described(messages), datetime.datetime.now(datetime.timezone.utc))
                assert [message.auto_renew_error for message in messages] == [None] * 3
                assert session.session.auto_renew_error is None
            for message in messages:
                receiver.complete_message(message)
            session.complete_message(in_session)
            assert came(other) == []


# The suites have no time for it.
if SECONDS >= IDLE_SECONDS + SLACK_SECONDS:

    @pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")
    def test_an_idle_queue_deletes_itself():
        with connect() as admin:
            admin.create_queue("x-idle", auto_delete_on_idle=datetime.timedelta(seconds=IDLE_SECONDS))
            began = time.monotonic()
            with pytest.raises(ResourceNotFoundError):
                while time.monotonic() < began + IDLE_SECONDS + SLACK_SECONDS:
                    time.sleep(1)
                    admin.get_queue("x-idle")
            # Reading a queue's description does not count as use.
            assert time.monotonic() - began > IDLE_SECONDS - 5

    @pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")
    def test_idle_topics_and_subscriptions_delete_themselves():
        idle = datetime.timedelta(seconds=IDLE_SECONDS)
        with connect() as admin:
            admin.create_topic("x-idle-topic", auto_delete_on_idle=idle)
            admin.create_topic("x-topic-of-an-idle-one")
            admin.create_subscription("x-topic-of-an-idle-one", "idle", auto_delete_on_idle=idle)
            admin.create_subscription("x-topic-of-an-idle-one", "stays")
            began = time.monotonic()
            reads = {
                "topic": lambda: admin.get_topic("x-idle-topic"),
                "subscription": lambda: admin.get_subscription("x-topic-of-an-idle-one", "idle"),
            }
            while reads and time.monotonic() < began + IDLE_SECONDS + SLACK_SECONDS:
                time.sleep(1)
                for name, read in list(reads.items()):
                    try:
                        read()
                    except ResourceNotFoundError:
                        assert time.monotonic() - began > IDLE_SECONDS - 5, name
                        del reads[name]
            assert not reads
            assert [it.name for it in admin.list_subscriptions("x-topic-of-an-idle-one")] == ["stays"]

    @pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")
    def test_a_queue_whose_receiver_waits_is_not_idle(client):
        with connect() as admin, client.get_queue_receiver("x-waited-for") as receiver:
            admin.create_queue("x-waited-for", auto_delete_on_idle=datetime.timedelta(seconds=IDLE_SECONDS))
            assert receiver.receive_messages(max_wait_time=IDLE_SECONDS + SLACK_SECONDS) == []
            put(client, "x-waited-for", "a")
            assert len(take(receiver)) == 1
