package kew.conformance;

import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.caused;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.eventually;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.text;
import static kew.conformance.Topics.copies;
import static kew.conformance.Topics.letters;
import static kew.conformance.Topics.peeked;
import static kew.conformance.Topics.receiver;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Messages of topics: scheduled, forwarded, expired, sent twice. */
class TopicMessagesTest {
    private static Topics topics;
    private static ServiceBusAdministrationClient admin;

    @BeforeAll
    static void needsAPort() {
        topics = new Topics();
        admin = topics.admin;
    }

    private static ServiceBusMessage colored(String color) {
        ServiceBusMessage message = text(color);
        message.getApplicationProperties().put("color", color);
        return message;
    }

    private static CorrelationRuleFilter byColor(String color) {
        var filter = new CorrelationRuleFilter();
        filter.getProperties().put("color", color);
        return filter;
    }

    /** Bodies, each with its number in its subscription and its first number. */
    private static List<String> numbered(List<ServiceBusReceivedMessage> messages) {
        return messages.stream()
            .map(it -> it.getBody() + ":" + it.getSequenceNumber() + ":" + it.getEnqueuedSequenceNumber()).toList();
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void scheduledMessagesUseTheRulesOfTheirTime(Door door) {
        String topic = topics.create("scheduled", door);
        admin.createSubscription(topic, "all");
        topics.subscribe(topic, "some", byColor("red"));
        try (Bus bus = door.connect()) {
            var sender = bus.closing(bus.builder.sender().topicName(topic).buildClient());
            List<Long> cancelled = new ArrayList<>();
            sender.scheduleMessages(List.of(text("never"), text("ever")), OffsetDateTime.now().plusHours(1))
                .forEach(cancelled::add);
            assertEquals(List.of(1L, 2L), cancelled);
            assertEquals(2, admin.getTopicRuntimeProperties(topic).getScheduledMessageCount());
            sender.cancelScheduledMessages(cancelled);
            assertEquals(0, admin.getTopicRuntimeProperties(topic).getScheduledMessageCount());
            // What is due already does not wait.
            sender.sendMessage(text("past").setScheduledEnqueueTime(OffsetDateTime.now().minusHours(1)));
            assertEquals(List.of("past"), bodies(copies(bus, topic, "all", 1)));
            OffsetDateTime due = OffsetDateTime.now().plusSeconds(20);
            sender.scheduleMessage(colored("red"), due);
            sender.sendMessage(colored("blue").setScheduledEnqueueTime(due));
            // A rule that changes meanwhile counts, and a subscription that is made meanwhile.
            admin.updateRule(topic, "some", admin.getRule(topic, "some", "r").setFilter(byColor("blue")));
            admin.createSubscription(topic, "late");
            // They wait in the topic. On a connection with a sender, the SDK would not send the request.
            try (Bus other = door.connect()) {
                List<String> waiting = new ArrayList<>();
                other.receiver(topic).peekMessages(10).forEach(it -> waiting.add(it.getBody() + " " + it.getState()));
                assertEquals(List.of("red SCHEDULED", "blue SCHEDULED"), waiting);
            }
            assertEquals(2, admin.getTopicRuntimeProperties(topic).getScheduledMessageCount());
            var received = copies(bus, topic, "all", 2);
            assertFalse(OffsetDateTime.now().isBefore(due.minusNanos(50_000_000)));
            // Four numbers of the topic were for schedules, one was for the past, and a message that becomes active gets
            // a new one.
            assertEquals(List.of("red:2:6", "blue:3:7"), numbered(received));
            assertEquals(List.of("red", "blue"), bodies(copies(bus, topic, "late", 2)));
            assertEquals(List.of("blue"), bodies(copies(bus, topic, "some", 1)));
            assertEquals(List.of(), peeked(bus, topic, "some"));
            assertEquals(0, admin.getTopicRuntimeProperties(topic).getScheduledMessageCount());
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void theShortestLifeCounts(Door door) throws InterruptedException {
        String topic = topics.create("living", door);
        topics.change(topic, it -> it.setDefaultMessageTimeToLive(Duration.ofHours(1)));
        Map<String, Duration> lives = Map.of("short", Duration.ofMinutes(30), "long", Duration.ofHours(2));
        lives.forEach((name, life) -> admin.createSubscription(topic, name,
            new CreateSubscriptionOptions().setDefaultMessageTimeToLive(life)));
        admin.createSubscription(topic, "kept",
            new CreateSubscriptionOptions().setDeadLetteringOnMessageExpiration(true));
        try (Bus bus = door.connect()) {
            bus.send(topic, text("own"), text("minutes").setTimeToLive(Duration.ofMinutes(10)),
                text("second").setTimeToLive(Duration.ofSeconds(1)));
            var expected = Map.of("short", List.of("own PT30M", "minutes PT10M"), "long",
                List.of("own PT1H", "minutes PT10M"));
            for (var name : expected.keySet()) {
                List<String> found = new ArrayList<>();
                receiver(bus, topic, name).peekMessages(2).forEach(it -> found.add(
                    it.getBody() + " " + Duration.between(it.getEnqueuedTime(), it.getExpiresAt())));
                assertEquals(expected.get(name), found);
            }
            var letter = drop(letters(bus, topic, "kept"));
            assertEquals(List.of("second", "TTLExpiredException"),
                List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
            // The others did not ask for dead letters.
            for (String name : expected.keySet()) {
                eventually("it expires",
                    () -> admin.getSubscriptionRuntimeProperties(topic, name).getActiveMessageCount() == 2);
                assertEquals(0, admin.getSubscriptionRuntimeProperties(topic, name).getDeadLetterMessageCount());
            }
        }
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aTopicDropsDuplicatesAlsoOfWhatIsForwardedToIt(Door door) {
        String topic = topics.create("repeated", door);
        String unique = topic + "-unique";
        String queue = topic + "-in";
        admin.createTopic(unique, new CreateTopicOptions().setDuplicateDetectionRequired(true)
            .setDuplicateDetectionHistoryTimeWindow(Duration.ofMinutes(1)));
        for (String name : List.of("one", "two")) {
            admin.createSubscription(unique, name);
        }
        admin.createQueue(queue, new CreateQueueOptions().setForwardTo(unique));
        admin.createSubscription(topic, "s");
        try (Bus bus = door.connect()) {
            bus.send(unique, text("1").setMessageId("a"), text("2").setMessageId("a"), text("3").setMessageId("b"));
            bus.send(queue, text("4").setMessageId("b"), text("5").setMessageId("c"));
            for (String name : List.of("one", "two")) {
                // A duplicate takes no number, and what was forwarded keeps that of its queue.
                assertEquals(List.of("1:1:1", "3:2:2", "5:3:2"), numbered(copies(bus, unique, name, 3)));
                assertEquals(List.of(), peeked(bus, unique, name));
            }
            // The other topic drops none.
            bus.send(topic, text("1").setMessageId("a"), text("2").setMessageId("a"));
            assertEquals(List.of("1", "2"), peeked(bus, topic, "s"));
        }
        admin.deleteQueue(queue);
        admin.deleteTopic(unique);
        admin.deleteTopic(topic);
    }

    /** A queue to a topic, whose subscriptions forward to a queue and to a topic, whose dead letters go to a third topic. */
    @ParameterizedTest
    @EnumSource(Door.class)
    void queuesAndSubscriptionsForwardToTopicsAndQueues(Door door) {
        String topic = topics.create("forwarding", door);
        String into = topic + "-in";
        String out = topic + "-out";
        String end = topic + "-end";
        String dead = topic + "-dead";
        admin.createQueue(into, new CreateQueueOptions().setForwardTo(topic));
        admin.createQueue(out);
        admin.createTopic(end);
        admin.createTopic(dead);
        admin.createSubscription(topic, "all");
        admin.createSubscription(topic, "to-queue", new CreateSubscriptionOptions().setForwardTo(out));
        admin.createSubscription(topic, "to-topic", "r", new CreateSubscriptionOptions().setForwardTo(end),
            new CreateRuleOptions(byColor("red")).setAction(new SqlRuleAction("SET seen = 'yes'")));
        admin.createSubscription(end, "last", new CreateSubscriptionOptions().setForwardDeadLetteredMessagesTo(dead));
        admin.createSubscription(dead, "letters");
        try (Bus bus = door.connect()) {
            bus.send(into, text("first"), colored("red"), colored("blue"));
            assertEquals(List.of("first:1:1", "red:2:2", "blue:3:3"), numbered(copies(bus, topic, "all", 3)));
            assertEquals(List.of("first", "red", "blue"), bodies(take(bus.deletingReceiver(out), 3)));
            var last = receiver(bus, end, "last");
            var red = take(last, 1);
            assertEquals(List.of("red:1:2"), numbered(red));
            assertEquals("{RuleName=r, color=red, seen=yes}",
                new TreeMap<>(red.get(0).getApplicationProperties()).toString());
            last.deadLetter(red.get(0), new DeadLetterOptions().setDeadLetterReason("why"));
            var letter = copies(bus, dead, "letters", 1).get(0);
            assertEquals(List.of("red", "why", end + "/subscriptions/last"), List.of(letter.getBody().toString(),
                letter.getDeadLetterReason(), letter.getDeadLetterSource().toLowerCase()));
            assertEquals(List.of(), peeked(bus, end, "last"));
            // What forwards is not received from.
            caused(UnsupportedOperationException.class,
                () -> receiver(bus, topic, "to-topic").receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
        }
        for (String name : List.of(into, out)) {
            admin.deleteQueue(name);
        }
        for (String name : List.of(end, dead, topic)) {
            admin.deleteTopic(name);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aDestinationThatTakesNothingMakesDeadLettersAtTheSource(Door door) {
        String topic = topics.create("refusing", door);
        for (String name : List.of("disabled", "gone")) {
            admin.createTopic(topic + "-" + name);
            admin.createSubscription(topic, name, new CreateSubscriptionOptions().setForwardTo(topic + "-" + name));
        }
        Topics.refused(400, () -> admin.createSubscription(topic, "s",
            new CreateSubscriptionOptions().setForwardTo(topic + "-missing")));
        topics.change(topic + "-disabled", it -> it.setStatus(EntityStatus.SEND_DISABLED));
        admin.deleteTopic(topic + "-gone");
        try (Bus bus = door.connect()) {
            bus.send(topic, "x");
            for (String name : List.of("disabled", "gone")) {
                var letter = drop(letters(bus, topic, name));
                assertEquals(List.of("x", "ForwardingDestinationUnavailable"),
                    List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
            }
            // A subscription that forwards no more keeps what it gets.
            topics.change(topic, "gone", it -> it.setForwardTo(null));
            bus.send(topic, "y");
            assertEquals(List.of("y"), bodies(copies(bus, topic, "gone", 1)));
        }
        admin.deleteTopic(topic + "-disabled");
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void fourHopsThroughTopics(Door door) {
        String topic = topics.create("circling", door);
        String back = topic + "-back";
        admin.createTopic(back);
        for (String name : List.of(topic, back)) {
            admin.createSubscription(name, "all");
        }
        admin.createSubscription(topic, "there", new CreateSubscriptionOptions().setForwardTo(back));
        admin.createSubscription(back, "again", new CreateSubscriptionOptions().setForwardTo(topic));
        try (Bus bus = door.connect()) {
            bus.send(topic, "x");
            var letter = drop(letters(bus, topic, "there"));
            assertEquals(List.of("x", "MaxTransferHopCountExceeded"),
                List.of(letter.getBody().toString(), letter.getDeadLetterReason()));
            // It was here, there, here, there and here.
            assertEquals(List.of("x", "x", "x"), peeked(bus, topic, "all"));
            assertEquals(List.of("x", "x"), peeked(bus, back, "all"));
        }
        admin.deleteTopic(back);
        admin.deleteTopic(topic);
    }
}
