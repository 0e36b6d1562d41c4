//! The documents in requests: access policies, properties of the service, and requests for user
//! delegation keys. Their senders are authenticated.

use std::panic::AssertUnwindSafe;

use kew_fuzz::mutate::{Input, changes};

use crate::door::{Outcomes, SIGNED_MEMORY_MAX_BYTES, Served, Signed, check_answered, request};
use crate::tokens::Bearer;
use crate::{INPUT_SIZE_MAX, INPUTS};

/// The largest document to send.
const DOCUMENT_SIZE_BYTES_MAX: usize = 64 << 10;

const POLICIES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers><SignedIdentifier>\
    <Id>YWJj</Id><AccessPolicy><Start>2026-11-20</Start><Expiry>2027-11-20T10:30:01.1234567Z</Expiry>\
    <Permission>raup</Permission></AccessPolicy></SignedIdentifier><SignedIdentifier><Id>b&amp;c</Id>\
    </SignedIdentifier></SignedIdentifiers>";

/// Before 2013-08-15, and since.
const PROPERTIES: [(&str, &str); 2] = [
    (
        "2011-08-18",
        "<StorageServiceProperties><Logging><Version>1.0</Version><Delete>true</Delete>\
         <Read>false</Read><Write>true</Write><RetentionPolicy><Enabled>true</Enabled><Days>7</Days>\
         </RetentionPolicy></Logging><Metrics><Version>1.0</Version><Enabled>true</Enabled>\
         <IncludeAPIs>false</IncludeAPIs><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>\
         </Metrics></StorageServiceProperties>",
    ),
    (
        "2021-12-02",
        "<?xml version=\"1.0\"?><StorageServiceProperties><Logging><Version>1.0</Version>\
         <Delete>true</Delete><Read>false</Read><Write>true</Write><RetentionPolicy>\
         <Enabled>false</Enabled></RetentionPolicy></Logging><HourMetrics><Version>1.0</Version>\
         <Enabled>false</Enabled><RetentionPolicy><Enabled>true</Enabled><Days>365</Days>\
         </RetentionPolicy></HourMetrics><MinuteMetrics><Version>1.0</Version><Enabled>true</Enabled>\
         <IncludeAPIs>true</IncludeAPIs><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>\
         </MinuteMetrics><Cors><CorsRule><AllowedMethods>GET,PUT</AllowedMethods>\
         <AllowedOrigins>http://a.example,*</AllowedOrigins><AllowedHeaders>x-ms-*,date</AllowedHeaders>\
         <ExposedHeaders>*</ExposedHeaders><MaxAgeInSeconds>60</MaxAgeInSeconds></CorsRule></Cors>\
         </StorageServiceProperties>",
    ),
];

const KEY_INFO: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><KeyInfo>\
    <Start>2027-01-15T00:00:00Z</Start><Expiry>2027-01-20T00:00:00Z</Expiry>\
    <DelegatedUserTid>0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f</DelegatedUserTid></KeyInfo>";

/// Texts to put in place of others.
const ATOMS: [&str; 34] = [
    "",
    " \r\n\t",
    "true",
    "FALSE",
    "0",
    "1",
    "366",
    "-1",
    "4294967296",
    "2147483648",
    "1.0",
    "raup",
    "rr",
    "*",
    "a*,b*,c*",
    ",,,",
    "2027-01-16",
    "2027-02-29T00:00Z",
    "9999-12-31T23:59:59.9999999Z",
    "2027-01-15T24:00:00Z",
    "0000-01-01",
    "&lt;&#x10FFFF;&#9;",
    "&#0;",
    "&#xD800;",
    "&unknown;",
    "&",
    "<![CDATA[]]]]>",
    "<!--",
    "<?x y?>",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "<a b='c' b='d'>",
    "<Id/>",
    "</SignedIdentifier>",
    "\u{FEFF}\u{10FFFF}",
];

/// A document with its tags and texts rearranged: in another order, repeated, missing, replaced.
pub(crate) fn rearranged(document: &str, input: &mut Input<'_>) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = document
        .split_inclusive('>')
        .flat_map(|part| {
            let (text, tag) = part.split_at(part.find('<').unwrap_or(part.len()));
            [text.as_bytes(), tag.as_bytes()]
        })
        .filter(|part| !part.is_empty())
        .collect();
    for _ in 0..input.byte() % 6 {
        let kind = input.byte() % 8;
        let at = input.below(parts.len() + 1);
        let until = (at + 1 + input.below(12)).min(parts.len());
        let atom = ATOMS[usize::from(input.byte()) % ATOMS.len()].as_bytes();
        match kind {
            0 if at < until => drop(parts.drain(at..until)),
            1 if at < until => {
                let copied = parts[at..until].to_vec();
                let to = input.below(parts.len() + 1);
                parts.splice(to..to, copied);
            }
            2 if at < until => {
                let copied = parts[at..until].repeat(1 + input.below(500));
                parts.splice(at..at, copied);
            }
            3 if at < until => parts[at] = atom,
            4 if at < until => parts[at] = input.piece(),
            5 if at < until => parts.swap(at, until - 1),
            6 => parts.insert(at, input.piece()),
            _ => parts.insert(at, atom),
        }
        let mut size = 0;
        parts.retain(|part| {
            size += part.len();
            size <= DOCUMENT_SIZE_BYTES_MAX
        });
    }
    parts.concat()
}

/// A changed valid document.
fn changed(document: &str, input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.byte() % 8;
    if kind == 1 {
        return input.rest().to_vec();
    }
    let mut bytes = rearranged(document, input);
    if kind >= 6 {
        changes(&mut bytes, input);
    }
    bytes
}

/// Sets something, and shows it if it was accepted: everything accepted can be shown.
fn set_and_show(served: &Served, set: &Signed, show: &Signed) -> u16 {
    let bytes = set.to_bytes();
    let (status, _) = check_answered(served, &bytes, SIGNED_MEMORY_MAX_BYTES);
    assert!(!matches!(status, 401 | 403), "it is signed");
    if status < 300 {
        let (shown, _) = check_answered(served, &show.to_bytes(), SIGNED_MEMORY_MAX_BYTES);
        assert_eq!(shown, 200, "{:?}", String::from_utf8_lossy(&bytes));
    }
    status
}

/// Set Queue ACL.
#[test]
fn access_policies() {
    let served = AssertUnwindSafe((Served::new(), Outcomes::default()));
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let (served, outcomes) = &*served;
            let [mut set, mut show] = ["PUT", "GET"].map(|verb| Signed::new(verb, "/orders"));
            for request in [&mut set, &mut show] {
                request.query = "comp=acl".into();
            }
            set.body = changed(POLICIES, &mut Input::new(bytes));
            outcomes.count(set_and_show(served, &set, &show));
        });
}

/// Set Queue Service Properties, in its old form and its new one.
#[test]
fn service_properties() {
    let served = AssertUnwindSafe((Served::new(), Outcomes::default()));
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let (served, outcomes) = &*served;
            let mut input = Input::new(bytes);
            let (version, document) = PROPERTIES[usize::from(input.byte()) % PROPERTIES.len()];
            let [mut set, mut show] = ["PUT", "GET"].map(|verb| Signed::new(verb, "/"));
            for request in [&mut set, &mut show] {
                request.query = "restype=service&comp=properties".into();
                request.headers[1].1 = version.into();
            }
            set.body = changed(document, &mut input);
            outcomes.count(set_and_show(served, &set, &show));
        });
}

/// Get User Delegation Key, by a user with a token.
#[test]
fn key_info() {
    let bearer = Bearer::new();
    let served = AssertUnwindSafe((Served::trusting(Some(bearer.issuer())), Outcomes::default()));
    let token = format!("Bearer {}", bearer.token());
    bolero::check!()
        .with_iterations(INPUTS / 10)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            let (served, outcomes) = &*served;
            let body = changed(KEY_INFO, &mut Input::new(bytes));
            let sent = key_request(&token, &body);
            let (status, answer) = check_answered(served, &sent, SIGNED_MEMORY_MAX_BYTES);
            assert!(!matches!(status, 401 | 403), "the token is good");
            let has_key = String::from_utf8_lossy(&answer).contains("</Value>");
            assert_eq!(has_key, status == 200);
            outcomes.count(status);
        });
}

/// A request of Get User Delegation Key.
pub(crate) fn key_request(authorization: &str, body: &[u8]) -> Vec<u8> {
    let headers: [(&str, &[u8]); 2] = [
        ("x-ms-version", b"2025-07-05"),
        ("Authorization", authorization.as_bytes()),
    ];
    let target = b"/devstoreaccount1/?restype=service&comp=userdelegationkey";
    request("POST", target, &headers, body)
}
