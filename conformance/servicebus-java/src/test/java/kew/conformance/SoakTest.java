package kew.conformance;

import static kew.conformance.Bus.text;
import static kew.conformance.Door.fresh;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Scenarios with a requested duration: conformance/soak runs them for minutes. */
class SoakTest {
    private static final Duration TIME =
        Duration.ofSeconds(Long.parseLong(System.getenv().getOrDefault("KEW_SOAK_SECONDS", "20")));

    /** Sometimes a message takes longer than its lock, which the processor renews. */
    @ParameterizedTest
    @EnumSource(Door.class)
    @Timeout(value = 24, unit = TimeUnit.HOURS)
    void everythingIsProcessedOnce(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus processing = door.connect()) {
            String queue = fresh("renewed");
            Set<String> seen = ConcurrentHashMap.newKeySet();
            AtomicInteger times = new AtomicInteger();
            AtomicReference<Throwable> failed = new AtomicReference<>();
            var processor = bus.closing(processing.builder.processor().queueName(queue)
                .maxConcurrentCalls(8).maxAutoLockRenewDuration(Duration.ofMinutes(1))
                .processMessage(context -> {
                    String body = context.getMessage().getBody().toString();
                    times.incrementAndGet();
                    if (body.endsWith("00")) {
                        pause(12_000);
                    }
                    seen.add(body);
                })
                .processError(context -> failed.compareAndSet(null, context.getException()))
                .buildProcessorClient());
            processor.start();
            var sender = bus.sender(queue);
            long end = System.nanoTime() + TIME.toNanos();
            int sent = 0;
            while (System.nanoTime() < end) {
                sender.sendMessage(text("" + ++sent));
                pause(25);
            }
            int all = sent;
            Bus.eventually("everything is processed", () -> seen.size() == all);
            processor.close();
            assertEquals(null, failed.get());
            assertEquals(all, times.get());
        }
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }
}
