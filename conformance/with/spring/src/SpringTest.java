package kew.conformance;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.spring.messaging.AzureHeaders;
import com.azure.spring.messaging.checkpoint.Checkpointer;
import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import com.azure.spring.messaging.storage.queue.core.StorageQueueTemplate;
import jakarta.jms.JMSRuntimeException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.stream.function.StreamBridge;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** Applications of Spring Boot, with the starters of Spring Cloud Azure. */
class SpringTest {
    private static final String[] TEXTS = {"one", "two", "three"};
    private static final BlockingQueue<String> GOT = new LinkedBlockingQueue<>();
    private static final AtomicBoolean REFUSED = new AtomicBoolean();

    /** What the listeners do. The first delivery of "two" fails. */
    private static void take(String text) {
        if (text.equals("two") && REFUSED.compareAndSet(false, true)) {
            throw new IllegalStateException("not yet");
        }
        GOT.add(text);
    }

    @BeforeEach
    void forget() {
        GOT.clear();
        REFUSED.set(false);
    }

    /** Starts an application with these settings, which application.properties would have. */
    private static ConfigurableApplicationContext start(Class<?> application, Map<String, String> own) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "spring.main.banner-mode", "off", "logging.level.root", "off", "spring.jms.servicebus.enabled", "false"));
        settings.putAll(own);
        return new SpringApplicationBuilder(application).web(WebApplicationType.NONE).properties(settings).run();
    }

    @Configuration
    @EnableAutoConfiguration
    static class Sending {
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void storageQueues(boolean tls) throws Exception {
        String queue = "spring-" + tls;
        Kew.run("queue", "create", queue);
        Map<String, String> account = Kew.parts(Kew.storage(tls));
        // With a connection string, the template asks the service in the cloud.
        try (var application = start(Sending.class, Map.of(
            "spring.cloud.azure.storage.queue.endpoint", account.get("QueueEndpoint"),
            "spring.cloud.azure.storage.queue.account-name", account.get("AccountName"),
            "spring.cloud.azure.storage.queue.account-key", account.get("AccountKey")))) {
            var template = application.getBean(StorageQueueTemplate.class);
            for (String text : TEXTS) {
                template.sendAsync(queue, MessageBuilder.withPayload(text).build()).block();
            }
            for (int left = TEXTS.length; left > 0; left--) {
                Message<?> message = template.receiveAsync(queue, Duration.ofMinutes(1)).block();
                GOT.add(new String((byte[]) message.getPayload(), StandardCharsets.UTF_8));
                message.getHeaders().get(AzureHeaders.CHECKPOINTER, Checkpointer.class).success().block();
            }
            Kew.expect(GOT, TEXTS);
            Kew.awaitEmpty("queue", queue);
        }
    }

    @Configuration
    @EnableAutoConfiguration
    @EnableAzureMessaging
    static class Listening {
        @ServiceBusListener(destination = "${to}", group = "${subscription:}")
        void listen(String text) {
            take(text);
        }
    }

    private static void listen(boolean tls, String kind, String to, String subscription) throws Exception {
        try (var application = start(Listening.class, Map.of(
            "spring.cloud.azure.servicebus.connection-string", Kew.bus(tls),
            "spring.cloud.azure.servicebus.entity-type", kind,
            "to", to, "subscription", subscription))) {
            var template = application.getBean(ServiceBusTemplate.class);
            for (String text : TEXTS) {
                template.send(to, MessageBuilder.withPayload(text).build());
            }
            Kew.expect(GOT, TEXTS);
            Kew.awaitEmpty("bus", entity(to, subscription));
        }
    }

    private static String entity(String to, String subscription) {
        return subscription.isEmpty() ? to : to + "/subscriptions/" + subscription;
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void queues(boolean tls) throws Exception {
        listen(tls, "queue", "orders", "");
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void topics(boolean tls) throws Exception {
        listen(tls, "topic", "news", "mail");
    }

    @Configuration
    @EnableAutoConfiguration
    static class Streaming {
        @Bean
        Consumer<String> received() {
            return SpringTest::take;
        }
    }

    private static void stream(boolean tls, String kind, String to, String subscription) throws Exception {
        Map<String, String> settings = new HashMap<>(Map.of(
            "spring.cloud.azure.servicebus.connection-string", Kew.bus(tls),
            "spring.cloud.function.definition", "received",
            "spring.cloud.stream.bindings.received-in-0.destination", to,
            "spring.cloud.stream.servicebus.bindings.received-in-0.consumer.entity-type", kind,
            "spring.cloud.stream.bindings.sent.destination", to,
            "spring.cloud.stream.servicebus.bindings.sent.producer.entity-type", kind));
        if (!subscription.isEmpty()) {
            settings.put("spring.cloud.stream.bindings.received-in-0.group", subscription);
        }
        try (var application = start(Streaming.class, settings)) {
            var bridge = application.getBean(StreamBridge.class);
            for (String text : TEXTS) {
                bridge.send("sent", text);
            }
            Kew.expect(GOT, TEXTS);
            Kew.awaitEmpty("bus", entity(to, subscription));
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void streamOfAQueue(boolean tls) throws Exception {
        stream(tls, "queue", "other-orders", "");
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void streamOfATopic(boolean tls) throws Exception {
        stream(tls, "topic", "news", "mail");
    }

    @Configuration
    @EnableAutoConfiguration
    @EnableJms
    static class Jms {
        @JmsListener(destination = "${from}")
        void listen(String text) {
            take(text);
        }
    }

    /**
     * Spring's JMS listeners take each message in a transaction. A message of a transaction that is rolled back comes
     * again when its lock expires.
     */
    private static void jms(String to, String from) throws Exception {
        try (var application = start(Jms.class, Map.of(
            "spring.jms.servicebus.enabled", "true",
            // The starter takes a semicolon at the end for a part of the key.
            "spring.jms.servicebus.connection-string", Kew.bus(true).replaceAll(";$", ""),
            "spring.jms.servicebus.pricing-tier", "standard",
            "from", from))) {
            var template = application.getBean(JmsTemplate.class);
            for (String text : TEXTS) {
                template.convertAndSend(to, text);
            }
            Kew.expect(GOT, TEXTS);
            Kew.awaitEmpty("bus", from);
        }
    }

    @Test
    void jmsOfAQueue() throws Exception {
        jms("brief", "brief");
    }

    @Test
    void aSubscriptionThatJmsWouldCreateIsRefused() {
        var strings = Kew.bus(true).replaceAll(";$", "");
        try (var context = new ServiceBusJmsConnectionFactory(strings, null).createContext()) {
            context.setClientID("one");
            var topic = context.createTopic("news");
            var refusal = assertThrows(JMSRuntimeException.class,
                () -> context.createDurableConsumer(topic, "made-by-jms"));
            assertTrue(refusal.getMessage().contains("amqp:not-implemented"), refusal.getMessage());
        }
    }

    @Test
    void jmsOfATopic() throws Exception {
        jms("briefs", "briefs/subscriptions/mail");
    }
}
