//! Properties and statistics of the service: checklist 85 and 87.

use std::sync::Arc;

use kew_broker::{Broker, BrokerOptions};
use kew_log::MemoryStorage;

use crate::client::{ACCOUNT, Call, Door, Wire, call};

const TARGET: &str = "/?restype=service&comp=properties";
const STATS: &str = "?restype=service&comp=stats";

fn set(inner: &str) -> Call {
    let body = format!("<StorageServiceProperties>{inner}</StorageServiceProperties>");
    call("PUT", TARGET).body(body)
}

async fn get(wire: &mut Wire) -> String {
    let answer = wire.send(call("GET", TARGET)).await;
    answer.check_status(200);
    assert_eq!(answer.header("content-type"), Some("application/xml"));
    answer.body
}

/// A rule that allows pages of this origin to get.
pub(crate) fn cors(origin: &str) -> String {
    format!(
        "<CorsRule><AllowedMethods>GET</AllowedMethods><AllowedOrigins>{origin}</AllowedOrigins>\
         <AllowedHeaders>x-ms-*</AllowedHeaders><ExposedHeaders>x-ms-*</ExposedHeaders>\
         <MaxAgeInSeconds>200</MaxAgeInSeconds></CorsRule>"
    )
}

fn minute_metrics(days: u16) -> String {
    format!(
        "<MinuteMetrics><Version>1.0</Version><Enabled>true</Enabled>\
         <IncludeAPIs>false</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled>\
         <Days>{days}</Days></RetentionPolicy></MinuteMetrics>"
    )
}

#[tokio::test]
async fn item_85_properties_round_trip_in_parts() {
    let wire = &mut Door::open().connect();
    let fresh = get(wire).await;
    for part in ["<Logging>", "<HourMetrics>", "<MinuteMetrics>", "<Cors />"] {
        assert!(fresh.contains(part), "{fresh}");
    }
    let answer = wire.send(set(&minute_metrics(7))).await;
    answer.check_status(202);
    assert_eq!(answer.header("content-length"), Some("0"));
    let rules = format!("<Cors>{}</Cors>", cors("http://a"));
    wire.send(set(&rules)).await.check_status(202);
    let shown = get(wire).await;
    assert!(shown.contains(&minute_metrics(7)), "{shown}");
    assert!(shown.contains(&rules), "{shown}");
    wire.send(set("<Cors />")).await.check_status(202);
    let shown = get(wire).await;
    assert!(
        shown.contains(&minute_metrics(7)) && shown.contains("<Cors />"),
        "{shown}"
    );
}

#[tokio::test]
async fn item_85_invalid_values_are_refused() {
    let wire = &mut Door::open().connect();
    let before = get(wire).await;
    for (inner, code) in [
        ("<Logging/>", "MissingRequiredXmlNode"),
        ("<Metrics/>", "UnsupportedXmlNode"),
        (&*minute_metrics(366), "InvalidXmlNodeValue"),
        (
            &format!("<Cors>{}</Cors>", cors("a").repeat(6)),
            "InvalidXmlDocument",
        ),
        ("<Cors>", "InvalidXmlDocument"),
    ] {
        wire.send(set(inner)).await.check_error(400, code);
    }
    wire.send(call("PUT", TARGET).body(""))
        .await
        .check_error(400, "InvalidXmlDocument");
    wire.send(call("GET", "/?comp=properties"))
        .await
        .check_error(400, "MissingRequiredQueryParameter")
        .check_element("QueryParameterName", "restype");
    let secondary = set("").target(&format!("/{ACCOUNT}-secondary{TARGET}"));
    wire.send(secondary)
        .await
        .check_error(403, "InsufficientAccountPermissions");
    assert_eq!(get(wire).await, before);
}

#[tokio::test]
async fn item_85_the_form_before_2013_has_one_kind_of_metrics() {
    let wire = &mut Door::open().connect();
    wire.send(call("GET", TARGET).version("2009-09-19"))
        .await
        .check_error(409, "FeatureVersionMismatch");
    wire.send(set(&minute_metrics(7))).await.check_status(202);
    let retention = "<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>";
    let logging = format!(
        "<Logging><Version>1.0</Version><Read>true</Read><Write>false</Write>\
         <Delete>false</Delete>{retention}</Logging>"
    );
    let metrics = format!("<Version>1.0</Version><Enabled>false</Enabled>{retention}");
    let old = set(&format!("{logging}<Metrics>{metrics}</Metrics>")).version("2012-02-12");
    wire.send(old).await.check_status(202);
    wire.send(set(&logging).version("2012-02-12"))
        .await
        .check_error(400, "MissingRequiredXmlNode")
        .check_element("XmlNodeName", "Metrics");
    let shown = wire.send(call("GET", TARGET).version("2012-02-12")).await;
    let expected = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties>{logging}\
         <Metrics>{metrics}</Metrics></StorageServiceProperties>"
    );
    assert_eq!(shown.body, expected);
    let shown = get(wire).await;
    let expected = format!(
        "{logging}<HourMetrics>{metrics}</HourMetrics>{}",
        minute_metrics(7)
    );
    assert!(shown.contains(&expected), "{shown}");
}

#[tokio::test]
async fn item_85_properties_and_policies_survive_a_restart() {
    let disk = Arc::new(MemoryStorage::new());
    let start = || {
        let (broker, _) = Broker::start(disk.clone(), BrokerOptions::default()).unwrap();
        broker
    };
    let broker = start();
    let wire = &mut Door::with_broker(broker.clone()).connect();
    wire.send(set(&minute_metrics(9))).await.check_status(202);
    wire.send(call("PUT", "/orders")).await.check_status(201);
    let policies = "<SignedIdentifiers><SignedIdentifier><Id>a</Id></SignedIdentifier>\
                    </SignedIdentifiers>";
    let acl = call("PUT", "/orders?comp=acl").body(policies);
    wire.send(acl).await.check_status(204);
    broker.stop();
    drop(broker);
    let wire = &mut Door::with_broker(start()).connect();
    let shown = get(wire).await;
    assert!(shown.contains(&minute_metrics(9)), "{shown}");
    let answer = wire.send(call("GET", "/orders?comp=acl")).await;
    answer.check_element("Id", "a");
}

#[tokio::test]
async fn item_85_sets_at_once_lose_nothing() {
    let door = Door::open();
    let rules = format!("<Cors>{}</Cors>", cors("http://a"));
    for round in 1..=20 {
        let (mut one, mut two) = (door.connect(), door.connect());
        let metrics = minute_metrics(round);
        let (first, second) = tokio::join!(one.send(set(&metrics)), two.send(set(&rules)));
        first.check_status(202);
        second.check_status(202);
        let shown = get(&mut one).await;
        assert!(
            shown.contains(&metrics) && shown.contains(&rules),
            "{shown}"
        );
        one.send(set("<Cors />")).await.check_status(202);
    }
}

#[tokio::test]
async fn item_87_statistics_are_the_secondarys() {
    let wire = &mut Door::open().connect();
    let secondary = |version| {
        let target = format!("/{ACCOUNT}-secondary/{STATS}");
        call("GET", "").target(&target).version(version)
    };
    let answer = wire.send(secondary("2026-10-06")).await;
    answer.check_status(200).check_element("Status", "live");
    let synced = answer.element("LastSyncTime").unwrap();
    assert!(httpdate::parse_http_date(synced).is_ok(), "{synced}");
    assert!(
        answer
            .body
            .contains("<StorageServiceStats><GeoReplication><Status>")
    );
    wire.send(call("GET", &format!("/{STATS}")))
        .await
        .check_error(400, "InvalidQueryParameterValue")
        .check_element("QueryParameterName", "comp");
    wire.send(secondary("2012-02-12"))
        .await
        .check_error(409, "FeatureVersionMismatch");
}
