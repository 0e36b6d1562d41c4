package kew.conformance;

import static kew.conformance.Bus.isSent;
import static kew.conformance.Bus.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusReceivedMessageContext;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Clients reconnect by themselves when the server restarts, and no accepted message is lost. */
class RestartTest {
    /** A server for a single scenario, which is ended and restarted. */
    private static final class Server implements AutoCloseable {
        private final Process process;
        private final BufferedReader says;
        final String connectionString;

        Server(String queues) throws IOException {
            process = new ProcessBuilder("../restarting", queues)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            says = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            connectionString = says.readLine();
            assertNotNull(connectionString, "the server did not start");
        }

        void restart(String signal) {
            try {
                process.getOutputStream().write((signal + "\n").getBytes(StandardCharsets.UTF_8));
                process.getOutputStream().flush();
                assertEquals("ready", says.readLine());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        public void close() {
            try {
                process.getOutputStream().close();
                process.waitFor();
            } catch (IOException | InterruptedException error) {
                throw new IllegalStateException("the server does not end", error);
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"TERM", "KILL"})
    void clientsGoOn(String signal) throws Exception {
        AmqpRetryOptions patient = new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(20)
            .setDelay(Duration.ofMillis(300)).setTryTimeout(Duration.ofSeconds(5));
        Set<String> sent = ConcurrentHashMap.newKeySet();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicReference<Throwable> failed = new AtomicReference<>();
        // The SDK may never answer a settlement when its connection ends, and its thread is one of those that all
        // scenarios share.
        ExecutorService completing = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task, "completing");
            thread.setDaemon(true);
            return thread;
        });
        try (Server server = new Server("[{\"Name\": \"q\", \"Properties\": {\"LockDuration\": \"PT5S\"}}]");
            Bus sending = Door.AMQP.connect(server.connectionString, patient);
            Bus processing = Door.AMQP.connect(server.connectionString, patient)) {
            var processor = processing.closing(processing.builder.processor().queueName("q").disableAutoComplete()
                .processMessage(context -> {
                    seen.add(context.getMessage().getBody().toString());
                    completing.execute(() -> completeOrLeave(context));
                })
                .processError(context -> { })
                .buildProcessorClient());
            processor.start();
            var sender = sending.sender("q");
            Thread sends = new Thread(() -> {
                try {
                    while (!Thread.currentThread().isInterrupted()) {
                        String body = "" + sent.size();
                        if (isSent(sender, text(body))) {
                            sent.add(body);
                        }
                    }
                } catch (RuntimeException error) {
                    // It is interrupted when it has sent enough.
                    if (!Thread.currentThread().isInterrupted()) {
                        failed.set(error);
                    }
                }
            });
            sends.start();
            for (int time = 0; time < 3; time++) {
                if (time > 0) {
                    server.restart(signal);
                }
                int sentBefore = sent.size();
                int seenBefore = seen.size();
                Bus.eventually("more messages", () -> {
                    assertEquals(null, failed.get());
                    return sent.size() >= sentBefore + 20 && seen.size() >= seenBefore + 20;
                });
            }
            sends.interrupt();
            sends.join();
            // Some may have arrived twice.
            Bus.eventually("the last messages", () -> seen.containsAll(sent));
            assertTrue(sent.size() >= 60);
        }
    }

    /** A message that is not completed is delivered again. */
    private static void completeOrLeave(ServiceBusReceivedMessageContext context) {
        try {
            context.complete();
        } catch (RuntimeException error) {
            // Its connection or its lock is lost.
        }
    }
}
