package kew.conformance;

import jakarta.enterprise.context.ApplicationScoped;
import jakarta.inject.Inject;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Emitter;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.jboss.weld.environment.se.Weld;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Channels of SmallRye Reactive Messaging, with its AMQP connector. Queue Storage has no connector. */
class SmallryeTest {
    static final BlockingQueue<String> GOT = new LinkedBlockingQueue<>();
    static final AtomicBoolean REFUSED = new AtomicBoolean();

    /** Refuses "two" once. */
    @ApplicationScoped
    static class Receiver {
        @Incoming("received")
        CompletionStage<Void> receive(Message<String> message) {
            if (message.getPayload().equals("two") && REFUSED.compareAndSet(false, true)) {
                return message.nack(new IllegalStateException("not yet"));
            }
            GOT.add(message.getPayload());
            return message.ack();
        }
    }

    @ApplicationScoped
    static class Sender {
        @Inject
        @Channel("sent")
        Emitter<String> sent;

        void send(String text) throws Exception {
            sent.send(text).toCompletableFuture().get(30, TimeUnit.SECONDS);
        }
    }

    /** What microprofile-config.properties has in an application. */
    private static Map<String, String> settings(boolean tls, String to, String from) {
        Map<String, String> parts = Kew.parts(Kew.bus(tls));
        String[] address = parts.get("Endpoint").substring("sb://".length()).split(":");
        Map<String, String> settings = new TreeMap<>(Map.of(
            "amqp-host", address[0],
            "amqp-port", address[1],
            "amqp-use-ssl", Boolean.toString(tls),
            "amqp-username", parts.get("SharedAccessKeyName"),
            "amqp-password", parts.get("SharedAccessKey")));
        settings.put("mp.messaging.outgoing.sent.connector", "smallrye-amqp");
        settings.put("mp.messaging.outgoing.sent.address", to);
        settings.put("mp.messaging.incoming.received.connector", "smallrye-amqp");
        settings.put("mp.messaging.incoming.received.address", from);
        settings.put("mp.messaging.incoming.received.failure-strategy", "modified-failed");
        return settings;
    }

    private static void sendAndReceive(boolean tls, String to, String from) throws Exception {
        GOT.clear();
        REFUSED.set(false);
        settings(tls, to, from).forEach(System::setProperty);
        try (var container = new Weld().addBeanClasses(Receiver.class, Sender.class).initialize()) {
            Sender sender = container.select(Sender.class).get();
            for (String text : new String[] {"one", "two", "three"}) {
                sender.send(text);
            }
            Kew.expect(GOT, "one", "two", "three");
            Kew.awaitEmpty("bus", from);
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void queues(boolean tls) throws Exception {
        sendAndReceive(tls, "orders", "orders");
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void topics(boolean tls) throws Exception {
        sendAndReceive(tls, "news", "news/subscriptions/mail");
    }
}
