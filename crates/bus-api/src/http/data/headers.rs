//! Which headers of a request are properties of its message.

/// The header with the service's own properties.
pub(super) const PROPERTIES_HEADER: &str = "brokerproperties";

/// Headers of requests that are not properties of the message, besides those of [`is_custom`].
const NOT_CUSTOM: [&str; 37] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "connection",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "from",
    "host",
    "keep-alive",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "servicebusauthorization",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Whether a header, in lower case, is a property of the message: not if HTTP, the service, a proxy
/// or a browser gives it a meaning of its own.
pub fn is_custom(header: &str) -> bool {
    let is_prefixed = [
        "if-",
        "sec-",
        "x-forwarded-",
        "x-ms-",
        "access-control-",
        "www-",
    ];
    header != PROPERTIES_HEADER
        && header != "via"
        && !NOT_CUSTOM.contains(&header)
        && !is_prefixed.iter().any(|prefix| header.starts_with(prefix))
}
