package kew.conformance;

import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.storage.common.policy.RequestRetryOptions;
import com.azure.storage.common.policy.RetryPolicyType;
import com.azure.storage.queue.QueueClient;
import java.io.IOException;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** The busy server has no TLS, so the other doors have no such scenario. */
@ParameterizedClass
@EnumSource(value = Door.class, names = {"HTTP_PATH", "HTTP_HOST"})
record BusyTest(Door door) {
    private QueueClient through(Front front, RequestRetryOptions retries) {
        return Door.at(door.url(front.port(), ""), door.fresh().getQueueName(), retries);
    }

    @Test
    void aBusyServerIsAskedAgain() throws IOException {
        Duration delay = Duration.ofMillis(10);
        RequestRetryOptions quick = new RequestRetryOptions(RetryPolicyType.FIXED, 4, (Duration) null, delay, delay, null);
        try (Front front = new Front(2)) {
            through(front, quick).sendMessage("text");
            assertEquals(3, front.connections.get());
        }
        try (Front front = new Front(1)) {
            refused(503, () -> through(front, Door.NO_RETRIES).sendMessage("text"));
        }
    }
}
