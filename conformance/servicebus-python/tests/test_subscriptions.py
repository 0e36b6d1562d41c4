"""Subscriptions that are not plain: with sessions, lives and states of their own; and how much a topic takes."""

import datetime
import os
import time
import uuid

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusQuotaExceededError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import (
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    SqlRuleFilter,
    TrueRuleFilter,
)
from conftest import Door, drop, take, texts
from test_administration import connect

pytestmark = pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")

MINUTE = datetime.timedelta(minutes=1)


@pytest.fixture
def admin():
    with connect() as admin:
        yield admin


@pytest.fixture
def topic(admin):
    name = f"x-subscribed-{uuid.uuid4()}"
    admin.create_topic(name)
    yield name
    admin.delete_topic(name)


@pytest.fixture
def client():
    """Other scenarios have every way to the server."""
    with Door("amqp", os.environ["KEW_BUS_CONNECTION_STRING"]).connect() as client:
        yield client


def publish(client, topic, *messages):
    with client.get_topic_sender(topic) as sender:
        for message in messages:
            sender.send_messages(message)


def peeked(client, topic, name, **more):
    with client.get_subscription_receiver(topic, name, **more) as receiver:
        return receiver.peek_messages(20)


def test_sessions_of_a_subscription(admin, client, topic):
    for name in ("s", "t"):
        admin.create_subscription(topic, name, requires_session=True)
    messages = [Message(body, session_id=session) for body, session in (("a", "x"), ("b", "y"), ("c", "x"))]
    publish(client, topic, *messages, Message("without"))

    def session(name, which):
        return client.get_subscription_receiver(topic, name, session_id=which, max_wait_time=30)

    with session("s", "y") as named:
        with pytest.raises(SessionCannotBeLockedError), session("s", "y") as again:
            again.receive_messages(1)
        (message,) = take(named)
        assert (str(message), message.session_id) == ("b", "y")
        named.session.set_state("state")
        assert named.session.get_state() == b"state"
    with session("s", "x") as named:
        assert texts(take(named, 2)) == ["a", "c"]
    # The sessions of the other subscription are its own.
    with session("t", "y") as named:
        assert not named.session.get_state() and texts(take(named)) == ["b"]
    for name in ("s", "t"):
        (letter,) = peeked(client, topic, name, sub_queue="deadletter")
        assert (str(letter), letter.dead_letter_reason) == ("without", "Session id is null.")


def test_the_default_rule_is_a_rule_like_others(admin, client, topic):
    admin.create_subscription(topic, "s")
    rule = admin.get_rule(topic, "s", "$Default")
    assert rule.name == "$Default" and isinstance(rule.filter, TrueRuleFilter)
    publish(client, topic, Message("all"))
    admin.delete_rule(topic, "s", "$default")
    publish(client, topic, Message("none"))
    admin.create_rule(topic, "s", "$Default", filter=CorrelationRuleFilter(label="yes"))
    publish(client, topic, Message("selected", subject="yes"), Message("not", subject="no"))
    rule.filter = SqlRuleFilter("sys.Label = 'no'")
    admin.update_rule(topic, "s", rule)
    publish(client, topic, Message("not", subject="yes"), Message("updated", subject="no"))
    assert texts(peeked(client, topic, "s")) == ["all", "selected", "updated"]


def test_the_shortest_life_counts(admin, client, topic):
    admin.update_topic(admin.get_topic(topic), default_message_time_to_live=60 * MINUTE)
    for name, life in (("short", 30 * MINUTE), ("long", 120 * MINUTE)):
        admin.create_subscription(topic, name, default_message_time_to_live=life)
    admin.create_subscription(topic, "kept", dead_lettering_on_message_expiration=True)
    publish(
        client, topic, Message("own"), Message("minutes", time_to_live=10 * MINUTE),
        Message("second", time_to_live=datetime.timedelta(seconds=1)),
    )
    for name, own in (("short", 30), ("long", 60)):
        lives = [(str(it), it.expires_at_utc - it.enqueued_time_utc) for it in peeked(client, topic, name)[:2]]
        assert lives == [("own", own * MINUTE), ("minutes", 10 * MINUTE)]
    with client.get_subscription_receiver(topic, "kept", sub_queue="deadletter") as receiver:
        (letter,) = take(receiver)
        assert (str(letter), letter.dead_letter_reason) == ("second", "TTLExpiredException")
    # The others did not ask for dead letters.
    for name in ("short", "long"):
        deadline = time.monotonic() + 60
        while (counts := admin.get_subscription_runtime_properties(topic, name)).active_message_count > 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert (counts.active_message_count, counts.dead_letter_message_count) == (2, 0)


def test_settings_that_cannot_be_are_refused(admin, topic):
    never = datetime.timedelta(days=10675198)
    made = admin.create_subscription(topic, "s")
    assert made.auto_delete_on_idle > never and admin.get_topic(topic).auto_delete_on_idle > never
    admin.update_subscription(topic, made, auto_delete_on_idle=5 * MINUTE)
    admin.update_topic(admin.get_topic(topic), auto_delete_on_idle=10 * MINUTE)
    shown, of_topic = admin.get_subscription(topic, "s"), admin.get_topic(topic)
    assert (shown.auto_delete_on_idle, of_topic.auto_delete_on_idle) == (5 * MINUTE, 10 * MINUTE)
    second = datetime.timedelta(seconds=1)
    for wrong in (
        {"auto_delete_on_idle": 299 * second}, {"lock_duration": 4 * second}, {"lock_duration": 301 * second},
        {"max_delivery_count": 0}, {"status": EntityStatus.SEND_DISABLED}, {"user_metadata": "x" * 1025},
    ):
        with pytest.raises(HttpResponseError) as refused:
            admin.update_subscription(topic, shown, **wrong)
        assert refused.value.status_code == 400, wrong
    for wrong in ({"auto_delete_on_idle": 299 * second}, {"status": EntityStatus.RECEIVE_DISABLED}):
        with pytest.raises(HttpResponseError) as refused:
            admin.update_topic(of_topic, **wrong)
        assert refused.value.status_code == 400, wrong


def test_states_of_topics_and_subscriptions(admin, client, topic):
    admin.create_subscription(topic, "s")

    def rules_cannot_change():
        for change in (
            lambda: admin.create_rule(topic, "s", "r", filter=TrueRuleFilter()),
            lambda: admin.delete_rule(topic, "s", "$Default"),
        ):
            with pytest.raises(HttpResponseError) as refused:
                change()
            assert refused.value.status_code == 403

    def is_not_received_from():
        with pytest.raises(MessagingEntityDisabledError), client.get_subscription_receiver(topic, "s") as receiver:
            receiver.receive_messages(1, max_wait_time=30)

    expected = []
    for status in (EntityStatus.RECEIVE_DISABLED, EntityStatus.DISABLED):
        admin.update_subscription(topic, admin.get_subscription(topic, "s"), status=status)
        is_not_received_from()
        rules_cannot_change()
        # It gets copies nevertheless.
        publish(client, topic, Message(status))
        expected.append(status)
    assert admin.get_subscription_runtime_properties(topic, "s").active_message_count == 2
    admin.update_subscription(topic, admin.get_subscription(topic, "s"), status=EntityStatus.ACTIVE)
    for status in (EntityStatus.SEND_DISABLED, EntityStatus.DISABLED):
        admin.update_topic(admin.get_topic(topic), status=status)
        with pytest.raises(MessagingEntityDisabledError):
            publish(client, topic, Message("not"))
        if status == EntityStatus.DISABLED:
            is_not_received_from()
            rules_cannot_change()
        else:
            # What is there can be drained.
            with client.get_subscription_receiver(topic, "s") as receiver:
                drop(receiver)
            del expected[0]
            admin.create_rule(topic, "s", "r", filter=FalseRuleFilter())
            admin.delete_rule(topic, "s", "r")
        admin.update_topic(admin.get_topic(topic), status=EntityStatus.ACTIVE)
        publish(client, topic, Message(f"after {status}"))
        expected.append(f"after {status}")
    assert texts(peeked(client, topic, "s")) == expected


def test_a_full_topic_takes_no_more_until_something_is_taken_out(admin, client, topic):
    admin.update_topic(admin.get_topic(topic), max_size_in_megabytes=1)
    for name in ("one", "two"):
        admin.create_subscription(topic, name)
    message = Message(bytes(100_000))
    with client.get_topic_sender(topic) as sender:
        # Each body counts once, although two subscriptions have it.
        for _ in range(10):
            sender.send_messages(message)
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(message)
        assert 1_000_000 < admin.get_topic_runtime_properties(topic).size_in_bytes < 1_100_000
        for name in ("one", "two"):
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            with client.get_subscription_receiver(topic, name, receive_mode=mode) as receiver:
                take(receiver, 5)
        sender.send_messages(message)


def test_subscriptions_are_listed_in_pages(admin, topic):
    names = [f"s{number:03}" for number in range(105)]
    for name in names:
        admin.create_subscription(topic, name)
    pages = [list(page) for page in admin.list_subscriptions(topic).by_page()]
    assert [len(page) for page in pages] == [100, 5]
    assert [it.name for page in pages for it in page] == names
