package kew.conformance;

import com.azure.storage.queue.QueueServiceClientBuilder;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.camel.CamelContext;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.impl.DefaultCamelContext;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Routes of Camel that send to Kew and receive from it. */
class CamelTest {
    private final BlockingQueue<String> got = new LinkedBlockingQueue<>();

    /** Sends these texts by a route to an endpoint, and expects them from another. The first delivery of "two" fails. */
    private void sendAndReceive(CamelContext camel, String to, String from, Map<String, Object> headers, String service,
        String entity) throws Exception {
        AtomicBoolean failed = new AtomicBoolean();
        camel.addRoutes(new RouteBuilder() {
            @Override
            public void configure() {
                from("direct:send").to(to);
                from(from).convertBodyTo(String.class).process(exchange -> {
                    String text = exchange.getIn().getBody(String.class);
                    if (text.equals("two") && failed.compareAndSet(false, true)) {
                        throw new IllegalStateException("not yet");
                    }
                    got.add(text);
                });
            }
        });
        camel.start();
        try (var producer = camel.createProducerTemplate()) {
            for (String text : new String[] {"one", "two", "three"}) {
                producer.sendBodyAndHeaders("direct:send", text, headers);
            }
            Kew.expect(got, "one", "two", "three");
            Kew.awaitEmpty(service, entity);
        } finally {
            camel.stop();
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void storageQueues(boolean tls) throws Exception {
        CamelContext camel = new DefaultCamelContext();
        // Without a client of its own, Camel asks the service in the cloud.
        camel.getRegistry().bind("kew",
            new QueueServiceClientBuilder().connectionString(Kew.storage(tls)).buildClient());
        String endpoint = "azure-storage-queue://devstoreaccount1/camel-" + tls + "?serviceClient=#kew";
        sendAndReceive(camel, endpoint + "&createQueue=true", endpoint + "&delay=100&visibilityTimeout=PT2S", Map.of(),
            "queue", "camel-" + tls);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void queues(boolean tls) throws Exception {
        String queue = tls ? "other-orders" : "orders";
        String endpoint = "azure-servicebus://" + queue + "?connectionString=RAW(" + Kew.bus(tls) + ")";
        sendAndReceive(new DefaultCamelContext(), endpoint, endpoint, Map.of(), "bus", queue);
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void topics(boolean tls) throws Exception {
        String endpoint = "azure-servicebus://news?serviceBusType=topic&connectionString=RAW(" + Kew.bus(tls) + ")";
        sendAndReceive(new DefaultCamelContext(), endpoint, endpoint + "&subscriptionName=mail", Map.of(), "bus",
            "news/subscriptions/mail");
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void sessions(boolean tls) throws Exception {
        String endpoint = "azure-servicebus://chats?serviceBusType=topic&connectionString=RAW(" + Kew.bus(tls) + ")";
        sendAndReceive(new DefaultCamelContext(), endpoint + "&sessionId=one",
            endpoint + "&subscriptionName=mail&sessionEnabled=true", Map.of(), "bus",
            "chats/subscriptions/mail");
    }
}
