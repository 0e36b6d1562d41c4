package kew.conformance;

import static kew.conformance.Expect.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.azure.core.exception.HttpResponseException;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.QueueServiceClient;
import com.azure.storage.queue.QueueServiceClientBuilder;
import com.azure.storage.queue.models.QueueAnalyticsLogging;
import com.azure.storage.queue.models.QueueCorsRule;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueMetrics;
import com.azure.storage.queue.models.QueueRetentionPolicy;
import com.azure.storage.queue.models.QueueServiceProperties;
import com.azure.xml.XmlWriter;
import java.io.StringWriter;
import java.util.List;
import javax.xml.stream.XMLStreamException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

@ParameterizedClass
@EnumSource(Door.class)
record ServiceTest(Door door) {
    private static QueueRetentionPolicy days(int days) {
        return new QueueRetentionPolicy().setEnabled(true).setDays(days);
    }

    private static QueueMetrics metrics(int days) {
        return new QueueMetrics().setVersion("1.0").setEnabled(true).setIncludeApis(true)
            .setRetentionPolicy(days(days));
    }

    private static QueueServiceProperties settings() {
        return new QueueServiceProperties()
            .setAnalyticsLogging(new QueueAnalyticsLogging().setVersion("1.0").setDelete(true).setRead(true)
                .setRetentionPolicy(days(365)))
            .setHourMetrics(metrics(3))
            .setMinuteMetrics(metrics(1))
            .setCors(List.of(
                new QueueCorsRule().setAllowedOrigins("https://app.example,https://other.example")
                    .setAllowedMethods("GET,PUT").setAllowedHeaders("x-ms-meta-*,content-type")
                    .setExposedHeaders("x-ms-*").setMaxAgeInSeconds(60),
                new QueueCorsRule().setAllowedOrigins("*").setAllowedMethods("GET").setAllowedHeaders("x")
                    .setExposedHeaders("x").setMaxAgeInSeconds(0)));
    }

    private static String xml(QueueServiceProperties properties) throws XMLStreamException {
        StringWriter text = new StringWriter();
        properties.toXml(XmlWriter.toWriter(text)).flush();
        return text.toString();
    }

    @Test
    void propertiesAreKeptAndWhatIsLeftOutStays() throws XMLStreamException {
        QueueServiceClient service = door.service();
        service.setProperties(settings());
        assertEquals(xml(settings()), xml(service.getProperties()));
        service.setProperties(new QueueServiceProperties().setMinuteMetrics(metrics(9)));
        assertEquals(xml(settings().setMinuteMetrics(metrics(9))), xml(service.getProperties()));
        refused(400, () -> service.setProperties(new QueueServiceProperties().setHourMetrics(metrics(366))));
        service.setProperties(new QueueServiceProperties().setCors(List.of()));
    }

    @Test
    void statisticsFromTheSecondaryAlone() {
        QueueServiceClient secondary = new QueueServiceClientBuilder()
            .endpoint(door.url(Server.port(), "-secondary")).credential(Door.credential())
            .retryOptions(Door.NO_RETRIES).buildClient();
        // 12.29.0 expects another name of the root element than the service's, and so cannot read any statistics.
        HttpResponseException unread = assertThrows(HttpResponseException.class, secondary::getStatistics);
        assertEquals(200, unread.getResponse().getStatusCode(), unread.getMessage());
        refused(400, QueueErrorCode.INVALID_QUERY_PARAMETER_VALUE, () -> door.service().getStatistics());
    }

    @Test
    void theSecondaryReadsAndDoesNotWrite() {
        QueueClient queue = door.fresh();
        queue.sendMessage("text");
        QueueClient secondary =
            Door.at(door.url(Server.port(), "-secondary"), queue.getQueueName(), Door.NO_RETRIES);
        assertEquals(1, secondary.getProperties().getApproximateMessagesCountLong());
        assertEquals("text", secondary.peekMessage().getBody().toString());
        refused(403, QueueErrorCode.INSUFFICIENT_ACCOUNT_PERMISSIONS, () -> secondary.sendMessage("x"));
        refused(403, QueueErrorCode.INSUFFICIENT_ACCOUNT_PERMISSIONS, secondary::receiveMessage);
    }
}
