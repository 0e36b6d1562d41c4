package kew.conformance;

import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.caused;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.refusedAs;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.text;
import static kew.conformance.Topics.copies;
import static kew.conformance.Topics.letters;
import static kew.conformance.Topics.peeked;
import static kew.conformance.Topics.receiver;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.json.JsonProviders;
import com.azure.json.JsonReader;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Topics and subscriptions: copies, sessions, rules. */
class TopicsTest {
    private static Topics topics;
    private static ServiceBusAdministrationClient admin;

    @BeforeAll
    static void needsAPort() {
        topics = new Topics();
        admin = topics.admin;
    }

    /** The SDK's own type for amqp:not-allowed. */
    private static void notAllowed(String why, Executable operation) {
        String message = caused(UnsupportedOperationException.class, operation).getMessage();
        assertTrue(message.contains(why), message);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void eachSubscriptionGetsACopyOfItsOwn(Door door) {
        String topic = topics.create("copied", door);
        admin.createSubscription(topic, "one");
        admin.createSubscription(topic, "two");
        try (Bus bus = door.connect()) {
            var sender = bus.closing(bus.builder.sender().topicName(topic).buildClient());
            sender.sendMessages(List.of(text("a"), text("b")));
            assertEquals(2, admin.getSubscriptionRuntimeProperties(topic, "one").getActiveMessageCount());
            var one = receiver(bus, topic, "one");
            var copies = take(one, 2);
            assertEquals(List.of("a", "b"), bodies(copies));
            one.complete(copies.get(0));
            one.deadLetter(copies.get(1), new DeadLetterOptions().setDeadLetterReason("why"));
            var letter = drop(letters(bus, topic, "one"));
            assertEquals(List.of("b", "why"), List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
            // The copies of the other subscription are still there.
            assertEquals(List.of("a", "b"), peeked(bus, topic, "two"));
            // A subscription is received from, and a topic is sent to.
            notAllowed("send them to its topic", () -> bus.send(topic + "/Subscriptions/one", "x"));
            notAllowed("receive them from a subscription",
                () -> bus.receiver(topic).receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void sessionsOfASubscription(Door door) {
        String topic = topics.create("sessions", door);
        for (String name : List.of("s", "t")) {
            admin.createSubscription(topic, name, new CreateSubscriptionOptions().setSessionRequired(true));
        }
        try (Bus bus = door.connect()) {
            bus.send(topic, text("a").setSessionId("first"), text("b").setSessionId("second"),
                text("c").setSessionId("first"), text("without"));
            var sessions = bus.closing(bus.builder.sessionReceiver().topicName(topic).subscriptionName("s")
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
            var named = bus.closing(sessions.acceptSession("second"));
            // On the same connection, the SDK would give the same link again.
            try (Bus other = door.connect()) {
                var again = other.closing(other.builder.sessionReceiver().topicName(topic).subscriptionName("s")
                    .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
                refusedAs(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, () -> again.acceptSession("second"));
            }
            assertEquals("b", drop(named).getBody().toString());
            var next = bus.closing(sessions.acceptNextSession());
            assertEquals("first", next.getSessionId());
            assertEquals(List.of("a", "c"), bodies(take(next, 2)));
            next.setSessionState("state".getBytes());
            assertEquals("state", new String(next.getSessionState()));
            // The sessions of the other subscription are its own.
            var others = bus.closing(bus.builder.sessionReceiver().topicName(topic).subscriptionName("t")
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
            var other = bus.closing(others.acceptSession("first"));
            assertEquals(0, other.getSessionState() == null ? 0 : other.getSessionState().length);
            assertEquals(List.of("a", "c"), bodies(take(other, 2)));
            for (String name : List.of("s", "t")) {
                var letter = drop(letters(bus, topic, name));
                assertEquals("without", letter.getBody().toString());
                assertEquals("Session id is null.", letter.getDeadLetterReason());
            }
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void theDefaultRuleIsARuleLikeOthers(Door door) {
        String topic = topics.create("default", door);
        admin.createSubscription(topic, "s");
        var rule = admin.getRule(topic, "s", "$Default");
        assertEquals("$Default", rule.getName());
        assertInstanceOf(TrueRuleFilter.class, rule.getFilter());
        try (Bus bus = door.connect()) {
            bus.send(topic, "all");
            admin.deleteRule(topic, "s", "$default");
            bus.send(topic, "none");
            admin.createRule(topic, "$Default", "s", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("yes")));
            bus.send(topic, text("selected").setSubject("yes"), text("not").setSubject("no"));
            admin.updateRule(topic, "s", rule.setFilter(new SqlRuleFilter("sys.Label = 'no'")));
            bus.send(topic, text("not").setSubject("yes"), text("updated").setSubject("no"));
            assertEquals(List.of("all", "selected", "updated"), peeked(bus, topic, "s"));
        }
        admin.deleteTopic(topic);
    }

    /** The fields of a correlation filter, and what sets them in a message. */
    private enum Field {
        CORRELATION_ID, MESSAGE_ID, TO, REPLY_TO, SUBJECT, SESSION_ID, REPLY_TO_SESSION_ID, CONTENT_TYPE, PROPERTY;

        void set(CorrelationRuleFilter filter, String value) {
            switch (this) {
                case CORRELATION_ID -> filter.setCorrelationId(value);
                case MESSAGE_ID -> filter.setMessageId(value);
                case TO -> filter.setTo(value);
                case REPLY_TO -> filter.setReplyTo(value);
                case SUBJECT -> filter.setLabel(value);
                case SESSION_ID -> filter.setSessionId(value);
                case REPLY_TO_SESSION_ID -> filter.setReplyToSessionId(value);
                case CONTENT_TYPE -> filter.setContentType(value);
                case PROPERTY -> filter.getProperties().put("color", value);
                default -> throw new AssertionError(this);
            }
        }

        void set(ServiceBusMessage message, String value) {
            switch (this) {
                case CORRELATION_ID -> message.setCorrelationId(value);
                case MESSAGE_ID -> message.setMessageId(value);
                case TO -> message.setTo(value);
                case REPLY_TO -> message.setReplyTo(value);
                case SUBJECT -> message.setSubject(value);
                case SESSION_ID -> message.setSessionId(value);
                case REPLY_TO_SESSION_ID -> message.setReplyToSessionId(value);
                case CONTENT_TYPE -> message.setContentType(value);
                case PROPERTY -> message.getApplicationProperties().put("color", value);
                default -> throw new AssertionError(this);
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void eachFieldOfACorrelationFilter(Door door) {
        String topic = topics.create("fields", door);
        var all = new CorrelationRuleFilter();
        ServiceBusMessage whole = text("whole");
        for (Field field : Field.values()) {
            var filter = new CorrelationRuleFilter();
            field.set(filter, "x");
            topics.subscribe(topic, field.name(), filter);
            field.set(all, "x");
            field.set(whole, "x");
        }
        topics.subscribe(topic, "all", all);
        topics.subscribe(topic, "case", new CorrelationRuleFilter().setLabel("X"));
        try (Bus bus = door.connect()) {
            bus.send(topic, whole);
            // Each message differs in one field.
            for (Field field : Field.values()) {
                ServiceBusMessage message = text(field.name());
                for (Field each : Field.values()) {
                    each.set(message, each == field ? "other" : "x");
                }
                bus.send(topic, message);
            }
            for (Field field : Field.values()) {
                List<String> expected = new ArrayList<>(List.of("whole"));
                for (Field each : Field.values()) {
                    if (each != field) {
                        expected.add(each.name());
                    }
                }
                assertEquals(expected, peeked(bus, topic, field.name()), field.name());
            }
            assertEquals(List.of("whole"), peeked(bus, topic, "all"));
            assertEquals(List.of(), peeked(bus, topic, "case"));
        }
        admin.deleteTopic(topic);
    }

    /** The messages and filters of conformance/filters.json, which the suites of all languages have. */
    @SuppressWarnings("unchecked")
    private static Map<String, Object> table() throws IOException {
        try (JsonReader reader = JsonProviders.createReader(Files.readString(Path.of("../filters.json")))) {
            return (Map<String, Object>) reader.readUntyped();
        }
    }

    @SuppressWarnings("unchecked")
    private static ServiceBusMessage messageOfTable(Map<String, Object> fields) {
        ServiceBusMessage message = text((String) fields.get("body"))
            .setSubject((String) fields.get("subject")).setCorrelationId((String) fields.get("correlationId"))
            .setTo((String) fields.get("to")).setReplyTo((String) fields.get("replyTo"))
            .setContentType((String) fields.get("contentType")).setSessionId((String) fields.get("sessionId"))
            .setReplyToSessionId((String) fields.get("replyToSessionId"));
        if (fields.containsKey("messageId")) {
            message.setMessageId((String) fields.get("messageId"));
        }
        message.getApplicationProperties().putAll((Map<String, Object>) fields.get("applicationProperties"));
        return message;
    }

    /**
     * Each filter is a rule with an action, which gives a copy with the name of the rule. What a filter selects does not
     * depend on the way to the server.
     */
    @Test
    @SuppressWarnings("unchecked")
    void whatSqlFiltersSelect() throws IOException {
        String topic = topics.create("selected", Door.AMQP);
        topics.subscribe(topic, "s", new FalseRuleFilter());
        Map<String, Object> table = table();
        Map<String, List<String>> expected = new TreeMap<>();
        Map<String, List<String>> found = new TreeMap<>();
        Map<String, String> filters = new TreeMap<>();
        for (Object group : ((Map<String, Object>) table.get("selects")).values()) {
            ((Map<String, List<String>>) group).forEach((filter, selected) -> {
                String rule = "r" + filters.size();
                admin.createRule(topic, rule, "s",
                    new CreateRuleOptions(new SqlRuleFilter(filter)).setAction(new SqlRuleAction("SET seen = TRUE")));
                filters.put(rule, filter);
                expected.put(filter, selected);
                found.put(filter, new ArrayList<>());
            });
        }
        try (Bus bus = Door.AMQP.connect()) {
            for (Object message : (List<Object>) table.get("messages")) {
                bus.send(topic, messageOfTable((Map<String, Object>) message));
            }
            int count = expected.values().stream().mapToInt(List::size).sum();
            for (var copy : copies(bus, topic, "s", count)) {
                assertEquals(true, copy.getApplicationProperties().get("seen"));
                found.get(filters.get(copy.getApplicationProperties().get("RuleName")))
                    .add(copy.getBody().toString());
            }
            assertEquals(expected, found);
            assertEquals(0, admin.getSubscriptionRuntimeProperties(topic, "s").getTotalMessageCount());
        }
        admin.deleteTopic(topic);
    }

    /** The first entity that the client uses is the subscription, as where a service handles its messages. */
    @ParameterizedTest
    @EnumSource(Door.class)
    void aTransactionSpansASubscriptionATopicAndAQueue(Door door) {
        String topic = topics.create("in-transactions", door);
        admin.createSubscription(topic, "one");
        admin.createSubscription(topic, "two");
        String queue = Door.fresh("plain");
        try (Bus bus = door.connect()) {
            bus.send(topic, "first", "second");
            bus.builder.enableCrossEntityTransactions();
            var one = receiver(bus, topic, "one");
            var sender = bus.sender(queue);
            var publisher = bus.closing(bus.builder.sender().topicName(topic).buildClient());
            for (var message : take(one, 2)) {
                var transaction = one.createTransaction();
                publisher.sendMessage(text("about " + message.getBody()), transaction);
                sender.sendMessage(text("of " + message.getBody()), transaction);
                one.complete(message, new CompleteOptions().setTransactionContext(transaction));
                assertEquals(2, bodies(receiver(bus, topic, "two").peekMessages(10, 0)).size());
                if (message.getBody().toString().equals("first")) {
                    one.rollbackTransaction(transaction);
                } else {
                    one.commitTransaction(transaction);
                }
            }
            assertEquals("about second", drop(one).getBody().toString());
            assertEquals(List.of("first", "second", "about second"), bodies(take(receiver(bus, topic, "two"), 3)));
            assertEquals("of second", drop(bus.receiver(queue)).getBody().toString());
            // The rolled back one is still locked, and was not completed.
            assertEquals(List.of("first"), bodies(one.peekMessages(10, 0)));
        }
        admin.deleteTopic(topic);
    }

    /**
     * The values of properties and filters are those that this SDK sends. Its client for administration sends every
     * value of a filter as a text, and its rule manager does not.
     */
    @ParameterizedTest
    @EnumSource(Door.class)
    void filtersSelectByTheValuesOfTheSdk(Door door) {
        String topic = topics.create("filtered", door);
        Map<String, RuleFilter> filters = new TreeMap<>();
        filters.put("whole", new SqlRuleFilter("whole = 3 AND big = 5000000000 AND part = 1.5"));
        filters.put("flag", new SqlRuleFilter("flag = TRUE AND color LIKE 'r%'"));
        var parameter = new SqlRuleFilter("color = @color");
        parameter.getParameters().put("@color", "red");
        filters.put("parameter", parameter);
        var property = new CorrelationRuleFilter();
        property.getProperties().put("color", "red");
        filters.put("property", property);
        filters.put("system", new CorrelationRuleFilter().setLabel("order").setContentType("text/plain"));
        filters.forEach((name, filter) -> topics.subscribe(topic, name, new CreateRuleOptions(filter)));
        topics.subscribe(topic, "nothing", new CreateRuleOptions(new FalseRuleFilter()));
        topics.subscribe(topic, "managed", new CreateRuleOptions(new FalseRuleFilter()));
        try (Bus bus = door.connect()) {
            ServiceBusMessage message = text("yes").setSubject("order").setContentType("text/plain");
            message.getApplicationProperties().putAll(
                Map.of("whole", 3, "big", 5_000_000_000L, "part", 1.5, "flag", true, "color", "red"));
            var managed = new CorrelationRuleFilter();
            managed.getProperties().putAll(Map.of("whole", 3, "big", 5_000_000_000L, "part", 1.5, "flag", true));
            bus.closing(bus.builder.ruleManager().topicName(topic).subscriptionName("managed").buildClient())
                .createRule("typed", new CreateRuleOptions(managed));
            bus.send(topic, message, text("no"));
            for (String name : filters.keySet()) {
                assertEquals(List.of("yes"), peeked(bus, topic, name), name);
            }
            assertEquals(List.of("yes"), peeked(bus, topic, "managed"));
            assertEquals(List.of(), peeked(bus, topic, "nothing"));
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void actionsChangeCopies(Door door) {
        String topic = topics.create("changed", door);
        var action = new SqlRuleAction("SET whole = whole + 10; SET sys.Label = @label; REMOVE color");
        action.getParameters().put("@label", "changed");
        topics.subscribe(topic, "s", new CreateRuleOptions(new SqlRuleFilter("color = 'red'")).setAction(action));
        admin.createRule(topic, "plain", "s", new CreateRuleOptions(new SqlRuleFilter("1=1")));
        admin.createRule(topic, "also-plain", "s", new CreateRuleOptions(new SqlRuleFilter("1=1")));
        admin.createRule(topic, "second", "s",
            new CreateRuleOptions(new TrueRuleFilter()).setAction(new SqlRuleAction("SET sys.To = 'there'")));
        admin.createRule(topic, "unused", "s",
            new CreateRuleOptions(new SqlRuleFilter("color = 'blue'")).setAction(new SqlRuleAction("SET a = 1")));
        try (Bus bus = door.connect()) {
            ServiceBusMessage message = text("x");
            message.getApplicationProperties().putAll(Map.of("color", "red", "whole", 1));
            bus.send(topic, message);
            // The rules without an action give one copy, and each other rule gives its own.
            var copies = copies(bus, topic, "s", 3);
            assertEquals(Map.of("color", "red", "whole", 1), copies.get(0).getApplicationProperties());
            assertEquals("changed", copies.get(1).getSubject());
            assertEquals("{RuleName=r, whole=11}", new TreeMap<>(copies.get(1).getApplicationProperties()).toString());
            assertEquals("there", copies.get(2).getTo());
            assertEquals("{RuleName=second, color=red, whole=1}",
                new TreeMap<>(copies.get(2).getApplicationProperties()).toString());
            assertEquals(List.of(), peeked(bus, topic, "s"));
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aFilterThatFailsGivesADeadLetterIfTheSubscriptionAsksForIt(Door door) {
        String topic = topics.create("failing", door);
        for (boolean asks : List.of(true, false)) {
            admin.createSubscription(topic, "" + asks, "fails",
                new CreateSubscriptionOptions().setEnableDeadLetteringOnFilterEvaluationExceptions(asks),
                new CreateRuleOptions(new SqlRuleFilter("10 / n > 0")));
        }
        try (Bus bus = door.connect()) {
            for (int n : List.of(0, 2)) {
                ServiceBusMessage message = text("" + n);
                message.getApplicationProperties().put("n", n);
                bus.send(topic, message);
            }
            assertEquals(List.of("2"), peeked(bus, topic, "true"));
            assertEquals(List.of("2"), peeked(bus, topic, "false"));
            assertEquals(List.of(), bodies(letters(bus, topic, "false").peekMessages(10)));
            var letter = drop(letters(bus, topic, "true"));
            assertEquals(List.of("0", "FilterException"),
                List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
            String why = letter.getDeadLetterErrorDescription();
            assertTrue(why.contains("division by zero"), why);
        }
        admin.deleteTopic(topic);
    }

    private static ServiceBusMessage order(String color, int size) {
        ServiceBusMessage message = text(color).setMessageId(color).setSubject("order");
        message.getApplicationProperties().putAll(Map.of("color", color, "size", size));
        return message;
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aTopicOfTheConfigurationFile(Door door) {
        String topic = "configured-" + door.name().toLowerCase();
        try (Bus bus = door.connect()) {
            bus.send(topic, order("red", 1), order("blue", 9), order("red", 9));
            // It drops duplicates.
            var expected = Map.of("all", List.of("{color=red, size=1}", "{color=blue, size=9}"), "red",
                List.of("{color=red, size=1}"), "large", List.of("{RuleName=size, color=blue, size=5}"));
            for (String name : expected.keySet()) {
                List<String> found = receiver(bus, topic, name).peekMessages(10).stream()
                    .map(it -> new TreeMap<>(it.getApplicationProperties()).toString()).toList();
                assertEquals(expected.get(name), found, name);
            }
            var receiver = receiver(bus, topic, "all");
            for (int count = 0; count < 3; count++) {
                var first = Bus.takeOne(receiver);
                assertEquals(Duration.ofMinutes(30), Duration.between(first.getEnqueuedTime(), first.getExpiresAt()));
                receiver.abandon(first);
            }
            var letter = drop(letters(bus, topic, "all"));
            assertEquals(List.of("red", "MaxDeliveryCountExceeded"),
                List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
        }
    }
}
