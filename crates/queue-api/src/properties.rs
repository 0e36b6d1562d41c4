//! The properties of an account's queue service: logging, metrics, and CORS rules.
//!
//! Kew stores them and returns them, but only the CORS rules have an effect. Azure writes its logs
//! and metrics to blobs and tables, which Kew does not have.
//!
//! The engine stores a document in the form of the newest version, so that the stored form has one
//! reader and one writer, both here.
//!
//! Source: *Set Queue Service properties*, *Get Queue Service properties*.

mod store;

use bytes::{BufMut as _, BytesMut};
use kew_xml::{DECLARATION, Element, put_element};

use crate::cors::CorsRule;
use crate::error::Error;
use crate::version::Version;
pub(crate) use store::PropertyStore;

const ROOT: &str = "StorageServiceProperties";

/// The only version of logging and of metrics.
const ANALYTICS_VERSION: &str = "1.0";

/// How long logs and metrics may be kept, in days.
const DAYS: std::ops::RangeInclusive<u16> = 1..=365;

/// All the properties of an account's queue service.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Properties {
    logging: Logging,
    hour_metrics: Metrics,
    minute_metrics: Metrics,
    cors: Vec<CorsRule>,
}

/// The changes of a request. Missing properties stay unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    logging: Option<Logging>,
    hour_metrics: Option<Metrics>,
    minute_metrics: Option<Metrics>,
    cors: Option<Vec<CorsRule>>,
}

/// Which requests to log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Logging {
    delete: bool,
    read: bool,
    write: bool,
    retention: Retention,
}

/// Which metrics to keep.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Metrics {
    is_enabled: bool,
    includes_apis: Option<bool>,
    retention: Retention,
}

/// How long to keep something.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Retention {
    is_enabled: bool,
    days: Option<u16>,
}

impl Properties {
    /// Reads what [`Properties::document`] wrote for the newest version.
    fn from_stored(document: &[u8]) -> Result<Self, Error> {
        let mut properties = Self::default();
        properties.apply(Change::parse(document, Version::NEWEST)?);
        Ok(properties)
    }

    pub(crate) fn apply(&mut self, change: Change) {
        let Change {
            logging,
            hour_metrics,
            minute_metrics,
            cors,
        } = change;
        if let Some(logging) = logging {
            self.logging = logging;
        }
        if let Some(metrics) = hour_metrics {
            self.hour_metrics = metrics;
        }
        if let Some(metrics) = minute_metrics {
            self.minute_metrics = metrics;
        }
        if let Some(cors) = cors {
            self.cors = cors;
        }
    }

    /// The properties in the form of a version. Before 2013-08-15 there are only logging and hourly
    /// metrics.
    pub(crate) fn document(&self, version: Version) -> BytesMut {
        let mut out = BytesMut::with_capacity(2048);
        out.put_slice(DECLARATION);
        put_within(&mut out, ROOT, |out| {
            self.logging.put(out);
            if version < Version::V2013_08_15 {
                self.hour_metrics.put(out, "Metrics");
                return;
            }
            self.hour_metrics.put(out, "HourMetrics");
            self.minute_metrics.put(out, "MinuteMetrics");
            if self.cors.is_empty() {
                put_element(out, "Cors", "");
                return;
            }
            put_within(out, "Cors", |out| {
                self.cors.iter().for_each(|rule| rule.put(out));
            });
        });
        out
    }
}

impl Change {
    /// Reads the body of Set Queue Service Properties. Elements can be in any order.
    ///
    /// Before 2013-08-15 `Logging` and `Metrics` are required, and nothing else is allowed. From
    /// then on each of `Logging`, `HourMetrics`, `MinuteMetrics` and `Cors` is optional.
    ///
    /// Refuses with `InvalidXmlDocument`, `UnsupportedXmlNode`, `MissingRequiredXmlNode` and
    /// `InvalidXmlNodeValue`.
    pub(crate) fn parse(document: &[u8], version: Version) -> Result<Self, Error> {
        let root = kew_xml::read(document, ROOT)?;
        if version < Version::V2013_08_15 {
            let [logging, metrics] = root.fields(["Logging", "Metrics"])?;
            return Ok(Self {
                logging: Some(Logging::read(required(logging, "Logging")?)?),
                hour_metrics: Some(Metrics::read(required(metrics, "Metrics")?)?),
                minute_metrics: None,
                cors: None,
            });
        }
        let [logging, hour_metrics, minute_metrics, cors] =
            root.fields(["Logging", "HourMetrics", "MinuteMetrics", "Cors"])?;
        Ok(Self {
            logging: logging.map(Logging::read).transpose()?,
            hour_metrics: hour_metrics.map(Metrics::read).transpose()?,
            minute_metrics: minute_metrics.map(Metrics::read).transpose()?,
            cors: cors.map(CorsRule::read_all).transpose()?,
        })
    }
}

impl Logging {
    fn read(element: &Element<'_>) -> Result<Self, Error> {
        let [version, delete, read, write, retention] =
            element.fields(["Version", "Delete", "Read", "Write", "RetentionPolicy"])?;
        check_analytics_version(version)?;
        Ok(Self {
            delete: boolean(required(delete, "Delete")?)?,
            read: boolean(required(read, "Read")?)?,
            write: boolean(required(write, "Write")?)?,
            retention: Retention::read(required(retention, "RetentionPolicy")?)?,
        })
    }

    fn put(&self, out: &mut BytesMut) {
        put_within(out, "Logging", |out| {
            put_element(out, "Version", ANALYTICS_VERSION);
            put_boolean(out, "Read", self.read);
            put_boolean(out, "Write", self.write);
            put_boolean(out, "Delete", self.delete);
            self.retention.put(out);
        });
    }
}

impl Metrics {
    fn read(element: &Element<'_>) -> Result<Self, Error> {
        let [version, enabled, apis, retention] =
            element.fields(["Version", "Enabled", "IncludeAPIs", "RetentionPolicy"])?;
        check_analytics_version(version)?;
        let is_enabled = boolean(required(enabled, "Enabled")?)?;
        if is_enabled {
            required(apis, "IncludeAPIs")?;
        }
        Ok(Self {
            is_enabled,
            includes_apis: apis.map(boolean).transpose()?,
            retention: Retention::read(required(retention, "RetentionPolicy")?)?,
        })
    }

    fn put(&self, out: &mut BytesMut, name: &'static str) {
        put_within(out, name, |out| {
            put_element(out, "Version", ANALYTICS_VERSION);
            put_boolean(out, "Enabled", self.is_enabled);
            if let Some(includes_apis) = self.includes_apis {
                put_boolean(out, "IncludeAPIs", includes_apis);
            }
            self.retention.put(out);
        });
    }
}

impl Retention {
    fn read(element: &Element<'_>) -> Result<Self, Error> {
        let [enabled, days] = element.fields(["Enabled", "Days"])?;
        let is_enabled = boolean(required(enabled, "Enabled")?)?;
        if is_enabled {
            required(days, "Days")?;
        }
        Ok(Self {
            is_enabled,
            days: days.map(days_of).transpose()?,
        })
    }

    fn put(&self, out: &mut BytesMut) {
        put_within(out, "RetentionPolicy", |out| {
            put_boolean(out, "Enabled", self.is_enabled);
            if let Some(days) = self.days {
                put_element(out, "Days", &days.to_string());
            }
        });
    }
}

/// A required element.
pub(crate) fn required<'e, 'd>(
    element: Option<&'e Element<'d>>,
    name: &'static str,
) -> Result<&'e Element<'d>, Error> {
    element.ok_or(Error::MissingRequiredXmlNode { name })
}

fn boolean(element: &Element<'_>) -> Result<bool, Error> {
    let text = element.text()?;
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(element.invalid_value("The value is neither true nor false."))
    }
}

fn days_of(element: &Element<'_>) -> Result<u16, Error> {
    match element.text()?.parse() {
        Ok(days) if DAYS.contains(&days) => Ok(days),
        Ok(_) | Err(_) => Err(element.invalid_value("The value is not a number from 1 to 365.")),
    }
}

fn check_analytics_version(element: Option<&Element<'_>>) -> Result<(), Error> {
    let element = required(element, "Version")?;
    if element.text()? == ANALYTICS_VERSION {
        Ok(())
    } else {
        Err(element.invalid_value("The only version is 1.0."))
    }
}

/// Writes an element with elements in it.
pub(crate) fn put_within(out: &mut BytesMut, name: &str, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(b'<');
    out.put_slice(name.as_bytes());
    out.put_u8(b'>');
    write(out);
    out.put_slice(b"</");
    out.put_slice(name.as_bytes());
    out.put_u8(b'>');
}

fn put_boolean(out: &mut BytesMut, name: &str, value: bool) {
    put_element(out, name, if value { "true" } else { "false" });
}

#[cfg(test)]
mod tests;
