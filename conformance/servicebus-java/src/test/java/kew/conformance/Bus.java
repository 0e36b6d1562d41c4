package kew.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.exception.AmqpException;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.function.Executable;

/** The clients of one scenario, which share a connection and are closed at its end. */
final class Bus implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    /** For messages that should not arrive. */
    static final Duration MOMENT = Duration.ofMillis(500);

    final ServiceBusClientBuilder builder;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    Bus(ServiceBusClientBuilder builder) {
        this.builder = builder;
    }

    <T extends AutoCloseable> T closing(T client) {
        open.push(client);
        return client;
    }

    ServiceBusSenderClient sender(String queue) {
        return closing(builder.sender().queueName(queue).buildClient());
    }

    /** Locks are renewed only in scenarios that ask for it. */
    ServiceBusReceiverClient receiver(String queue) {
        return closing(builder.receiver().queueName(queue).maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    ServiceBusReceiverClient deletingReceiver(String queue) {
        return closing(builder.receiver().queueName(queue)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
    }

    ServiceBusReceiverClient letters(String queue) {
        return closing(builder.receiver().queueName(queue).subQueue(SubQueue.DEAD_LETTER_QUEUE)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    ServiceBusSessionReceiverClient sessions(String queue) {
        return closing(builder.sessionReceiver().queueName(queue)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    void send(String queue, ServiceBusMessage... messages) {
        try (ServiceBusSenderClient sender = builder.sender().queueName(queue).buildClient()) {
            for (ServiceBusMessage message : messages) {
                sender.sendMessage(message);
            }
        }
    }

    void send(String queue, String... texts) {
        for (String text : texts) {
            send(queue, text(text));
        }
    }

    /**
     * Returns false if the SDK gave the message up, without a try, because its link has just ended. Later versions of the
     * SDK open another link then (RecoveryKind in azure-core-amqp). To this one, an application sends again.
     */
    static boolean isSent(ServiceBusSenderClient sender, ServiceBusMessage message) {
        try {
            sender.sendMessage(message);
            return true;
        } catch (ServiceBusException error) {
            if (error.getMessage().endsWith("Cannot publish message when disposed.")) {
                return false;
            }
            throw error;
        }
    }

    /** Sends a message over a link that the server may have ended a moment ago. */
    static void sendAgain(ServiceBusSenderClient sender, ServiceBusMessage message) throws InterruptedException {
        eventually("it is sent", () -> isSent(sender, message));
    }

    static ServiceBusMessage text(String text) {
        return new ServiceBusMessage(BinaryData.fromString(text));
    }

    /** This many messages, in the order of arrival. */
    static List<ServiceBusReceivedMessage> take(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> messages = new ArrayList<>();
        while (messages.size() < count) {
            int before = messages.size();
            receiver.receiveMessages(count - before, PATIENCE).forEach(messages::add);
            assertTrue(messages.size() > before, () -> before + " of " + count + " messages");
        }
        return messages;
    }

    static ServiceBusReceivedMessage takeOne(ServiceBusReceiverClient receiver) {
        return take(receiver, 1).get(0);
    }

    /** Receives a message and completes it. */
    static ServiceBusReceivedMessage drop(ServiceBusReceiverClient receiver) {
        ServiceBusReceivedMessage message = takeOne(receiver);
        receiver.complete(message);
        return message;
    }

    static void assertEmpty(ServiceBusReceiverClient receiver) {
        assertFalse(receiver.receiveMessages(1, MOMENT).iterator().hasNext());
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> bodies = new ArrayList<>();
        messages.forEach(message -> bodies.add(message.getBody().toString()));
        return bodies;
    }

    /** An error with this reason, as the SDK shows it. */
    static void refused(ServiceBusFailureReason reason, Executable operation) {
        ServiceBusException error = assertThrows(ServiceBusException.class, operation);
        assertEquals(reason, error.getReason(), error.getMessage());
    }

    /** An error with this condition somewhere in it: not all have the SDK's own type. */
    static void refusedAs(AmqpErrorCondition condition, Executable operation) {
        AmqpException error = caused(AmqpException.class, operation);
        assertEquals(condition, error.getErrorCondition(), error.getMessage());
    }

    /** An error with a cause of this type somewhere in it. */
    static <T extends Throwable> T caused(Class<T> type, Executable operation) {
        Throwable error = assertThrows(Throwable.class, operation);
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (type.isInstance(cause)) {
                return type.cast(cause);
            }
        }
        throw new AssertionError("no " + type, error);
    }

    static void eventually(String what, BooleanSupplier so) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!so.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, () -> "not in time: " + what);
            Thread.sleep(50);
        }
    }

    @Override
    public void close() {
        while (!open.isEmpty()) {
            try {
                open.pop().close();
            } catch (Exception error) {
                throw new IllegalStateException("a client did not close", error);
            }
        }
    }
}
