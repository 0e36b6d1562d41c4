"""The service itself: its properties, its statistics, its secondary."""

import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import (
    CorsRule,
    Metrics,
    QueueAnalyticsLogging,
    QueueClient,
    QueueServiceClient,
    RetentionPolicy,
)

from doors import BY_HOST


def metrics(days):
    return Metrics(enabled=True, include_apis=True, retention_policy=RetentionPolicy(True, days))


def settings(minutes=1):
    return {
        "analytics_logging": QueueAnalyticsLogging(
            read=True, delete=True, retention_policy=RetentionPolicy(True, 365)
        ),
        "hour_metrics": metrics(3),
        "minute_metrics": metrics(minutes),
        "cors": [
            CorsRule(
                ["https://app.example", "https://other.example"],
                ["GET", "PUT"],
                allowed_headers=["x-ms-meta-*", "content-type"],
                exposed_headers=["x-ms-*"],
                max_age_in_seconds=60,
            ),
            CorsRule(["*"], ["GET"]),
        ],
    }


def plain(value):
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if hasattr(value, "__dict__"):
        return {
            key: plain(inner) or None
            for key, inner in vars(value).items()
            if not key.startswith("_") and key != "additional_properties"
        }
    return value


def test_properties_are_kept_and_what_is_left_out_stays(service):
    service.set_service_properties(**settings())
    assert plain(service.get_service_properties()) == plain(settings())
    service.set_service_properties(minute_metrics=metrics(9))
    assert plain(service.get_service_properties()) == plain(settings(minutes=9))
    with pytest.raises(HttpResponseError) as caught:
        service.set_service_properties(hour_metrics=metrics(366))
    assert caught.value.status_code == 400
    assert plain(service.get_service_properties()) == plain(settings(minutes=9))
    service.set_service_properties(cors=[])
    assert service.get_service_properties()["cors"] == []


def preflight(door, origin, method):
    url = f"http://127.0.0.1:{door.server.port}/{door.account}/some-queue"
    headers = {"Origin": origin, "Access-Control-Request-Method": method}
    request = urllib.request.Request(url, method="OPTIONS", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers


def test_a_browser_is_told_what_its_origin_may_do(door, service):
    service.set_service_properties(cors=settings()["cors"])
    status, headers = preflight(door, "https://app.example", "PUT")
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "https://app.example")
    assert headers["Access-Control-Max-Age"] == "60"
    status, headers = preflight(door, "https://evil.example", "PUT")
    assert (status, headers["x-ms-error-code"]) == (403, "CorsPreflightFailure")
    service.set_service_properties(cors=[])


def test_properties_outlive_a_crash(restartable):
    def connect():
        text = restartable.connection_string
        return QueueServiceClient.from_connection_string(text, retry_total=0)

    with connect() as service:
        service.set_service_properties(**settings())
    restartable.kill()
    restartable.start()
    with connect() as service:
        assert plain(service.get_service_properties()) == plain(settings())


@pytest.fixture
def credential(door):
    return AzureNamedKeyCredential(door.account, door.key)


# The SDK finds a secondary only by the name of its host.
@BY_HOST
def test_statistics_from_the_secondary(door):
    # A secondary outside of Azure's domain must be named.
    _, _, secondary = door.url(suffix="-secondary").partition("://")
    options = {"secondary_hostname": secondary, **door.options}
    with QueueServiceClient.from_connection_string(door.connection_string, **options) as service:
        statistics = service.get_service_stats()
    replication = statistics["geo_replication"]
    assert replication["status"] == "live"
    assert abs(replication["last_sync_time"] - datetime.now(timezone.utc)) < timedelta(minutes=1)


def test_the_secondary_reads_and_does_not_write(door, queue, credential, refused):
    queue.send_message("text")
    url = door.url(suffix="-secondary")
    with QueueClient(url, queue.queue_name, credential=credential, **door.options) as secondary:
        assert secondary.get_queue_properties().approximate_message_count == 1
        assert [message.content for message in secondary.peek_messages()] == ["text"]
        for operation in [lambda: secondary.send_message("x"), secondary.receive_message]:
            with refused(403, "InsufficientAccountPermissions"):
                operation()
