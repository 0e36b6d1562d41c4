package kew.conformance;

import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.caused;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.refusedAs;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.takeOne;
import static kew.conformance.Bus.text;
import static kew.conformance.Door.fresh;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class SessionsTest {
    private static ServiceBusMessage inSession(String session, String body) {
        return text(body).setSessionId(session);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void areAcceptedByOne(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("session");
            bus.send(queue, inSession("b", "1"), inSession("a", "2"), inSession("b", "3"));
            var sessions = bus.sessions(queue);
            var first = sessions.acceptNextSession();
            assertEquals("b", first.getSessionId());
            refusedAs(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, () -> sessions.acceptSession("b"));
            assertEquals(List.of("1", "3"), bodies(first.peekMessages(10)));
            var messages = take(first, 2);
            assertEquals(List.of("1", "3"), bodies(messages));
            assertEquals("b", messages.get(0).getSessionId());
            var second = sessions.acceptNextSession();
            assertEquals("a", second.getSessionId());
            assertEquals("2", drop(second).getBody().toString());
            // A released session is available at once, and the deliveries of its messages were not counted.
            first.close();
            var again = bus.closing(sessions.acceptSession("b"));
            messages = take(again, 2);
            assertEquals(List.of("1", "3"), bodies(messages));
            assertEquals(0, messages.get(0).getDeliveryCount());
            again.defer(messages.get(0));
            var deferred = again.receiveDeferredMessage(messages.get(0).getSequenceNumber());
            again.complete(deferred);
            again.complete(messages.get(1));
            second.close();
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void keepTheirState(Door door) {
        // A client that closes a session gets the closing link again, if it asks for the same session at once.
        try (Bus bus = door.connect(); Bus other = door.connect()) {
            String queue = fresh("session");
            byte[] state = "so far".getBytes(StandardCharsets.UTF_8);
            try (var receiver = bus.sessions(queue).acceptSession("s")) {
                assertEquals(null, receiver.getSessionState());
                receiver.setSessionState(state);
            }
            try (var receiver = other.sessions(queue).acceptSession("s")) {
                assertArrayEquals(state, receiver.getSessionState());
                receiver.setSessionState(null);
                assertEquals(null, receiver.getSessionState());
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aWaitThatWasGivenUpTakesNone(Door door) {
        // The SDK tells the server to wait a second less than one try takes, which is never retried, and itself waits
        // as long as all tries would take: even on a busy machine the server times out first. The server never
        // learned of a wait that the SDK gave up by itself.
        AmqpRetryOptions tries = new AmqpRetryOptions().setMaxRetries(3).setTryTimeout(Duration.ofSeconds(5));
        try (Bus bus = door.connect(door.connectionString(), tries); Bus other = door.connect()) {
            String queue = fresh("session");
            var error = assertThrows(IllegalStateException.class, () -> bus.sessions(queue).acceptNextSession());
            assertEquals("com.microsoft:timeout", error.getMessage());
            other.send(queue, inSession("s", "x"));
            try (var receiver = bus.sessions(queue).acceptNextSession()) {
                assertEquals("s", receiver.getSessionId());
                assertEquals("x", drop(receiver).getBody().toString());
            }
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void locksAreRenewedAndLost(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus other = door.connect()) {
            String queue = fresh("renewed-session");
            bus.send(queue, inSession("s", "x"));
            var receiver = bus.closing(bus.sessions(queue).acceptNextSession());
            var message = takeOne(receiver);
            // Longer than one lock duration.
            OffsetDateTime end = OffsetDateTime.now().plusSeconds(16);
            OffsetDateTime until = OffsetDateTime.now();
            while (OffsetDateTime.now().isBefore(end)) {
                Thread.sleep(1_000);
                OffsetDateTime renewed = receiver.renewSessionLock();
                assertTrue(renewed.isAfter(until), renewed::toString);
                until = renewed;
            }
            // Now it expires, and the next receiver gets it, and keeps it for as long as the settlement below may take.
            var sessions = other.closing(other.builder.sessionReceiver().queueName(queue)
                .maxAutoLockRenewDuration(Bus.PATIENCE.multipliedBy(3)).buildClient());
            try (var next = sessions.acceptNextSession()) {
                assertEquals("s", next.getSessionId());
                var again = takeOne(next);
                assertEquals(1, again.getDeliveryCount());
                assertThrows(ServiceBusException.class, () -> completeWithoutLock(receiver, message));
                next.complete(again);
            }
        }
    }

    /**
     * The server detaches the link of a lost session. A settlement that begins while the SDK handles this is never
     * sent, and waits as long as a try may take. The SDK sends the next one over the management link.
     */
    private static void completeWithoutLock(ServiceBusReceiverClient receiver, ServiceBusReceivedMessage message) {
        try {
            receiver.complete(message);
        } catch (IllegalStateException error) {
            assertTrue(error.getMessage().startsWith("Timeout on blocking read"), error::toString);
            receiver.complete(message);
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void whatDoesNotFitIsRefused(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("session");
            // The SDK shows amqp:not-allowed like this.
            caused(UnsupportedOperationException.class, () -> bus.send(queue, "x"));
            caused(UnsupportedOperationException.class,
                () -> bus.receiver(queue).receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
            caused(UnsupportedOperationException.class, () -> bus.sessions(fresh("plain")).acceptSession("s"));
            refusedAs(AmqpErrorCondition.NOT_FOUND, () -> bus.sessions("absent").acceptSession("s"));
        }
    }

    /** Messages of each session arrive in order, and no session or connection is lost. */
    @ParameterizedTest
    @EnumSource(Door.class)
    void areProcessed(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus processing = door.connect()) {
            String queue = fresh("session");
            BlockingQueue<String> order = new LinkedBlockingQueue<>();
            Map<String, Integer> next = new ConcurrentHashMap<>();
            AtomicReference<Throwable> failed = new AtomicReference<>();
            var processor = bus.closing(processing.builder.sessionProcessor().queueName(queue)
                .maxConcurrentSessions(4)
                .processMessage(context -> {
                    String session = context.getMessage().getSessionId();
                    int number = Integer.parseInt(context.getMessage().getBody().toString());
                    if (next.merge(session, 1, Integer::sum) != number) {
                        failed.compareAndSet(null, new AssertionError(session + ": " + number));
                    }
                    order.add(session);
                })
                .processError(context -> failed.compareAndSet(null, context.getException()))
                .buildProcessorClient());
            processor.start();
            for (int number = 1; number <= 20; number++) {
                bus.send(queue, inSession("a", "" + number), inSession("b", "" + number), inSession("c", "" + number));
            }
            for (int count = 0; count < 60; count++) {
                int before = count;
                assertTrue(order.poll(30, TimeUnit.SECONDS) != null, () -> "only " + before + ", " + failed.get());
            }
            processor.close();
            assertEquals(null, failed.get());
        }
    }
}
