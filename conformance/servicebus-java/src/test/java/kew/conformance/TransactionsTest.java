package kew.conformance;

import static kew.conformance.Bus.assertEmpty;
import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.takeOne;
import static kew.conformance.Bus.text;
import static kew.conformance.Door.fresh;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.SubQueue;
import java.util.List;
import java.util.Locale;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class TransactionsTest {
    private static CompleteOptions within(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    /** Completes a message and sends an answer to it, in a transaction that the caller must end. */
    private static ServiceBusTransactionContext answer(
        ServiceBusReceiverClient receiver, ServiceBusReceivedMessage message, ServiceBusSenderClient sender) {
        var transaction = receiver.createTransaction();
        sender.sendMessage(text("about " + message.getBody()), transaction);
        receiver.complete(message, within(transaction));
        return transaction;
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void whatIsSentIsSeenAtTheCommit(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            var sender = bus.sender(queue);
            var receiver = bus.receiver(queue);
            var transaction = sender.createTransaction();
            sender.sendMessage(text("one"), transaction);
            sender.sendMessages(List.of(text("two"), text("three")), transaction);
            assertEmpty(receiver);
            sender.commitTransaction(transaction);
            assertEquals(List.of("one", "two", "three"), bodies(take(receiver, 3)));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void everySettlementIsDoneAtTheCommit(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, "complete", "abandon", "dead-letter", "defer");
            var receiver = bus.receiver(queue);
            var messages = take(receiver, 4);
            var transaction = receiver.createTransaction();
            receiver.complete(messages.get(0), within(transaction));
            receiver.abandon(messages.get(1), new AbandonOptions().setTransactionContext(transaction));
            receiver.deadLetter(messages.get(2), new DeadLetterOptions().setTransactionContext(transaction)
                .setDeadLetterReason("why"));
            receiver.defer(messages.get(3), new DeferOptions().setTransactionContext(transaction));
            assertEmpty(receiver);
            receiver.commitTransaction(transaction);
            var again = drop(receiver);
            assertEquals("abandon", again.getBody().toString());
            assertEquals(1, again.getDeliveryCount());
            assertEquals("why", drop(bus.letters(queue)).getDeadLetterReason());
            // A deferred message is settled over the management link.
            var deferred = receiver.receiveDeferredMessage(messages.get(3).getSequenceNumber());
            var second = receiver.createTransaction();
            receiver.complete(deferred, within(second));
            receiver.commitTransaction(second);
            assertEquals(null, receiver.peekMessage(0));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aRollbackLeavesEverything(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, "x");
            var receiver = bus.receiver(queue);
            var message = takeOne(receiver);
            var transaction = answer(receiver, message, bus.sender(queue));
            receiver.rollbackTransaction(transaction);
            assertEmpty(receiver);
            // The lock is unchanged.
            receiver.renewMessageLock(message);
            assertEquals(1, receiver.peekMessages(10, 0).stream().count());
            assertThrows(RuntimeException.class, () -> receiver.commitTransaction(transaction));
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aMessageGoesFromOneQueueToAnother(Door door) {
        try (Bus bus = door.connect()) {
            bus.builder.enableCrossEntityTransactions();
            String from = fresh("plain");
            String to = fresh("plain");
            bus.send(from, "first", "second");
            var receiver = bus.receiver(from);
            var sender = bus.sender(to);
            var target = bus.receiver(to);
            for (boolean commits : new boolean[] {false, true}) {
                var transaction = answer(receiver, takeOne(receiver), sender);
                assertEmpty(target);
                if (commits) {
                    receiver.commitTransaction(transaction);
                } else {
                    receiver.rollbackTransaction(transaction);
                }
            }
            assertEquals("about second", drop(target).getBody().toString());
            assertEquals(List.of("first"), bodies(receiver.peekMessages(10, 0)));
        }
    }

    /** Its messages go via the first queue that the client uses, and cannot leave it. */
    @ParameterizedTest
    @EnumSource(Door.class)
    void whatCannotArriveIsAFailedTransferOfTheFirstQueue(Door door) {
        var admin = new ServiceBusAdministrationClientBuilder().connectionString(Door.AMQPS.connectionString())
            .buildClient();
        String from = fresh("plain");
        String to = "x-cannot-arrive-" + door.name().toLowerCase(Locale.ROOT);
        try (Bus sending = door.connect()) {
            sending.send(from, "first", "second", "third");
        }
        var queue = admin.createQueue(to);
        try (Bus bus = door.connect()) {
            bus.builder.enableCrossEntityTransactions();
            var receiver = bus.receiver(from);
            var sender = bus.sender(to);
            receiver.commitTransaction(answer(receiver, takeOne(receiver), sender));
            // A link that is there stays, and a new one is attached.
            admin.updateQueue(queue.setStatus(EntityStatus.SEND_DISABLED));
            receiver.commitTransaction(answer(receiver, takeOne(receiver), sender));
            receiver.commitTransaction(answer(receiver, takeOne(receiver), bus.sender(to)));
            assertEquals("about first", drop(bus.receiver(to)).getBody().toString());
            assertEquals(null, receiver.peekMessage(0));
            var failed = bus.closing(bus.builder.receiver().queueName(from)
                .subQueue(SubQueue.TRANSFER_DEAD_LETTER_QUEUE).buildClient());
            for (String text : List.of("about second", "about third")) {
                var message = drop(failed);
                assertEquals(text, message.getBody().toString());
                assertEquals("ForwardingDestinationUnavailable", message.getDeadLetterReason());
                String why = message.getDeadLetterErrorDescription();
                assertTrue(why.contains("'" + to + "'"), why);
            }
        }
        admin.deleteQueue(to);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aLockThatIsLostFailsAllOfIt(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("brief");
            bus.send(queue, "x");
            var receiver = bus.receiver(queue);
            var transaction = answer(receiver, takeOne(receiver), bus.sender(queue));
            // It is delivered again when its lock has expired.
            var other = bus.receiver(queue);
            var again = takeOne(other);
            assertEquals(1, again.getDeliveryCount());
            var error = assertThrows(RuntimeException.class, () -> receiver.commitTransaction(transaction));
            assertEquals(true, error.getMessage().contains("message-lock-lost"), error.getMessage());
            other.complete(again);
            assertEquals(null, receiver.peekMessage(0));
        }
    }
}
