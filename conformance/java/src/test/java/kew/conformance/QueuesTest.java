package kew.conformance;

import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.util.Context;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueItem;
import com.azure.storage.queue.models.QueuesSegmentOptions;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(Door.class)
record QueuesTest(Door door) {
    private static int create(QueueClient queue, Map<String, String> metadata) {
        return queue.createWithResponse(metadata, null, Context.NONE).getStatusCode();
    }

    /** The SDK shows names as the HTTP client does, which changes their case. */
    private static Map<String, String> metadata(QueueClient queue) {
        Map<String, String> lowered = new TreeMap<>();
        queue.getProperties().getMetadata().forEach((k, v) -> lowered.put(k.toLowerCase(Locale.ROOT), v));
        return lowered;
    }

    private List<String> names(QueuesSegmentOptions options) {
        return door.service().listQueues(options, null, Context.NONE).stream().map(QueueItem::getName).toList();
    }

    @Test
    void createAndDelete() {
        QueueClient queue = door.absent();
        assertEquals(201, create(queue, null));
        queue.delete();
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, queue::getProperties);
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, queue::delete);
    }

    @Test
    void createAgain() {
        QueueClient queue = door.absent();
        Map<String, String> green = Map.of("colour", "green");
        assertEquals(201, create(queue, green));
        assertEquals(204, create(queue, green));
        for (Map<String, String> other : List.of(
            Map.of("colour", "blue"), Map.<String, String>of(), Map.of("colour", "green", "size", "1"))) {
            refused(409, QueueErrorCode.QUEUE_ALREADY_EXISTS, () -> create(queue, other));
        }
        assertEquals(green, metadata(queue));
    }

    @Test
    void createIfItIsNotThereAndDeleteIfItIs() {
        QueueClient queue = door.absent();
        assertFalse(queue.deleteIfExists());
        assertTrue(queue.createIfNotExists());
        // The service answers 204, which the SDK treats as created.
        queue.createIfNotExists();
        Map<String, String> other = Map.of("colour", "blue");
        assertFalse(queue.createIfNotExistsWithResponse(other, null, Context.NONE).getValue());
        assertTrue(queue.deleteIfExists());
        assertFalse(queue.deleteIfExists());
    }

    @Test
    void aQueueThatIsCreatedAgainIsEmpty() {
        QueueClient queue = door.fresh();
        queue.sendMessage("old");
        queue.delete();
        queue.create();
        assertEquals(0, queue.getProperties().getApproximateMessagesCountLong());
    }

    @Test
    void namesThatAreNotAllowed() {
        for (String name : List.of("ab", "a".repeat(64))) {
            refused(400, QueueErrorCode.OUT_OF_RANGE_INPUT, () -> door.service().createQueue(name));
        }
        for (String name : List.of("Abc", "a--b", "-abc", "abc-", "a_b", "aüb")) {
            refused(400, QueueErrorCode.INVALID_RESOURCE_NAME, () -> door.service().createQueue(name));
        }
    }

    @Test
    void metadataIsReplacedAndCleared() {
        QueueClient queue = door.fresh();
        queue.setMetadata(Map.of("FooBar", "a  b", "_x1", "y", "signs", "a=b;c,d/e", "a_b", "1", "ab", "2"));
        assertEquals(
            Map.of("foobar", "a  b", "_x1", "y", "signs", "a=b;c,d/e", "a_b", "1", "ab", "2"), metadata(queue));
        QueuesSegmentOptions options =
            new QueuesSegmentOptions().setPrefix(queue.getQueueName()).setIncludeMetadata(true);
        QueueItem listed = door.service().listQueues(options, null, Context.NONE).iterator().next();
        assertEquals("a  b", listed.getMetadata().get("FooBar"), () -> listed.getMetadata().toString());
        queue.setMetadata(null);
        assertEquals(Map.of(), metadata(queue));
    }

    @Test
    void metadataThatIsNotAllowed() {
        QueueClient queue = door.fresh();
        queue.setMetadata(Map.of("k", "v".repeat(8191)));
        refused(400, QueueErrorCode.METADATA_TOO_LARGE, () -> queue.setMetadata(Map.of("k", "v".repeat(8192))));
        refused(400, QueueErrorCode.INVALID_METADATA, () -> queue.setMetadata(Map.of("1bad", "v")));
        assertEquals(8191, metadata(queue).get("k").length());
    }

    @Test
    void theCountIncludesHiddenMessages() {
        QueueClient queue = door.fresh();
        queue.sendMessage("now");
        queue.sendMessageWithResponse("later", Duration.ofSeconds(600), null, null, Context.NONE);
        queue.receiveMessage();
        assertEquals(2, queue.getProperties().getApproximateMessagesCountLong());
        queue.clearMessages();
        assertEquals(0, queue.getProperties().getApproximateMessagesCountLong());
    }

    @Test
    void listInPages() {
        String prefix = Door.newName() + "-";
        List<String> expected = Stream.of("0", "1", "2", "3", "4", "5", "6").map(prefix::concat).toList();
        for (String end : List.of("3", "1", "6", "5", "0", "4", "2")) {
            door.service().createQueue(prefix + end);
        }
        for (int size : List.of(1, 2, 7, 5000)) {
            QueuesSegmentOptions options =
                new QueuesSegmentOptions().setPrefix(prefix).setMaxResultsPerPage(size);
            assertEquals(expected, names(options));
            for (var page : door.service().listQueues(options, null, Context.NONE).iterableByPage()) {
                assertTrue(page.getValue().size() <= size);
            }
        }
        for (String odd : List.of("a+b", "a b", "a%2Bb", "a/b", "ä", "a=b&c=d", "'")) {
            assertEquals(List.of(), names(new QueuesSegmentOptions().setPrefix(odd)), odd);
        }
        refused(400, QueueErrorCode.OUT_OF_RANGE_QUERY_PARAMETER_VALUE,
            () -> names(new QueuesSegmentOptions().setMaxResultsPerPage(0)));
        assertEquals(1, names(new QueuesSegmentOptions().setPrefix(prefix + "3")).stream()
            .collect(Collectors.toSet()).size());
    }
}
