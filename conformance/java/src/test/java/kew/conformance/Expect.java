package kew.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.http.HttpHeaderName;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueStorageException;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.function.Executable;

/** Expectations of scenarios. */
final class Expect {
    private Expect() {
    }

    /** An error with this status and code, as the SDK shows it. */
    static void refused(int status, QueueErrorCode code, Executable operation) {
        QueueStorageException error = assertThrows(QueueStorageException.class, operation);
        assertEquals(status, error.getStatusCode(), error.getMessage());
        assertEquals(code, error.getErrorCode(), error.getMessage());
        var headers = error.getResponse().getHeaders();
        assertEquals(code.toString(), headers.getValue(HttpHeaderName.fromString("x-ms-error-code")));
        assertNotNull(headers.getValue(HttpHeaderName.fromString("x-ms-request-id")));
    }

    /** An error with this status and any code. */
    static void refused(int status, Executable operation) {
        var error = assertThrows(QueueStorageException.class, operation);
        assertEquals(status, error.getStatusCode(), error.getMessage());
    }

    static void near(OffsetDateTime expected, OffsetDateTime got) {
        Duration difference = Duration.between(expected, got).abs();
        assertTrue(difference.compareTo(Duration.ofSeconds(20)) < 0, () -> got + ", expected " + expected);
    }

    static void eventually(String what, BooleanSupplier so) throws InterruptedException {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!so.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, () -> "not in time: " + what);
            Thread.sleep(20);
        }
    }
}
