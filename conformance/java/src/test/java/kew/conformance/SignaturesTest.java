package kew.conformance;

import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.core.util.Context;
import com.azure.storage.common.sas.AccountSasPermission;
import com.azure.storage.common.sas.AccountSasResourceType;
import com.azure.storage.common.sas.AccountSasService;
import com.azure.storage.common.sas.AccountSasSignatureValues;
import com.azure.storage.common.sas.SasIpRange;
import com.azure.storage.common.sas.SasProtocol;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.QueueServiceClient;
import com.azure.storage.queue.QueueServiceClientBuilder;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueuesSegmentOptions;
import com.azure.storage.queue.models.SendMessageResult;
import com.azure.storage.queue.sas.QueueSasPermission;
import com.azure.storage.queue.sas.QueueServiceSasSignatureValues;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(Door.class)
record SignaturesTest(Door door) {
    /** The operation, and the rights that an account's signature needs for it. */
    private record Operation(String type, String letter, BiConsumer<QueueClient, SendMessageResult> run) {
    }

    private static final Operation PROPERTIES = new Operation("c", "r", (q, m) -> q.getProperties());
    private static final Operation METADATA = new Operation("c", "w", (q, m) -> q.setMetadata(Map.of("a", "b")));
    private static final Operation PEEK = new Operation("o", "r", (q, m) -> q.peekMessage());
    private static final Operation SEND = new Operation("o", "a", (q, m) -> q.sendMessage("text"));
    private static final Operation UPDATE = new Operation("o", "u",
        (q, m) -> q.updateMessage(m.getMessageId(), m.getPopReceipt(), "new", Duration.ZERO));
    private static final Operation RECEIVE = new Operation("o", "p", (q, m) -> q.receiveMessage());
    private static final Operation REMOVE =
        new Operation("o", "p", (q, m) -> q.deleteMessage(m.getMessageId(), m.getPopReceipt()));
    private static final Operation CLEAR = new Operation("o", "d", (q, m) -> q.clearMessages());
    private static final Operation DELETE = new Operation("c", "d", (q, m) -> q.delete());

    private static OffsetDateTime soon() {
        return OffsetDateTime.now().plusMinutes(10);
    }

    private static OffsetDateTime past() {
        return OffsetDateTime.now().minusMinutes(10);
    }

    private static QueueServiceSasSignatureValues values(String letters) {
        return new QueueServiceSasSignatureValues(soon(), QueueSasPermission.parse(letters)).setStartTime(past());
    }

    private QueueClient signed(QueueClient queue, QueueServiceSasSignatureValues values) {
        return door.signed(queue.getQueueName(), queue.generateSas(values));
    }

    private String accountSas(String types, String letters) {
        return door.service().generateAccountSas(new AccountSasSignatureValues(soon(),
            AccountSasPermission.parse(letters), AccountSasService.parse("q"), AccountSasResourceType.parse(types)));
    }

    @Test
    void aQueuesSignatureAllowsWhatItsLettersSay() {
        for (Operation operation : List.of(PROPERTIES, PEEK, SEND, UPDATE, RECEIVE, REMOVE)) {
            QueueClient queue = door.fresh();
            SendMessageResult message = queue.sendMessage("text");
            String others = "raup".replace(operation.letter, "");
            refused(403, QueueErrorCode.AUTHORIZATION_PERMISSION_MISMATCH,
                () -> operation.run.accept(signed(queue, values(others)), message));
            operation.run.accept(signed(queue, values(operation.letter)), message);
        }
    }

    @Test
    void aQueuesSignatureIsForThatQueueAndForNoAdministration() {
        QueueClient queue = door.fresh();
        String sas = queue.generateSas(values("raup"));
        String other = door.fresh().getQueueName();
        refused(403, QueueErrorCode.AUTHENTICATION_FAILED, () -> door.signed(other, sas).getProperties());
        for (Operation operation : List.of(METADATA, CLEAR, DELETE)) {
            refused(403, () -> operation.run.accept(door.signed(queue.getQueueName(), sas), null));
        }
        String altered = queue.generateSas(values("r")).replace("sp=r&", "sp=raup&");
        refused(403, QueueErrorCode.AUTHENTICATION_FAILED,
            () -> door.signed(queue.getQueueName(), altered).getProperties());
    }

    @Test
    void whenWhereAndHowASignatureIsGood() {
        QueueClient queue = door.fresh();
        refused(403, QueueErrorCode.AUTHENTICATION_FAILED,
            () -> signed(queue, values("r").setExpiryTime(past())).getProperties());
        refused(403, QueueErrorCode.AUTHENTICATION_FAILED,
            () -> signed(queue, values("r").setStartTime(soon().minusMinutes(1))).getProperties());
        signed(queue, values("r").setSasIpRange(SasIpRange.parse("127.0.0.1-127.0.0.9"))).getProperties();
        refused(403, QueueErrorCode.AUTHORIZATION_SOURCE_IPMISMATCH,
            () -> signed(queue, values("r").setSasIpRange(SasIpRange.parse("192.0.2.1"))).getProperties());
        signed(queue, values("r").setProtocol(SasProtocol.HTTPS_HTTP)).getProperties();
        QueueClient secret = signed(queue, values("r").setProtocol(SasProtocol.HTTPS_ONLY));
        if (door.isSecret()) {
            secret.getProperties();
        } else {
            refused(403, QueueErrorCode.AUTHORIZATION_PROTOCOL_MISMATCH, secret::getProperties);
        }
    }

    @Test
    void aSignatureUnderAStoredPolicyEndsWithThePolicy() {
        QueueClient queue = door.fresh();
        queue.setAccessPolicy(List.of(PoliciesTest.identifier("stored", "ra")));
        QueueClient signed = signed(queue, new QueueServiceSasSignatureValues("stored"));
        signed.sendMessage("text");
        refused(403, QueueErrorCode.AUTHORIZATION_PERMISSION_MISMATCH, signed::receiveMessage);
        queue.setAccessPolicy(List.of(PoliciesTest.identifier("stored", "p")));
        signed.receiveMessage();
        refused(403, QueueErrorCode.AUTHORIZATION_PERMISSION_MISMATCH, () -> signed.sendMessage("text"));
        queue.setAccessPolicy(List.of());
        refused(403, QueueErrorCode.AUTHENTICATION_FAILED, signed::receiveMessage);
    }

    @Test
    void anAccountsSignatureAllowsWhatItsLettersSay() {
        for (Operation operation : List.of(
            PROPERTIES, METADATA, PEEK, SEND, UPDATE, RECEIVE, REMOVE, CLEAR, DELETE)) {
            QueueClient queue = door.fresh();
            SendMessageResult message = queue.sendMessage("text");
            String name = queue.getQueueName();
            String others = "rwdlacup".replace(operation.letter, "");
            refused(403, QueueErrorCode.AUTHORIZATION_PERMISSION_MISMATCH,
                () -> operation.run.accept(door.signed(name, accountSas("sco", others)), message));
            String types = "sco".replace(operation.type, "");
            refused(403, QueueErrorCode.AUTHORIZATION_RESOURCE_TYPE_MISMATCH,
                () -> operation.run.accept(door.signed(name, accountSas(types, operation.letter)), message));
            operation.run.accept(door.signed(name, accountSas(operation.type, operation.letter)), message);
        }
    }

    @Test
    void anAccountsSignatureForTheService() {
        QueueServiceClient service = new QueueServiceClientBuilder().endpoint(door.url())
            .sasToken(accountSas("sco", "rwdlacup")).retryOptions(Door.NO_RETRIES).buildClient();
        String name = Door.newName();
        service.createQueue(name);
        QueuesSegmentOptions options = new QueuesSegmentOptions().setPrefix(name);
        assertEquals(name, service.listQueues(options, null, Context.NONE).iterator().next().getName());
        service.deleteQueue(name);
    }
}
