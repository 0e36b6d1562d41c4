package kew.conformance;

import static kew.conformance.Bus.take;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.azure.core.exception.HttpResponseException;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.RuleFilter;
import com.azure.messaging.servicebus.administration.models.SubscriptionProperties;
import com.azure.messaging.servicebus.administration.models.TopicProperties;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import org.junit.jupiter.api.function.Executable;

/** Topics that no other scenario uses, and the client that administers them, over HTTPS only. */
final class Topics {
    final ServiceBusAdministrationClient admin;

    Topics() {
        assumeTrue(!System.getenv("KEW_BUS_HTTPS").isEmpty(), "no port 443");
        admin = new ServiceBusAdministrationClientBuilder().connectionString(Door.AMQPS.connectionString())
            .buildClient();
    }

    String create(String name, Door door) {
        String topic = "x-" + name + "-of-java-" + door.name().toLowerCase();
        admin.createTopic(topic);
        return topic;
    }

    /** A subscription that has this rule and no other. */
    void subscribe(String topic, String name, CreateRuleOptions rule) {
        admin.createSubscription(topic, name, "r", new CreateSubscriptionOptions(), rule);
    }

    void subscribe(String topic, String name, RuleFilter filter) {
        subscribe(topic, name, new CreateRuleOptions(filter));
    }

    void change(String topic, Consumer<TopicProperties> change) {
        TopicProperties settings = admin.getTopic(topic);
        change.accept(settings);
        admin.updateTopic(settings);
    }

    void change(String topic, String name, Consumer<SubscriptionProperties> change) {
        SubscriptionProperties settings = admin.getSubscription(topic, name);
        change.accept(settings);
        admin.updateSubscription(settings);
    }

    /** The message of an error with this status. */
    static String refused(int status, Executable operation) {
        HttpResponseException error = assertThrows(HttpResponseException.class, operation);
        assertEquals(status, error.getResponse().getStatusCode(), error.getMessage());
        return error.getMessage();
    }

    static ServiceBusReceiverClient receiver(Bus bus, String topic, String name, SubQueue part) {
        return bus.closing(bus.builder.receiver().topicName(topic).subscriptionName(name).subQueue(part)
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
    }

    static ServiceBusReceiverClient receiver(Bus bus, String topic, String name) {
        return receiver(bus, topic, name, SubQueue.NONE);
    }

    static ServiceBusReceiverClient letters(Bus bus, String topic, String name) {
        return receiver(bus, topic, name, SubQueue.DEAD_LETTER_QUEUE);
    }

    static List<String> peeked(Bus bus, String topic, String name) {
        return Bus.bodies(receiver(bus, topic, name).peekMessages(20));
    }

    /** Takes so many messages of a subscription for good. */
    static List<ServiceBusReceivedMessage> copies(Bus bus, String topic, String name, int count) {
        try (var receiver = bus.builder.receiver().topicName(topic).subscriptionName(name)
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            return take(receiver, count);
        }
    }
}
