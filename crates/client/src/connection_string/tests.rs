//! The forms of the official documents, and what is told of others.

use proptest::prelude::*;

use super::*;
use crate::credential::{BearerToken, TokenFuture, TokenSource};

const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQ=";

/// Where requests go, and with what.
fn summary(text: &str) -> Result<String, ConnectionStringError> {
    Ok(match ConnectionString::parse(text)? {
        ConnectionString::Queue(account) => {
            let secondary = account.secondary().map(Endpoint::url);
            let secondary = secondary.unwrap_or_else(|| "none".to_owned());
            let url = account.endpoint().url();
            format!("{url} ({secondary}) {:?}", account.credential())
        }
        ConnectionString::Bus(namespace) => {
            let scheme = if namespace.is_tls() { "tls" } else { "plain" };
            let (host, amqp) = (namespace.host(), namespace.amqp_port());
            let entity = namespace.entity().unwrap_or("*");
            let (http, transport) = (namespace.http_port(), namespace.transport());
            let credential = namespace.credential();
            format!("{scheme} {host} {amqp} {http} {transport:?} {entity} {credential:?}")
        }
    })
}

#[test]
fn the_forms_of_queue_storage() {
    let key = format!("AccountKey={SECRET}");
    let a1 = "https://a1.queue.core.windows.net (https://a1-secondary.queue.core.windows.net)";
    for (text, expected) in [
        // Azurite, and `kew serve`.
        (
            "UseDevelopmentStorage=true".to_owned(),
            "http://127.0.0.1:10001/devstoreaccount1 (http://127.0.0.1:10001/devstoreaccount1-secondary) \
             SharedKey(devstoreaccount1, ..)"
                .to_owned(),
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite".to_owned(),
            "http://azurite:10001/devstoreaccount1 (http://azurite:10001/devstoreaccount1-secondary) \
             SharedKey(devstoreaccount1, ..)"
                .to_owned(),
        ),
        (
            format!(
                "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;{key};\
                 BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;\
                 QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;"
            ),
            "http://127.0.0.1:10001/devstoreaccount1 (http://127.0.0.1:10001/devstoreaccount1-secondary) \
             SharedKey(devstoreaccount1, ..)"
                .to_owned(),
        ),
        // Azure.
        (
            format!("DefaultEndpointsProtocol=https;AccountName=a1;{key}"),
            format!("{a1} SharedKey(a1, ..)"),
        ),
        (
            format!("AccountName=a1;{key};EndpointSuffix=core.chinacloudapi.cn"),
            "https://a1.queue.core.chinacloudapi.cn (https://a1-secondary.queue.core.chinacloudapi.cn) \
             SharedKey(a1, ..)"
                .to_owned(),
        ),
        (
            "BlobEndpoint=https://a1.blob.core.windows.net/;QueueEndpoint=https://a1.queue.core.windows.net/;\
             FileEndpoint=https://a1.file.core.windows.net/;TableEndpoint=https://a1.table.core.windows.net/;\
             SharedAccessSignature=?sv=2024-11-04&ss=q&sig=x%3D"
                .to_owned(),
            format!("{a1} Signature(..)"),
        ),
        (
            "AccountName=a1;SharedAccessSignature=sv=1&sig=x".to_owned(),
            format!("{a1} Signature(..)"),
        ),
        (
            "https://a1.queue.core.windows.net/?sv=2024-11-04&sig=x%3D".to_owned(),
            format!("{a1} Signature(..)"),
        ),
        // Any case, any order, a custom domain, a secondary that is named.
        (
            format!(
                " accountname = a1; {key};;queueendpoint=HTTP://Kew.example:8080/a1/; \
                 QueueSecondaryEndpoint=http://spare/a1 "
            ),
            "http://kew.example:8080/a1 (http://spare/a1) SharedKey(a1, ..)".to_owned(),
        ),
        (
            format!("AccountName=a1;{key};QueueEndpoint=http://[::1]:10001/a1"),
            "http://[::1]:10001/a1 (http://[::1]:10001/a1-secondary) SharedKey(a1, ..)".to_owned(),
        ),
    ] {
        assert_eq!(summary(&text), Ok(expected), "{text}");
    }
}

#[test]
fn the_forms_of_service_bus() {
    let rule = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE";
    for (text, expected) in [
        // Azure: a namespace, an entity, a signature.
        (
            format!("Endpoint=sb://ns.servicebus.windows.net/;{rule}"),
            "tls ns.servicebus.windows.net 5671 443 Tcp * SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            format!("Endpoint=sb://NS.servicebus.windows.net/;{rule};EntityPath=orders/new"),
            "tls ns.servicebus.windows.net 5671 443 Tcp orders/new SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            "Endpoint=sb://ns.servicebus.windows.net/;\
             SharedAccessSignature=SharedAccessSignature sr=sb%3a%2f%2fns&sig=x%3d&se=1&skn=r"
                .to_owned(),
            "tls ns.servicebus.windows.net 5671 443 Tcp * Signature(..)",
        ),
        // The emulator: on this machine, from a container, with its own port.
        (
            format!("Endpoint=sb://localhost;{rule};UseDevelopmentEmulator=true;"),
            "plain localhost 5672 5300 Tcp * SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            format!("Endpoint=sb://host.docker.internal:5673;{rule};UseDevelopmentEmulator=True"),
            "plain host.docker.internal 5673 5673 Tcp * SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            format!("Endpoint=sb://h;{rule};UseDevelopmentEmulator=false"),
            "tls h 5671 443 Tcp * SasRule(RootManageSharedAccessKey, ..)",
        ),
        // Kew: one port for everything.
        (
            format!("Endpoint=sb://localhost:5672;{rule};UseDevelopmentEmulator=true"),
            "plain localhost 5672 5672 Tcp * SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            format!("Endpoint=http://[::1]:8;{rule}"),
            "plain [::1] 8 8 Tcp * SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            format!(
                "Endpoint=amqps://h:7/;{rule};TransportType=AmqpWebSockets;OperationTimeout=00:01:30"
            ),
            "tls h 7 7 WebSocket * SasRule(RootManageSharedAccessKey, ..)",
        ),
        (
            format!("endpoint = h ;TRANSPORTTYPE=amqpwebsockets;{rule}"),
            "tls h 443 443 WebSocket * SasRule(RootManageSharedAccessKey, ..)",
        ),
    ] {
        assert_eq!(summary(&text), Ok(expected.to_owned()), "{text}");
    }
}

fn check_wrong(text: &str, told: &str) {
    let error = ConnectionString::parse(text).map(drop);
    let error = error.expect_err(text).to_string();
    assert!(error.contains(told), "{text}: {error}");
    for secret in ["c2Vj", "SAS_KEY", "hunter"] {
        assert!(!error.contains(secret), "{text}: {error}");
    }
}

#[test]
fn what_is_wrong_with_queue_storage_is_told_without_values() {
    let key = format!("AccountKey={SECRET}");
    for (text, told) in [
        (String::new(), "is empty"),
        (" ; ;".to_owned(), "is empty"),
        (SECRET.to_owned(), "has part 1, whose name is unknown"),
        (
            format!("AccountName=a;{SECRET}"),
            "has part 2, whose name is unknown",
        ),
        ("hunter2".to_owned(), "is not NAME=VALUE in part 1"),
        (key.clone(), "has neither QueueEndpoint nor AccountName"),
        ("AccountName=a".to_owned(), "has neither AccountKey nor"),
        (
            format!("AccountNam=a;{key}"),
            "part 1, whose name is unknown: is it AccountName?",
        ),
        (format!("AccuontName=a;{key}"), "is it AccountName?"),
        (format!("hunter=a;{key}"), "part 1, whose name is unknown"),
        (
            format!("AccountName=;{key}"),
            "has no value for AccountName",
        ),
        (
            format!("AccountName=a;accountname=b;{key}"),
            "has AccountName twice",
        ),
        (
            format!("QueueEndpoint=http://h/a;{key}"),
            "an AccountKey and no AccountName",
        ),
        (
            format!("QueueEndpoint=h/a;AccountName=a;{key}"),
            "bad QueueEndpoint",
        ),
        (
            format!("QueueEndpoint=http:///a;AccountName=a;{key}"),
            "no valid host",
        ),
        (
            format!("QueueEndpoint=http://hunter@h/a;AccountName=a;{key}"),
            "no valid host",
        ),
        (
            format!("QueueEndpoint=http://h:x/a;AccountName=a;{key}"),
            "its port is not",
        ),
        (
            format!("QueueEndpoint=http://h:0/a;AccountName=a;{key}"),
            "its port is not",
        ),
        (
            format!("QueueEndpoint=http://h:+80/a;AccountName=a;{key}"),
            "its port is not",
        ),
        (
            format!("QueueEndpoint=http://[::g]/a;AccountName=a;{key}"),
            "no valid host",
        ),
        (
            format!("QueueEndpoint=http://h/a%2f;AccountName=a;{key}"),
            "its path has",
        ),
        (
            format!("AccountName=a b;{key}"),
            "has an AccountName with characters",
        ),
        (
            format!("AccountName=a;{key};EndpointSuffix=x/y"),
            "bad EndpointSuffix",
        ),
        (
            format!("DefaultEndpointsProtocol=ftp;AccountName=a;{key}"),
            "neither http nor https",
        ),
        (
            "AccountName=a;AccountKey=c2VjcmV0*".to_owned(),
            "not Base64",
        ),
        (
            format!("AccountName=a;{key};SharedAccessSignature=sig=c2Vj"),
            "has both",
        ),
        (
            "AccountName=a;SharedAccessSignature=c2VjcmV0".to_owned(),
            "with sig=",
        ),
        (
            "AccountName=a;SharedAccessSignature=sig=".to_owned(),
            "with sig=",
        ),
        (
            "QueueEndpoint=http://h/a?sig=hunter;SharedAccessSignature=sig=hunter".to_owned(),
            "in QueueEndpoint and in SharedAccessSignature",
        ),
        (
            format!("UseDevelopmentStorage=true;{key}"),
            "and AccountKey",
        ),
        ("UseDevelopmentStorage=c2Vj".to_owned(), "true or false"),
        (
            "UseDevelopmentStorage=false".to_owned(),
            "has neither QueueEndpoint",
        ),
        (
            "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://h:1".to_owned(),
            "bad DevelopmentStorageProxyUri",
        ),
        (
            format!("AccountName=a;{key};DevelopmentStorageProxyUri=http://h"),
            "without UseDevelopmentStorage=true",
        ),
        ("http://h/a".to_owned(), "without a shared access signature"),
        (
            "SharedAccessSignature=sig=hunter".to_owned(),
            "names no service",
        ),
    ] {
        check_wrong(&text, told);
    }
}

#[test]
fn what_is_wrong_with_service_bus_is_told_without_values() {
    let rule = "SharedAccessKeyName=r;SharedAccessKey=SAS_KEY_VALUE";
    for (text, told) in [
        (rule.to_owned(), "has no Endpoint"),
        (
            "Endpoint=sb://h/".to_owned(),
            "has neither SharedAccessKeyName",
        ),
        (
            "Endpoint=sb://h/;SharedAccessKeyName=r".to_owned(),
            "no SharedAccessKey",
        ),
        (
            "Endpoint=sb://h/;SharedAccessKey=hunter".to_owned(),
            "no SharedAccessKeyName",
        ),
        (
            format!(
                "Endpoint=sb://h/;{rule};SharedAccessSignature=SharedAccessSignature sr=x&sig=c2Vj"
            ),
            "has both a key and",
        ),
        (
            "Endpoint=sb://h/;SharedAccessSignature=hunter".to_owned(),
            "does not begin with",
        ),
        (format!("Endpoint=ftp://h/;{rule}"), "must begin with sb://"),
        (format!("Endpoint=sb://h/hunter;{rule}"), "and no more"),
        (format!("Endpoint=sb://h:99999;{rule}"), "its port is not"),
        (format!("Endpoint=sb://;{rule}"), "no valid host"),
        (
            format!("Endpoint=https://h;{rule};UseDevelopmentEmulator=true"),
            "which means no TLS",
        ),
        (
            format!("Endpoint=sb://h;{rule};UseDevelopmentEmulator=yes"),
            "true or false",
        ),
        (
            format!("Endpoint=sb://h;{rule};EntityPath=/"),
            "EntityPath that is no name",
        ),
        (
            format!("Endpoint=sb://h;{rule};TransportType=NetMessaging"),
            "neither Amqp nor",
        ),
        (
            format!("Endpoint=sb://h;{rule};OperationTimeout=90"),
            "not hh:mm:ss",
        ),
        (
            format!("Endpoint=sb://h;{rule};OperationTimeout=00:00:00"),
            "not hh:mm:ss",
        ),
        (
            format!("Endpoint=sb://h;{rule};Hunter2=x"),
            "part 4, whose name is unknown",
        ),
        (
            format!("Endpoint=sb://h;{rule};AccountName=a"),
            "has AccountName, a setting of Queue",
        ),
    ] {
        check_wrong(&text, told);
    }
}

#[test]
fn a_string_of_the_other_service_is_told_from_a_wrong_one() {
    let bus = BusNamespace::parse("UseDevelopmentStorage=true");
    let text = bus.unwrap_err().to_string();
    assert_eq!(
        text,
        "the connection string is for Queue Storage: give one of Service Bus"
    );
    let queue = "Endpoint=sb://h;SharedAccessKeyName=r;SharedAccessKey=k";
    let text = QueueAccount::parse(queue).unwrap_err().to_string();
    assert_eq!(
        text,
        "the connection string is for Service Bus: give one of Queue Storage"
    );
}

struct NoTokens;

impl TokenSource for NoTokens {
    fn token<'a>(&'a self, _: &'a str) -> TokenFuture<'a> {
        Box::pin(async {
            Ok(BearerToken {
                text: crate::Secret::new("hunter2"),
                expires_at: std::time::UNIX_EPOCH,
            })
        })
    }
}

#[test]
fn bearer_tokens_are_for_tls_or_for_this_machine() {
    let source = || std::sync::Arc::new(NoTokens);
    for (endpoint, is_taken) in [
        ("sb://ns.example", true),
        ("amqp://localhost:5672", true),
        ("amqp://127.0.0.1", true),
        ("amqp://ns.example", false),
    ] {
        let namespace = BusNamespace::with_tokens(endpoint, source());
        assert_eq!(namespace.is_ok(), is_taken, "{endpoint}");
    }
    for (url, is_taken) in [
        ("https://a.example", true),
        ("http://[::1]:10001/a", true),
        ("http://a.example", false),
        ("https://a.example?sig=x", false),
    ] {
        let account = QueueAccount::with_tokens(url, source());
        assert_eq!(account.is_ok(), is_taken, "{url}");
    }
}

/// Parts in any order, their names in any case, with blanks and empty parts between them.
fn written(parts: Vec<(&'static str, String)>) -> impl Strategy<Value = String> {
    let case = proptest::collection::vec(any::<bool>(), 64);
    (Just(parts).prop_shuffle(), case).prop_map(|(parts, case)| {
        let mut text = String::new();
        for (name, value) in parts {
            let letters = name.chars().zip(&case).map(|(letter, &is_upper)| {
                if is_upper {
                    letter.to_ascii_uppercase()
                } else {
                    letter.to_ascii_lowercase()
                }
            });
            text.extend(letters);
            text.push_str(if case[0] { " = " } else { "=" });
            text.push_str(&value);
            text.push_str(if case[1] { " ; ;" } else { ";" });
        }
        text
    })
}

proptest! {
    #[test]
    fn order_case_and_blanks_do_not_matter(
        text in ("[A-Za-z0-9]{44}", "[a-z][a-z0-9]{2,20}", 1_u16..).prop_flat_map(|(key, host, port)| {
            written(vec![
                ("Endpoint", format!("sb://{host}:{port}/")),
                ("SharedAccessKeyName", "rule".to_owned()),
                ("SharedAccessKey", format!("hunter2{key}=")),
                ("EntityPath", "orders".to_owned()),
            ])
            .prop_map(move |text| (text, host.clone(), port))
        })
    ) {
        let (text, host, port) = text;
        let namespace = BusNamespace::parse(&text).unwrap();
        prop_assert_eq!(namespace.host(), host);
        prop_assert_eq!(namespace.amqp_port(), port);
        prop_assert_eq!(namespace.entity(), Some("orders"));
        let shown = format!("{namespace:?}");
        prop_assert!(!shown.contains("hunter2"), "{}", shown);
    }

    #[test]
    fn no_text_makes_it_panic_or_repeat_a_value(
        names in proptest::collection::vec("(Endpoint|AccountKey|AccountName|QueueEndpoint|EntityPath|\
            SharedAccessKey|SharedAccessSignature|UseDevelopmentEmulator|OperationTimeout|[a-zA-Z]{0,9})", 0..6),
        filling in "(://|[?/:;=\\[\\]@ é]|sig=|http|sb|[0-9]){0,9}",
    ) {
        let parts = names.iter().map(|name| format!("{name}={filling}hunter2{filling}"));
        let text = parts.collect::<Vec<_>>().join(";");
        let said = match ConnectionString::parse(&text) {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        prop_assert!(!said.contains("hunter2"), "{}", said);
    }
}

#[test]
fn rights_that_are_given_away_keep_the_transport_and_the_time_limit() {
    for more in [
        "",
        ";TransportType=AmqpWebSockets",
        ";OperationTimeout=01:02:30",
    ] {
        let text = format!("Endpoint=sb://h/;SharedAccessKeyName=r;SharedAccessKey=k{more}");
        let from = BusNamespace::parse(&text).unwrap();
        let given = from.delegate(Some("q"), 1).unwrap();
        let to = BusNamespace::parse(given.connection_string.expose()).unwrap();
        assert_eq!(
            (to.transport(), to.timeout()),
            (from.transport(), from.timeout())
        );
        assert_eq!(to.entity(), Some("q"));
    }
}
