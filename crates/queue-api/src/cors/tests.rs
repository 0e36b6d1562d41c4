use super::*;

/// A rule's document: methods, origins, allowed headers, exposed headers, age.
fn rule(parts: [&str; 5]) -> String {
    let [methods, origins, allowed, exposed, max_age] = parts;
    format!(
        "<CorsRule><AllowedOrigins>{origins}</AllowedOrigins>\
         <AllowedMethods>{methods}</AllowedMethods><MaxAgeInSeconds>{max_age}</MaxAgeInSeconds>\
         <ExposedHeaders>{exposed}</ExposedHeaders><AllowedHeaders>{allowed}</AllowedHeaders>\
         </CorsRule>"
    )
}

fn read(rules: &[String]) -> Result<Vec<CorsRule>, Error> {
    let document = format!("<Cors>{}</Cors>", rules.concat());
    CorsRule::read_all(&kew_xml::read(document.as_bytes(), "Cors")?)
}

fn code(rules: &[String]) -> &'static str {
    read(rules).map_or_else(|error| error.wire().code, |_| "ok")
}

#[test]
fn rules_are_checked() {
    let good = ["GET", "http://a", "", "", "0"];
    let many = |count: usize, name: &str| vec![name; count].join(",");
    let long = "x".repeat(257);
    for (place, text, expected) in [
        (0, "GET, PUT ,MERGE", "ok"),
        (0, "", "InvalidXmlNodeValue"),
        (0, "get", "InvalidXmlNodeValue"),
        (0, "TRACE", "InvalidXmlNodeValue"),
        (1, "*", "ok"),
        (1, "", "InvalidXmlNodeValue"),
        (1, &many(64, "http://a"), "ok"),
        (1, &many(65, "http://a"), "InvalidXmlNodeValue"),
        (1, &long, "InvalidXmlNodeValue"),
        (1, &long[..256], "ok"),
        (2, "*", "ok"),
        (2, &many(64, "x-a"), "ok"),
        (2, &many(65, "x-a"), "InvalidXmlNodeValue"),
        (2, "x-a*,x-b*", "ok"),
        (2, "x-a*,x-b*,x-c*", "InvalidXmlNodeValue"),
        (2, "x-*-a", "InvalidXmlNodeValue"),
        (2, "x a", "InvalidXmlNodeValue"),
        (3, "x-ms-meta-*", "ok"),
        (3, &long, "InvalidXmlNodeValue"),
        (4, "2147483647", "ok"),
        (4, "2147483648", "InvalidXmlNodeValue"),
        (4, "-1", "InvalidXmlNodeValue"),
        (4, "", "InvalidXmlNodeValue"),
    ] {
        let mut parts = good;
        parts[place] = text;
        assert_eq!(code(&[rule(parts)]), expected, "{text}");
    }
}

#[test]
fn rules_are_few_and_small() {
    let good = || rule(["GET", "*", "", "", "0"]);
    assert_eq!(code(&vec![good(); 5]), "ok");
    assert_eq!(code(&vec![good(); 6]), "InvalidXmlDocument");
    let origins = |size: usize| vec!["o".repeat(255); 8].join(",")[..size].to_owned();
    // Three bytes are the method, one the age.
    assert_eq!(code(&[rule(["GET", &origins(2044), "", "", "0"])]), "ok");
    assert_eq!(
        code(&[rule(["GET", &origins(2045), "", "", "0"])]),
        "InvalidXmlDocument"
    );
}

#[test]
fn every_part_of_a_rule_is_needed() {
    let whole = rule(["GET", "*", "", "", "0"]);
    for name in [
        "AllowedMethods",
        "AllowedOrigins",
        "AllowedHeaders",
        "ExposedHeaders",
        "MaxAgeInSeconds",
    ] {
        let start = whole.find(&format!("<{name}>")).unwrap();
        let end_tag = format!("</{name}>");
        let end = whole.find(&end_tag).unwrap() + end_tag.len();
        let lacking = format!("{}{}", &whole[..start], &whole[end..]);
        assert_eq!(code(&[lacking]), "MissingRequiredXmlNode", "{name}");
    }
    assert_eq!(code(&["<Other/>".to_owned()]), "UnsupportedXmlNode");
}

/// The answer to a preflight from `http://a` for a method and headers: the allowed origin and the
/// age.
fn ask(rules: &[CorsRule], origin: &str, method: &str, headers: &str) -> Option<(String, String)> {
    let mut asked = HeaderMap::new();
    asked.insert(ORIGIN, origin.parse().unwrap());
    asked.insert(ACCESS_CONTROL_REQUEST_METHOD, method.parse().unwrap());
    if !headers.is_empty() {
        asked.insert(ACCESS_CONTROL_REQUEST_HEADERS, headers.parse().unwrap());
    }
    let mut reply = HeaderMap::new();
    preflight(rules, &asked, &mut reply).ok()?;
    assert_eq!(reply[ACCESS_CONTROL_ALLOW_METHODS], *method);
    assert_eq!(
        reply.get(ACCESS_CONTROL_ALLOW_HEADERS).is_some(),
        !headers.is_empty()
    );
    let shown = |name| reply[name].to_str().unwrap().to_owned();
    Some((
        shown(ACCESS_CONTROL_ALLOW_ORIGIN),
        shown(ACCESS_CONTROL_MAX_AGE),
    ))
}

#[test]
fn the_first_rule_that_knows_everything_decides() {
    let rules = read(&[
        rule(["PUT", "http://a,http://b", "x-ms-meta-*,x-ms-date", "", "1"]),
        rule(["PUT,GET", "*", "x-ms-*", "", "2"]),
        rule(["PUT,DELETE", "http://b", "*", "", "3"]),
    ])
    .unwrap();
    for (origin, method, headers, expected) in [
        ("http://a", "PUT", "", Some(("http://a", "1"))),
        (
            "http://a",
            "PUT",
            "X-MS-Date, x-ms-meta-k",
            Some(("http://a", "1")),
        ),
        ("http://a", "PUT", "x-ms-version", Some(("*", "2"))),
        ("http://A", "PUT", "x-ms-date", Some(("*", "2"))),
        ("http://c", "GET", "x-ms-date", Some(("*", "2"))),
        ("http://b", "PUT", "authorization", Some(("http://b", "3"))),
        ("http://a", "PUT", "authorization", None),
        ("http://a", "DELETE", "", None),
        ("http://b", "DELETE", "", Some(("http://b", "3"))),
        ("http://b", "delete", "", None),
    ] {
        let answered = ask(&rules, origin, method, headers);
        let answered = answered.as_ref().map(|(a, b)| (&**a, &**b));
        assert_eq!(answered, expected, "{origin} {method} {headers}");
    }
    assert_eq!(ask(&[], "http://a", "GET", ""), None);
}

#[test]
fn a_preflight_names_origin_and_method() {
    for (origin, method, expected) in [
        (None, Some("GET"), "InvalidHeaderValue"),
        (Some("http://a"), None, "InvalidHeaderValue"),
        (Some("http://a"), Some("GET"), "CorsPreflightFailure"),
    ] {
        let mut asked = HeaderMap::new();
        for (name, value) in [(ORIGIN, origin), (ACCESS_CONTROL_REQUEST_METHOD, method)] {
            if let Some(value) = value {
                asked.insert(name, HeaderValue::from_static(value));
            }
        }
        let refused = preflight(&[], &asked, &mut HeaderMap::new()).unwrap_err();
        assert_eq!(refused.wire().code, expected);
    }
}

#[test]
fn actual_answers_are_shared() {
    let rules = read(&[
        rule([
            "GET",
            "http://a",
            "",
            "x-ms-meta-*,x-ms-request-id,date",
            "1",
        ]),
        rule(["PUT", "*", "", "", "2"]),
    ])
    .unwrap();
    let shared = |rules: &[CorsRule], origin: &'static str, method: &str| {
        let mut reply = HeaderMap::new();
        for name in ["x-ms-request-id", "x-ms-meta-k", "server"] {
            reply.insert(name, HeaderValue::from_static("v"));
        }
        share(rules, &HeaderValue::from_static(origin), method, &mut reply);
        [
            ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_ALLOW_CREDENTIALS,
            ACCESS_CONTROL_EXPOSE_HEADERS,
            VARY,
        ]
        .map(|name| {
            reply
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
                .unwrap_or_default()
        })
    };
    for (origin, method, expected) in [
        (
            "http://a",
            "GET",
            [
                "http://a",
                "true",
                "x-ms-request-id,x-ms-meta-k,date",
                "Origin",
            ],
        ),
        ("http://a", "PUT", ["*", "", "", ""]),
        ("http://b", "GET", ["", "", "", "Origin"]),
    ] {
        assert_eq!(
            shared(&rules, origin, method),
            expected,
            "{origin} {method}"
        );
    }
    assert_eq!(shared(&[], "http://a", "GET"), ["", "", "", ""]);
}
