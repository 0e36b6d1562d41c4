//! The queues that a queue forwards to: names here, absolute addresses at the service.

use percent_encoding::{percent_decode_str, utf8_percent_encode};

use crate::sign::ENCODED;

/// The path of an entity, whose name may have slashes.
pub(super) fn path(name: &str) -> String {
    let segments = name.trim_matches('/').split('/');
    let segments: Vec<String> = segments
        .map(|segment| utf8_percent_encode(segment, ENCODED).to_string())
        .collect();
    segments.join("/")
}

/// A name, or an address as it is, as an address.
pub(super) fn address(target: &str, host: &str) -> String {
    match target.contains("://") {
        true => target.to_owned(),
        false => format!("sb://{host}/{}", path(target)),
    }
}

/// The name of a queue of this namespace, or the address of another one.
pub(super) fn shown(address: &str, host: &str) -> String {
    let own_path = address.split_once("://").and_then(|(_, rest)| {
        let (authority, path) = rest.split_once('/')?;
        let is_own = host_of(authority).eq_ignore_ascii_case(host);
        is_own.then_some(path)
    });
    match own_path {
        Some(path) => {
            let path = percent_decode_str(path).decode_utf8_lossy();
            path.trim_matches('/').to_owned()
        }
        None => address.to_owned(),
    }
}

fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_addresses_at_the_service() {
        for (name, written) in [
            ("jobs", "sb://h.net/jobs"),
            ("/a/b c", "sb://h.net/a/b%20c"),
            ("sb://other/jobs", "sb://other/jobs"),
        ] {
            assert_eq!(address(name, "h.net"), written);
        }
        for (written, name) in [
            ("https://H.net:443/a/b%20c/", "a/b c"),
            ("sb://h.net/jobs", "jobs"),
            ("sb://other/jobs", "sb://other/jobs"),
            ("jobs", "jobs"),
        ] {
            assert_eq!(shown(written, "h.net"), name);
        }
        assert_eq!(shown("sb://[::1]:5300/q", "[::1]"), "q");
        assert_eq!(shown("sb://[::1]/q", "[::1]"), "q");
    }
}
