//! The description of a queue: an ATOM entry with a `QueueDescription`, for reading and writing.
//!
//! Source: Service Bus, *Create Queue* and *Update Queue*.

use std::time::Duration;

use bytes::BytesMut;
use kew_xml::put_element;

use crate::bus_entity_args::{SettingsArgs, Status};
use crate::queue_command::Failure;
use crate::queue_values::{Life, Target};

/// The elements that a client may set, in the order that the service requires. Read-only elements
/// are left out, and so are authorization rules: without the element they stay.
const ELEMENTS: [&str; 18] = [
    "LockDuration",
    "MaxSizeInMegabytes",
    "RequiresDuplicateDetection",
    "RequiresSession",
    "DefaultMessageTimeToLive",
    "DeadLetteringOnMessageExpiration",
    "DuplicateDetectionHistoryTimeWindow",
    "MaxDeliveryCount",
    "EnableBatchedOperations",
    "Status",
    "ForwardTo",
    "UserMetadata",
    "SupportOrdering",
    "AutoDeleteOnIdle",
    "EnablePartitioning",
    "ForwardDeadLetteredMessagesTo",
    "EnableExpress",
    "MaxMessageSizeInKilobytes",
];

/// The longest duration of .NET, which means no limit.
const FOREVER: &str = "P10675199DT2H48M5.4775807S";

const MEGABYTE: u64 = 1 << 20;
const KILOBYTE: u64 = 1 << 10;

/// The description of a queue: a text for each of some [`ELEMENTS`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Description([Option<String>; ELEMENTS.len()]);

impl Description {
    /// Reads the server's description of a queue.
    pub(super) fn read(document: &[u8]) -> Result<Self, String> {
        let entry = kew_xml::parse(document).map_err(|error| error.to_string())?;
        let content = entry.child("content");
        let found = content.and_then(|content| content.child("QueueDescription"));
        let found = found.ok_or("it is not an entry with a QueueDescription")?;
        let mut description = Self::default();
        for element in &found.children {
            if let Some(place) = description.place(element.local_name()) {
                let text = element.text().map_err(|error| error.to_string())?;
                *place = Some(text.to_owned());
            }
        }
        Ok(description)
    }

    fn place(&mut self, name: &str) -> Option<&mut Option<String>> {
        let index = ELEMENTS.iter().position(|it| *it == name)?;
        self.0.get_mut(index)
    }

    /// Sets an element.
    pub(super) fn set(&mut self, name: &str, text: impl Into<String>) {
        if let Some(place) = self.place(name) {
            *place = Some(text.into());
        }
    }

    /// Sets all elements that the command line asks for.
    pub(super) fn apply(&mut self, asked: &SettingsArgs) -> Result<(), Failure> {
        let whole = |flag: &str, size: u64, unit: u64, name: &str| {
            if size.is_multiple_of(unit) {
                return Ok((size / unit).to_string());
            }
            let message = format!("{flag} is {size} bytes, and must be a whole number of {name}");
            Err(Failure::Usage(message))
        };
        if let Some(size) = asked.max_size {
            let megabytes = whole("--max-size", size, MEGABYTE, "MiB")?;
            self.set("MaxSizeInMegabytes", megabytes);
        }
        if let Some(size) = asked.max_message_size {
            let kilobytes = whole("--max-message-size", size, KILOBYTE, "KiB")?;
            self.set("MaxMessageSizeInKilobytes", kilobytes);
        }
        let target = |target: &Target| match target {
            Target::Queue(name) => name.clone(),
            Target::None => String::new(),
        };
        for (name, text) in [
            ("LockDuration", asked.lock_duration.map(iso8601)),
            ("DefaultMessageTimeToLive", asked.ttl.map(life)),
            (
                "MaxDeliveryCount",
                asked.max_delivery_count.map(|it| it.to_string()),
            ),
            (
                "DuplicateDetectionHistoryTimeWindow",
                asked.duplicate_window.map(iso8601),
            ),
            (
                "DeadLetteringOnMessageExpiration",
                asked.dead_letter_expired.map(|it| it.to_string()),
            ),
            ("ForwardTo", asked.forward_to.as_ref().map(target)),
            (
                "ForwardDeadLetteredMessagesTo",
                asked.forward_dead_letters_to.as_ref().map(target),
            ),
            ("AutoDeleteOnIdle", asked.auto_delete_on_idle.map(life)),
            ("Status", asked.status.map(|it| status(it).to_owned())),
            ("UserMetadata", asked.user_metadata.clone()),
        ] {
            if let Some(text) = text {
                self.set(name, text);
            }
        }
        Ok(())
    }

    /// As the body of a request.
    pub(super) fn to_document(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        out.extend_from_slice(
            b"<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">\
              <QueueDescription \
              xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\">",
        );
        for (name, text) in ELEMENTS.iter().zip(&self.0) {
            if let Some(text) = text {
                put_element(&mut out, name, text);
            }
        }
        out.extend_from_slice(b"</QueueDescription></content></entry>");
        out.to_vec()
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Active => "Active",
        Status::Disabled => "Disabled",
        Status::SendDisabled => "SendDisabled",
        Status::ReceiveDisabled => "ReceiveDisabled",
    }
}

fn life(life: Life) -> String {
    match life {
        Life::Ends(after) => iso8601(after),
        Life::Never => FOREVER.to_owned(),
    }
}

/// In seconds and their thousandths.
fn iso8601(duration: Duration) -> String {
    format!("PT{}.{:03}S", duration.as_secs(), duration.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_elements_stay_unchanged() {
        let before = br#"<entry xmlns="a"><title>q</title><content><QueueDescription xmlns="b">
            <LockDuration>PT1M</LockDuration><SizeInBytes>7</SizeInBytes><UserMetadata>a &lt; b</UserMetadata>
            <ForwardTo>sb://h/x</ForwardTo><AuthorizationRules><r/></AuthorizationRules>
            </QueueDescription></content></entry>"#;
        let mut description = Description::read(before).unwrap();
        let asked = SettingsArgs {
            lock_duration: Some(Duration::from_millis(5_500)),
            ttl: Some(Life::Never),
            max_size: Some(2 << 30),
            forward_to: Some(Target::None),
            status: Some(Status::SendDisabled),
            ..SettingsArgs::default()
        };
        description.apply(&asked).unwrap();
        let document = String::from_utf8(description.to_document()).unwrap();
        let (_, document) = document.split_once("connect\">").unwrap();
        assert_eq!(
            document,
            "<LockDuration>PT5.500S</LockDuration><MaxSizeInMegabytes>2048</MaxSizeInMegabytes>\
             <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
             <Status>SendDisabled</Status><ForwardTo /><UserMetadata>a &lt; b</UserMetadata>\
             </QueueDescription></content></entry>"
        );
    }

    #[test]
    fn sizes_are_whole() {
        let mut description = Description::default();
        for asked in [
            SettingsArgs {
                max_size: Some((1 << 20) + 1),
                ..SettingsArgs::default()
            },
            SettingsArgs {
                max_message_size: Some(1000),
                ..SettingsArgs::default()
            },
        ] {
            assert!(description.apply(&asked).is_err(), "{asked:?}");
        }
        assert!(Description::read(b"<feed/>").is_err());
        assert!(Description::read(b"no").is_err());
    }
}
