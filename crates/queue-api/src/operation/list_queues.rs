//! List Queues.

use bytes::{BufMut as _, BytesMut};
use kew_engine::storage::{ListedQueue, QueuePage, StorageCommand, StorageOutcome};
use kew_engine::{Command, Outcome, Service};
use kew_xml::{DECLARATION, put_attribute, put_element};

use super::RequestBody;
use crate::address::check_queue_name;
use crate::error::Error;
use crate::metadata::is_identifier;
use crate::parameter::{REASON_INTEGER, is_integer};
use crate::query::Query;
use crate::reply::Reply;
use crate::request::Request;
use crate::version::Version;

/// How many queues a page has by default, and at most.
const PAGE_QUEUE_COUNT_MAX: u32 = 5_000;

/// A page that reaches this size ends after its queue, regardless of the requested number. Queues
/// with much metadata would make it forty times as long.
const PAGE_SIZE_BYTES: usize = 1024 * 1024;

/// The parts of the query for the command and the answer.
struct Listing {
    prefix: Option<Box<str>>,
    marker: Option<Box<str>>,
    /// The queue in the marker; empty without one.
    from: Box<str>,
    max_results: Option<Box<str>>,
    limit: u32,
    with_metadata: bool,
}

/// Lists an account's queues in ascending order of their names' bytes: 200.
///
/// `prefix` is the beginning of the names; `marker` is the end of an earlier page; `maxresults` is
/// at least 1, and above 5,000 counts as 5,000; `include` may be `metadata`. A page of much
/// metadata may have fewer queues than requested, and then names the next.
///
/// Source: *List Queues*.
pub(super) async fn run(request: &Request<'_>, body: RequestBody) -> Result<Reply, Error> {
    let listing = Listing::parse(&request.query, request.account(), request.version)?;
    body?;
    request.check_room(PAGE_SIZE_BYTES)?;
    let command = Command::Storage(StorageCommand::ListQueues {
        service: Service::QueueStorage,
        account: request.account().clone(),
        prefix: listing.prefix.clone().unwrap_or_default(),
        from: listing.from.clone(),
        limit: listing.limit,
        metadata_size_bytes_max: listing.with_metadata.then_some(PAGE_SIZE_BYTES),
    });
    match request.submit(command).await?.outcome {
        Outcome::Storage(StorageOutcome::Queues(page)) => {
            let endpoint = request.endpoint();
            let out = listing.document(&page, &endpoint, request.account(), request.version);
            request.reply(out)
        }
        other => Err(request.unexpected(&other)),
    }
}

impl Listing {
    fn parse(query: &Query<'_>, account: &str, version: Version) -> Result<Self, Error> {
        let (max_results, limit) = max_results(query)?;
        let marker = query.value("marker");
        let from = match marker.as_deref() {
            None | Some("") => "",
            Some(marker) => queue_of_marker(marker, account)?,
        };
        Ok(Self {
            prefix: query.value("prefix").map(Into::into),
            from: from.into(),
            max_results,
            limit,
            with_metadata: includes_metadata(query, version)?,
            marker: marker.map(Into::into),
        })
    }

    fn document(
        &self,
        page: &QueuePage,
        endpoint: &str,
        account: &str,
        version: Version,
    ) -> BytesMut {
        let is_old = version < Version::V2013_08_15;
        let name_element = if version < Version::V2009_09_19 {
            "QueueName"
        } else {
            "Name"
        };
        let mut next = page.next.as_deref();
        let mut out = BytesMut::with_capacity(512 + 128 * page.queues.len());
        out.put_slice(DECLARATION);
        out.put_slice(if is_old {
            b"<EnumerationResults AccountName=\"".as_slice()
        } else {
            b"<EnumerationResults ServiceEndpoint=\"".as_slice()
        });
        put_attribute(&mut out, endpoint);
        out.put_slice(b"\">");
        for (name, text) in [
            ("Prefix", &self.prefix),
            ("Marker", &self.marker),
            ("MaxResults", &self.max_results),
        ] {
            if let Some(text) = text {
                put_element(&mut out, name, text);
            }
        }
        if page.queues.is_empty() {
            out.put_slice(b"<Queues />");
        } else {
            out.put_slice(b"<Queues>");
            let mut queues = page.queues.iter();
            while let Some(queue) = queues.next() {
                out.put_slice(b"<Queue>");
                put_element(&mut out, name_element, &queue.name);
                if is_old {
                    put_element(&mut out, "Url", &format!("{endpoint}{}", queue.name));
                }
                if self.with_metadata {
                    put_metadata(&mut out, queue);
                }
                out.put_slice(b"</Queue>");
                if out.len() >= PAGE_SIZE_BYTES
                    && let Some(left) = queues.next()
                {
                    next = Some(&left.name);
                    break;
                }
            }
            out.put_slice(b"</Queues>");
        }
        let next_marker = match next {
            Some(next) => format!("/{account}/{next}"),
            None => String::new(),
        };
        put_element(&mut out, "NextMarker", &next_marker);
        out.put_slice(b"</EnumerationResults>");
        out
    }
}

fn put_metadata(out: &mut BytesMut, queue: &ListedQueue) {
    if queue.metadata.is_empty() {
        out.put_slice(b"<Metadata />");
        return;
    }
    out.put_slice(b"<Metadata>");
    for (name, value) in queue.metadata.iter() {
        if is_identifier(name) {
            put_element(out, name, value);
        } else {
            // A version before 2009-09-19 accepted a name that is not valid in XML.
            put_element(out, "x-ms-invalid-name", name);
        }
    }
    out.put_slice(b"</Metadata>");
}

/// `maxresults` as it was sent, and the resulting number of queues.
fn max_results(query: &Query<'_>) -> Result<(Option<Box<str>>, u32), Error> {
    const NAME: &str = "maxresults";
    let Some(text) = query.value(NAME) else {
        return Ok((None, PAGE_QUEUE_COUNT_MAX));
    };
    if !is_integer(&text) {
        return Err(Error::invalid_query(NAME, text, REASON_INTEGER));
    }
    let is_positive = !text.starts_with('-') && text.bytes().any(|digit| digit != b'0');
    if !is_positive {
        return Err(Error::OutOfRangeQueryParameterValue {
            name: NAME,
            value: text.into(),
            minimum: 1,
            maximum: PAGE_QUEUE_COUNT_MAX.into(),
        });
    }
    // A number that does not fit is above the maximum too.
    let limit = text
        .parse()
        .unwrap_or(PAGE_QUEUE_COUNT_MAX)
        .min(PAGE_QUEUE_COUNT_MAX);
    Ok((Some(text.into()), limit))
}

/// The queue in a marker: `/account/queue`, or the name alone. It need not exist.
fn queue_of_marker<'a>(marker: &'a str, account: &str) -> Result<&'a str, Error> {
    let queue = match marker.strip_prefix('/') {
        None => marker,
        Some(rest) => match rest.split_once('/') {
            Some((owner, queue)) if owner == account => queue,
            Some(_) | None => return Err(Error::InvalidMarker),
        },
    };
    check_queue_name(queue).map_err(|_| Error::InvalidMarker)?;
    Ok(queue)
}

/// `include`, which had no meaning before 2009-09-19.
fn includes_metadata(query: &Query<'_>, version: Version) -> Result<bool, Error> {
    if version < Version::V2009_09_19 {
        return Ok(false);
    }
    let Some(text) = query.value("include") else {
        return Ok(false);
    };
    let mut parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let mut found = false;
    if parts.all(|part| {
        found = true;
        part.eq_ignore_ascii_case("metadata")
    }) {
        Ok(found)
    } else {
        Err(Error::invalid_query(
            "include",
            text,
            "Only metadata can be included.",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: &str = "devstoreaccount1";

    fn listing(query: &str, version: Version) -> Result<Listing, Error> {
        Listing::parse(&Query::parse(Some(query)).unwrap(), ACCOUNT, version)
    }

    fn code(query: &str) -> &'static str {
        match listing(query, Version::NEWEST) {
            Ok(_) => "ok",
            Err(error) => error.wire().code,
        }
    }

    fn shown(query: &str, version: Version, queues: &[&str], next: Option<&str>) -> String {
        let page = QueuePage {
            queues: queues
                .iter()
                .map(|name| ListedQueue {
                    name: (*name).into(),
                    metadata: [("k", "v<"), ("a-b", "w")].into_iter().collect(),
                })
                .collect(),
            next: next.map(Into::into),
        };
        let listing = listing(query, version).unwrap();
        let out = listing.document(&page, "http://h/devstoreaccount1/", ACCOUNT, version);
        let text = String::from_utf8(out.to_vec()).unwrap();
        text.strip_prefix("<?xml version=\"1.0\" encoding=\"utf-8\"?>")
            .unwrap()
            .to_owned()
    }

    #[test]
    fn the_request_is_repeated() {
        assert_eq!(
            shown(
                "comp=list&prefix=&marker=/devstoreaccount1/abc&maxresults=9&include=metadata",
                Version::NEWEST,
                &["abc"],
                Some("abd"),
            ),
            "<EnumerationResults ServiceEndpoint=\"http://h/devstoreaccount1/\"><Prefix />\
             <Marker>/devstoreaccount1/abc</Marker><MaxResults>9</MaxResults><Queues><Queue>\
             <Name>abc</Name><Metadata><k>v&lt;</k><x-ms-invalid-name>a-b</x-ms-invalid-name>\
             </Metadata></Queue></Queues><NextMarker>/devstoreaccount1/abd</NextMarker>\
             </EnumerationResults>"
        );
        assert_eq!(
            shown("comp=list", Version::NEWEST, &[], None),
            "<EnumerationResults ServiceEndpoint=\"http://h/devstoreaccount1/\"><Queues />\
             <NextMarker /></EnumerationResults>"
        );
    }

    #[test]
    fn a_page_ends_before_it_is_too_long() {
        let value = "v".repeat(8 * 1024);
        let page = QueuePage {
            queues: (0..1000)
                .map(|number| ListedQueue {
                    name: format!("queue-{number}").into(),
                    metadata: [("k", value.as_str())].into_iter().collect(),
                })
                .collect(),
            next: None,
        };
        let listing = |query| listing(query, Version::NEWEST).unwrap();
        let shown = |listing: Listing| {
            let out = listing.document(&page, "http://h/", ACCOUNT, Version::NEWEST);
            String::from_utf8(out.to_vec()).unwrap()
        };
        let long = shown(listing("comp=list&include=metadata"));
        assert!(long.len() < PAGE_SIZE_BYTES + 10_000, "{}", long.len());
        let count = long.matches("<Queue>").count();
        let next = format!("<NextMarker>/{ACCOUNT}/queue-{count}</NextMarker>");
        assert!(long.contains(&next));
        // Without the metadata there is room for all.
        let short = shown(listing("comp=list"));
        assert_eq!(short.matches("<Queue>").count(), 1000);
        assert!(short.ends_with("<NextMarker /></EnumerationResults>"));
    }

    #[test]
    fn old_forms() {
        assert_eq!(
            shown("comp=list", Version::V2011_08_18, &["abc"], None),
            "<EnumerationResults AccountName=\"http://h/devstoreaccount1/\"><Queues><Queue>\
             <Name>abc</Name><Url>http://h/devstoreaccount1/abc</Url></Queue></Queues>\
             <NextMarker /></EnumerationResults>"
        );
        let oldest = shown(
            "comp=list&include=metadata",
            Version::OLDEST,
            &["abc"],
            None,
        );
        assert!(oldest.contains("<QueueName>abc</QueueName>"), "{oldest}");
        assert!(!oldest.contains("<Metadata>"), "{oldest}");
    }

    #[test]
    fn bounds() {
        let limit = |text: &str| {
            let query = format!("maxresults={text}");
            listing(&query, Version::NEWEST).map(|listing| listing.limit)
        };
        assert_eq!(limit("1").unwrap(), 1);
        assert_eq!(limit("5000").unwrap(), 5000);
        assert_eq!(limit("6000").unwrap(), 5000);
        assert_eq!(limit("99999999999").unwrap(), 5000);
        for text in ["0", "-1", "-99999999999"] {
            let query = format!("maxresults={text}");
            assert_eq!(code(&query), "OutOfRangeQueryParameterValue");
        }
        assert_eq!(code("maxresults=x"), "InvalidQueryParameterValue");
        assert_eq!(code("maxresults="), "InvalidQueryParameterValue");
    }

    #[test]
    fn markers() {
        for marker in ["", "abc", "/devstoreaccount1/abc"] {
            assert_eq!(code(&format!("marker={marker}")), "ok", "{marker}");
        }
        for marker in ["/abc", "/other/abc", "/devstoreaccount1/", "ABC", "a", "!"] {
            assert_eq!(
                code(&format!("marker={marker}")),
                "InvalidMarker",
                "{marker}"
            );
        }
    }

    #[test]
    fn inclusions() {
        for (query, expected) in [
            ("include=metadata", "ok"),
            ("include=Metadata,", "ok"),
            ("include=", "ok"),
            ("include=metadata,acl", "InvalidQueryParameterValue"),
        ] {
            assert_eq!(code(query), expected, "{query}");
        }
    }
}
