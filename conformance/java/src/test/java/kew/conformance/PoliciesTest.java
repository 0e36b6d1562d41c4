package kew.conformance;

import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.models.QueueAccessPolicy;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueSignedIdentifier;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(Door.class)
record PoliciesTest(Door door) {
    static final OffsetDateTime STARTS = OffsetDateTime.parse("2026-01-02T03:04:05.678Z");
    static final OffsetDateTime EXPIRES = OffsetDateTime.parse("2099-12-31T00:00:00Z");

    static QueueSignedIdentifier identifier(String id, String permissions) {
        return new QueueSignedIdentifier().setId(id).setAccessPolicy(
            new QueueAccessPolicy().setStartsOn(STARTS).setExpiresOn(EXPIRES).setPermissions(permissions));
    }

    private static List<String> described(Iterable<QueueSignedIdentifier> identifiers) {
        return java.util.stream.StreamSupport.stream(identifiers.spliterator(), false).map(one -> {
            QueueAccessPolicy policy = one.getAccessPolicy();
            return String.join(" ", one.getId(), policy.getStartsOn().toInstant().toString(),
                policy.getExpiresOn().toInstant().toString(), policy.getPermissions());
        }).toList();
    }

    @Test
    void fiveAreKeptAsTheyWereGivenReplacedAndCleared() {
        QueueClient queue = door.fresh();
        assertEquals(List.of(), described(queue.getAccessPolicy()));
        List<QueueSignedIdentifier> five = Stream.of("a", "b", "with space & <signs>", "ä", "x".repeat(64))
            .map(id -> identifier(id, "raup")).toList();
        queue.setAccessPolicy(five);
        assertEquals(described(five), described(queue.getAccessPolicy()));
        List<QueueSignedIdentifier> one = List.of(identifier("only", "r"));
        queue.setAccessPolicy(one);
        assertEquals(described(one), described(queue.getAccessPolicy()));
        queue.setAccessPolicy(List.of());
        assertEquals(List.of(), described(queue.getAccessPolicy()));
    }

    @Test
    void partsCanBeAbsent() {
        QueueClient queue = door.fresh();
        queue.setAccessPolicy(List.of(new QueueSignedIdentifier().setId("a")
            .setAccessPolicy(new QueueAccessPolicy().setPermissions("p"))));
        QueueAccessPolicy policy = queue.getAccessPolicy().iterator().next().getAccessPolicy();
        assertEquals("p", policy.getPermissions());
        assertNull(policy.getStartsOn());
        assertNull(policy.getExpiresOn());
    }

    @Test
    void whatIsNotAllowedChangesNothing() {
        QueueClient queue = door.fresh();
        List<QueueSignedIdentifier> kept = List.of(identifier("kept", "raup"));
        queue.setAccessPolicy(kept);
        List<QueueSignedIdentifier> six =
            Stream.of("1", "2", "3", "4", "5", "6").map(id -> identifier(id, "r")).toList();
        refused(400, QueueErrorCode.INVALID_XML_DOCUMENT, () -> queue.setAccessPolicy(six));
        refused(400, () -> queue.setAccessPolicy(List.of(identifier("x".repeat(65), "r"))));
        refused(400, () -> queue.setAccessPolicy(List.of(identifier("letters", "rw"))));
        assertEquals(described(kept), described(queue.getAccessPolicy()));
        refused(404, QueueErrorCode.QUEUE_NOT_FOUND, () -> door.absent().setAccessPolicy(kept));
    }
}
