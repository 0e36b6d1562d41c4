package kew.conformance;

import static kew.conformance.Bus.assertEmpty;
import static kew.conformance.Bus.bodies;
import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.text;
import static kew.conformance.Door.fresh;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ManagementTest {
    @ParameterizedTest
    @EnumSource(Door.class)
    void peekShowsAllStatesInPages(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            var receiver = bus.receiver(queue);
            assertNull(receiver.peekMessage());
            bus.send(queue, "active", "locked", "deferred");
            long scheduled = bus.sender(queue).scheduleMessage(text("scheduled"), OffsetDateTime.now().plusHours(1));
            var messages = take(receiver, 3);
            receiver.abandon(messages.get(0));
            receiver.defer(messages.get(2));
            List<String> seen = new ArrayList<>();
            ServiceBusReceivedMessage last = null;
            for (long from = 0;; from = last.getSequenceNumber() + 1) {
                ServiceBusReceivedMessage before = last;
                for (var message : receiver.peekMessages(3, from)) {
                    seen.add(message.getBody() + " " + message.getState() + " " + message.getDeliveryCount());
                    last = message;
                }
                if (last == before) {
                    break;
                }
            }
            assertEquals(List.of("active ACTIVE 1", "locked ACTIVE 0", "deferred DEFERRED 0", "scheduled SCHEDULED 0"), seen);
            assertEquals(scheduled, last.getSequenceNumber());
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void scheduledMessages(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            var sender = bus.sender(queue);
            var receiver = bus.receiver(queue);
            List<Long> numbers = new ArrayList<>();
            sender.scheduleMessages(List.of(text("never"), text("ever")), OffsetDateTime.now().plusHours(1))
                .forEach(numbers::add);
            assertEquals(2, numbers.size());
            sender.cancelScheduledMessages(numbers);
            // The SDK does not report messages that were not found.
            sender.cancelScheduledMessages(numbers);
            assertNull(receiver.peekMessage());
            sender.sendMessage(text("past").setScheduledEnqueueTime(OffsetDateTime.now().minusHours(1)));
            assertEquals("past", drop(receiver).getBody().toString());
            OffsetDateTime soon = OffsetDateTime.now().plusSeconds(2);
            sender.scheduleMessage(text("soon"), soon);
            sender.sendMessage(text("later").setScheduledEnqueueTime(soon.plusSeconds(1)));
            assertEquals("soon", drop(receiver).getBody().toString());
            assertFalse(OffsetDateTime.now().isBefore(soon.minusNanos(50_000_000)));
            assertEquals("later", drop(receiver).getBody().toString());
        }
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void deferredMessagesAreSettledInEveryWay(Door door) {
        try (Bus bus = door.connect()) {
            String queue = fresh("plain");
            bus.send(queue, "complete", "abandon", "defer", "letter");
            var receiver = bus.receiver(queue);
            List<Long> numbers = new ArrayList<>();
            for (var message : take(receiver, 4)) {
                numbers.add(message.getSequenceNumber());
                receiver.defer(message, new DeferOptions().setPropertiesToModify(Map.of("deferred", "once")));
            }
            assertEmpty(receiver);
            List<ServiceBusReceivedMessage> messages = new ArrayList<>();
            receiver.receiveDeferredMessageBatch(numbers).forEach(messages::add);
            assertEquals(List.of("complete", "abandon", "defer", "letter"), bodies(messages));
            assertEquals("once", messages.get(0).getApplicationProperties().get("deferred"));
            receiver.renewMessageLock(messages.get(0));
            receiver.complete(messages.get(0));
            receiver.abandon(messages.get(1), new AbandonOptions().setPropertiesToModify(Map.of("abandoned", true)));
            receiver.defer(messages.get(2));
            receiver.deadLetter(messages.get(3), new DeadLetterOptions().setDeadLetterReason("why"));
            // An abandoned message is still deferred.
            assertEmpty(receiver);
            var again = receiver.receiveDeferredMessage(numbers.get(1));
            assertEquals(1, again.getDeliveryCount());
            assertEquals(true, again.getApplicationProperties().get("abandoned"));
            assertEquals("why", drop(bus.letters(queue)).getDeadLetterReason());
            // The SDK turns "not found" into an empty result.
            assertEquals(List.of(), bodies(receiver.receiveDeferredMessageBatch(numbers.subList(0, 1))));
            var deleting = bus.deletingReceiver(queue);
            assertEquals("defer", deleting.receiveDeferredMessage(numbers.get(2)).getBody().toString());
            assertEquals(List.of(), bodies(deleting.receiveDeferredMessageBatch(numbers.subList(2, 3))));
        }
    }
}
