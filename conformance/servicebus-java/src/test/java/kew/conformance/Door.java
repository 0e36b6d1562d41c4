package kew.conformance;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** One way to the server: the options of the SDK's client. Every scenario runs through each. */
enum Door {
    AMQP,
    AMQPS,
    WEBSOCKETS;

    private static final Map<String, AtomicInteger> TAKEN = new ConcurrentHashMap<>();

    /** An empty queue of this kind that no other scenario uses. */
    static String fresh(String kind) {
        return kind + "-" + TAKEN.computeIfAbsent(kind, it -> new AtomicInteger()).incrementAndGet();
    }

    /** The related queue of another kind. */
    static String partner(String queue, String kind) {
        return kind + queue.substring(queue.lastIndexOf('-'));
    }

    String connectionString() {
        String plain = System.getenv("KEW_BUS_CONNECTION_STRING");
        if (this == AMQP) {
            return plain;
        }
        String rest = plain.substring(plain.indexOf(';') + 1).replace("UseDevelopmentEmulator=true;", "");
        return "Endpoint=sb://" + System.getenv("KEW_BUS_HOST") + "/;" + rest;
    }

    Bus connect() {
        return connect(connectionString());
    }

    Bus connect(String connectionString) {
        // For scenarios about the server: the test must see answers that a retry would hide.
        Duration timeout = Duration.ofSeconds(60);
        return connect(connectionString, new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(timeout));
    }

    Bus connect(String connectionString, AmqpRetryOptions retries) {
        assumeTrue(this != WEBSOCKETS || !System.getenv("KEW_BUS_HTTPS").isEmpty(), "no port 443");
        return new Bus(
            new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(retries)
                .transportType(this == WEBSOCKETS ? AmqpTransportType.AMQP_WEB_SOCKETS : AmqpTransportType.AMQP));
    }
}
