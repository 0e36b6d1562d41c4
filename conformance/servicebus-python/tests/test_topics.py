"""Topics and subscriptions. They are administered over HTTPS only."""

import datetime
import os
import time
import uuid

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus import ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
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


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc)


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
        receiver.receive_messages(1, max_wait_time=30)
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


def test_links_in_the_wrong_direction_are_refused(client, topic):
    with pytest.raises(ServiceBusError, match="send them to its topic.*amqp:not-allowed"):
        publish(client, f"{topic}/Subscriptions/all", Message("x"))
    with (
        pytest.raises(ServiceBusError, match="receive them from a subscription.*amqp:not-allowed"),
        client.get_queue_receiver(topic) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=30)


def test_a_topic_gets_new_settings(admin, client, topic):
    made = admin.get_topic(topic)
    made.user_metadata, made.max_size_in_megabytes, made.enable_batched_operations = "a < b & c", 2048, False
    made.default_message_time_to_live = datetime.timedelta(hours=1)
    made.authorization_rules = [AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None", key_name="sends",
        rights=[AccessRights.SEND],
    )]
    admin.update_topic(made)
    changed = admin.get_topic(topic.upper())
    assert (changed.user_metadata, changed.max_size_in_megabytes) == ("a < b & c", 2048)
    assert not changed.enable_batched_operations and changed.status == EntityStatus.ACTIVE
    assert [(it.key_name, it.rights) for it in changed.authorization_rules] == [("sends", [AccessRights.SEND])]
    # The settings are those of a topic with subscriptions, which stay.
    assert admin.get_topic_runtime_properties(topic).subscription_count == 2
    publish(client, topic, Message("one"))
    with client.get_subscription_receiver(topic, "all") as receiver:
        (message,) = take(receiver)
        lives = message.expires_at_utc - message.enqueued_time_utc
        assert lives == datetime.timedelta(hours=1)
        receiver.complete_message(message)
    with pytest.raises(HttpResponseError, match="RequiresDuplicateDetection cannot be changed"):
        admin.update_topic(changed, requires_duplicate_detection=True)
    with pytest.raises(HttpResponseError, match="EnablePartitioning cannot be changed"):
        admin.update_topic(changed, enable_partitioning=True)
    with pytest.raises(HttpResponseError, match="at least 1 s"):
        admin.update_topic(changed, default_message_time_to_live=datetime.timedelta(milliseconds=10))
    assert admin.get_topic(topic).max_size_in_megabytes == 2048
    changed.name = f"{topic}-missing"
    with pytest.raises(ResourceNotFoundError):
        admin.update_topic(changed)


def test_a_topic_drops_duplicates_for_its_subscriptions(admin, client):
    topic = f"x-topic-{uuid.uuid4()}"
    window = datetime.timedelta(minutes=1)
    made = admin.create_topic(
        topic, requires_duplicate_detection=True, duplicate_detection_history_time_window=window
    )
    assert made.requires_duplicate_detection and made.duplicate_detection_history_time_window == window
    for name in ("all", "more"):
        admin.create_subscription(topic, name)
    publish(client, topic, Message("one", message_id="1"), Message("again", message_id="1"), Message("two"))
    admin.create_subscription(topic, "late")
    publish(client, topic, Message("again", message_id="1"), Message("three", message_id="3"))
    for name, expected in (("all", [1, 2, 3]), ("more", [1, 2, 3]), ("late", [3])):
        with client.get_subscription_receiver(topic, name) as receiver:
            messages = take(receiver, len(expected))
            assert texts(messages) == ["one", "two", "three"][-len(expected):]
            # Each subscription counts by itself. The first number is that of the topic.
            assert [it.sequence_number for it in messages] == list(range(1, len(expected) + 1))
            assert [it.enqueued_sequence_number for it in messages] == expected
            for message in messages:
                receiver.complete_message(message)
            assert is_empty(receiver)
    with pytest.raises(HttpResponseError, match="RequiresDuplicateDetection cannot be changed"):
        admin.update_topic(made, requires_duplicate_detection=False)
    admin.delete_topic(topic)


def test_a_subscription_gets_new_settings(admin, client, topic):
    publish(client, topic, Message("one"))
    queue = f"{topic}-next"
    admin.create_queue(queue)
    made = admin.get_subscription(topic, "all")
    made.lock_duration, made.max_delivery_count = datetime.timedelta(seconds=30), 1
    made.dead_lettering_on_filter_evaluation_exceptions = False
    made.user_metadata, made.status = "mine", EntityStatus.RECEIVE_DISABLED
    admin.update_subscription(topic, made)
    changed = admin.get_subscription(topic.upper(), "ALL")
    assert (changed.max_delivery_count, changed.user_metadata) == (1, "mine")
    assert changed.lock_duration == datetime.timedelta(seconds=30)
    assert not changed.dead_lettering_on_filter_evaluation_exceptions
    with pytest.raises(ServiceBusError, match="(?i)disabled"):
        with client.get_subscription_receiver(topic, "all") as receiver:
            receiver.receive_messages(1, max_wait_time=30)
    # What comes meanwhile waits for the receiver, and one failed delivery is enough now.
    publish(client, topic, Message("two"))
    admin.update_subscription(topic, changed, status=EntityStatus.ACTIVE)
    with client.get_subscription_receiver(topic, "all") as receiver:
        for message in take(receiver, 2):
            receiver.abandon_message(message)
    counts = admin.get_subscription_runtime_properties(topic, "all")
    assert (counts.active_message_count, counts.dead_letter_message_count, counts.total_message_count) == (0, 2, 2)
    # What the other one has is forwarded, too.
    admin.update_subscription(topic, admin.get_subscription(topic, "More"), forward_to=queue)
    assert admin.get_subscription(topic, "more").forward_to.endswith(queue)
    with client.get_queue_receiver(queue) as receiver:
        assert texts(take(receiver, 2)) == ["one", "two"]
    with pytest.raises(HttpResponseError, match="RequiresSession cannot be changed"):
        admin.update_subscription(topic, changed, requires_session=True)
    with pytest.raises(HttpResponseError, match="could not be found"):
        admin.update_subscription(topic, changed, forward_to=f"{topic}-missing")
    changed.name = "missing"
    with pytest.raises(ResourceNotFoundError):
        admin.update_subscription(topic, changed)
    admin.delete_queue(queue)


def test_lists_have_settings_and_counts(admin, client, topic):
    for number in range(3):
        admin.create_subscription(topic, f"s{number}", user_metadata=str(number))
    publish(client, topic, Message("one"), Message("two"))
    with client.get_subscription_receiver(topic, "s1", receive_mode="receiveanddelete") as receiver:
        assert texts(take(receiver)) == ["one"]
    listed = {it.name: it.user_metadata for it in admin.list_subscriptions(topic)}
    assert listed == {"More": None, "all": None, "s0": "0", "s1": "1", "s2": "2"}
    counts = {it.name: it.active_message_count for it in admin.list_subscriptions_runtime_properties(topic)}
    assert counts == {"More": 2, "all": 2, "s0": 2, "s1": 1, "s2": 2}
    (shown,) = [it for it in admin.list_topics_runtime_properties() if it.name == topic]
    assert shown.subscription_count == 5 and shown.size_in_bytes > 0 and shown.scheduled_message_count == 0
    assert list(listed) == ["all", "More", "s0", "s1", "s2"]


def test_rules_are_made_changed_listed_and_deleted(admin, topic):
    default = admin.get_rule(topic, "all", "$Default")
    assert isinstance(default.filter, TrueRuleFilter) and default.action is None and default.created_at_utc
    made = admin.create_rule(topic, "all", "Red", filter=SqlRuleFilter("color = 'red'"))
    assert (made.name, made.filter.sql_expression, made.action) == ("Red", "color = 'red'", None)
    with pytest.raises(ResourceExistsError):
        admin.create_rule(topic, "ALL", "RED")
    made.filter = CorrelationRuleFilter(label="red")
    made.action = SqlRuleAction("SET priority = 1; REMOVE size")
    admin.update_rule(topic, "all", made)
    changed = admin.get_rule(topic.upper(), "ALL", "red")
    assert changed.filter.label == "red" and not changed.filter.properties
    assert changed.action.sql_expression == "SET priority = 1; REMOVE size"
    admin.delete_rule(topic, "all", "$Default")
    assert [it.name for it in admin.list_rules(topic, "all")] == ["Red"]
    # The rules of another subscription are its own.
    assert [it.name for it in admin.list_rules(topic, "More")] == ["$Default"]
    admin.delete_rule(topic, "all", "red")
    assert list(admin.list_rules(topic, "all")) == []
    for missing_rule in (
        lambda: admin.get_rule(topic, "all", "red"),
        lambda: admin.delete_rule(topic, "all", "red"),
        lambda: admin.update_rule(topic, "all", changed),
        lambda: admin.create_rule(topic, "missing", "red"),
    ):
        with pytest.raises(ResourceNotFoundError):
            missing_rule()
    for number in range(105):
        admin.create_rule(topic, "all", f"r{number:03}", filter=FalseRuleFilter())
    listed = list(admin.list_rules(topic, "all", max_page_size=50))
    assert [it.name for it in listed] == [f"r{number:03}" for number in range(105)]
    assert all(isinstance(it.filter, FalseRuleFilter) for it in listed)


def test_rules_keep_the_types_of_their_values(admin, topic):
    values = {
        "text": " a < b & ü ", "int": 2, "long": 2**31, "flag": True, "double": 1.5,
        "when": datetime.datetime(2020, 7, 5, 11, 12, 13, tzinfo=datetime.timezone.utc),
        "span": datetime.timedelta(days=1, hours=2, minutes=3),
    }
    system = {
        name: f"its {name}"
        for name in (
            "correlation_id", "message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id",
            "content_type",
        )
    }
    admin.create_rule(topic, "all", "correlation", filter=CorrelationRuleFilter(**system, properties=values))
    shown = admin.get_rule(topic, "all", "correlation").filter
    assert dict(shown.properties) == values and {name: getattr(shown, name) for name in system} == system
    assert {name: type(value) for name, value in shown.properties.items()} == {
        name: type(value) for name, value in values.items()
    }
    parameters = {f"@{name}": value for name, value in values.items()}
    text = "n > @int AND (x = @text OR x = @long OR x = @flag OR x = @double OR x = @when OR x = @span)"
    admin.create_rule(
        topic, "all", "sql", filter=SqlRuleFilter(text, parameters),
        action=SqlRuleAction("SET a = @int", {"@int": 7}),
    )
    (shown,) = [it for it in admin.list_rules(topic, "all") if it.name == "sql"]
    assert shown.filter.sql_expression == text and dict(shown.filter.parameters) == parameters
    assert (shown.action.sql_expression, dict(shown.action.parameters)) == ("SET a = @int", {"@int": 7})
    # What was shown can be sent back.
    admin.update_rule(topic, "all", shown)
    assert dict(admin.get_rule(topic, "all", "sql").filter.parameters) == parameters


@pytest.mark.parametrize(("options", "says"), [
    ({"filter": SqlRuleFilter("color =")}, "column 8"),
    ({"filter": SqlRuleFilter("")}, "not valid"),
    ({"filter": SqlRuleFilter("sys.Nothing = 1")}, "no system property"),
    ({"filter": SqlRuleFilter("color = @missing")}, "@missing has no value"),
    ({"filter": SqlRuleFilter("x" * 1025)}, "1025 characters, the maximum is 1024"),
    ({"action": SqlRuleAction("RUN everything")}, "the action is not valid"),
    ({"rule_name": "x" * 51}, "1 to 50 characters"),
    ({"rule_name": "a?b"}, "the character"),
])
def test_what_is_no_rule_is_refused(admin, topic, options, says):
    with pytest.raises(HttpResponseError, match=says) as refused:
        admin.create_rule(topic, "all", **{"rule_name": "r", **options})
    assert refused.value.status_code == 400
    assert [it.name for it in admin.list_rules(topic, "all")] == ["$Default"]


def test_rules_select_and_change_messages(admin, client, topic):
    for name, rule in (
        ("red", {"filter": CorrelationRuleFilter(properties={"color": "red"})}),
        ("large", {"filter": SqlRuleFilter("size > 5 AND sys.Label LIKE 'o%'")}),
        ("changed", {
            "filter": SqlRuleFilter("color = 'blue'"),
            "action": SqlRuleAction("SET size = size * 2; SET sys.Label = 'changed'; REMOVE color"),
        }),
        ("fails", {"filter": SqlRuleFilter("10 / size > 0")}),
    ):
        admin.create_subscription(topic, name, dead_lettering_on_filter_evaluation_exceptions=True)
        admin.delete_rule(topic, name, "$Default")
        admin.create_rule(topic, name, "r", **rule)
    with client.get_topic_sender(topic) as sender:
        sender.send_messages([
            Message(body, subject="order", application_properties={"color": color, "size": size})
            for body, color, size in (("one", "red", 1), ("two", "blue", 9), ("three", "green", 0))
        ])

    def received(name, **more):
        # A publish is accepted when its copies have been made.
        with client.get_subscription_receiver(topic, name, **more) as receiver:
            return receiver.peek_messages(10)

    def shown(message):
        properties = {
            (key.decode() if isinstance(key, bytes) else key): (value.decode() if isinstance(value, bytes) else value)
            for key, value in message.application_properties.items()
        }
        return str(message), message.subject, properties

    assert [shown(it) for it in received("red")] == [("one", "order", {"color": "red", "size": 1})]
    assert [shown(it) for it in received("large")] == [("two", "order", {"color": "blue", "size": 9})]
    assert [shown(it) for it in received("changed")] == [("two", "changed", {"size": 18, "RuleName": "r"})]
    assert [str(it) for it in received("fails")] == ["one", "two"]
    (dead,) = received("fails", sub_queue="deadletter")
    assert (str(dead), dead.dead_letter_reason) == ("three", "FilterException")
    assert "division by zero" in dead.dead_letter_error_description
    assert [str(it) for it in received("all")] == ["one", "two", "three"]


def test_a_topic_that_filters_refuses_what_no_rule_selects(admin, client, topic):
    made = admin.get_topic(topic)
    assert made.filtering_messages_before_publishing is False
    # The SDK reads this setting, and leaves it out of what it sends.
    made._internal_td.filtering_messages_before_publishing = True
    admin.update_topic(made)
    assert admin.get_topic(topic).filtering_messages_before_publishing is True
    publish(client, topic, Message("kept"))
    admin.delete_subscription(topic, "More")
    admin.delete_rule(topic, "all", "$Default")
    admin.create_rule(topic, "all", "red", filter=CorrelationRuleFilter(properties={"color": "red"}))
    red, blue = (Message(color, application_properties={"color": color}) for color in ("red", "blue"))
    with client.get_topic_sender(topic) as sender:
        for messages in (blue, [red, blue]):
            with pytest.raises(ServiceBusError, match="com.microsoft:no-matching-subscription"):
                sender.send_messages(messages)
        sender.send_messages(red)
    assert texts(copies(client, topic, "all", 2)) == ["kept", "red"]


def test_names_that_are_for_subscriptions_are_refused(admin, topic):
    for name in (f"{topic}/subscriptions", f"{topic}/subscriptions/all"):
        for create in (admin.create_queue, admin.create_topic):
            with pytest.raises(HttpResponseError, match="subscriptions"):
                create(name)
    assert [it.name for it in admin.list_subscriptions(topic)] == ["all", "More"]


def copies(client, topic, name, count):
    """Takes so many messages of a subscription for good."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_subscription_receiver(topic, name, receive_mode=mode) as receiver:
        return take(receiver, count)


def test_scheduled_messages_use_the_rules_of_their_time(admin, client, topic):
    with client.get_topic_sender(topic) as sender:
        numbers = sender.schedule_messages([Message("never"), Message("ever")], utc_now() + datetime.timedelta(hours=1))
        assert admin.get_topic_runtime_properties(topic).scheduled_message_count == 2
        sender.cancel_scheduled_messages(numbers)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers)
        past = utc_now() - datetime.timedelta(hours=1)
        sender.send_messages(Message("past", scheduled_enqueue_time_utc=past))
        assert texts(copies(client, topic, "all", 1)) == ["past"]
        assert texts(copies(client, topic, "More", 1)) == ["past"]
        soon = utc_now() + datetime.timedelta(seconds=20)
        sender.schedule_messages(Message("soon", application_properties={"color": "red"}), soon)
        sender.send_messages(Message("too", application_properties={"color": "blue"}, scheduled_enqueue_time_utc=soon))
    # Rules that change before that count, and a subscription that is made before it.
    admin.create_rule(topic, "more", "red", filter=CorrelationRuleFilter(properties={"color": "red"}))
    admin.delete_rule(topic, "more", "$Default")
    admin.create_subscription(topic, "late")
    assert admin.get_topic_runtime_properties(topic).scheduled_message_count == 2
    received = copies(client, topic, "all", 2)
    assert texts(received) == ["soon", "too"] and utc_now() >= soon - datetime.timedelta(milliseconds=50)
    # Four numbers of the topic were for schedules, and one was for the past.
    assert [it.enqueued_sequence_number for it in received] == [6, 7]
    assert texts(copies(client, topic, "late", 2)) == ["soon", "too"]
    assert texts(copies(client, topic, "More", 1)) == ["soon"]
    with client.get_subscription_receiver(topic, "More") as receiver:
        assert is_empty(receiver)
    assert admin.get_topic_runtime_properties(topic).scheduled_message_count == 0


def test_a_disabled_topic_still_activates(admin, client, topic):
    with client.get_topic_sender(topic) as sender:
        sender.schedule_messages(Message("x"), utc_now() + datetime.timedelta(seconds=2))
    admin.update_topic(admin.get_topic(topic), status=EntityStatus.DISABLED)

    deadline = time.monotonic() + 60
    while admin.get_subscription_runtime_properties(topic, "all").active_message_count == 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    admin.update_topic(admin.get_topic(topic), status=EntityStatus.ACTIVE)
    assert texts(copies(client, topic, "all", 1)) == ["x"]


def test_queues_and_subscriptions_forward_to_topics(admin, client, topic):
    queue, end = f"{topic}-in", f"{topic}-end"
    admin.create_queue(queue, forward_to=topic)
    assert admin.get_queue(queue).forward_to.endswith(topic)
    admin.create_topic(end, requires_duplicate_detection=True)
    admin.create_subscription(end, "red", forward_dead_lettered_messages_to=topic)
    admin.delete_rule(end, "red", "$Default")
    admin.create_rule(end, "red", "red", filter=CorrelationRuleFilter(properties={"color": "red"}))
    admin.update_subscription(topic, admin.get_subscription(topic, "More"), forward_to=end)
    with client.get_queue_sender(queue) as sender:
        for body, color in (("one", "red"), ("two", "blue"), ("three", "red")):
            # The third one has the id of the first one.
            message = Message(body, message_id=color, application_properties={"color": color})
            sender.send_messages(message)
    assert texts(copies(client, topic, "all", 3)) == ["one", "two", "three"]
    with client.get_subscription_receiver(end, "red") as receiver:
        (one,) = take(receiver)
        assert texts([one]) == ["one"]
        receiver.dead_letter_message(one, reason="why")
    # Its dead letter comes back to the first topic, whose other copy is a duplicate in the second one.
    (dead,) = copies(client, topic, "all", 1)
    assert (str(dead), dead.dead_letter_reason) == ("one", "why")
    assert dead.dead_letter_source.lower() == f"{end}/subscriptions/red"
    with client.get_subscription_receiver(end, "red") as receiver:
        assert is_empty(receiver)
    # A topic that takes nothing makes dead letters at the source.
    admin.update_topic(admin.get_topic(topic), status=EntityStatus.DISABLED)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(Message("four"))
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = take(receiver)
        assert (str(dead), dead.dead_letter_reason) == ("four", "ForwardingDestinationUnavailable")
    with pytest.raises(HttpResponseError, match="could not be found"):
        admin.create_queue(f"{queue}-2", forward_to=f"{topic}-missing")
    for remove in (lambda: admin.delete_queue(queue), lambda: admin.delete_topic(end)):
        remove()


def test_four_hops_through_a_topic(admin, client, topic):
    admin.create_subscription(topic, "circle", forward_to=topic)
    publish(client, topic, Message("x"))
    assert texts(copies(client, topic, "all", 5)) == ["x"] * 5
    with client.get_subscription_receiver(topic, "circle", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = take(receiver)
        assert (str(dead), dead.dead_letter_reason) == ("x", "MaxTransferHopCountExceeded")
