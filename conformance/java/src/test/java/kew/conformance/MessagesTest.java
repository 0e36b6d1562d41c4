package kew.conformance;

import static kew.conformance.Expect.eventually;
import static kew.conformance.Expect.near;
import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.util.Context;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.models.PeekedMessageItem;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueMessageItem;
import com.azure.storage.queue.models.SendMessageResult;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(Door.class)
record MessagesTest(Door door) {
    private static final int LIMIT = 65536;
    private static final String FOREIGN_ID = "00000000-0000-0000-0000-000000000000";
    /** A receipt in the right form that belongs to no message. */
    private static final String FOREIGN_RECEIPT = Base64.getEncoder().encodeToString(new byte[16]);

    private static List<QueueMessageItem> receive(QueueClient queue, int count, int seconds) {
        return queue.receiveMessages(count, Duration.ofSeconds(seconds), null, Context.NONE).stream().toList();
    }

    private static List<String> peek(QueueClient queue) {
        return queue.peekMessages(32, null, Context.NONE).stream().map(MessagesTest::text).toList();
    }

    /** The SDK returns no text for an empty element. */
    private static String text(PeekedMessageItem message) {
        return Objects.requireNonNullElse(message.getMessageText(), "");
    }

    private static SendMessageResult send(QueueClient queue, Integer delay, Integer life) {
        return queue.sendMessageWithResponse("text", delay == null ? null : Duration.ofSeconds(delay),
            life == null ? null : Duration.ofSeconds(life), null, Context.NONE).getValue();
    }

    @Test
    void sendAndReceiveAnswerWithEverything() {
        QueueClient queue = door.fresh();
        SendMessageResult sent = queue.sendMessage("text");
        near(OffsetDateTime.now(), sent.getInsertionTime());
        assertEquals(sent.getInsertionTime().plusDays(7), sent.getExpirationTime());
        assertEquals(sent.getInsertionTime(), sent.getTimeNextVisible());
        QueueMessageItem received = receive(queue, 1, 60).get(0);
        assertEquals(sent.getMessageId(), received.getMessageId());
        assertEquals("text", received.getBody().toString());
        assertEquals(1, received.getDequeueCount());
        assertEquals(sent.getInsertionTime(), received.getInsertionTime());
        assertEquals(sent.getExpirationTime(), received.getExpirationTime());
        assertNotEquals(sent.getPopReceipt(), received.getPopReceipt());
        near(OffsetDateTime.now().plusSeconds(60), received.getTimeNextVisible());
    }

    @Test
    void texts() {
        QueueClient queue = door.fresh();
        for (String text : List.of(
            "<a href=\"x\" b='y'>&amp; &lt; &#65; ]]> <![CDATA[x]]> <!-- c --></a>",
            "äöü ß 中文 العربية 🐦🦆 𝄞 e\u0301", "  \t text \t  ", "   ", "one\ntwo\n\nthree\n",
            "a+b %2B %zz ?&=#", "{\"a\": [1, 2.5, null]}", "", "x".repeat(LIMIT), "<".repeat(LIMIT),
            "🐦".repeat(LIMIT / 4))) {
            SendMessageResult sent = queue.sendMessage(text);
            assertEquals(List.of(text), peek(queue));
            queue.updateMessage(sent.getMessageId(), sent.getPopReceipt(), text, Duration.ZERO);
            QueueMessageItem received = receive(queue, 1, 600).get(0);
            assertEquals(text, Objects.requireNonNullElse(received.getBody(), "").toString());
            queue.deleteMessage(received.getMessageId(), received.getPopReceipt());
        }
    }

    @Test
    void textsThatDoNotFit() {
        QueueClient queue = door.fresh();
        SendMessageResult sent = queue.sendMessage("small");
        for (String text : List.of("x".repeat(LIMIT + 1), "中".repeat(LIMIT / 3 + 1))) {
            refused(413, QueueErrorCode.REQUEST_BODY_TOO_LARGE, () -> queue.sendMessage(text));
            refused(413, QueueErrorCode.REQUEST_BODY_TOO_LARGE, () ->
                queue.updateMessage(sent.getMessageId(), sent.getPopReceipt(), text, Duration.ZERO));
        }
        assertEquals(List.of("small"), peek(queue));
    }

    @Test
    void timeToLive() throws InterruptedException {
        QueueClient queue = door.fresh();
        assertEquals(OffsetDateTime.parse("9999-12-31T23:59:59Z"), send(queue, null, -1).getExpirationTime());
        SendMessageResult sent = send(queue, null, Integer.MAX_VALUE);
        assertEquals(sent.getInsertionTime().plusSeconds(Integer.MAX_VALUE), sent.getExpirationTime());
        for (int life : List.of(0, -2)) {
            refused(400, QueueErrorCode.INVALID_QUERY_PARAMETER_VALUE, () -> send(queue, null, life));
        }
        queue.clearMessages();
        send(queue, null, 1);
        eventually("it expires", () -> peek(queue).isEmpty());
    }

    @Test
    void aDelay() throws InterruptedException {
        QueueClient queue = door.fresh();
        long began = System.nanoTime();
        SendMessageResult sent = send(queue, 1, null);
        assertEquals(sent.getInsertionTime().plusSeconds(1), sent.getTimeNextVisible());
        eventually("it is visible", () -> receive(queue, 32, 600).size() == 1);
        assertTrue(System.nanoTime() - began > 900_000_000, "it came too early");
        for (int delay : List.of(-1, 604801)) {
            refused(400, QueueErrorCode.OUT_OF_RANGE_QUERY_PARAMETER_VALUE, () -> send(queue, delay, -1));
        }
        refused(400, QueueErrorCode.INVALID_QUERY_PARAMETER_VALUE, () -> send(queue, 10, 10));
    }

    @Test
    void receiveFromOneToThirtyTwo() {
        QueueClient queue = door.fresh();
        List<String> sent = IntStream.range(0, 35).mapToObj(Integer::toString).toList();
        sent.forEach(queue::sendMessage);
        List<String> received = new ArrayList<>();
        for (int count : List.of(1, 32, 32)) {
            receive(queue, count, 600).forEach(message -> received.add(message.getBody().toString()));
        }
        assertEquals(sent, received);
        assertEquals(List.of(), receive(queue, 32, 600));
        for (int count : List.of(0, 33)) {
            refused(400, QueueErrorCode.OUT_OF_RANGE_QUERY_PARAMETER_VALUE, () -> receive(queue, count, 600));
            refused(400, QueueErrorCode.OUT_OF_RANGE_QUERY_PARAMETER_VALUE,
                () -> queue.peekMessages(count, null, Context.NONE).stream().toList());
        }
        for (int seconds : List.of(0, 604801)) {
            refused(400, QueueErrorCode.OUT_OF_RANGE_QUERY_PARAMETER_VALUE, () -> receive(queue, 1, seconds));
        }
    }

    @Test
    void peekChangesNothing() {
        QueueClient queue = door.fresh();
        queue.sendMessage("text");
        for (int turn = 0; turn < 2; turn++) {
            assertEquals(0, queue.peekMessage().getDequeueCount());
        }
        assertEquals(1, queue.receiveMessage().getDequeueCount());
        assertEquals(List.of(), peek(queue));
    }

    @Test
    void staleReceipts() throws InterruptedException {
        QueueClient queue = door.fresh();
        queue.sendMessage("text");
        QueueMessageItem first = receive(queue, 1, 1).get(0);
        List<QueueMessageItem> again = new ArrayList<>();
        eventually("it is visible", () -> again.addAll(receive(queue, 1, 600)));
        QueueMessageItem second = again.get(0);
        assertEquals(2, second.getDequeueCount());
        refused(404, QueueErrorCode.MESSAGE_NOT_FOUND,
            () -> queue.deleteMessage(first.getMessageId(), first.getPopReceipt()));
        refused(404, QueueErrorCode.MESSAGE_NOT_FOUND,
            () -> queue.updateMessage(first.getMessageId(), first.getPopReceipt(), "stolen", Duration.ZERO));
        queue.deleteMessage(second.getMessageId(), second.getPopReceipt());
        refused(404, QueueErrorCode.MESSAGE_NOT_FOUND,
            () -> queue.deleteMessage(second.getMessageId(), second.getPopReceipt()));
    }

    @Test
    void updateWithAndWithoutAText() {
        QueueClient queue = door.fresh();
        SendMessageResult sent = queue.sendMessage("old");
        String id = sent.getMessageId();
        var updated = queue.updateMessage(id, sent.getPopReceipt(), "new", Duration.ofSeconds(60));
        near(OffsetDateTime.now().plusSeconds(60), updated.getTimeNextVisible());
        refused(404, QueueErrorCode.MESSAGE_NOT_FOUND,
            () -> queue.updateMessage(id, sent.getPopReceipt(), "x", Duration.ZERO));
        var kept = queue.updateMessage(id, updated.getPopReceipt(), null, Duration.ZERO);
        assertEquals(List.of("new"), peek(queue));
        var emptied = queue.updateMessage(id, kept.getPopReceipt(), "", Duration.ZERO);
        assertEquals(List.of(""), peek(queue));
        for (int seconds : List.of(-1, 604801)) {
            refused(400, QueueErrorCode.OUT_OF_RANGE_QUERY_PARAMETER_VALUE,
                () -> queue.updateMessage(id, emptied.getPopReceipt(), "x", Duration.ofSeconds(seconds)));
        }
        assertEquals(sent.getExpirationTime(), queue.receiveMessage().getExpirationTime());
    }

    @Test
    void receiptsAndIdsThatAreNone() {
        QueueClient queue = door.fresh();
        SendMessageResult sent = queue.sendMessage("text");
        String id = sent.getMessageId();
        refused(400, QueueErrorCode.INVALID_QUERY_PARAMETER_VALUE, () -> queue.deleteMessage(id, "invalid"));
        refused(404, QueueErrorCode.MESSAGE_NOT_FOUND, () -> queue.deleteMessage(id, FOREIGN_RECEIPT));
        for (String foreign : List.of(FOREIGN_ID, "not-a-guid")) {
            refused(404, QueueErrorCode.MESSAGE_NOT_FOUND, () -> queue.deleteMessage(foreign, sent.getPopReceipt()));
        }
        queue.deleteMessage(id, sent.getPopReceipt());
    }

    @Test
    void clearTakesHiddenMessagesToo() {
        QueueClient queue = door.fresh();
        queue.sendMessage("held");
        QueueMessageItem held = queue.receiveMessage();
        queue.clearMessages();
        assertEquals(0, queue.getProperties().getApproximateMessagesCountLong());
        refused(404, QueueErrorCode.MESSAGE_NOT_FOUND,
            () -> queue.deleteMessage(held.getMessageId(), held.getPopReceipt()));
    }

    @Test
    void everyOperationOnAQueueThatIsNotThere() {
        QueueClient queue = door.absent();
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> queue.sendMessage("x"));
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> queue.receiveMessage());
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> queue.peekMessage());
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> queue.clearMessages());
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> queue.setMetadata(null));
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND,
            () -> queue.updateMessage(FOREIGN_ID, FOREIGN_RECEIPT, "x", Duration.ZERO));
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> queue.deleteMessage(FOREIGN_ID, FOREIGN_RECEIPT));
    }
}
