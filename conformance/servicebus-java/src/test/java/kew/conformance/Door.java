package kew.conformance;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.amqp.AmqpTransportType;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** One way to the server: what is given to the SDK. Every scenario goes through each. */
enum Door {
    AMQP,
    AMQPS,
    WEBSOCKETS;

    private static final Map<String, AtomicInteger> TAKEN = new ConcurrentHashMap<>();

    /** An empty queue of this kind, which no other scenario has. */
    static String fresh(String kind) {
        return kind + "-" + TAKEN.computeIfAbsent(kind, it -> new AtomicInteger()).incrementAndGet();
    }

    /** The queue of another kind that goes with it. */
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
        // Where a scenario is about the server: an answer that a retry would cover up is shown.
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
