package kew.conformance;

import static kew.conformance.Bus.drop;
import static kew.conformance.Bus.refused;
import static kew.conformance.Bus.sendAgain;
import static kew.conformance.Bus.take;
import static kew.conformance.Bus.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.azure.core.exception.ClientAuthenticationException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusFailureReason;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.AccessRights;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.FalseRuleFilter;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.RuleProperties;
import com.azure.messaging.servicebus.administration.models.SharedAccessAuthorizationRule;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Administration, which is over HTTPS only. */
class AdministrationTest {
    @BeforeAll
    static void hasPort() {
        assumeTrue(!System.getenv("KEW_BUS_HTTPS").isEmpty(), "no port 443");
    }

    private static ServiceBusAdministrationClient client(String connectionString) {
        return new ServiceBusAdministrationClientBuilder().connectionString(connectionString).buildClient();
    }

    private static ServiceBusAdministrationClient client() {
        return client(Door.AMQPS.connectionString());
    }

    @Test
    void aQueueIsMadeChangedAndDeleted() {
        var admin = client();
        String name = "X.Made.By/Java";
        QueueProperties made = admin.createQueue(name, new CreateQueueOptions()
            .setLockDuration(Duration.ofSeconds(30)).setMaxDeliveryCount(4).setSessionRequired(true)
            .setDefaultMessageTimeToLive(Duration.ofHours(1)).setDeadLetteringOnMessageExpiration(true)
            .setUserMetadata("a < b & c"));
        assertEquals(Duration.ofSeconds(30), made.getLockDuration());
        assertThrows(ResourceExistsException.class, () -> admin.createQueue(name));
        assertTrue(admin.getQueueExists(name));
        QueueProperties queue = admin.getQueue(name);
        assertTrue(queue.getName().equalsIgnoreCase(name), queue.getName());
        assertEquals(List.of(4, true, Duration.ofHours(1), "a < b & c", EntityStatus.ACTIVE),
            List.of(queue.getMaxDeliveryCount(), queue.isSessionRequired(), queue.getDefaultMessageTimeToLive(),
                queue.getUserMetadata(), queue.getStatus()));
        assertEquals(9, admin.updateQueue(queue.setMaxDeliveryCount(9).setStatus(EntityStatus.SEND_DISABLED))
            .getMaxDeliveryCount());
        try (Bus bus = Door.AMQPS.connect()) {
            var message = text("x").setSessionId("s");
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> bus.send(name, message));
            admin.updateQueue(queue.setStatus(EntityStatus.ACTIVE));
            bus.send(name, message, text("y").setSessionId("t"));
            assertEquals(2, admin.getQueueRuntimeProperties(name).getActiveMessageCount());
            admin.deleteQueue(name);
            assertFalse(admin.getQueueExists(name));
            assertThrows(ResourceNotFoundException.class, () -> admin.getQueue(name));
            assertThrows(HttpResponseException.class, () -> admin.deleteQueue(name));
        }
    }

    @Test
    void linksThatAreThereHearOfChanges() throws InterruptedException {
        var admin = client();
        String name = "x-changed-by-java";
        QueueProperties queue = admin.createQueue(name);
        try (Bus bus = Door.AMQPS.connect()) {
            var sender = bus.sender(name);
            sender.sendMessage(text("before"));
            admin.updateQueue(queue.setStatus(EntityStatus.SEND_DISABLED));
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_DISABLED, () -> sendAgain(sender, text("meanwhile")));
            assertEquals("before", drop(bus.receiver(name)).getBody().toString());
            admin.updateQueue(queue.setStatus(EntityStatus.ACTIVE));
            sendAgain(sender, text("after"));
            assertEquals("after", drop(bus.receiver(name)).getBody().toString());
        }
        hears(name, () -> admin.updateQueue(queue.setStatus(EntityStatus.RECEIVE_DISABLED)));
        admin.updateQueue(queue.setStatus(EntityStatus.ACTIVE));
        hears(name, () -> admin.deleteQueue(name));
    }

    /** A processor that waits for messages gets an error when the queue is changed. */
    private static void hears(String queue, Runnable change) throws InterruptedException {
        try (Bus bus = Door.AMQPS.connect()) {
            CountDownLatch told = new CountDownLatch(1);
            CountDownLatch receives = new CountDownLatch(1);
            var processor = bus.closing(bus.builder.processor().queueName(queue)
                .processMessage(context -> receives.countDown())
                .processError(context -> told.countDown())
                .buildProcessorClient());
            bus.send(queue, "x");
            processor.start();
            assertTrue(receives.await(30, TimeUnit.SECONDS));
            change.run();
            assertTrue(told.await(30, TimeUnit.SECONDS));
        }
    }

    @Test
    void aFullQueueTakesNoMoreUntilSomethingIsTakenOut() {
        var admin = client();
        String name = "x-filled-by-java";
        admin.createQueue(name, new CreateQueueOptions().setMaxSizeInMegabytes(1));
        try (Bus bus = Door.AMQPS.connect()) {
            var sender = bus.sender(name);
            List<ServiceBusMessage> messages = new ArrayList<>();
            for (int count = 0; count < 5; count++) {
                messages.add(new ServiceBusMessage(new byte[100_000]));
            }
            refused(ServiceBusFailureReason.QUOTA_EXCEEDED, () -> {
                for (int time = 0; time < 10; time++) {
                    sender.sendMessages(messages);
                }
            });
            take(bus.deletingReceiver(name), 5);
            sender.sendMessage(text("fits"));
        }
        admin.deleteQueue(name);
    }

    @Test
    void queuesAreListedInPages() {
        Set<String> names = new HashSet<>();
        int pages = 0;
        for (var page : client().listQueues().iterableByPage()) {
            pages++;
            page.getElements().forEach(queue -> names.add(queue.getName()));
        }
        assertTrue(pages >= 5 && names.containsAll(Set.of("plain-1", "plain-100", "session-50")), pages + " pages");
    }

    @Test
    void rulesOfAQueue() {
        var admin = client();
        String name = "x-ruled-by-java";
        String key = "bm9ib2R5IGtub3dzIHRoaXMga2V5LCBvZiBjb3Vyc2U=";
        CreateQueueOptions options = new CreateQueueOptions();
        options.getAuthorizationRules()
            .add(new SharedAccessAuthorizationRule("senders", key, key, List.of(AccessRights.SEND)));
        admin.createQueue(name, options);
        var rules = admin.getQueue(name).getAuthorizationRules();
        assertEquals(1, rules.size());
        assertEquals("senders", rules.get(0).getKeyName());
        assertEquals(List.of(AccessRights.SEND), rules.get(0).getAccessRights());
        String endpoint = Door.AMQPS.connectionString().split(";")[0];
        try (Bus bus = Door.AMQPS.connect(endpoint + ";SharedAccessKeyName=senders;SharedAccessKey=" + key)) {
            bus.send(name, "x");
            assertThrows(RuntimeException.class,
                () -> bus.receiver(name).receiveMessages(1, Bus.PATIENCE).iterator().hasNext());
        }
        admin.deleteQueue(name);
    }

    @Test
    void rulesOfASubscription() {
        var admin = client();
        String topic = "x-ruled-topic-of-java";
        admin.createTopic(topic);
        var red = new SqlRuleFilter("color = @color");
        red.getParameters().put("@color", "red");
        admin.createSubscription(topic, "s", "First", new CreateSubscriptionOptions(),
            new CreateRuleOptions(red).setAction(new SqlRuleAction("SET a = 1")));
        RuleProperties first = admin.getRule(topic, "s", "first");
        var filter = assertInstanceOf(SqlRuleFilter.class, first.getFilter());
        assertEquals(List.of("First", "color = @color"), List.of(first.getName(), filter.getSqlExpression()));
        assertEquals(Map.of("@color", "red"), filter.getParameters());
        assertEquals("SET a = 1", assertInstanceOf(SqlRuleAction.class, first.getAction()).getSqlExpression());
        assertThrows(ResourceExistsException.class, () -> admin.createRule(topic, "s", "FIRST"));
        var label = new CorrelationRuleFilter("c").setLabel("l");
        label.getProperties().put("size", 5);
        // With options, the name of the rule comes before that of the subscription.
        admin.createRule(topic, "second", "s", new CreateRuleOptions(label));
        admin.createRule(topic, "third", "s", new CreateRuleOptions(new FalseRuleFilter()));
        var second = admin.getRule(topic, "s", "second");
        var shown = assertInstanceOf(CorrelationRuleFilter.class, second.getFilter());
        assertEquals(List.of("c", "l"), List.of(shown.getCorrelationId(), shown.getLabel()));
        // The SDK does not give it back as an Integer.
        assertEquals("{size=5}", shown.getProperties().toString());
        RuleProperties changed = admin.updateRule(topic, "s", second.setFilter(new TrueRuleFilter()));
        assertInstanceOf(TrueRuleFilter.class, changed.getFilter());
        List<String> names = new ArrayList<>();
        admin.listRules(topic, "s").forEach(rule -> names.add(rule.getName()));
        assertEquals(List.of("First", "second", "third"), names);
        String why = Topics.refused(400,
            () -> admin.createRule(topic, "bad", "s", new CreateRuleOptions(new SqlRuleFilter("n ="))));
        assertTrue(why.contains("column 4"), why);
        Topics.refused(400, () -> admin.createRule(topic, "bad", "s",
            new CreateRuleOptions(new TrueRuleFilter()).setAction(new SqlRuleAction("RUN everything"))));
        admin.deleteRule(topic, "s", "third");
        assertThrows(ResourceNotFoundException.class, () -> admin.getRule(topic, "s", "third"));
        admin.deleteTopic(topic);
    }

    @ParameterizedTest
    @EnumSource(Door.class)
    void aRuleManagerAddsListsAndDeletes(Door door) {
        var admin = client();
        String topic = "x-managed-topic-of-java-" + door.name().toLowerCase();
        admin.createTopic(topic);
        admin.createSubscription(topic, "s");
        try (Bus bus = door.connect()) {
            var rules = bus.closing(bus.builder.ruleManager().topicName(topic).subscriptionName("s").buildClient());
            var label = new CorrelationRuleFilter().setLabel("l").setContentType("ct");
            label.getProperties().put("color", "red");
            rules.createRule("label", new CreateRuleOptions(label).setAction(new SqlRuleAction("SET a = 1")));
            rules.createRule("sql", new CreateRuleOptions(new SqlRuleFilter("color = 'red'")));
            Map<String, RuleProperties> found = new TreeMap<>();
            rules.listRules().forEach(rule -> found.put(rule.getName(), rule));
            assertEquals(Set.of("$Default", "label", "sql"), found.keySet());
            assertInstanceOf(TrueRuleFilter.class, found.get("$Default").getFilter());
            var shown = assertInstanceOf(CorrelationRuleFilter.class, found.get("label").getFilter());
            assertEquals(List.of("l", "ct"), List.of(shown.getLabel(), shown.getContentType()));
            assertEquals(Map.of("color", "red"), shown.getProperties());
            assertNull(shown.getMessageId());
            var action = assertInstanceOf(SqlRuleAction.class, found.get("label").getAction());
            assertEquals("SET a = 1", action.getSqlExpression());
            var sql = assertInstanceOf(SqlRuleFilter.class, found.get("sql").getFilter());
            assertEquals("color = 'red'", sql.getSqlExpression());
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_ALREADY_EXISTS,
                () -> rules.createRule("SQL", new CreateRuleOptions(new SqlRuleFilter("1=1"))));
            for (String name : found.keySet()) {
                rules.deleteRule(name);
            }
            assertFalse(rules.listRules().iterator().hasNext());
            refused(ServiceBusFailureReason.MESSAGING_ENTITY_NOT_FOUND, () -> rules.deleteRule("sql"));
        }
        admin.deleteTopic(topic);
    }

    @Test
    void theNamespaceAndAWrongKey() {
        assertEquals("sbemulatorns", client().getNamespaceProperties().getName());
        String wrong = Door.AMQPS.connectionString().replace("SharedAccessKey=", "SharedAccessKey=x");
        assertThrows(ClientAuthenticationException.class, () -> client(wrong).getQueue("plain-1"));
    }
}
