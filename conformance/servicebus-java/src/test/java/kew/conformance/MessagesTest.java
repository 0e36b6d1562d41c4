package kew.conformance;

import static kew.conformance.Bus.assertEmpty;
import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.eventually;
import static kew.conformance.Bus.refused;
import static kew.conformance.Bus.refusedAs;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.takeOne;
import static kew.conformance.Bus.text;
import static kew.conformance.Door.fresh;
import static kew.conformance.Door.partner;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class MessagesTest {
    @ParameterizedTest
    @EnumSource(Door.class)
    void areSentReceivedAndCompleted(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, "one", "two");
            var receiver = bus.receiver(queue);
            var messages = take(receiver, 2);
            assertEquals(List.of("one", "two"), bodies(messages));
            var first = messages.get(0);
            assertEquals(0, first.getDeliveryCount());
            assertTrue(first.getSequenceNumber() < messages.get(1).getSequenceNumber());
            assertNotEquals(first.getLockToken(), messages.get(1).getLockToken());
            assertNotNull(first.getMessageId());
            Duration age = Duration.between(first.getEnqueuedTime(), OffsetDateTime.now());
            assertTrue(age.abs().compareTo(Duration.ofMinutes(1)) < 0, age::toString);
            assertTrue(first.getLockedUntil().isAfter(OffsetDateTime.now().plusSeconds(30)));
            messages.forEach(receiver::complete);
            assertEmpty(receiver);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void propertiesComeBack(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            Map<String, Object> properties = new HashMap<>(Map.of(
                "text", "ä", "truth", true, "byte", (byte) -1, "short", (short) -2, "int", -3,
                "long", Long.MIN_VALUE, "float", 1.5f, "double", -2.25, "char", 'k', "uuid", new UUID(1, 2)));
            // The service's own types.
            properties.put("duration", Duration.ofMillis(90_061_001));
            properties.put("time", OffsetDateTime.parse("2024-02-29T12:00:00.123Z"));
            properties.put("uri", java.net.URI.create("https://example.com/a?b=c"));
            ServiceBusMessage sent = text("x").setMessageId("id").setSubject("s").setContentType("c")
                .setCorrelationId("k").setTo("t").setReplyTo("r").setSessionId("p").setPartitionKey("p")
                .setReplyToSessionId("rs").setTimeToLive(Duration.ofMinutes(5));
            sent.getApplicationProperties().putAll(properties);
            bus.send(queue, sent);
            var got = takeOne(bus.receiver(queue));
            assertEquals(properties, got.getApplicationProperties());
            assertEquals(
                List.of("id", "s", "c", "k", "t", "r", "p", "p", "rs", Duration.ofMinutes(5)),
                List.of(got.getMessageId(), got.getSubject(), got.getContentType(), got.getCorrelationId(),
                    got.getTo(), got.getReplyTo(), got.getSessionId(), got.getPartitionKey(),
                    got.getReplyToSessionId(), got.getTimeToLive()));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void bodiesOfEveryKindComeBack(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, new ServiceBusMessage(AmqpMessageBody.fromValue(42L)),
                new ServiceBusMessage(AmqpMessageBody.fromSequence(List.of("one", 2L))), text(""));
            var receiver = bus.receiver(queue);
            assertEquals(42L, drop(receiver).getRawAmqpMessage().getBody().getValue());
            assertEquals(List.of("one", 2L), drop(receiver).getRawAmqpMessage().getBody().getSequence());
            var empty = drop(receiver).getRawAmqpMessage().getBody();
            assertEquals(AmqpMessageBodyType.DATA, empty.getBodyType());
            assertEquals(0, empty.getFirstData().length);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void batchesAreTakenApart(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            var sender = bus.sender(queue);
            ServiceBusMessageBatch batch = sender.createMessageBatch();
            List<String> sent = new ArrayList<>();
            ServiceBusMessage next = text("0");
            for (String fill = "x".repeat(10_000); sent.size() < 1_000; next = text("" + sent.size())) {
                next.getApplicationProperties().put("fill", fill);
                if (!batch.tryAddMessage(next)) {
                    break;
                }
                sent.add("" + sent.size());
            }
            // A batch may be as large as a message.
            assertTrue(batch.getSizeInBytes() > 1_000_000 && batch.getMaxSizeInBytes() <= 1 << 20);
            sender.sendMessages(batch);
            var receiver = bus.deletingReceiver(queue);
            assertEquals(sent, bodies(take(receiver, sent.size())));
            sender.sendMessages(List.of(text("a"), text("b")));
            assertEquals(List.of("a", "b"), bodies(take(receiver, 2)));
            assertEmpty(receiver);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void largeOnesPassAndTooLargeOnesDoNot(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            byte[] body = new byte[1_000_000];
            Arrays.fill(body, 500_000, body.length, (byte) 7);
            bus.send(queue, new ServiceBusMessage(body));
            assertArrayEquals(body, drop(bus.receiver(queue)).getBody().toBytes());
            refused(ServiceBusFailureReason.MESSAGE_SIZE_EXCEEDED,
                () -> bus.send(queue, new ServiceBusMessage(new byte[1 << 20])));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void receivedAndDeleted(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, "one", "two");
            assertEquals(List.of("one", "two"), bodies(take(bus.deletingReceiver(queue), 2)));
            assertEmpty(bus.receiver(queue));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void abandonedOnesCountAndEndInTheDeadLetters(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("thrice");
            bus.send(queue, "x");
            var receiver = bus.receiver(queue);
            for (int count = 0; count < 3; count++) {
                var message = takeOne(receiver);
                assertEquals(count, message.getDeliveryCount());
                assertEquals(count == 0 ? null : count - 1, message.getApplicationProperties().get("tried"));
                receiver.abandon(message, new AbandonOptions().setPropertiesToModify(Map.of("tried", count)));
            }
            assertEmpty(receiver);
            var letter = drop(bus.letters(queue));
            assertEquals("MaxDeliveryCountExceeded", letter.getDeadLetterReason());
            assertEquals(2, letter.getApplicationProperties().get("tried"));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void deadLetters(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, "one", "two");
            var receiver = bus.receiver(queue);
            var messages = take(receiver, 2);
            receiver.deadLetter(messages.get(0), new DeadLetterOptions().setDeadLetterReason("no good")
                .setDeadLetterErrorDescription("at all").setPropertiesToModify(Map.of("seen", true)));
            receiver.deadLetter(messages.get(1));
            assertEmpty(receiver);
            var letters = bus.letters(queue);
            assertEquals(List.of("one", "two"), bodies(letters.peekMessages(10)));
            var found = take(letters, 2);
            assertEquals("no good", found.get(0).getDeadLetterReason());
            assertEquals("at all", found.get(0).getDeadLetterErrorDescription());
            assertEquals(true, found.get(0).getApplicationProperties().get("seen"));
            found.forEach(letters::complete);
            assertEmpty(letters);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aLostLockIsTold(Door door) {
        try (Bus bus = door.connect(); Bus other = door.connect()) {
            String queue = fresh("brief");
            bus.send(queue, "x", "y");
            var receiver = bus.receiver(queue);
            var messages = take(receiver, 2);
            var next = other.receiver(queue);
            var again = take(next, 2);
            assertEquals(1, again.get(0).getDeliveryCount());
            assertFalse(OffsetDateTime.now().isBefore(messages.get(0).getLockedUntil().minusNanos(50_000_000)));
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.complete(messages.get(0)));
            refused(ServiceBusFailureReason.MESSAGE_LOCK_LOST, () -> receiver.abandon(messages.get(1)));
            again.forEach(next::complete);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aRenewedLockHolds(Door door) throws InterruptedException {
        try (Bus bus = door.connect()) {
            String byHand = fresh("renewed");
            String automatic = fresh("renewed");
            bus.send(byHand, "x");
            bus.send(automatic, "y");
            var receiver = bus.receiver(byHand);
            var message = takeOne(receiver);
            var renewing = bus.closing(bus.builder.receiver().queueName(automatic)
                .maxAutoLockRenewDuration(Duration.ofMinutes(1)).buildClient());
            var kept = takeOne(renewing);
            OffsetDateTime first = message.getLockedUntil();
            OffsetDateTime until = first;
            while (OffsetDateTime.now().isBefore(first.plusSeconds(1))) {
                Thread.sleep(1_000);
                OffsetDateTime renewed = receiver.renewMessageLock(message);
                assertTrue(renewed.isAfter(until), () -> renewed + " is not later");
                until = renewed;
            }
            receiver.complete(message);
            assertEmpty(receiver);
            // The SDK has renewed this one by itself.
            assertEmpty(bus.receiver(automatic));
            renewing.complete(kept);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void expiry(Door door) throws InterruptedException {
        try (Bus bus = door.connect()) {
            String dropping = fresh("fading");
            String keeping = fresh("expiring");
            // An hour is more than the queue allows.
            bus.send(dropping, text("x").setTimeToLive(Duration.ofHours(1)));
            bus.send(keeping, text("y").setTimeToLive(Duration.ofSeconds(1)));
            assertEquals("TTLExpiredException", drop(bus.letters(keeping)).getDeadLetterReason());
            var receiver = bus.receiver(dropping);
            eventually("it expires", () -> receiver.peekMessage(0) == null);
            assertEmpty(receiver);
            assertEmpty(bus.letters(dropping));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void duplicatesAreDropped(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("unique");
            bus.send(queue, text("1").setMessageId("a"), text("2").setMessageId("a"), text("3").setMessageId("b"));
            var receiver = bus.receiver(queue);
            assertEquals(List.of("1", "3"), bodies(take(receiver, 2)));
            assertEmpty(receiver);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void forwarding(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("forwarding");
            bus.send(queue, "x");
            String forwarded = partner(queue, "forwarded");
            var receiver = bus.receiver(forwarded);
            ServiceBusReceivedMessage message = takeOne(receiver);
            receiver.deadLetter(message, new DeadLetterOptions().setDeadLetterReason("why"));
            var letter = drop(bus.receiver(partner(queue, "letters")));
            assertEquals("x", letter.getBody().toString());
            assertEquals("why", letter.getDeadLetterReason());
            assertEquals(forwarded, letter.getDeadLetterSource());
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void whatWaitsIsServedAtOnce(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus other = door.connect()) {
            String queue = fresh("plain");
            var receiver = bus.deletingReceiver(queue);
            var sender = other.sender(queue);
            assertEmpty(receiver);
            AtomicLong sentAt = new AtomicLong();
            long fastest = Long.MAX_VALUE;
            for (int time = 0; time < 10; time++) {
                Thread late = new Thread(() -> {
                    sender.sendMessage(text("x"));
                    sentAt.set(System.nanoTime());
                });
                late.start();
                takeOne(receiver);
                long came = System.nanoTime();
                late.join();
                fastest = Math.min(fastest, came - sentAt.get());
            }
            // Each may run while the machine is busy.
            assertTrue(fastest < 50_000_000, fastest + " ns");
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void whatIsNotThere(Door door) {
        try (Bus bus = door.connect()) {
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> bus.send("absent", "x"));
            refusedAs(AmqpErrorCondition.NOT_FOUND,
                () -> bus.receiver("absent").receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void wrongKeysAreRefused(Door door) {
        String wrong = door.connectionString().replace("SharedAccessKey=", "SharedAccessKey=x");
        try (Bus bus = door.connect(wrong)) {
            refused(ServiceBusFailureReason.UNAUTHORIZED, () -> bus.send("plain-1", "x"));
        }
    }
}
