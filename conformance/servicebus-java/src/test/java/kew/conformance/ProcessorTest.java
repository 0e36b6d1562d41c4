package kew.conformance;

import static kew.conformance.Bus.assertEmpty;
import static kew.conformance.Bus.text;
import static kew.conformance.Door.fresh;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.messaging.servicebus.ServiceBusMessage;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ProcessorTest {
    /** Even if one message takes longer than its lock, which the processor renews. */
    @ParameterizedTest
    @EnumSource(Door.class)
    @Timeout(150)
    void everythingIsProcessedOnce(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus processing = door.connect()) {
            String queue = fresh("renewed");
            int count = 400;
            Set<String> seen = ConcurrentHashMap.newKeySet();
            AtomicInteger times = new AtomicInteger();
            AtomicReference<Throwable> failed = new AtomicReference<>();
            CountDownLatch done = new CountDownLatch(count);
            var processor = bus.closing(processing.builder.processor().queueName(queue)
                .maxConcurrentCalls(8).prefetchCount(20).maxAutoLockRenewDuration(Duration.ofMinutes(1))
                .processMessage(context -> {
                    String body = context.getMessage().getBody().toString();
                    if (body.equals("0")) {
                        sleep(17_000);
                    }
                    times.incrementAndGet();
                    if (seen.add(body)) {
                        done.countDown();
                    }
                })
                .processError(context -> failed.compareAndSet(null, context.getException()))
                .buildProcessorClient());
            processor.start();
            var sender = bus.sender(queue);
            for (int number = 0; number < count; number++) {
                sender.sendMessage(text("" + number));
            }
            assertTrue(done.await(120, TimeUnit.SECONDS), () -> seen.size() + " messages, " + failed.get());
            processor.close();
            assertEquals(null, failed.get());
            assertEquals(count, times.get());
            assertEmpty(bus.receiver(queue));
        }
    }

    /** In order, and once. This SDK closes a link that delivered 512 messages more than it has handled. */
    @ParameterizedTest
    @EnumSource(Door.class)
    @Timeout(150)
    void hundredsArePrefetched(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus processing = door.connect()) {
            String queue = fresh("plain");
            var sender = bus.sender(queue);
            List<String> sent = new ArrayList<>();
            for (int batch = 0; batch < 2; batch++) {
                List<ServiceBusMessage> messages = new ArrayList<>();
                for (int number = 0; number < 500; number++) {
                    sent.add("" + sent.size());
                    messages.add(text(sent.get(sent.size() - 1)));
                }
                sender.sendMessages(messages);
            }
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            AtomicReference<Throwable> failed = new AtomicReference<>();
            CountDownLatch done = new CountDownLatch(sent.size());
            var processor = bus.closing(processing.builder.processor().queueName(queue).prefetchCount(400)
                .processMessage(context -> {
                    seen.add(context.getMessage().getBody().toString());
                    done.countDown();
                })
                .processError(context -> failed.compareAndSet(null, context.getException()))
                .buildProcessorClient());
            processor.start();
            // One after another: each is settled before the next one is handled.
            assertTrue(done.await(120, TimeUnit.SECONDS), () -> seen.size() + " messages, " + failed.get());
            processor.close();
            assertEquals(sent, seen);
            assertEmpty(bus.receiver(queue));
        }
    }

    /** If a handler fails, its message is released. */
    @ParameterizedTest
    @EnumSource(Door.class)
    void whatFailsComesAgain(Door door) throws InterruptedException {
        try (Bus bus = door.connect(); Bus processing = door.connect()) {
            String queue = fresh("plain");
            CountDownLatch done = new CountDownLatch(1);
            AtomicInteger errors = new AtomicInteger();
            var processor = bus.closing(processing.builder.processor().queueName(queue)
                .processMessage(context -> {
                    if (context.getMessage().getDeliveryCount() < 2) {
                        throw new IllegalStateException("not yet");
                    }
                    done.countDown();
                })
                .processError(context -> errors.incrementAndGet())
                .buildProcessorClient());
            processor.start();
            bus.send(queue, "x");
            assertTrue(done.await(30, TimeUnit.SECONDS));
            processor.close();
            assertEquals(2, errors.get());
            assertEmpty(bus.receiver(queue));
        }
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }
}
