//! The parts of a request's URI.
//!
//! Two styles: the account is the first label of the host (`account.queue.example:10001/queue`) or
//! the first segment of the path (`localhost:10001/account/queue`). If the first label of the host
//! is an account of this server, the first style applies, and otherwise the second. So service
//! names with dots, bare addresses and `localhost` work without configuration.
//!
//! The host is not signed, and the string to sign of `/account/queue` is the same in both styles.
//! If both were accepted, an attacker who changes the host of a signed request could turn the
//! deletion of a queue `messages` into the clearing of a queue with the name of its account. So in
//! the host style a path that begins with the account's name, or its secondary's, is refused: a
//! queue of that name can be reached in the path style only.
//!
//! Nothing here checks names or whether resources exist: that comes after authentication.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use percent_encoding::percent_decode_str;

use crate::accounts::Accounts;
use crate::error::Error;

/// The end of the account's name in an address of its read-only secondary.
const SECONDARY_SUFFIX: &str = "-secondary";

/// The longest and shortest names of a queue.
const QUEUE_NAME_LENGTHS: std::ops::RangeInclusive<usize> = 3..=63;

/// A parsed URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address<'a> {
    /// The account, without the suffix of the secondary.
    pub(crate) account: &'a str,
    /// Whether the account's secondary is addressed.
    pub(crate) secondary: bool,
    /// Whether the account is in the path.
    pub(crate) style: Style,
    /// Which resource of the account is addressed.
    pub(crate) resource: Resource<'a>,
}

/// Where an address has its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Host,
    Path,
}

/// A resource of an account. Names are decoded and not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
    /// The account's queue service itself.
    Service,
    /// A queue.
    Queue(Cow<'a, str>),
    /// The messages of a queue.
    Messages(Cow<'a, str>),
    /// One message of a queue.
    Message(Cow<'a, str>, Cow<'a, str>),
}

impl<'a> Address<'a> {
    /// Reads the path as it was sent, and the host with or without its port.
    ///
    /// Refuses other paths with `InvalidUri`. Empty segments are refused too: a lost message id in
    /// `DELETE /queue/messages/` must not clear the queue.
    pub(crate) fn parse(path: &'a str, host: &str, accounts: &'a Accounts) -> Result<Self, Error> {
        let path = path.strip_prefix('/').ok_or(Error::InvalidUri)?;
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        if let Some((account, secondary)) = account_of_host(host, accounts) {
            if split_secondary(first).0 == account {
                return Err(Error::InvalidUri);
            }
            return Ok(Self {
                account,
                secondary,
                style: Style::Host,
                resource: Resource::parse(path)?,
            });
        }
        let (account, secondary) = split_secondary(first);
        if account.is_empty() {
            return Err(Error::InvalidUri);
        }
        Ok(Self {
            account,
            secondary,
            style: Style::Path,
            resource: Resource::parse(rest)?,
        })
    }
}

impl<'a> Resource<'a> {
    /// `path` is the part after the account and its slash.
    fn parse(path: &'a str) -> Result<Self, Error> {
        if path.is_empty() {
            return Ok(Self::Service);
        }
        let mut segments = path.split('/');
        let queue = segments.next().unwrap_or_default();
        let messages = segments.next();
        let message = segments.next();
        if segments.next().is_some()
            || [Some(queue), messages, message].contains(&Some(""))
            || !messages.is_none_or(|segment| segment.eq_ignore_ascii_case("messages"))
        {
            return Err(Error::InvalidUri);
        }
        let decode = |segment| percent_decode_str(segment).decode_utf8_lossy();
        Ok(match (messages, message) {
            (None, _) => Self::Queue(decode(queue)),
            (Some(_), None) => Self::Messages(decode(queue)),
            (Some(_), Some(message)) => Self::Message(decode(queue), decode(message)),
        })
    }

    /// The addressed queue, or the queue that holds the addressed resource.
    pub(crate) fn queue(&self) -> Option<&str> {
        match self {
            Self::Service => None,
            Self::Queue(queue) | Self::Messages(queue) | Self::Message(queue, _) => Some(queue),
        }
    }
}

/// The account that the first label of a host names, in any case, and whether it is its secondary.
fn account_of_host<'a>(host: &str, accounts: &'a Accounts) -> Option<(&'a str, bool)> {
    let (label, _) = host.split_once('.')?;
    let label = label.to_ascii_lowercase();
    let (name, secondary) = split_secondary(&label);
    let account = accounts.find(name)?;
    // An account may be called `127`.
    (!is_address(host)).then_some((account.name(), secondary))
}

fn is_address(host: &str) -> bool {
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    host.parse::<Ipv4Addr>().is_ok()
}

fn split_secondary(account: &str) -> (&str, bool) {
    match account.strip_suffix(SECONDARY_SUFFIX) {
        Some(primary) => (primary, true),
        None => (account, false),
    }
}

/// Checks a queue's name: 3 to 63 of `a`–`z`, `0`–`9` and `-`, with a letter or digit at both ends
/// and no two hyphens in a row.
///
/// Refuses with `InvalidResourceName` for characters and `OutOfRangeInput` for length.
///
/// Source: *Naming Queues and Metadata*.
pub(crate) fn check_queue_name(name: &str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !name.bytes().all(allowed)
        || name.starts_with('-')
        || name.ends_with('-')
        || name.contains("--")
    {
        return Err(Error::InvalidResourceName);
    }
    if !QUEUE_NAME_LENGTHS.contains(&name.len()) {
        return Err(Error::OutOfRangeInput);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ACCOUNT: &str = "devstoreaccount1";

    fn check(host: &str, path: &str, expected: (&str, bool, Style, Resource<'_>)) {
        let accounts = Accounts::well_known();
        let address = Address::parse(path, host, &accounts).unwrap();
        let (account, secondary, style, resource) = expected;
        let expected = Address {
            account,
            secondary,
            style,
            resource,
        };
        assert_eq!(address, expected, "{host} {path}");
    }

    fn check_refused(path: &str) {
        check_refused_by("localhost", path);
    }

    fn check_refused_by(host: &str, path: &str) {
        let accounts = Accounts::well_known();
        let refused = Address::parse(path, host, &accounts);
        assert!(matches!(refused, Err(Error::InvalidUri)), "{host} {path}");
    }

    #[test]
    fn path_style() {
        let queue = || Resource::Queue("q".into());
        for host in ["127.0.0.1:10001", "localhost", "kew.default.svc:10001", ""] {
            check(
                host,
                "/devstoreaccount1/q",
                (ACCOUNT, false, Style::Path, queue()),
            );
        }
        for root in ["/devstoreaccount1", "/devstoreaccount1/"] {
            check("h", root, (ACCOUNT, false, Style::Path, Resource::Service));
        }
        check(
            "h",
            "/devstoreaccount1-secondary/q",
            (ACCOUNT, true, Style::Path, queue()),
        );
        check("h", "/nobody/q", ("nobody", false, Style::Path, queue()));
    }

    #[test]
    fn host_style() {
        let host = "devstoreaccount1.queue.localhost:10001";
        check(host, "/", (ACCOUNT, false, Style::Host, Resource::Service));
        check(
            host,
            "/q/messages",
            (ACCOUNT, false, Style::Host, Resource::Messages("q".into())),
        );
        check(
            "devstoreaccount1-secondary.queue.localhost",
            "/q/messages/1",
            (
                ACCOUNT,
                true,
                Style::Host,
                Resource::Message("q".into(), "1".into()),
            ),
        );
    }

    #[test]
    fn hosts_have_no_case() {
        check(
            "DevStoreAccount1-Secondary.Queue.localhost",
            "/q",
            (ACCOUNT, true, Style::Host, Resource::Queue("q".into())),
        );
    }

    #[test]
    fn no_path_has_a_meaning_in_each_style() {
        let host = "devstoreaccount1.queue.localhost:10001";
        for path in [
            "/devstoreaccount1",
            "/devstoreaccount1/",
            "/devstoreaccount1/messages",
            "/devstoreaccount1/messages/1",
            "/devstoreaccount1-secondary/messages",
        ] {
            check_refused_by(host, path);
        }
        check(
            "localhost",
            "/devstoreaccount1/devstoreaccount1",
            (ACCOUNT, false, Style::Path, Resource::Queue(ACCOUNT.into())),
        );
    }

    #[test]
    fn a_lost_message_id_names_nothing() {
        for path in [
            "",
            "*",
            "/",
            "//",
            "/account/q/",
            "/account//messages",
            "/account/q/messages/",
            "/account/q/messages/id/",
            "/account/q/messages/id/more",
            "/account/q/other",
        ] {
            check_refused(path);
        }
    }

    #[test]
    fn names_are_decoded_after_the_split() {
        check(
            "h",
            "/devstoreaccount1/a%2Fb",
            (ACCOUNT, false, Style::Path, Resource::Queue("a/b".into())),
        );
    }

    #[test]
    fn queue_names() {
        let longest = "q".repeat(63);
        for name in ["abc", "a-b", "0-0", "123", &longest] {
            assert!(check_queue_name(name).is_ok(), "{name}");
        }
        for name in [
            "", "Abc", "a_b", "-ab", "ab-", "a--b", "$logs", "ä-ä", "a/b", "a.b",
        ] {
            let refused = check_queue_name(name);
            let expected = if name.is_empty() {
                matches!(refused, Err(Error::OutOfRangeInput))
            } else {
                matches!(refused, Err(Error::InvalidResourceName))
            };
            assert!(expected, "{name}: {refused:?}");
        }
        for name in ["ab", &"q".repeat(64)] {
            let refused = check_queue_name(name);
            assert!(matches!(refused, Err(Error::OutOfRangeInput)), "{name}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(path in ".{0,100}", host in ".{0,50}") {
            let _ = Address::parse(&path, &host, &Accounts::well_known());
        }
    }
}
