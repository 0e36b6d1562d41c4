//! The paths of the administration socket: one table for both kinds of principals, for the server and for
//! its clients.

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A verb without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerbName {
    List,
    Add,
    Show,
    Keys,
    Rotate,
    Set,
    Remove,
}

/// The verbs, their methods, and the part of the path after the name of a principal, or `None` if the path ends
/// before a name. Clients use the first row of a verb; `regenerate` is an older name.
const ROUTES: [(VerbName, Method, Option<&str>); 8] = [
    (VerbName::List, Method::GET, None),
    (VerbName::Add, Method::POST, None),
    (VerbName::Show, Method::GET, Some("")),
    (VerbName::Set, Method::PATCH, Some("")),
    (VerbName::Remove, Method::DELETE, Some("")),
    (VerbName::Keys, Method::GET, Some("/keys")),
    (VerbName::Rotate, Method::POST, Some("/rotate")),
    (VerbName::Rotate, Method::POST, Some("/regenerate")),
];

/// Why a request has no verb.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// There is no such path.
    Path,
    /// The path accepts only these methods.
    Method(String),
}

/// The verb of a request and the name in it, empty if the request is about all principals. `below` is the part
/// of the path after that of a kind.
pub(super) fn find(method: &Method, below: &str) -> Result<(VerbName, String), NoRoute> {
    let (name, after) = match below.strip_prefix('/') {
        Some(named) => {
            let (name, after) = named.split_at(named.find('/').unwrap_or(named.len()));
            (name, Some(after))
        }
        None if below.is_empty() => ("", None),
        None => return Err(NoRoute::Path),
    };
    let here = ROUTES.iter().filter(|(.., path)| *path == after);
    let mut methods = Vec::new();
    for (verb, takes, _) in here {
        if takes == method {
            return Ok((*verb, decoded(name)));
        }
        methods.push(takes.as_str());
    }
    if methods.is_empty() {
        return Err(NoRoute::Path);
    }
    methods.sort_unstable();
    Err(NoRoute::Method(methods.join(", ")))
}

/// The method of a request, and the part of its path after that of a kind.
pub(super) fn request_of(verb: VerbName, name: &str) -> (Method, String) {
    let mut routes = ROUTES.into_iter();
    let (_, method, after) = routes
        .find(|(routed, ..)| *routed == verb)
        .expect("the table has every verb");
    let below = after.map(|after| format!("/{}{after}", encoded(name)));
    (method, below.unwrap_or_default())
}

/// A name, encoded for a path or a query.
pub(super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

pub(super) fn decoded(name: &str) -> String {
    percent_decode_str(name).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [VerbName; 7] = [
        VerbName::List,
        VerbName::Add,
        VerbName::Show,
        VerbName::Keys,
        VerbName::Rotate,
        VerbName::Set,
        VerbName::Remove,
    ];

    #[test]
    fn the_server_reads_the_requests_of_the_client() {
        for name in ["orders", "a b", "..", "x/keys", "%2e", "ü", "keys"] {
            for verb in ALL {
                let is_of_all = matches!(verb, VerbName::List | VerbName::Add);
                let (method, below) = request_of(verb, name);
                let name = if is_of_all { "" } else { name };
                assert_eq!(
                    find(&method, &below),
                    Ok((verb, name.to_owned())),
                    "{below}"
                );
            }
        }
    }

    #[test]
    fn older_paths_are_read_and_others_are_not() {
        let regenerated = find(&Method::POST, "/r/regenerate");
        assert_eq!(regenerated, Ok((VerbName::Rotate, "r".into())));
        for below in ["x", "/r/keys/more", "/r/other", "/r/"] {
            assert_eq!(find(&Method::GET, below), Err(NoRoute::Path), "{below}");
        }
        for (below, allowed) in [
            ("", "GET, POST"),
            ("/r", "DELETE, GET, PATCH"),
            ("/r/keys", "GET"),
            ("/r/rotate", "POST"),
        ] {
            let refused = find(&Method::PUT, below);
            assert_eq!(refused, Err(NoRoute::Method(allowed.into())), "{below}");
        }
    }
}
