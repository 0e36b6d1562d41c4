"""Topics and subscriptions. They are administered over HTTPS only."""

import datetime
import os
import uuid

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import SqlRuleFilter
from conftest import is_empty, missing, take, texts
from test_administration import connect

pytestmark = pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")


@pytest.fixture
def admin():
    with connect() as admin:
        yield admin


@pytest.fixture
def topic(admin):
    """A topic that no other scenario has, with the subscriptions `all` and `More`."""
    name = f"x-topic-{uuid.uuid4()}"
    admin.create_topic(name)
    admin.create_subscription(name, "all", max_delivery_count=2)
    admin.create_subscription(name, "More", default_message_time_to_live=datetime.timedelta(hours=1))
    yield name
    try:
        admin.delete_topic(name)
    except ResourceNotFoundError:
        pass


def publish(client, topic, *messages):
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(list(messages))


def test_what_is_published_arrives_in_each_subscription(admin, client, topic):
    made = admin.get_topic(topic)
    assert made.name == topic and not made.requires_duplicate_detection
    more = admin.get_subscription(topic, "more")
    assert more.default_message_time_to_live == datetime.timedelta(hours=1) and more.max_delivery_count == 10
    with pytest.raises(ResourceExistsError):
        admin.create_subscription(topic, "ALL")
    assert admin.get_topic_runtime_properties(topic).subscription_count == 2
    publish(client, topic, Message("one", application_properties={"n": 1}), Message("two"))
    counts = admin.get_subscription_runtime_properties(topic, "all")
    assert counts.active_message_count == 2
    with client.get_subscription_receiver(topic.upper(), "ALL") as receiver:
        one, two = take(receiver, 2)
        assert (texts([one, two]), one.application_properties) == (["one", "two"], {b"n": 1})
        receiver.complete_message(one)
        receiver.dead_letter_message(two, reason="why")
        assert is_empty(receiver)
    with client.get_subscription_receiver(topic, "all", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = take(receiver)
        assert (texts([dead]), dead.dead_letter_reason) == (["two"], "why")
        receiver.complete_message(dead)
    # The copies of the other subscription are still there.
    with client.get_subscription_receiver(topic, "More") as receiver:
        assert texts(receiver.peek_messages(5)) == ["one", "two"]
        for message in take(receiver, 2):
            receiver.complete_message(message)
    listed = {it.name: it.max_delivery_count for it in admin.list_subscriptions(topic)}
    assert listed == {"all": 2, "More": 10}
    assert topic in [it.name for it in admin.list_topics()]
    admin.delete_subscription(topic, "all")
    with missing("subscriptions/all"), client.get_subscription_receiver(topic, "all") as receiver:
        receiver.receive_messages(1, max_wait_time=1)
    admin.delete_topic(topic)
    with missing(topic):
        publish(client, topic, Message("three"))
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription(topic, "More")


def test_a_waiting_receiver_gets_a_copy_at_once(client, topic):
    with client.get_subscription_receiver(topic, "all") as receiver:
        assert is_empty(receiver)
        publish(client, topic, Message("now"))
        (message,) = take(receiver)
        assert texts([message]) == ["now"]
        receiver.complete_message(message)


def test_what_is_not_supported_yet_is_refused(admin, client, topic):
    with pytest.raises(HttpResponseError, match="not supported yet"):
        admin.create_topic(f"{topic}-unique", requires_duplicate_detection=True)
    with pytest.raises(HttpResponseError, match="not supported yet"):
        admin.create_rule(topic, "all", "red", filter=SqlRuleFilter("color = 'red'"))
    with pytest.raises(HttpResponseError, match="not supported yet"):
        admin.create_queue(f"{topic}-forwards", forward_to=topic)
    with pytest.raises(HttpResponseError, match="not supported yet"):
        admin.update_subscription(topic, admin.get_subscription(topic, "all"), forward_to=topic)
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    with client.get_topic_sender(topic) as sender:
        with pytest.raises(ServiceBusError, match="not supported yet"):
            sender.schedule_messages(Message("later"), later)
