package kew.conformance;

import static kew.conformance.Door.fresh;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** An AMQP 1.0 client without knowledge of Service Bus: Qpid JMS, which Spring and others use. */
class JmsTest {
    private static final long PATIENCE_MS = 60_000;

    private static Connection connect(Door door, String key) throws JMSException {
        String endpoint = System.getenv("KEW_BUS_CONNECTION_STRING").replaceAll("Endpoint=sb://([^;/]+).*", "$1");
        String address = door == Door.AMQP ? "amqp://" + endpoint : "amqps://" + System.getenv("KEW_BUS_HOST") + ":5671";
        // A name and a key, with SASL: there are no tokens, and so no node $cbs.
        Connection connection = new JmsConnectionFactory("RootManageSharedAccessKey", key, address).createConnection();
        try {
            connection.start();
        } catch (JMSException error) {
            connection.close();
            throw error;
        }
        return connection;
    }

    private static Connection connect(Door door) throws JMSException {
        return connect(door, "SAS_KEY_VALUE");
    }

    private static String text(MessageConsumer receiver) throws JMSException {
        return ((TextMessage) receive(receiver)).getText();
    }

    private static Message receive(MessageConsumer receiver) throws JMSException {
        Message message = receiver.receive(PATIENCE_MS);
        assertNotNull(message, "no message in time");
        return message;
    }

    /** Not even a locked message, which no receiver would see. */
    private static void assertNothingLeft(Door door, String queue) throws InterruptedException {
        try (Bus bus = door.connect()) {
            var receiver = bus.receiver(queue);
            Bus.eventually("nothing is left", () -> receiver.peekMessage(0) == null);
        }
    }

    @ParameterizedTest
    @EnumSource(value = Door.class, names = {"AMQP", "AMQPS"})
    void messagesAsTheyWereSent(Door door) throws Exception {
        String name = fresh("plain");
        try (Connection connection = connect(door); Session session = connection.createSession()) {
            Queue queue = session.createQueue(name);
            MessageProducer sender = session.createProducer(queue);
            sender.setPriority(7);
            sender.setTimeToLive(3_600_000);
            TextMessage sent = session.createTextMessage("<&> 🐦");
            sent.setJMSCorrelationID("question");
            sent.setJMSType("greeting");
            sent.setJMSReplyTo(session.createQueue("letters-1"));
            sent.setLongProperty("number", 7);
            sender.send(sent);
            MapMessage map = session.createMapMessage();
            map.setInt("one", 1);
            sender.send(map);
            MessageConsumer receiver = session.createConsumer(queue);
            TextMessage found = (TextMessage) receive(receiver);
            assertEquals(sent.getText(), found.getText());
            assertEquals(sent.getJMSMessageID(), found.getJMSMessageID());
            assertEquals("question", found.getJMSCorrelationID());
            assertEquals("greeting", found.getJMSType());
            assertEquals(sent.getJMSReplyTo(), found.getJMSReplyTo());
            assertEquals(7, found.getLongProperty("number"));
            assertEquals(7, found.getJMSPriority());
            assertEquals(1, found.getIntProperty("JMSXDeliveryCount"));
            assertTrue(found.getJMSExpiration() > System.currentTimeMillis());
            assertEquals(1, ((MapMessage) receive(receiver)).getInt("one"));
        }
        assertNothingLeft(door, name);
    }

    @ParameterizedTest
    @EnumSource(value = Door.class, names = {"AMQP", "AMQPS"})
    void whatIsNotAcknowledgedComesAgain(Door door) throws Exception {
        String name = fresh("plain");
        try (Connection connection = connect(door);
             Session session = connection.createSession(Session.CLIENT_ACKNOWLEDGE)) {
            Queue queue = session.createQueue(name);
            MessageProducer sender = session.createProducer(queue);
            sender.send(session.createTextMessage("one"));
            sender.send(session.createTextMessage("two"));
            MessageConsumer receiver = session.createConsumer(queue);
            assertEquals("one", text(receiver));
            assertEquals("two", text(receiver));
            session.recover();
            TextMessage again = (TextMessage) receive(receiver);
            assertEquals("one", again.getText());
            assertTrue(again.getJMSRedelivered());
            assertEquals("two", text(receiver));
            again.acknowledge();
        }
        assertNothingLeft(door, name);
    }

    @ParameterizedTest
    @EnumSource(value = Door.class, names = {"AMQP", "AMQPS"})
    void sessionsWithTransactions(Door door) throws Exception {
        String source = fresh("brief");
        String destination = fresh("plain");
        try (Connection connection = connect(door);
             Session session = connection.createSession(Session.SESSION_TRANSACTED)) {
            Queue from = session.createQueue(source);
            Queue to = session.createQueue(destination);
            MessageProducer sender = session.createProducer(from);
            sender.send(session.createTextMessage("dropped"));
            session.rollback();
            sender.send(session.createTextMessage("kept"));
            session.commit();
            MessageConsumer receiver = session.createConsumer(from);
            assertEquals("kept", text(receiver));
            session.createProducer(to).send(session.createTextMessage("early"));
            session.rollback();
            // Its lock is unaffected, and expires.
            assertEquals("kept", text(receiver));
            session.createProducer(to).send(session.createTextMessage("answer"));
            session.commit();
            assertEquals("answer", text(session.createConsumer(to)));
            session.commit();
        }
        assertNothingLeft(door, source);
        assertNothingLeft(door, destination);
    }

    @ParameterizedTest
    @EnumSource(value = Door.class, names = {"AMQP", "AMQPS"})
    void listenersShareMessages(Door door) throws Exception {
        String name = fresh("plain");
        int count = 300;
        AtomicInteger times = new AtomicInteger();
        try (Connection connection = connect(door); Session session = connection.createSession()) {
            Queue queue = session.createQueue(name);
            Set<String> seen = ConcurrentHashMap.newKeySet();
            CountDownLatch done = new CountDownLatch(count);
            List<Session> sessions = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                sessions.add(connection.createSession());
                sessions.get(number).createConsumer(queue).setMessageListener(message -> {
                    times.incrementAndGet();
                    try {
                        if (seen.add(((TextMessage) message).getText())) {
                            done.countDown();
                        }
                    } catch (JMSException error) {
                        throw new IllegalStateException(error);
                    }
                });
            }
            MessageProducer sender = session.createProducer(queue);
            for (int number = 0; number < count; number++) {
                sender.send(session.createTextMessage("" + number));
            }
            assertTrue(done.await(PATIENCE_MS, TimeUnit.MILLISECONDS), () -> seen.size() + " messages");
            for (Session one : sessions) {
                one.close();
            }
        }
        assertEquals(count, times.get());
        assertNothingLeft(door, name);
    }

    @ParameterizedTest
    @EnumSource(value = Door.class, names = {"AMQP", "AMQPS"})
    void whatIsNotThereIsRefused(Door door) throws JMSException {
        assertThrows(JMSSecurityException.class, () -> connect(door, "wrong"));
        try (Connection connection = connect(door); Session session = connection.createSession()) {
            Queue absent = session.createQueue("absent");
            assertThrows(InvalidDestinationException.class, () -> session.createConsumer(absent));
            assertThrows(InvalidDestinationException.class, () -> session.createProducer(absent));
            refused("amqp:not-implemented", session::createTemporaryQueue);
            Queue queue = session.createQueue(fresh("plain"));
            session.createProducer(queue).send(session.createTextMessage("x"));
            refused("amqp:not-implemented", () -> session.createBrowser(queue).getEnumeration().hasMoreElements());
            // The transaction has not locked the message.
            assertEquals("x", text(session.createConsumer(queue)));
        }
    }

    private static void refused(String condition, Executable operation) {
        JMSException error = assertThrows(JMSException.class, operation);
        assertTrue(error.getMessage().contains(condition), error.getMessage());
    }
}
