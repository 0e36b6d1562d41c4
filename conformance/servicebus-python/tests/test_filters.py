"""Which messages a subscription gets: filters and actions, as the SDK sends and shows them. The engine of filters has
tests of its own; these show that a message's parts arrive in it."""

import json
import os
import pathlib
import re
import uuid

import pytest
from azure.servicebus import ServiceBusMessage as Message
from azure.servicebus.management import CorrelationRuleFilter as Correlation
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter, TrueRuleFilter
from conftest import Door, texts
from test_administration import connect

pytestmark = pytest.mark.skipif(not os.environ["KEW_BUS_HTTPS"], reason="no port 443")


@pytest.fixture
def admin():
    with connect() as admin:
        yield admin


@pytest.fixture
def topic(admin):
    name = f"x-filtered-{uuid.uuid4()}"
    admin.create_topic(name)
    yield name
    admin.delete_topic(name)


@pytest.fixture
def client():
    """What a filter selects does not depend on the way to the server."""
    with Door("amqp", os.environ["KEW_BUS_CONNECTION_STRING"]).connect() as client:
        yield client


def subscribe(admin, topic, name, *rules):
    """A subscription with these rules and no other; a rule is a filter, or a filter and an action."""
    admin.create_subscription(topic, name)
    for number, rule in enumerate(rules):
        selected, action = rule if isinstance(rule, tuple) else (rule, None)
        admin.create_rule(topic, name, f"r{number}", filter=selected, action=action)
    admin.delete_rule(topic, name, "$Default")


def publish(client, topic, messages):
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(messages)


def peeked(client, topic, name, **more):
    """All messages there. A publish is accepted when its copies have been made, so nobody has to wait."""
    with client.get_subscription_receiver(topic, name, **more) as receiver:
        return receiver.peek_messages(20)


def test_each_field_of_a_correlation_filter(admin, client, topic):
    fields = {
        "correlation_id": "c", "message_id": "m", "to": "t", "reply_to": "r", "label": "l", "session_id": "s",
        "reply_to_session_id": "rs", "content_type": "text/plain",
    }
    options = {("subject" if name == "label" else name): value for name, value in fields.items()}
    for name, value in fields.items():
        subscribe(admin, topic, name, Correlation(**{name: value}))
    subscribe(admin, topic, "all", Correlation(**fields, properties={"n": 1, "color": "red"}))
    subscribe(admin, topic, "case", Correlation(label="L"))
    subscribe(admin, topic, "another", Correlation(**{**fields, "to": "elsewhere"}))
    subscribe(admin, topic, "property", Correlation(properties={"n": 1}))
    subscribe(admin, topic, "text", Correlation(properties={"n": "1"}))
    subscribe(admin, topic, "both", Correlation(properties={"n": 1, "color": "blue"}))
    publish(client, topic, [
        Message("whole", **options, application_properties={"n": 1, "color": "red"}),
        Message("other", message_id="x", subject="x"),
    ])
    for name in [*fields, "all", "property"]:
        assert texts(peeked(client, topic, name)) == ["whole"], name
    for name in ("case", "another", "text", "both"):
        assert peeked(client, topic, name) == [], name


# Filters and the messages that each selects, which the suites of all languages have. The message "none" has no
# properties.
TABLE = json.loads((pathlib.Path(__file__).parents[2] / "filters.json").read_text())
SELECTS = TABLE["selects"]


def message_of_table(fields):
    """The fields of a message have the names of JavaScript."""
    options = {re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name): it for name, it in fields.items()}
    return Message(options.pop("body"), **options)


@pytest.mark.parametrize("group", SELECTS)
def test_what_sql_filters_select(admin, client, topic, group):
    for number, text in enumerate(SELECTS[group]):
        subscribe(admin, topic, f"s{number}", SqlRuleFilter(text))
    publish(client, topic, [message_of_table(fields) for fields in TABLE["messages"]])
    selected = {text: texts(peeked(client, topic, f"s{number}")) for number, text in enumerate(SELECTS[group])}
    assert selected == SELECTS[group]


def test_parameters_of_filters_and_actions(admin, client, topic):
    subscribe(
        admin, topic, "s",
        (SqlRuleFilter("n > @low AND color = @color", {"@low": 0, "@color": "red"}),
         SqlRuleAction("SET n = n + @more", {"@more": 10})),
    )
    publish(client, topic, [
        Message("one", application_properties={"n": 1, "color": "red"}),
        Message("two", application_properties={"n": 1, "color": "blue"}),
    ])
    (message,) = peeked(client, topic, "s")
    assert (str(message), message.application_properties[b"n"]) == ("one", 11)


def test_rules_without_actions_give_one_copy_and_each_action_its_own(admin, client, topic):
    subscribe(
        admin, topic, "s", SqlRuleFilter("n = 1"), TrueRuleFilter(), Correlation(label="order"),
        (TrueRuleFilter(), SqlRuleAction("SET n = 2; SET sys.Label = 'second'; SET added = 'x'")),
        (SqlRuleFilter("n = 1"), SqlRuleAction("REMOVE n; SET sys.To = 'there'")),
        (SqlRuleFilter("n = 5"), SqlRuleAction("SET n = 6")),
    )
    publish(client, topic, [Message("x", subject="order", application_properties={"n": 1})])

    def shown(message):
        properties = message.application_properties or {}
        return message.subject, message.to, {
            key.decode(): value.decode() if isinstance(value, bytes) else value for key, value in properties.items()
        }

    assert [shown(message) for message in peeked(client, topic, "s")] == [
        ("order", None, {"n": 1}),
        ("second", None, {"n": 2, "added": "x", "RuleName": "r3"}),
        ("order", "there", {"RuleName": "r4"}),
    ]


def test_a_filter_that_fails_gives_a_dead_letter_if_the_subscription_asks_for_it(admin, client, topic):
    for name, asks in (("asks", True), ("does-not", False)):
        admin.create_subscription(topic, name, dead_lettering_on_filter_evaluation_exceptions=asks)
        admin.create_rule(topic, name, "fails", filter=SqlRuleFilter("10 / n > 0"))
        admin.delete_rule(topic, name, "$Default")
    publish(client, topic, [Message("bad", application_properties={"n": 0})])
    publish(client, topic, [Message("good", application_properties={"n": 2})])
    for name in ("asks", "does-not"):
        assert texts(peeked(client, topic, name)) == ["good"]
    (dead,) = peeked(client, topic, "asks", sub_queue="deadletter")
    assert (str(dead), dead.dead_letter_reason) == ("bad", "FilterException")
    assert peeked(client, topic, "does-not", sub_queue="deadletter") == []
