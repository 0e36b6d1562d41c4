//! `NAME=VALUE;NAME=VALUE`: which settings there are, and each with one value.

use std::collections::BTreeMap;

use super::{ConnectionStringError, wrong};

/// What a setting is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Queue,
    Bus,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Self::Queue => "Queue Storage",
            Self::Bus => "Service Bus",
        }
    }
}

macro_rules! settings {
    ($($name:ident => $service:expr),+ $(,)?) => {
        /// A setting that is read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Setting {
            $($name,)+
        }

        impl Setting {
            const ALL: &[Self] = &[$(Self::$name,)+];

            /// As the documents write it.
            pub(super) fn text(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// The service that it is for, if it is for one alone.
            fn service(self) -> Option<Service> {
                match self { $(Self::$name => $service,)+ }
            }
        }
    };
}

settings! {
    DefaultEndpointsProtocol => Some(Service::Queue),
    AccountName => Some(Service::Queue),
    AccountKey => Some(Service::Queue),
    EndpointSuffix => Some(Service::Queue),
    QueueEndpoint => Some(Service::Queue),
    QueueSecondaryEndpoint => Some(Service::Queue),
    UseDevelopmentStorage => Some(Service::Queue),
    DevelopmentStorageProxyUri => Some(Service::Queue),
    SharedAccessSignature => None,
    Endpoint => Some(Service::Bus),
    SharedAccessKeyName => Some(Service::Bus),
    SharedAccessKey => Some(Service::Bus),
    EntityPath => Some(Service::Bus),
    UseDevelopmentEmulator => Some(Service::Bus),
    TransportType => Some(Service::Bus),
    OperationTimeout => Some(Service::Bus),
}

/// Settings of a storage account that say nothing of queues.
const OF_OTHER_SERVICES: [&str; 8] = [
    "BlobEndpoint",
    "BlobSecondaryEndpoint",
    "FileEndpoint",
    "FileSecondaryEndpoint",
    "TableEndpoint",
    "TableSecondaryEndpoint",
    "DfsEndpoint",
    "DfsSecondaryEndpoint",
];

/// The settings of a connection string. None of the values is empty.
#[derive(Default)]
pub(super) struct Settings<'a> {
    values: BTreeMap<Setting, &'a str>,
}

impl<'a> Settings<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, ConnectionStringError> {
        let mut settings = Self::default();
        let mut has_parts = false;
        let parts = text.split(';').map(str::trim).zip(1..);
        for (part, place) in parts.filter(|(part, _)| !part.is_empty()) {
            has_parts = true;
            settings.read(part, place)?;
        }
        if !has_parts {
            return Err(wrong("is empty"));
        }
        Ok(settings)
    }

    fn read(&mut self, part: &'a str, place: usize) -> Result<(), ConnectionStringError> {
        let Some((name, value)) = part.split_once('=') else {
            return Err(wrong(format!("is not NAME=VALUE in part {place}")));
        };
        let (name, value) = (name.trim(), value.trim());
        if OF_OTHER_SERVICES
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name))
        {
            return Ok(());
        }
        let mut names = Setting::ALL.iter().copied();
        let Some(name) = names.find(|it| it.text().eq_ignore_ascii_case(name)) else {
            return Err(unknown(name, place));
        };
        if value.is_empty() {
            return Err(wrong(format!("has no value for {}", name.text())));
        }
        // The same value twice says the same.
        if self
            .values
            .insert(name, value)
            .is_some_and(|before| before != value)
        {
            return Err(wrong(format!("has {} twice", name.text())));
        }
        Ok(())
    }

    pub(super) fn get(&self, name: Setting) -> Option<&'a str> {
        self.values.get(&name).copied()
    }

    /// Which service the settings are for.
    pub(super) fn service(&self) -> Result<Service, ConnectionStringError> {
        let of = |service| {
            let mut names = self.values.keys().copied();
            names.find(|name| name.service() == Some(service))
        };
        match (of(Service::Queue), of(Service::Bus)) {
            (Some(queue), Some(bus)) => Err(wrong(format!(
                "has {}, a setting of Queue Storage, and {}, one of Service Bus: give those of one service",
                queue.text(),
                bus.text()
            ))),
            (Some(_), None) => Ok(Service::Queue),
            (None, Some(_)) => Ok(Service::Bus),
            (None, None) => Err(wrong(
                "names no service: Queue Storage needs AccountName or QueueEndpoint, Service Bus needs Endpoint",
            )),
        }
    }

    /// Fails unless the settings are for this service.
    pub(super) fn must_be_for(&self, service: Service) -> Result<(), ConnectionStringError> {
        let found = self.service()?;
        if found == service {
            return Ok(());
        }
        let (found, wanted) = (found.name(), service.name());
        Err(wrong(format!("is for {found}: give one of {wanted}")))
    }

    /// Whether a setting that is true or false is true.
    pub(super) fn is_true(&self, name: Setting) -> Result<bool, ConnectionStringError> {
        match self.get(name) {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => {
                let name = name.text();
                Err(wrong(format!(
                    "has {name}, which can be true or false, and is neither"
                )))
            }
        }
    }
}

fn unknown(name: &str, place: usize) -> ConnectionStringError {
    let meant = Setting::ALL.iter().find(|it| is_close(it.text(), name));
    let hint = match meant {
        Some(meant) => format!(": is it {}?", meant.text()),
        None => String::new(),
    };
    wrong(format!("has part {place}, whose name is unknown{hint}"))
}

/// Whether two names differ by one letter that is missing, added or wrong, or in two that have changed places.
fn is_close(known: &str, given: &str) -> bool {
    let (known, given) = (known.to_ascii_lowercase(), given.to_ascii_lowercase());
    let (known, given) = (known.as_bytes(), given.as_bytes());
    let begin = known.iter().zip(given).take_while(|(a, b)| a == b).count();
    let known = known.get(begin..).unwrap_or_default();
    let given = given.get(begin..).unwrap_or_default();
    match (known, given) {
        ([_, rest @ ..], left) if rest == left => true,
        (left, [_, rest @ ..]) if rest == left => true,
        ([_, known @ ..], [_, given @ ..]) if known == given => true,
        ([a, b, known @ ..], [c, d, given @ ..]) => (a, b, known) == (d, c, given),
        _ => false,
    }
}
