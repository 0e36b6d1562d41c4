package kew.conformance;

import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.caused;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Topics and subscriptions. They are administered over HTTPS only. */
class TopicsTest {
    private static ServiceBusAdministrationClient admin;

    @BeforeAll
    static void needsAPort() {
        assumeTrue(!System.getenv("KEW_BUS_HTTPS").isEmpty(), "no port 443");
        admin = new ServiceBusAdministrationClientBuilder().connectionString(Door.AMQPS.connectionString())
            .buildClient();
    }

    private static String newTopic(String name, Door door) {
        String topic = "x-" + name + "-of-java-" + door.name().toLowerCase();
        admin.createTopic(topic);
        return topic;
    }

    /** A subscription that has this rule and no other. */
    private static void subscribe(String topic, String name, CreateRuleOptions rule) {
        admin.createSubscription(topic, name, "r", new CreateSubscriptionOptions(), rule);
    }

    private static ServiceBusReceiverClient receiver(Bus bus, String topic, String name, SubQueue part) {
        return bus.closing(bus.builder.receiver().topicName(topic).subscriptionName(name).subQueue(part)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    private static ServiceBusReceiverClient receiver(Bus bus, String topic, String name) {
        return receiver(bus, topic, name, SubQueue.NONE);
    }

    /** The SDK's own type for amqp:not-allowed. */
    private static void refused(String why, Executable operation) {
        String message = caused(UnsupportedOperationException.class, operation).getMessage();
        assertTrue(message.contains(why), message);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void eachSubscriptionGetsACopyOfItsOwn(Door door) {
        String topic = newTopic("copied", door);
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
            var letter = drop(receiver(bus, topic, "one", SubQueue.DEAD_LETTER_QUEUE));
            assertEquals(List.of("b", "why"), List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
            // The copies of the other subscription are still there.
            assertEquals(List.of("a", "b"), bodies(receiver(bus, topic, "two").peekMessages(10)));
            // A subscription is received from, and a topic is sent to.
            refused("send them to its topic", () -> bus.send(topic + "/Subscriptions/one", "x"));
            refused("receive them from a subscription",
                () -> bus.receiver(topic).receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void sessionsOfASubscription(Door door) {
        String topic = newTopic("sessions", door);
        admin.createSubscription(topic, "s", new CreateSubscriptionOptions().setSessionRequired(true));
        try (Bus bus = door.connect()) {
            bus.send(topic, text("a").setSessionId("first"), text("b").setSessionId("second"), text("without"));
            var sessions = bus.closing(bus.builder.sessionReceiver().topicName(topic).subscriptionName("s")
                .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
            var named = bus.closing(sessions.acceptSession("second"));
            assertEquals("b", drop(named).getBody().toString());
            var next = bus.closing(sessions.acceptNextSession());
            assertEquals("first", next.getSessionId());
            assertEquals("a", drop(next).getBody().toString());
            next.setSessionState("state".getBytes());
            assertEquals("state", new String(next.getSessionState()));
            var letter = drop(receiver(bus, topic, "s", SubQueue.DEAD_LETTER_QUEUE));
            assertEquals("without", letter.getBody().toString());
        }
        admin.deleteTopic(topic);
    }

    /** The first entity that the client uses is the subscription, as where a service handles its messages. */
    @ParameterizedTest
    @EnumSource(Door.class)
    void aTransactionSpansASubscriptionATopicAndAQueue(Door door) {
        String topic = newTopic("in-transactions", door);
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
        String topic = newTopic("filtered", door);
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
        filters.forEach((name, filter) -> subscribe(topic, name, new CreateRuleOptions(filter)));
        subscribe(topic, "nothing", new CreateRuleOptions(new FalseRuleFilter()));
        subscribe(topic, "managed", new CreateRuleOptions(new FalseRuleFilter()));
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
                assertEquals(List.of("yes"), bodies(receiver(bus, topic, name).peekMessages(10)), name);
            }
            assertEquals(List.of("yes"), bodies(receiver(bus, topic, "managed").peekMessages(10)));
            assertEquals(List.of(), bodies(receiver(bus, topic, "nothing").peekMessages(10)));
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void actionsChangeCopies(Door door) {
        String topic = newTopic("changed", door);
        var action = new SqlRuleAction("SET whole = whole + 10; SET sys.Label = @label; REMOVE color");
        action.getParameters().put("@label", "changed");
        subscribe(topic, "s", new CreateRuleOptions(new SqlRuleFilter("color = 'red'")).setAction(action));
        admin.createRule(topic, "plain", "s", new CreateRuleOptions(new SqlRuleFilter("1=1")));
        admin.createRule(topic, "also-plain", "s", new CreateRuleOptions(new SqlRuleFilter("1=1")));
        subscribe(topic, "fails", new CreateRuleOptions(new SqlRuleFilter("10 / (whole - 1) > 0")));
        try (Bus bus = door.connect()) {
            ServiceBusMessage message = text("x");
            message.getApplicationProperties().putAll(Map.of("color", "red", "whole", 1));
            bus.send(topic, message);
            // Both rules without an action give one copy.
            var copies = take(receiver(bus, topic, "s"), 2);
            assertEquals(Map.of("color", "red", "whole", 1), copies.get(0).getApplicationProperties());
            assertEquals("changed", copies.get(1).getSubject());
            assertEquals("{RuleName=r, whole=11}", new TreeMap<>(copies.get(1).getApplicationProperties()).toString());
            var letter = drop(receiver(bus, topic, "fails", SubQueue.DEAD_LETTER_QUEUE));
            assertEquals("FilterException", letter.getDeadLetterReason());
        }
        admin.deleteTopic(topic);
    }
}
