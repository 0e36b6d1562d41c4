package kew.conformance;

import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.refused;
import static kew.conformance.Bus.refusedAs;
import static kew.conformance.Bus.sendAgain;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.text;
import static kew.conformance.Topics.copies;
import static kew.conformance.Topics.peeked;
import static kew.conformance.Topics.receiver;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.core.http.rest.PagedIterable;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** The settings and states of topics and subscriptions, and lists of them. */
class TopicAdministrationTest {
    private static final Duration NEVER = Duration.parse("P10675199DT2H48M5.4775807S");
    private static Topics topics;
    private static ServiceBusAdministrationClient admin;

    @BeforeAll
    static void needsAPort() {
        topics = new Topics();
        admin = topics.admin;
    }

    @Test
    void aTopicIsMadeChangedAndDeleted() {
        String topic = "x-topic-of-java";
        TopicProperties made = admin.createTopic(topic,
            new CreateTopicOptions().setUserMetadata("a < b & c").setMaxSizeInMegabytes(2048));
        assertEquals(List.of(topic, NEVER, false), List.of(made.getName(), made.getAutoDeleteOnIdle(),
            made.isDuplicateDetectionRequired()));
        Topics.refused(409, () -> admin.createTopic(topic));
        Topics.refused(409, () -> admin.createQueue(topic));
        admin.updateTopic(made.setDefaultMessageTimeToLive(Duration.ofHours(1)).setOrderingSupported(false)
            .setAutoDeleteOnIdle(Duration.ofMinutes(10)));
        TopicProperties shown = admin.getTopic(topic.toUpperCase());
        assertEquals(List.of("a < b & c", 2048L, Duration.ofHours(1), false, Duration.ofMinutes(10)),
            List.of(shown.getUserMetadata(), shown.getMaxSizeInMegabytes(), shown.getDefaultMessageTimeToLive(),
                shown.isOrderingSupported(), shown.getAutoDeleteOnIdle()));
        List<Consumer<TopicProperties>> wrong = List.of(
            it -> it.setAutoDeleteOnIdle(Duration.ofSeconds(299)),
            it -> it.setDuplicateDetectionRequired(true),
            it -> it.setStatus(EntityStatus.RECEIVE_DISABLED));
        wrong.forEach(change -> Topics.refused(400, () -> topics.change(topic, change)));
        assertTrue(admin.getTopicExists(topic));
        admin.createSubscription(topic, "s");
        // It takes its subscriptions with it.
        admin.deleteTopic(topic);
        assertFalse(admin.getTopicExists(topic));
        assertFalse(admin.getSubscriptionExists(topic, "s"));
        assertThrows(ResourceNotFoundException.class, () -> admin.getTopic(topic));
        Topics.refused(404, () -> admin.deleteTopic(topic));
        Topics.refused(404, () -> admin.createSubscription(topic, "s"));
        Topics.refused(404, () -> admin.updateTopic(shown));
        try (Bus bus = Door.AMQPS.connect()) {
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> bus.send(topic, "x"));
        }
    }

    @Test
    void aSubscriptionIsMadeChangedAndDeleted() {
        String topic = "x-subscribed-of-java";
        admin.createTopic(topic);
        SubscriptionProperties plain = admin.createSubscription(topic, "plain");
        assertEquals(List.of(NEVER, NEVER, Duration.ofMinutes(1), 10, true),
            List.of(plain.getAutoDeleteOnIdle(), plain.getDefaultMessageTimeToLive(), plain.getLockDuration(),
                plain.getMaxDeliveryCount(), plain.isDeadLetteringOnFilterEvaluationExceptions()));
        admin.createSubscription(topic, "Sub", new CreateSubscriptionOptions().setSessionRequired(true)
            .setUserMetadata("mine").setEnableDeadLetteringOnFilterEvaluationExceptions(false)
            .setAutoDeleteOnIdle(Duration.ofMinutes(5)).setDefaultMessageTimeToLive(Duration.ofHours(2)));
        Topics.refused(409, () -> admin.createSubscription(topic, "SUB"));
        Topics.refused(400, () -> admin.createSubscription(topic, "x".repeat(51)));
        assertEquals(Duration.ofHours(2), admin.getSubscription(topic, "sub").getDefaultMessageTimeToLive());
        // The SDK leaves the time to live out of an update, so it returns to its default.
        topics.change(topic, "sub", it -> it.setLockDuration(Duration.ofSeconds(5)).setMaxDeliveryCount(1)
            .setDeadLetteringOnMessageExpiration(true).setBatchedOperationsEnabled(false));
        SubscriptionProperties shown = admin.getSubscription(topic, "SUB");
        assertEquals(
            List.of(topic, "Sub", true, "mine", false, Duration.ofMinutes(5), NEVER,
                Duration.ofSeconds(5), 1, true, false),
            List.of(shown.getTopicName(), shown.getSubscriptionName(), shown.isSessionRequired(),
                shown.getUserMetadata(), shown.isDeadLetteringOnFilterEvaluationExceptions(),
                shown.getAutoDeleteOnIdle(), shown.getDefaultMessageTimeToLive(), shown.getLockDuration(),
                shown.getMaxDeliveryCount(), shown.isDeadLetteringOnMessageExpiration(),
                shown.isBatchedOperationsEnabled()));
        List<Consumer<SubscriptionProperties>> wrong = List.of(
            it -> it.setAutoDeleteOnIdle(Duration.ofSeconds(299)),
            it -> it.setLockDuration(Duration.ofSeconds(4)),
            it -> it.setLockDuration(Duration.ofSeconds(301)),
            it -> it.setMaxDeliveryCount(0),
            it -> it.setStatus(EntityStatus.SEND_DISABLED),
            it -> it.setForwardTo(topic + "-missing"),
            it -> it.setUserMetadata("x".repeat(1025)));
        wrong.forEach(change -> Topics.refused(400, () -> topics.change(topic, "sub", change)));
        topics.change(topic, "sub", it -> it.setForwardDeadLetteredMessagesTo(topic));
        // The SDK sends https and its host before the destination that it was shown.
        topics.change(topic, "sub", it -> it.setUserMetadata("again"));
        assertTrue(admin.getSubscription(topic, "sub").getForwardDeadLetteredMessagesTo().endsWith("/" + topic));
        admin.deleteSubscription(topic, "SUB");
        assertFalse(admin.getSubscriptionExists(topic, "sub"));
        Topics.refused(404, () -> admin.deleteSubscription(topic, "sub"));
        Topics.refused(404, () -> admin.updateSubscription(shown));
        admin.deleteTopic(topic);
    }

    /** A processor that waits for messages of this subscription gets an error when something is changed. */
    private static String hears(String topic, String name, Runnable change) throws Exception {
        try (Bus bus = Door.AMQPS.connect()) {
            CompletableFuture<Throwable> told = new CompletableFuture<>();
            CountDownLatch receives = new CountDownLatch(1);
            var processor = bus.closing(bus.builder.processor().topicName(topic).subscriptionName(name)
                .processMessage(context -> receives.countDown())
                .processError(context -> told.complete(context.getException()))
                .buildProcessorClient());
            bus.send(topic, "opening");
            processor.start();
            assertTrue(receives.await(30, TimeUnit.SECONDS));
            // It was completed, too.
            Bus.eventually("it is completed",
                () -> admin.getSubscriptionRuntimeProperties(topic, name).getTotalMessageCount() == 0);
            change.run();
            var error = (ServiceBusException) told.get(30, TimeUnit.SECONDS);
            return error.getReason().toString();
        }
    }

    private static void isNotSentTo(Executable operation) {
        refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, operation);
    }

    private static void isNotReceivedFrom(Bus bus, String topic) {
        refusedAs(AmqpErrorCondition.ENTITY_DISABLED_ERROR,
            () -> receiver(bus, topic, "s").receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
    }

    private static void rulesCannotChange(String topic) {
        Topics.refused(403, () -> admin.createRule(topic, "r", "s", new CreateRuleOptions(new TrueRuleFilter())));
        Topics.refused(403, () -> admin.deleteRule(topic, "s", "$Default"));
    }

    @Test
    void aSubscriptionThatIsNotReceivedFrom() throws Exception {
        String topic = "x-not-received-of-java";
        admin.createTopic(topic);
        admin.createSubscription(topic, "s");
        for (EntityStatus status : List.of(EntityStatus.RECEIVE_DISABLED, EntityStatus.DISABLED)) {
            assertEquals("MESSAGING_ENTITY_DISABLED",
                hears(topic, "s", () -> topics.change(topic, "s", it -> it.setStatus(status))));
            assertEquals(status, admin.getSubscription(topic, "s").getStatus());
            try (Bus bus = Door.AMQPS.connect()) {
                isNotReceivedFrom(bus, topic);
                rulesCannotChange(topic);
                // It gets copies nevertheless.
                bus.send(topic, status.toString());
                assertEquals(1, admin.getSubscriptionRuntimeProperties(topic, "s").getActiveMessageCount());
                topics.change(topic, "s", it -> it.setStatus(EntityStatus.ACTIVE));
                assertEquals(List.of(status.toString()), bodies(copies(bus, topic, "s", 1)));
            }
        }
        admin.deleteTopic(topic);
    }

    @Test
    void aTopicThatIsNotSentTo() {
        String topic = "x-not-sent-of-java";
        admin.createTopic(topic);
        admin.createSubscription(topic, "s");
        List<String> expected = new ArrayList<>();
        for (EntityStatus status : List.of(EntityStatus.SEND_DISABLED, EntityStatus.DISABLED)) {
            try (Bus bus = Door.AMQPS.connect()) {
                var sender = bus.closing(bus.builder.sender().topicName(topic).buildClient());
                sender.sendMessage(text(status.toString()));
                topics.change(topic, it -> it.setStatus(status));
                assertEquals(status, admin.getTopic(topic).getStatus());
                isNotSentTo(() -> sendAgain(sender, text("not")));
                isNotSentTo(() -> bus.send(topic, "not"));
                expected.add(status.toString());
                if (status.equals(EntityStatus.DISABLED)) {
                    isNotReceivedFrom(bus, topic);
                    rulesCannotChange(topic);
                } else {
                    // What is there can be drained.
                    assertEquals(List.of(expected.remove(0)), bodies(copies(bus, topic, "s", 1)));
                    admin.createRule(topic, "r", "s", new CreateRuleOptions(new FalseRuleFilter()));
                }
                // Other settings can change.
                topics.change(topic, "s", it -> it.setUserMetadata(status.toString()));
                topics.change(topic, it -> it.setStatus(EntityStatus.ACTIVE));
                bus.send(topic, "after");
                expected.add("after");
                assertEquals(expected, peeked(bus, topic, "s"));
            }
        }
        admin.deleteTopic(topic);
    }

    @Test
    void aFullTopicTakesNoMoreUntilSomethingIsTakenOut() {
        String topic = "x-filled-topic-of-java";
        admin.createTopic(topic, new CreateTopicOptions().setMaxSizeInMegabytes(1));
        for (String name : List.of("one", "two")) {
            admin.createSubscription(topic, name);
        }
        try (Bus bus = Door.AMQPS.connect()) {
            var sender = bus.closing(bus.builder.sender().topicName(topic).buildClient());
            // Each body counts once, although two subscriptions have it.
            for (int count = 0; count < 10; count++) {
                sender.sendMessage(new ServiceBusMessage(new byte[100_000]));
            }
            refused(ServiceBusFailureReason.QUOTA_EXCEEDED,
                () -> sender.sendMessage(new ServiceBusMessage(new byte[100_000])));
            long size = admin.getTopicRuntimeProperties(topic).getSizeInBytes();
            assertTrue(size > 1_000_000 && size < 1_100_000, size + " bytes");
            for (String name : List.of("one", "two")) {
                copies(bus, topic, name, 5);
            }
            sender.sendMessage(new ServiceBusMessage(new byte[100_000]));
        }
        admin.deleteTopic(topic);
    }

    private static <T> List<List<T>> pages(PagedIterable<T> all) {
        List<List<T>> pages = new ArrayList<>();
        all.iterableByPage().forEach(page -> pages.add(page.getElements().stream().toList()));
        return pages;
    }

    @Test
    void listsHavePagesSettingsAndCounts() {
        // The first of all topics, so that no other scenario moves it from one page to another.
        String topic = "a-listed-topic-of-java";
        admin.createTopic(topic);
        List<String> names = IntStream.range(0, 105).mapToObj(it -> String.format("s%03d", it)).toList();
        names.forEach(it -> admin.createSubscription(topic, it,
            new CreateSubscriptionOptions().setUserMetadata("its " + it)));
        var pages = pages(admin.listSubscriptions(topic));
        assertEquals(List.of(100, 5), pages.stream().map(List::size).toList());
        var all = pages.stream().flatMap(List::stream).toList();
        assertEquals(names, all.stream().map(SubscriptionProperties::getSubscriptionName).toList());
        assertEquals(names.stream().map(it -> "its " + it).toList(),
            all.stream().map(SubscriptionProperties::getUserMetadata).toList());
        try (Bus bus = Door.AMQPS.connect()) {
            bus.send(topic, "a", "b", "c");
            var receiver = receiver(bus, topic, "s001");
            var taken = take(receiver, 2);
            receiver.complete(taken.get(0));
            receiver.deadLetter(taken.get(1));
            bus.closing(bus.builder.sender().topicName(topic).buildClient())
                .scheduleMessages(Arrays.asList(text("d"), text("e")), OffsetDateTime.now().plusHours(1))
                .forEach(number -> assertTrue(number > 0));
        }
        var counts = admin.getSubscriptionRuntimeProperties(topic, "s001");
        assertEquals(List.of(1, 1, 2L, 0, 0), List.of(counts.getActiveMessageCount(),
            counts.getDeadLetterMessageCount(), counts.getTotalMessageCount(), counts.getTransferMessageCount(),
            counts.getTransferDeadLetterMessageCount()));
        var ofTopic = admin.getTopicRuntimeProperties(topic);
        assertEquals(List.of(105, 2), List.of(ofTopic.getSubscriptionCount(), ofTopic.getScheduledMessageCount()));
        assertEquals(1, admin.listTopics().stream().filter(it -> it.getName().equals(topic)).count());
        admin.deleteTopic(topic);
    }
}
