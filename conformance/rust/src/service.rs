//! The service itself: its properties, its statistics, its secondary.

use azure_core::http::RetryOptions;
use azure_core::time::OffsetDateTime;
use azure_storage_queue::models::{
    CorsRule, GeoReplicationStatus, Logging, Metrics, QueueServiceProperties, RetentionPolicy,
};

use crate::kew::{Door, name_of, refused};
use crate::messages::{peek, send, try_receive, try_send};
use crate::queues::count_of;

fn days(days: i32) -> Option<RetentionPolicy> {
    Some(RetentionPolicy {
        enabled: Some(true),
        days: Some(days),
    })
}

fn metrics(retained: i32) -> Option<Metrics> {
    Some(Metrics {
        version: Some("1.0".to_owned()),
        enabled: Some(true),
        include_apis: Some(true),
        retention_policy: days(retained),
    })
}

fn settings() -> QueueServiceProperties {
    QueueServiceProperties {
        logging: Some(Logging {
            version: Some("1.0".to_owned()),
            delete: Some(true),
            read: Some(true),
            write: Some(false),
            retention_policy: days(365),
        }),
        hour_metrics: metrics(3),
        minute_metrics: metrics(1),
        cors: Some(vec![CorsRule {
            allowed_origins: Some("https://app.example,https://other.example".to_owned()),
            allowed_methods: Some("GET,PUT".to_owned()),
            allowed_headers: Some("x-ms-meta-*,content-type".to_owned()),
            exposed_headers: Some("x-ms-*".to_owned()),
            max_age_in_seconds: Some(60),
        }]),
    }
}

/// The document that the SDK would send for it.
fn described(properties: QueueServiceProperties) -> String {
    String::from_utf8(azure_core::xml::to_xml(&properties).unwrap().to_vec()).unwrap()
}

pub async fn properties(door: Door) {
    let service = door.service();
    service
        .set_properties(settings().try_into().unwrap(), None)
        .await
        .unwrap();
    let read = async || {
        described(
            service
                .get_properties(None)
                .await
                .unwrap()
                .into_model()
                .unwrap(),
        )
    };
    assert_eq!(read().await, described(settings()));
    let part = QueueServiceProperties {
        minute_metrics: metrics(9),
        ..Default::default()
    };
    service
        .set_properties(part.try_into().unwrap(), None)
        .await
        .unwrap();
    let changed = QueueServiceProperties {
        minute_metrics: metrics(9),
        ..settings()
    };
    assert_eq!(read().await, described(changed.clone()));
    let bad = QueueServiceProperties {
        hour_metrics: metrics(366),
        ..Default::default()
    };
    let refusal = service
        .set_properties(bad.try_into().unwrap(), None)
        .await
        .unwrap_err();
    assert_eq!(refusal.http_status().map(u16::from), Some(400));
    assert_eq!(read().await, described(changed));
}

pub async fn statistics(door: Door) {
    let all = door.account_sas("sco", "rwdlacup");
    let url = door.url_at(door.port(), "-secondary");
    let secondary = door.service_by(url, &all, RetryOptions::none());
    let statistics = secondary
        .get_statistics(None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    let replication = statistics.geo_replication.unwrap();
    assert_eq!(replication.status, Some(GeoReplicationStatus::Live));
    let age = OffsetDateTime::now_utc() - replication.last_sync_time.unwrap();
    assert!(age.whole_seconds().abs() < 60);
    refused(
        door.service().get_statistics(None).await,
        400,
        "InvalidQueryParameterValue",
    );
}

pub async fn the_secondary_reads_and_does_not_write(door: Door) {
    let queue = door.fresh().await;
    send(&queue, "text").await;
    let all = door.account_sas("sco", "rwdlacup");
    let url = door.url_at(door.port(), "-secondary");
    let service = door.service_by(url, &all, RetryOptions::none());
    let secondary = service.queue_client(&name_of(&queue)).unwrap();
    assert_eq!(count_of(&secondary).await, 1);
    assert_eq!(peek(&secondary).await, ["text"]);
    let sent = try_send(&secondary, "x", None, None).await;
    refused(sent, 403, "InsufficientAccountPermissions");
    refused(
        try_receive(&secondary, 1, 1).await,
        403,
        "InsufficientAccountPermissions",
    );
}
