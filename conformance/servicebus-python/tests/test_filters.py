"""Which messages a subscription gets: filters and actions, as the SDK sends and shows them. The engine of filters has
tests of its own; these show that a message's parts arrive in it."""

import os
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


PLAIN = {"n": 1, "f": 1.5, "color": "red", "flag": True, "my prop": "x", "sign": "50%_off"}
OTHER = {"n": 7, "f": -2.0, "color": "blue", "flag": False, "extra": "here"}
# The message "none" has no properties.
ONE, TWO, NONE = "one", "two", "none"

# Each filter, and the messages that it selects.
SELECTS = {
    "operators": [
        ("n = 1", [ONE]), ("n <> 1", [TWO]), ("n != 1", [TWO]), ("n < 7", [ONE]), ("n <= 7", [ONE, TWO]),
        ("n > 1", [TWO]), ("n >= 1", [ONE, TWO]), ("n = 1 OR color = 'blue'", [ONE, TWO]),
        ("n = 1 AND color = 'blue'", []), ("NOT n = 1", [TWO]), ("NOT n = 1 AND color = 'blue'", [TWO]),
        ("color > 'm'", [ONE]), ("flag = TRUE", [ONE]), ("f = 1.5", [ONE]), ("n = 1.0", [ONE]),
        ("1=1", [ONE, TWO, NONE]),
    ],
    "unknown": [
        ("missing = 1", []), ("NOT missing = 1", []), ("missing <> 1", []), ("missing = 1 OR n = 1", [ONE]),
        ("missing = 1 AND n = 1", []), ("NOT (missing = 1 AND n = 7)", [ONE]), ("missing = NULL", []),
        ("missing + 1 > 0", []), ("missing IN (1, 2)", []), ("missing NOT IN (1, 2)", []), ("missing LIKE '%'", []),
    ],
    "like": [
        ("color LIKE 'r%'", [ONE]), ("color LIKE '_lue'", [TWO]), ("color NOT LIKE 'r%'", [TWO]),
        ("color LIKE 'R%'", []), ("sign LIKE '50!%!_off' ESCAPE '!'", [ONE]), ("sign LIKE '50\\_%' ESCAPE '\\'", []),
        ("color LIKE '%e%'", [ONE, TWO]),
    ],
    "in": [
        ("n IN (1, 2)", [ONE]), ("n NOT IN (1, 2)", [TWO]), ("color IN ('red', 'blue')", [ONE, TWO]),
        ("sys.Label IN ('order')", [ONE, TWO]),
    ],
    "exists": [
        ("EXISTS(extra)", [TWO]), ("NOT EXISTS(extra)", [ONE, NONE]), ("extra IS NULL", [ONE, NONE]),
        ("extra IS NOT NULL", [TWO]), ("EXISTS(user.n)", [ONE, TWO]), ("sys.To IS NULL", [TWO, NONE]),
    ],
    "arithmetic": [
        ("n + 2 * 3 = 7", [ONE]), ("(n + 2) * 3 = 9", [ONE]), ("-n = -7", [TWO]), ("n % 2 = 1", [ONE, TWO]),
        ("n - 1 - 1 = -1", [ONE]), ("n / 2 = 3", [TWO]), ("f * 2 = 3.0", [ONE]),
        ("n = 1 OR n = 7 AND color = 'x'", [ONE]), ("color + '!' = 'red!'", [ONE]),
    ],
    "system": [
        ("sys.Label = 'order'", [ONE, TWO]), ("sys.MessageId = 'm1'", [ONE]), ("sys.CorrelationId = 'c'", [ONE]),
        ("sys.To = 't'", [ONE]), ("sys.ReplyTo = 'r'", [ONE]), ("sys.ContentType = 'text/plain'", [ONE]),
        ("sys.SessionId = 's'", [ONE]), ("sys.ReplyToSessionId = 'rs'", [ONE]), ("sys.label LIKE 'ord%'", [ONE, TWO]),
        ("SYS.MessageId = 'm1'", [ONE]),
    ],
    "names": [
        ("[my prop] = 'x'", [ONE]), ('"my prop" = \'x\'', [ONE]), ("user.color = 'red'", [ONE]),
        ("[color] = 'red'", [ONE]), ("COLOR = 'red'", [ONE]), ("color = 'it''s'", []), ("user.[my prop] = 'x'", [ONE]),
    ],
}


@pytest.mark.parametrize("group", SELECTS)
def test_what_sql_filters_select(admin, client, topic, group):
    for number, (text, _) in enumerate(SELECTS[group]):
        subscribe(admin, topic, f"s{number}", SqlRuleFilter(text))
    publish(client, topic, [
        Message(
            ONE, application_properties=PLAIN, subject="order", message_id="m1", correlation_id="c", to="t",
            reply_to="r", content_type="text/plain", session_id="s", reply_to_session_id="rs",
        ),
        Message(TWO, application_properties=OTHER, subject="order"),
        Message(NONE),
    ])
    selected = {
        text: texts(peeked(client, topic, f"s{number}")) for number, (text, _) in enumerate(SELECTS[group])
    }
    assert selected == dict(SELECTS[group])


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
