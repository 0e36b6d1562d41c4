//! Creates queues and compares their descriptions with the requests.

use kew_bus_api::WELL_KNOWN_KEY;

use super::{ask, create, update};
use crate::client::{Server, message, token};
use crate::rest::Answer;

/// The elements of the description in an answer.
fn description(answer: &Answer) -> &str {
    let (_, after) = answer.body.split_once("<QueueDescription ").unwrap();
    let (_, after) = after.split_once('>').unwrap();
    after.split_once("</QueueDescription>").unwrap().0
}

/// The text with everything that depends on the time replaced.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("T") {
        let digits = before.len().saturating_sub(10);
        let is_time = before.get(digits..).is_some_and(|date| {
            date.len() == 10 && date.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        });
        if is_time {
            out += before.get(..digits).unwrap();
            out += "TIME";
            rest = after.split_once('Z').unwrap().1;
        } else {
            out += before;
            out.push('T');
            rest = after;
        }
    }
    out + rest
}

#[tokio::test]
async fn an_entry_has_every_element_that_sdks_read() {
    let server = Server::start().await;
    let created = create(&server, "/Shop/Orders?api-version=2021-05", "").await;
    let created = created.check(201);
    let content_type = "content-type: application/atom+xml;type=entry;charset=utf-8";
    assert!(created.head.contains(content_type), "{}", created.head);
    let expected = "<entry xmlns=\"http://www.w3.org/2005/Atom\">\
        <id>http://ns.example:5300/Shop/Orders?api-version=2021-05</id>\
        <title type=\"text\">Shop/Orders</title><published>TIME</published><updated>TIME</updated>\
        <author><name>sbemulatorns</name></author>\
        <link rel=\"self\" href=\"http://ns.example:5300/Shop/Orders?api-version=2021-05\" />\
        <content type=\"application/xml\"><QueueDescription \
        xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
        xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"><LockDuration>PT1M</LockDuration>\
        <MaxSizeInMegabytes>1024</MaxSizeInMegabytes>\
        <RequiresDuplicateDetection>false</RequiresDuplicateDetection>\
        <RequiresSession>false</RequiresSession>\
        <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
        <DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>\
        <DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow>\
        <MaxDeliveryCount>10</MaxDeliveryCount>\
        <EnableBatchedOperations>true</EnableBatchedOperations><SizeInBytes>0</SizeInBytes>\
        <MessageCount>0</MessageCount><IsAnonymousAccessible>false</IsAnonymousAccessible>\
        <AuthorizationRules /><Status>Active</Status><CreatedAt>TIME</CreatedAt>\
        <UpdatedAt>TIME</UpdatedAt><AccessedAt>TIME</AccessedAt>\
        <SupportOrdering>true</SupportOrdering>\
        <CountDetails xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\">\
        <d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount>\
        <d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>\
        <d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount>\
        <d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>\
        <d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount>\
        </CountDetails><AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle>\
        <EnablePartitioning>false</EnablePartitioning>\
        <EntityAvailabilityStatus>Available</EntityAvailabilityStatus>\
        <EnableExpress>false</EnableExpress>\
        <MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes></QueueDescription></content>\
        </entry>";
    assert_eq!(without_times(&created.body), expected);
    assert_eq!(created.text("AccessedAt"), "0001-01-01T00:00:00Z");
    let read = ask("GET", "/shop/ORDERS?api-version=2021-05&enrich=False");
    let read = read.of(&server).await.check(200);
    assert_eq!(read.body, created.body);
    let deleted = ask("DELETE", "/shop/orders").of(&server).await.check(200);
    assert_eq!(deleted.body, "");
    let gone = ask("GET", "/shop/orders").of(&server).await;
    gone.check_refused(
        404,
        40_400,
        "The messaging entity 'shop/orders' could not be found.",
    );
}

/// Every element that can be set.
const ALL: &str = "<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>2048</MaxSizeInMegabytes>\
    <RequiresDuplicateDetection>true</RequiresDuplicateDetection>\
    <RequiresSession>true</RequiresSession>\
    <DefaultMessageTimeToLive>P1DT1H</DefaultMessageTimeToLive>\
    <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>\
    <DuplicateDetectionHistoryTimeWindow>PT20S</DuplicateDetectionHistoryTimeWindow>\
    <MaxDeliveryCount>2147483647</MaxDeliveryCount>\
    <EnableBatchedOperations>false</EnableBatchedOperations>\
    <IsAnonymousAccessible>false</IsAnonymousAccessible>\
    <Status>SendDisabled</Status><UserMetadata>mine &lt;1&gt;</UserMetadata>\
    <SupportOrdering>false</SupportOrdering>\
    <AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle><EnablePartitioning>true</EnablePartitioning>\
    <EnableExpress>true</EnableExpress><MaxMessageSizeInKilobytes>256</MaxMessageSizeInKilobytes>";

/// Each element of [`ALL`].
fn elements() -> Vec<String> {
    let names = ALL
        .split("</")
        .skip(1)
        .map(|it| it.split_once('>').unwrap().0);
    names
        .map(|name| {
            let (_, after) = ALL.split_once(&format!("<{name}>")).unwrap();
            let text = after.split_once("</").unwrap().0;
            format!("<{name}>{text}</{name}>")
        })
        .collect()
}

#[tokio::test]
async fn every_setting_is_kept_in_any_order_with_any_prefix() {
    let server = Server::start().await;
    let created = create(&server, "/all", ALL).await.check(201);
    let elements = elements();
    assert_eq!(elements.concat(), ALL);
    for element in &elements {
        assert!(description(&created).contains(element), "{element}");
    }
    // In another order, with prefixes, and with unknown elements.
    let reversed: String = elements.iter().rev().map(String::as_str).collect();
    let body = reversed.replace("</", "</x:").replace('<', "<x:");
    let body = body.replace("<x:/x:", "</x:") + "<x:Later>1</x:Later>";
    let other = create(&server, "/other", &body).await.check(201);
    assert_eq!(
        without_times(description(&other)),
        without_times(description(&created))
    );
    // A description that is sent back unchanged changes nothing.
    let same = update(&server, "/all", description(&created))
        .await
        .check(200);
    assert_eq!(
        without_times(description(&same)),
        without_times(description(&created))
    );
}

#[tokio::test]
async fn an_update_replaces_all_settings_that_can_change() {
    let server = Server::start().await;
    let rules = "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Listen</AccessRights>\
        </Rights><KeyName>r</KeyName></AuthorizationRule></AuthorizationRules>";
    let all = format!("{ALL}{rules}");
    let created = create(&server, "/Q", &all).await.check(201);
    let key = created.text("PrimaryKey").to_owned();
    let updated = update(&server, "/q", "<MaxDeliveryCount>7</MaxDeliveryCount>").await;
    let updated = updated.check(200);
    for (name, text) in [
        ("MaxDeliveryCount", "7"),
        ("LockDuration", "PT1M"),
        ("DefaultMessageTimeToLive", "P10675199DT2H48M5.4775807S"),
        ("Status", "Active"),
        ("EnableExpress", "false"),
        ("RequiresSession", "true"),
        ("RequiresDuplicateDetection", "true"),
        ("EnablePartitioning", "true"),
        ("KeyName", "r"),
        ("PrimaryKey", &key),
    ] {
        assert_eq!(updated.text(name), text, "{name}");
    }
    assert!(!updated.body.contains("UserMetadata"));
    // The name keeps its spelling.
    assert!(updated.body.contains("<title type=\"text\">Q</title>"));
    for name in [
        "RequiresSession",
        "RequiresDuplicateDetection",
        "EnablePartitioning",
    ] {
        let element = format!("<{name}>false</{name}>");
        let says = format!("{name} cannot be changed");
        update(&server, "/q", &element)
            .await
            .check_refused(400, 40_000, &says);
    }
    let none = update(&server, "/q", "<AuthorizationRules/>")
        .await
        .check(200);
    assert!(none.body.contains("<AuthorizationRules />"));
}

#[tokio::test]
async fn rules_come_in_and_go_out() {
    let server = Server::start().await;
    let rule = |name: &str, rights: &[&str], rest: &str| {
        let rights = rights
            .iter()
            .map(|right| format!("<AccessRights>{right}</AccessRights>"));
        let rights: String = rights.collect();
        format!(
            "<AuthorizationRule i:type=\"SharedAccessAuthorizationRule\">\
             <ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>\
             <Rights>{rights}</Rights><KeyName>{name}</KeyName>{rest}</AuthorizationRule>"
        )
    };
    let keys = "<PrimaryKey>one</PrimaryKey><SecondaryKey>two</SecondaryKey>";
    let rules = rule("all", &["Manage"], keys) + &rule("some", &["Listen", "Send"], "");
    let rules = format!("<AuthorizationRules>{rules}</AuthorizationRules>");
    let created = create(&server, "/q", &rules).await.check(201);
    let expected = "<AuthorizationRules>\
        <AuthorizationRule i:type=\"SharedAccessAuthorizationRule\">\
        <ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue><Rights>\
        <AccessRights>Send</AccessRights><AccessRights>Listen</AccessRights>\
        <AccessRights>Manage</AccessRights></Rights><CreatedTime>TIME</CreatedTime>\
        <ModifiedTime>TIME</ModifiedTime><KeyName>all</KeyName><PrimaryKey>one</PrimaryKey>\
        <SecondaryKey>two</SecondaryKey></AuthorizationRule>\
        <AuthorizationRule i:type=\"SharedAccessAuthorizationRule\">";
    assert!(
        without_times(&created.body).contains(expected),
        "{}",
        created.body
    );
    // A missing key is generated.
    let (_, after) = created
        .body
        .split_once("<KeyName>some</KeyName><PrimaryKey>")
        .unwrap();
    assert_eq!(after.split_once('<').unwrap().0.len(), 44);
    let same = update(&server, "/q", description(&created))
        .await
        .check(200);
    let of = |answer: &Answer| {
        let (_, after) = answer.body.split_once("<AuthorizationRules>").unwrap();
        after
            .split_once("</AuthorizationRules>")
            .unwrap()
            .0
            .to_owned()
    };
    assert_eq!(of(&same), of(&created));
}

#[tokio::test]
async fn counts_are_those_of_the_queue() {
    let server = Server::start().await;
    let mut client = server.trusted().await;
    let sender = client.sender("jobs").await.unwrap();
    for body in ["one", "two"] {
        client.send(sender, 0, message(body)).await;
    }
    let read = ask("GET", "/jobs").of(&server).await.check(200);
    assert_eq!(read.text("MessageCount"), "2");
    assert_eq!(read.text("d2p1:ActiveMessageCount"), "2");
    assert_ne!(read.text("SizeInBytes"), "0");
    // Messages that cannot be forwarded yet, because the destination accepts none, wait.
    create(&server, "/next", "<Status>SendDisabled</Status>")
        .await
        .check(201);
}

#[tokio::test]
async fn destinations_are_queues_of_this_namespace() {
    let server = Server::start().await;
    for address in [
        "Jobs",
        "sb://ns.example/Jobs",
        "https://NS.EXAMPLE:443/Jobs/",
        "http://ns.example:5300/%4Aobs",
        "https://ns.example/sb://ns.example:5300/Jobs",
    ] {
        let elements = format!(
            "<ForwardTo>{address}</ForwardTo>\
             <ForwardDeadLetteredMessagesTo>{address}</ForwardDeadLetteredMessagesTo>\
             <AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>"
        );
        let create = ask("PUT", "/from").queue(&elements).forwards();
        let created = create.of(&server).await.check(201);
        assert_eq!(created.text("ForwardTo"), "sb://ns.example:5300/Jobs");
        let dead_letters = created.text("ForwardDeadLetteredMessagesTo");
        assert_eq!(dead_letters, "sb://ns.example:5300/Jobs");
        // Shown as it was set, although a queue that forwards never becomes idle.
        assert_eq!(created.text("AutoDeleteOnIdle"), "PT5M");
        ask("DELETE", "/from").of(&server).await.check(200);
    }
    for (address, status, sub_code, says) in [
        (
            "sb://elsewhere/jobs",
            400,
            40_000,
            "an address in this namespace, which is 'ns.example'",
        ),
        (
            "https://ns.example/sb://elsewhere/jobs",
            400,
            40_000,
            "an address in this namespace, which is 'ns.example'",
        ),
        (
            "https://ns.example/jobs/sb://ns.example/jobs",
            400,
            40_000,
            "the name or the absolute address of a queue",
        ),
        (
            "sb://ns.example/",
            400,
            40_000,
            "the name or the absolute address of a queue",
        ),
        (
            "a b",
            400,
            40_000,
            "the name or the absolute address of a queue",
        ),
        ("nowhere", 400, 40_400, "'nowhere' could not be found"),
    ] {
        let elements = format!("<ForwardTo>{address}</ForwardTo>");
        let refused = ask("PUT", "/from")
            .queue(&elements)
            .forwards()
            .of(&server)
            .await;
        refused.check_refused(status, sub_code, says);
    }
}

#[tokio::test]
async fn forwarding_needs_the_right_to_manage_the_destination() {
    let server = Server::start().await;
    for (element, header) in [
        ("ForwardTo", "ServiceBusSupplementaryAuthorization"),
        (
            "ForwardDeadLetteredMessagesTo",
            "ServiceBusDlqSupplementaryAuthorization",
        ),
    ] {
        let elements = format!("<{element}>jobs</{element}>");
        let own = token("sb://ns.example/from", WELL_KNOWN_KEY, 100);
        let put = || {
            ask("PUT", "/from")
                .queue(&elements)
                .header("Authorization", &own)
        };
        let missing = put().plain(&server).await;
        missing.check_refused(401, 40_100, header);
        let elsewhere = token("sb://ns.example/steps", WELL_KNOWN_KEY, 100);
        let refused = put().header(header, &elsewhere);
        refused.plain(&server).await.check(401);
        let right = token("sb://ns.example/jobs", WELL_KNOWN_KEY, 100);
        let created = put().header(header, &right);
        created.plain(&server).await.check(201);
        // JavaScript signs only the host.
        let host = token("ns.example:5300", WELL_KNOWN_KEY, 100);
        let updated = put().header("If-Match", "*").header(header, &host);
        updated.plain(&server).await.check(200);
        // Clients choose the host's name: a signature for a queue does not count as one for a host.
        let named = ask("PUT", "/from")
            .queue(&elements)
            .header("Authorization", &own)
            .header("If-Match", "*")
            .header("Host", "from")
            .header(header, &own);
        named.plain(&server).await.check(401);
        let bare = token("from", WELL_KNOWN_KEY, 100);
        let named = ask("PUT", "/from")
            .queue(&elements)
            .header("Authorization", &own)
            .header("If-Match", "*")
            .header("Host", "from")
            .header(header, &bare);
        named.plain(&server).await.check(401);
        let other_host = token("ns.elsewhere", WELL_KNOWN_KEY, 100);
        let refused = put().header("If-Match", "*").header(header, &other_host);
        refused.plain(&server).await.check(401);
        // An update that repeats it must show it again.
        let updated = put().header("If-Match", "*").plain(&server).await;
        updated.check_refused(401, 40_100, header);
        // One token for the whole namespace is enough, unless an insufficient one comes with it.
        update(&server, "/from", &elements).await.check(200);
        let update = ask("PUT", "/from").queue(&elements).header("If-Match", "*");
        let update = update.header(header, &elsewhere);
        update.of(&server).await.check(401);
        ask("DELETE", "/from").of(&server).await.check(200);
    }
}

/// 2017-04 has no maximum message size: it neither shows nor changes it.
#[tokio::test]
async fn a_version_without_message_sizes_refuses_them() {
    let server = Server::start().await;
    let size = "<MaxMessageSizeInKilobytes>512</MaxMessageSizeInKilobytes>";
    let says = "The entity description of type 'QueueDescription' has unsupported properties for \
                api-version '2017-04' in the request. Try including the correct api-version query \
                string in the request. TrackingId:";
    create(&server, "/q?api-version=2017-04", size)
        .await
        .check_refused(400, 40_000, says);
    for version in ["2021-05", "2024-05"] {
        let path = format!("/q{version}?api-version={version}");
        let created = create(&server, &path, size).await.check(201);
        assert_eq!(created.text("MaxMessageSizeInKilobytes"), "512");
    }
    let old = "/q2021-05?api-version=2017-04";
    update(&server, old, size)
        .await
        .check_refused(400, 40_000, says);
    let updated = update(&server, old, "<MaxDeliveryCount>3</MaxDeliveryCount>").await;
    let listed = ask("GET", "/$Resources/queues?api-version=2017-04").of(&server);
    for shown in [updated, listed.await] {
        let shown = shown.check(200);
        assert!(
            !shown.body.contains("MaxMessageSizeInKilobytes"),
            "{shown:?}"
        );
    }
    let read = ask("GET", "/q2021-05?api-version=2021-05")
        .of(&server)
        .await;
    assert_eq!(read.text("MaxDeliveryCount"), "3");
    assert_eq!(read.text("MaxMessageSizeInKilobytes"), "512");
}
