package kew.conformance;

import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.storage.common.StorageSharedKeyCredential;
import com.azure.storage.common.policy.RequestRetryOptions;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.QueueClientBuilder;
import com.azure.storage.queue.QueueMessageEncoding;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueMessageItem;
import java.io.IOException;
import java.util.Base64;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(Door.class)
record TransportTest(Door door) {
    private QueueClient through(Front front, RequestRetryOptions retries) {
        return Door.at(door.url(front.port(), ""), door.fresh().getQueueName(), retries);
    }

    @Test
    void manyRequestsShareOneConnection() throws IOException {
        try (Front front = new Front(0)) {
            QueueClient queue = through(front, Door.NO_RETRIES);
            for (int number = 0; number < 20; number++) {
                queue.sendMessage("text");
                QueueMessageItem message = queue.receiveMessage();
                queue.deleteMessage(message.getMessageId(), message.getPopReceipt());
                // An error keeps the connection too.
                refused(404, QueueErrorCode.MESSAGE_NOT_FOUND,
                    () -> queue.deleteMessage(message.getMessageId(), message.getPopReceipt()));
            }
            // The SDK may send the next request before it has returned the connection of the last answer.
            assertTrue(front.connections.get() <= 3, () -> front.connections + " connections");
        }
    }

    @Test
    void credentialsThatAreNone() {
        String name = door.fresh().getQueueName();
        String key = Base64.getEncoder().encodeToString(new byte[64]);
        QueueClient wrong = new QueueClientBuilder().endpoint(door.url()).queueName(name)
            .credential(new StorageSharedKeyCredential(Server.part("AccountName"), key))
            .retryOptions(Door.NO_RETRIES).buildClient();
        refused(403, QueueErrorCode.AUTHENTICATION_FAILED, wrong::getProperties);
        QueueClient none = new QueueClientBuilder().endpoint(door.url()).queueName(name)
            .retryOptions(Door.NO_RETRIES).buildClient();
        refused(401, QueueErrorCode.fromString("NoAuthenticationInformation"), none::getProperties);
    }

    @Test
    void theSdkAsItComesWithBase64() {
        QueueClient queue = new QueueClientBuilder().connectionString(door.connectionString())
            .queueName(Door.newName()).messageEncoding(QueueMessageEncoding.BASE64).buildClient();
        queue.create();
        queue.sendMessage("\u0001 anything");
        assertEquals("\u0001 anything", queue.receiveMessage().getBody().toString());
    }
}
