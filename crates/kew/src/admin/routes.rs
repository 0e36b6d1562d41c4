//! The paths of the administration socket: one table for both kinds of principals, for the server and for
//! its clients.

use hyper::Method;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A verb without what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VerbName {
    List,
    Add,
    Show,
    Keys,
    Rotate,
    Set,
    Remove,
}

/// What stands for the name of a principal in a path.
const NAME: &str = "NAME";

/// What follows the path of a kind. Clients use the first row of a verb; `regenerate` is an older name.
const ROUTES: [(VerbName, Method, &str); 8] = [
    (VerbName::List, Method::GET, ""),
    (VerbName::Add, Method::POST, ""),
    (VerbName::Show, Method::GET, "/NAME"),
    (VerbName::Set, Method::PATCH, "/NAME"),
    (VerbName::Remove, Method::DELETE, "/NAME"),
    (VerbName::Keys, Method::GET, "/NAME/keys"),
    (VerbName::Rotate, Method::POST, "/NAME/rotate"),
    (VerbName::Rotate, Method::POST, "/NAME/regenerate"),
];

/// Why a request has no verb.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoRoute {
    /// There is no such path.
    Path,
    /// The path takes these methods only.
    Method(String),
}

/// The verb of a request, and the name that it is about (empty if it is about all). `below` is what follows
/// the path of a kind.
pub(super) fn find(method: &Method, below: &str) -> Result<(VerbName, String), NoRoute> {
    let here = ROUTES.iter().filter_map(|(verb, takes, path)| {
        let name = name_in(below, path)?;
        Some((verb, takes, name))
    });
    let here: Vec<_> = here.collect();
    if let Some((verb, _, name)) = here.iter().find(|(_, takes, _)| *takes == method) {
        let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
        return Ok((**verb, name));
    }
    if here.is_empty() {
        return Err(NoRoute::Path);
    }
    let mut methods: Vec<_> = here.iter().map(|(_, takes, _)| takes.as_str()).collect();
    methods.sort_unstable();
    Err(NoRoute::Method(methods.join(", ")))
}

/// The name in a path, if the path is of this form.
fn name_in<'a>(below: &'a str, path: &str) -> Option<&'a str> {
    let (mut found, mut wanted) = (below.split('/'), path.split('/'));
    let mut name = "";
    loop {
        match (found.next(), wanted.next()) {
            (None, None) => return Some(name),
            (Some(found), Some(NAME)) => name = found,
            (Some(found), Some(wanted)) if found == wanted => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return None,
        }
    }
}

/// The method of a request, and what follows the path of a kind.
pub(super) fn request_of(verb: VerbName, name: Option<&str>) -> (Method, String) {
    let mut routes = ROUTES.into_iter();
    let (_, method, path) = routes
        .find(|(routed, ..)| *routed == verb)
        .expect("the table has every verb");
    let name = name.map_or_else(String::new, encoded);
    (method, path.replace(NAME, &name))
}

/// A name as it stands in a path or a query.
pub(super) fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
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
    fn what_a_client_asks_is_what_the_server_reads() {
        for name in ["orders", "a b", "..", "x/keys", "%2e", "ü", "keys"] {
            for verb in ALL {
                let is_of_all = matches!(verb, VerbName::List | VerbName::Add);
                let (method, below) = request_of(verb, Some(name));
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
