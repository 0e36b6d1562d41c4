package kew.conformance;

import com.azure.storage.common.StorageSharedKeyCredential;
import com.azure.storage.common.policy.RequestRetryOptions;
import com.azure.storage.common.policy.RetryPolicyType;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.QueueClientBuilder;
import com.azure.storage.queue.QueueServiceClient;
import com.azure.storage.queue.QueueServiceClientBuilder;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/** One way to the server: the options of the SDK's client. Every scenario runs through each. */
enum Door {
    HTTP_PATH("http", ""),
    HTTP_HOST("http", "queue.localhost"),
    HTTPS_PATH("https", ""),
    HTTPS_HOST("https", "queue.localhost");

    /** For scenarios about the server: the test must see answers that a retry would hide. */
    static final RequestRetryOptions NO_RETRIES =
        new RequestRetryOptions(RetryPolicyType.FIXED, 1, (Duration) null, null, null, null);

    private static final AtomicInteger NAMES = new AtomicInteger();

    private final String scheme;
    /** The part of the host's name after the account, if the account is in the host and not in the path. */
    private final String host;

    Door(String scheme, String host) {
        this.scheme = scheme;
        this.host = host;
    }

    boolean isSecret() {
        return scheme.equals("https");
    }

    static StorageSharedKeyCredential credential() {
        return new StorageSharedKeyCredential(Server.part("AccountName"), Server.part("AccountKey"));
    }

    /** The address of the account, or with a suffix of its secondary; without a slash at its end. */
    String url(int port, String suffix) {
        String account = Server.part("AccountName") + suffix;
        return host.isEmpty()
            ? scheme + "://127.0.0.1:" + port + "/" + account
            : scheme + "://" + account + "." + host + ":" + port;
    }

    String url() {
        return url(Server.port(), "");
    }

    String connectionString() {
        return "DefaultEndpointsProtocol=" + scheme + ";AccountName=" + Server.part("AccountName")
            + ";AccountKey=" + Server.part("AccountKey") + ";QueueEndpoint=" + url() + ";";
    }

    QueueServiceClient service() {
        return new QueueServiceClientBuilder().connectionString(connectionString())
            .retryOptions(NO_RETRIES).buildClient();
    }

    /** A name that no other queue has. */
    static String newName() {
        return "scenario-" + NAMES.incrementAndGet();
    }

    /** A client of a queue that does not exist. */
    QueueClient absent() {
        return service().getQueueClient(newName());
    }

    /** A client of a new, empty queue. */
    QueueClient fresh() {
        QueueClient queue = absent();
        queue.create();
        return queue;
    }

    /** A client of a queue at another address. */
    static QueueClient at(String account, String name, RequestRetryOptions retries) {
        return new QueueClientBuilder().endpoint(account).queueName(name).credential(credential())
            .retryOptions(retries).buildClient();
    }

    /** The same queue, with only this signature. */
    QueueClient signed(String name, String sas) {
        return new QueueClientBuilder().endpoint(url()).queueName(name).sasToken(sas)
            .retryOptions(NO_RETRIES).buildClient();
    }
}
