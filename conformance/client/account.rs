//! Stored access policies, and the account as a whole.

use std::time::{Duration, SystemTime};

use kew_client::{AccessPolicy, CorsRule, ErrorKind, Logging, Metrics, ServiceProperties};

use crate::services::Door;

pub(crate) async fn policies(door: Door) {
    let (client, queue) = door.fresh().await;
    assert_eq!(client.access_policies(&queue).await.unwrap(), []);
    let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let policies = [
        AccessPolicy {
            id: "all & more".to_owned(),
            start: at(1_700_000_000),
            expiry: at(4_070_908_800),
            permissions: Some("raup".to_owned()),
        },
        AccessPolicy {
            id: "readers".to_owned(),
            start: None,
            expiry: at(4_070_908_800),
            permissions: Some("r".to_owned()),
        },
    ];
    client.set_access_policies(&queue, &policies).await.unwrap();
    assert_eq!(client.access_policies(&queue).await.unwrap(), policies);
    client.set_access_policies(&queue, &[]).await.unwrap();
    assert_eq!(client.access_policies(&queue).await.unwrap(), []);
    let six: Vec<_> = (0..6)
        .map(|it| AccessPolicy {
            id: it.to_string(),
            ..policies[1].clone()
        })
        .collect();
    let refused = client.set_access_policies(&queue, &six).await;
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.status()),
        (ErrorKind::Refused, Some(400))
    );
}

/// All of them in one scenario, because there is one account.
pub(crate) async fn properties(door: Door) {
    let client = door.client();
    let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
    let rule = CorsRule {
        allowed_origins: texts(&["https://a.example", "https://b.example"]),
        allowed_methods: texts(&["GET", "PUT"]),
        allowed_headers: texts(&["x-ms-meta-*"]),
        exposed_headers: texts(&["x-ms-request-id"]),
        max_age_s: 60,
    };
    let all = ServiceProperties {
        logging: Some(Logging {
            delete: true,
            read: true,
            write: false,
            retention_days: Some(3),
        }),
        hour_metrics: Some(Metrics {
            is_enabled: true,
            includes_apis: true,
            retention_days: Some(7),
        }),
        minute_metrics: Some(Metrics::default()),
        cors: Some(vec![rule]),
    };
    client.set_service_properties(&all).await.unwrap();
    assert_eq!(client.service_properties().await.unwrap(), all);
    let without_rules = ServiceProperties {
        cors: Some(Vec::new()),
        ..ServiceProperties::default()
    };
    client.set_service_properties(&without_rules).await.unwrap();
    let expected = ServiceProperties {
        cors: Some(Vec::new()),
        ..all
    };
    assert_eq!(client.service_properties().await.unwrap(), expected);
}

pub(crate) async fn statistics(door: Door) {
    let stats = door.client().service_stats().await.unwrap();
    assert_eq!(stats.status, "live");
    assert!(stats.last_sync.is_some());
}
