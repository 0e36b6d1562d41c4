//! Entries and feeds, and the links in them.
//!
//! JavaScript takes an entity's name from the path of its `id`, .NET and Python from its `title`. JavaScript finds the name
//! of a subscription behind `/Subscriptions/`, in this spelling.

use std::borrow::Cow;

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::StatusCode;
use kew_engine::Timestamp;
use kew_engine::bus::BusQueueView;
use kew_xml::{put_attribute, put_element};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::described::Described;
use crate::ground::constants::NAMESPACE;
use crate::http::answers::times::rfc3339_seconds;
use crate::http::answers::{Answer, with_body};
use crate::http::call::Call;

/// The namespaces for the content of an entry, as attributes.
pub(super) const CONTENT_NAMESPACES: &[u8] =
    b" xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
      xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"";

const ATOM_NAMESPACE: &[u8] = b" xmlns=\"http://www.w3.org/2005/Atom\"";
const ENTRY_TYPE: &str = "application/atom+xml;type=entry;charset=utf-8";
const FEED_TYPE: &str = "application/atom+xml;type=feed;charset=utf-8";

/// The version in links if the request named none: the oldest that SDKs use.
const API_VERSION_DEFAULT: &str = "2017-04";

/// Characters that are not escaped in a path.
const PATH: &AsciiSet = &QUERY.remove(b'/').remove(b'$');
/// Characters that are not escaped in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The metadata of an entry.
pub(super) struct Entry<'a> {
    /// The name with the spelling of its creation.
    pub(super) title: &'a str,
    pub(super) path: Cow<'a, str>,
    pub(super) published_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

impl<'a> Entry<'a> {
    /// The entry of an entity.
    pub(super) fn of(view: &BusQueueView, entity: &'a Described<'_>) -> Self {
        Self {
            title: entity.title(),
            path: entity.path(),
            published_at: view.created_at,
            updated_at: view.updated_at,
        }
    }
}

impl Entry<'_> {
    /// An answer with only this entry.
    pub(super) fn answer(
        &self,
        call: &Call,
        status: StatusCode,
        content: impl FnOnce(&mut BytesMut),
    ) -> Answer {
        let mut out = BytesMut::new();
        self.write(&mut out, call, ATOM_NAMESPACE, content);
        with_body(status, ENTRY_TYPE, out)
    }

    fn write(
        &self,
        out: &mut BytesMut,
        call: &Call,
        namespace: &[u8],
        content: impl FnOnce(&mut BytesMut),
    ) {
        let url = url_of(call, &self.path, "");
        open(out, "entry", namespace);
        put_element(out, "id", &url);
        put_title(out, self.title);
        put_element(out, "published", &rfc3339_seconds(self.published_at));
        put_element(out, "updated", &rfc3339_seconds(self.updated_at));
        open(out, "author", b"");
        put_element(out, "name", NAMESPACE);
        close(out, "author");
        put_link(out, "self", &url);
        open(out, "content", b" type=\"application/xml\"");
        content(out);
        close(out, "content");
        close(out, "entry");
    }
}

/// A list that is being written.
pub(super) struct Feed {
    out: BytesMut,
}

impl Feed {
    /// Begins a list; `next` has the numbers to skip and to show at most on the next page.
    ///
    /// If another page follows there are two links, else one: JavaScript and Python rely on their
    /// number.
    pub(super) fn begin(
        call: &Call,
        title: &str,
        skip: u32,
        top: u32,
        next: Option<(u32, u32)>,
        now: Timestamp,
    ) -> Self {
        let page = |skip, top| {
            let query = format!("%24skip={skip}&%24top={top}&");
            url_of(call, &call.head.path, &query)
        };
        let mut out = BytesMut::new();
        open(&mut out, "feed", ATOM_NAMESPACE);
        put_title(&mut out, title);
        put_element(&mut out, "id", &page(skip, top));
        put_element(&mut out, "updated", &rfc3339_seconds(now));
        put_link(&mut out, "self", &page(skip, top));
        if let Some((skip, top)) = next {
            put_link(&mut out, "next", &page(skip, top));
        }
        Self { out }
    }

    pub(super) fn entry(
        &mut self,
        call: &Call,
        entry: &Entry<'_>,
        content: impl FnOnce(&mut BytesMut),
    ) {
        entry.write(&mut self.out, call, b"", content);
    }

    pub(super) fn answer(mut self) -> Answer {
        close(&mut self.out, "feed");
        with_body(StatusCode::OK, FEED_TYPE, Bytes::from(self.out))
    }
}

/// The address of a path, as the client reaches it. `query` comes before its version, with `&`.
fn url_of(call: &Call, path: &str, query: &str) -> String {
    let path = utf8_percent_encode(path, PATH);
    let version = call.head.parameter("api-version");
    let version = version.filter(|version| !version.is_empty());
    let version = utf8_percent_encode(version.unwrap_or(API_VERSION_DEFAULT), QUERY);
    let base = call.head.base_url();
    format!("{base}/{path}?{query}api-version={version}")
}

/// Writes a start tag; the attributes begin with a space.
pub(super) fn open(out: &mut BytesMut, name: &str, attributes: &[u8]) {
    out.put_u8(b'<');
    out.put_slice(name.as_bytes());
    out.put_slice(attributes);
    out.put_u8(b'>');
}

/// Writes an end tag.
pub(super) fn close(out: &mut BytesMut, name: &str) {
    out.put_slice(b"</");
    out.put_slice(name.as_bytes());
    out.put_u8(b'>');
}

fn put_title(out: &mut BytesMut, title: &str) {
    open(out, "title", b" type=\"text\"");
    kew_xml::put_text(out, title.as_bytes());
    close(out, "title");
}

fn put_link(out: &mut BytesMut, relation: &str, url: &str) {
    out.put_slice(b"<link rel=\"");
    out.put_slice(relation.as_bytes());
    out.put_slice(b"\" href=\"");
    put_attribute(out, url);
    out.put_slice(b"\" />");
}
