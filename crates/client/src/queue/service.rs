//! The account as a whole: its properties, and its second copy.
//!
//! Source: *Get Queue Service Properties*, *Set Queue Service Properties*, *Get Queue Service Stats*.

use super::answers;
use super::client::QueueClient;
use super::model::ServiceStats;
use super::request::Operation;
use crate::error::{Effect, Error};
use crate::http::xml::{Element, is_allowed, put_element};

/// The version of the settings of logging and metrics. There is no other.
const ANALYTICS_VERSION: &str = "1.0";

/// Properties of Queue Storage in an account. To set them leaves those as they are that are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceProperties {
    /// What the service logs.
    pub logging: Option<Logging>,
    /// What the service counts for each hour.
    pub hour_metrics: Option<Metrics>,
    /// What the service counts for each minute.
    pub minute_metrics: Option<Metrics>,
    /// Which pages in browsers may use the service: up to 5 rules.
    pub cors: Option<Vec<CorsRule>>,
}

/// Which requests the service logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    /// Deletions.
    pub delete: bool,
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
    /// How many days they are kept, 1 to 365; `None` for ever.
    pub retention_days: Option<u32>,
}

/// What the service counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Whether it counts.
    pub is_enabled: bool,
    /// Whether it counts each operation. Only where it counts at all.
    pub includes_apis: bool,
    /// How many days the counts are kept, 1 to 365; `None` for ever.
    pub retention_days: Option<u32>,
}

/// A rule for pages of other origins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsRule {
    /// The origins, or `*`.
    pub allowed_origins: Vec<String>,
    /// The methods, in capitals.
    pub allowed_methods: Vec<String>,
    /// The headers that a request may have; `x-ms-meta-*` for all that begin so.
    pub allowed_headers: Vec<String>,
    /// The headers of an answer that a page may see.
    pub exposed_headers: Vec<String>,
    /// How long a browser may keep the answer to its question, in seconds.
    pub max_age_s: u32,
}

impl QueueClient {
    /// Reads the properties of the service.
    pub async fn service_properties(&self) -> Result<ServiceProperties, Error> {
        let read = Operation::new("GET", &[], Effect::Read);
        let read = of_service(read, "properties");
        let answer = self.call(&read, &[200]).await?;
        answers::read(
            &answer,
            "StorageServiceProperties",
            Effect::Read,
            properties,
        )
    }

    /// Sets those properties of the service that are given.
    pub async fn set_service_properties(
        &self,
        properties: &ServiceProperties,
    ) -> Result<(), Error> {
        let set = Operation::repeatable("PUT", &[]).document(written(properties)?);
        let set = of_service(set, "properties");
        self.call(&set, &[202]).await.map(drop)
    }

    /// Reads how far the account's second copy is, from that copy.
    pub async fn service_stats(&self) -> Result<ServiceStats, Error> {
        let read = Operation::new("GET", &[], Effect::Read);
        let mut read = of_service(read, "stats");
        read.is_for_secondary = true;
        let answer = self.call(&read, &[200]).await?;
        answers::read(&answer, "StorageServiceStats", Effect::Read, answers::stats)
    }
}

fn of_service(operation: Operation, component: &str) -> Operation {
    operation
        .query("restype", "service")
        .query("comp", component)
}

fn properties(root: &Element<'_>) -> Result<ServiceProperties, String> {
    let part = |name| root.child(name);
    Ok(ServiceProperties {
        logging: part("Logging").map(logging).transpose()?,
        hour_metrics: part("HourMetrics").map(metrics).transpose()?,
        minute_metrics: part("MinuteMetrics").map(metrics).transpose()?,
        cors: part("Cors")
            .map(|it| it.children.iter().map(cors_rule).collect())
            .transpose()?,
    })
}

fn logging(element: &Element<'_>) -> Result<Logging, String> {
    Ok(Logging {
        delete: boolean(element, "Delete")?,
        read: boolean(element, "Read")?,
        write: boolean(element, "Write")?,
        retention_days: retention_days(element)?,
    })
}

fn metrics(element: &Element<'_>) -> Result<Metrics, String> {
    Ok(Metrics {
        is_enabled: boolean(element, "Enabled")?,
        includes_apis: match element.child("IncludeAPIs") {
            Some(_) => boolean(element, "IncludeAPIs")?,
            None => false,
        },
        retention_days: retention_days(element)?,
    })
}

fn retention_days(element: &Element<'_>) -> Result<Option<u32>, String> {
    let policy = element.child("RetentionPolicy");
    let policy = policy.ok_or_else(|| format!("{} without RetentionPolicy", element.name))?;
    match boolean(policy, "Enabled")? {
        true => number(policy, "Days").map(Some),
        false => Ok(None),
    }
}

fn cors_rule(element: &Element<'_>) -> Result<CorsRule, String> {
    let list = |name| {
        let text = element.child_text(name)?;
        let values = text.split(',').map(str::trim);
        let values = values.filter(|it| !it.is_empty()).map(str::to_owned);
        Ok::<_, String>(values.collect())
    };
    Ok(CorsRule {
        allowed_origins: list("AllowedOrigins")?,
        allowed_methods: list("AllowedMethods")?,
        allowed_headers: list("AllowedHeaders")?,
        exposed_headers: list("ExposedHeaders")?,
        max_age_s: number(element, "MaxAgeInSeconds")?,
    })
}

fn boolean(element: &Element<'_>, name: &str) -> Result<bool, String> {
    match element.child_text(name)? {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("a bad {name}: {other}")),
    }
}

fn number(element: &Element<'_>, name: &str) -> Result<u32, String> {
    let text = element.child_text(name)?;
    text.parse().map_err(|_| format!("a bad {name}: {text}"))
}

/// The document, with elements in the order of the service's own.
fn written(properties: &ServiceProperties) -> Result<String, Error> {
    let mut out = String::from("<StorageServiceProperties>");
    if let Some(logging) = &properties.logging {
        out.push_str("<Logging>");
        put_element(&mut out, "Version", ANALYTICS_VERSION);
        for (name, is_on) in [
            ("Delete", logging.delete),
            ("Read", logging.read),
            ("Write", logging.write),
        ] {
            put_boolean(&mut out, name, is_on);
        }
        put_retention(&mut out, logging.retention_days);
        out.push_str("</Logging>");
    }
    put_metrics(&mut out, "HourMetrics", properties.hour_metrics);
    put_metrics(&mut out, "MinuteMetrics", properties.minute_metrics);
    if let Some(rules) = &properties.cors {
        out.push_str("<Cors>");
        for rule in rules {
            put_rule(&mut out, rule)?;
        }
        out.push_str("</Cors>");
    }
    out.push_str("</StorageServiceProperties>");
    Ok(out)
}

fn put_metrics(out: &mut String, name: &str, metrics: Option<Metrics>) {
    let Some(metrics) = metrics else { return };
    out.extend(["<", name, ">"]);
    put_element(out, "Version", ANALYTICS_VERSION);
    put_boolean(out, "Enabled", metrics.is_enabled);
    // Elsewhere the service refuses it.
    if metrics.is_enabled {
        put_boolean(out, "IncludeAPIs", metrics.includes_apis);
    }
    put_retention(out, metrics.retention_days);
    out.extend(["</", name, ">"]);
}

fn put_retention(out: &mut String, days: Option<u32>) {
    out.push_str("<RetentionPolicy>");
    put_boolean(out, "Enabled", days.is_some());
    if let Some(days) = days {
        put_element(out, "Days", &days.to_string());
    }
    out.push_str("</RetentionPolicy>");
}

fn put_rule(out: &mut String, rule: &CorsRule) -> Result<(), Error> {
    out.push_str("<CorsRule>");
    put_list(out, "AllowedOrigins", &rule.allowed_origins)?;
    put_list(out, "AllowedMethods", &rule.allowed_methods)?;
    put_element(out, "MaxAgeInSeconds", &rule.max_age_s.to_string());
    put_list(out, "ExposedHeaders", &rule.exposed_headers)?;
    put_list(out, "AllowedHeaders", &rule.allowed_headers)?;
    out.push_str("</CorsRule>");
    Ok(())
}

fn put_list(out: &mut String, name: &str, values: &[String]) -> Result<(), Error> {
    let is_one = |it: &String| it.chars().all(|c| is_allowed(c) && c != ',');
    if let Some(wrong) = values.iter().find(|it| !is_one(it)) {
        let wrong = wrong.escape_debug();
        let text = format!("{name} of a CORS rule has a value that cannot be in its list: {wrong}");
        return Err(Error::refused(text));
    }
    put_element(out, name, &values.join(","));
    Ok(())
}

fn put_boolean(out: &mut String, name: &str, value: bool) {
    put_element(out, name, if value { "true" } else { "false" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let texts = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect();
        let all = ServiceProperties {
            logging: Some(Logging {
                delete: true,
                read: false,
                write: true,
                retention_days: Some(7),
            }),
            hour_metrics: Some(Metrics {
                is_enabled: true,
                includes_apis: true,
                retention_days: None,
            }),
            minute_metrics: Some(Metrics::default()),
            cors: Some(vec![
                CorsRule {
                    allowed_origins: texts(&["https://a.example", "https://b.example"]),
                    allowed_methods: texts(&["GET", "PUT"]),
                    allowed_headers: texts(&["x-ms-meta-*"]),
                    exposed_headers: Vec::new(),
                    max_age_s: 300,
                },
                CorsRule::default(),
            ]),
        };
        for expected in [all, ServiceProperties::default()] {
            let document = written(&expected).unwrap();
            let root = Element::parse(document.as_bytes()).unwrap();
            assert_eq!(properties(&root), Ok(expected), "{document}");
        }
    }

    #[test]
    fn a_list_takes_no_value_with_a_comma() {
        let rule = CorsRule {
            allowed_origins: vec!["a,b".to_owned()],
            ..CorsRule::default()
        };
        let wrong = ServiceProperties {
            cors: Some(vec![rule]),
            ..ServiceProperties::default()
        };
        let error = written(&wrong).unwrap_err();
        assert!(error.text().contains("a,b"), "{error}");
    }
}
