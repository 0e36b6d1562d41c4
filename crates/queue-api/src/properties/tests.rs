use super::*;

const OFF: &str = "<Enabled>false</Enabled>";
const RETENTION: &str = "<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>";

fn code(document: &str, version: Version) -> String {
    match Change::parse(document.as_bytes(), version) {
        Ok(_) => "ok".to_owned(),
        Err(error) => {
            let mut shown = error.wire().code.to_owned();
            error.details(|name, text| {
                if name == "XmlNodeName" {
                    shown.push_str(&format!(" {text}"));
                }
            });
            shown
        }
    }
}

fn check(inner: &str, expected: &str) {
    let document = format!("<StorageServiceProperties>{inner}</StorageServiceProperties>");
    assert_eq!(code(&document, Version::NEWEST), expected, "{inner}");
}

fn check_metrics(inner: &str, expected: &str) {
    check(&format!("<HourMetrics>{inner}</HourMetrics>"), expected);
    check(&format!("<MinuteMetrics>{inner}</MinuteMetrics>"), expected);
}

#[test]
fn defaults_are_well_formed_and_complete() {
    let shown = Properties::default().document(Version::NEWEST);
    assert_eq!(
        std::str::from_utf8(&shown).unwrap(),
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties>\
         <Logging><Version>1.0</Version><Read>false</Read><Write>false</Write>\
         <Delete>false</Delete><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>\
         </Logging><HourMetrics><Version>1.0</Version><Enabled>false</Enabled>\
         <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics>\
         <MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled>\
         <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics>\
         <Cors /></StorageServiceProperties>"
    );
    assert_eq!(
        Properties::from_stored(&shown).unwrap(),
        Properties::default()
    );
}

#[test]
fn set_properties_are_shown_and_the_rest_stays() {
    let mut properties = Properties::default();
    let set = |properties: &mut Properties, inner: &str| {
        let document = format!("<StorageServiceProperties>{inner}</StorageServiceProperties>");
        properties.apply(Change::parse(document.as_bytes(), Version::NEWEST).unwrap());
        let shown = properties.document(Version::NEWEST);
        assert_eq!(&Properties::from_stored(&shown).unwrap(), properties);
        String::from_utf8(shown.to_vec()).unwrap()
    };
    let logging = "<Logging><Version>1.0</Version><Read>true</Read><Write>false</Write>\
                   <Delete>true</Delete><RetentionPolicy><Enabled>true</Enabled><Days>365</Days>\
                   </RetentionPolicy></Logging>";
    let hours = "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled>\
                 <IncludeAPIs>true</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled>\
                 <Days>1</Days></RetentionPolicy></HourMetrics>";
    let cors = "<Cors><CorsRule><AllowedMethods>GET,PUT</AllowedMethods>\
                <AllowedOrigins>http://a,http://b&amp;c</AllowedOrigins>\
                <AllowedHeaders>x-ms-meta-*,x-a</AllowedHeaders><ExposedHeaders />\
                <MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule></Cors>";
    let shown = set(&mut properties, &format!("{cors}{hours}{logging}"));
    assert!(
        shown.contains(&format!("{logging}{hours}<MinuteMetrics>")),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("</MinuteMetrics>{cors}")),
        "{shown}"
    );
    let shown = set(&mut properties, "");
    assert!(shown.contains(logging) && shown.contains(hours) && shown.contains(cors));
    let shown = set(&mut properties, "<Cors />");
    assert!(
        shown.contains(logging) && shown.contains("<Cors />"),
        "{shown}"
    );
}

#[test]
fn old_versions_have_one_kind_of_metrics() {
    let old = Version::V2011_08_18;
    let logging = format!(
        "<Logging><Version>1.0</Version><Delete>true</Delete><Read>true</Read>\
         <Write>true</Write>{RETENTION}</Logging>"
    );
    let metrics = format!("<Metrics><Version>1.0</Version>{OFF}{RETENTION}</Metrics>");
    let document =
        |inner: &str| format!("<StorageServiceProperties>{inner}</StorageServiceProperties>");
    for (inner, expected) in [
        (format!("{logging}{metrics}"), "ok"),
        (format!("{metrics}{logging}"), "ok"),
        (logging.clone(), "MissingRequiredXmlNode Metrics"),
        (metrics.clone(), "MissingRequiredXmlNode Logging"),
        (
            format!("{logging}{metrics}<Cors/>"),
            "UnsupportedXmlNode Cors",
        ),
    ] {
        assert_eq!(code(&document(&inner), old), expected, "{inner}");
    }
    check(&metrics, "UnsupportedXmlNode Metrics");
    let mut properties = Properties::default();
    properties
        .apply(Change::parse(document(&format!("{logging}{metrics}")).as_bytes(), old).unwrap());
    let shown = properties.document(old);
    let shown = std::str::from_utf8(&shown).unwrap();
    assert!(
        shown.contains("</Logging><Metrics><Version>1.0</Version>"),
        "{shown}"
    );
    assert!(
        shown.ends_with("</Metrics></StorageServiceProperties>"),
        "{shown}"
    );
}

#[test]
fn documents_are_checked() {
    for (document, expected) in [
        ("", "InvalidXmlDocument"),
        ("<Other/>", "InvalidXmlDocument"),
        ("<StorageServiceProperties>", "InvalidXmlDocument"),
        ("<StorageServiceProperties/>", "ok"),
    ] {
        assert_eq!(code(document, Version::NEWEST), expected, "{document}");
    }
    check(
        "<DefaultServiceVersion>2011-08-18</DefaultServiceVersion>",
        "UnsupportedXmlNode DefaultServiceVersion",
    );
    check("<Cors/><Cors/>", "InvalidXmlDocument");
    check("<Cors>x</Cors>", "InvalidXmlNodeValue Cors");
    check("<Logging/>", "MissingRequiredXmlNode Version");
    check(
        &format!(
            "<Logging><Version>1.0</Version><Read>true</Read><Write>1</Write><Delete>true</Delete>{RETENTION}</Logging>"
        ),
        "InvalidXmlNodeValue Write",
    );
    check(
        &format!(
            "<Logging><Version>1.0</Version><Write>true</Write><Delete>true</Delete>{RETENTION}</Logging>"
        ),
        "MissingRequiredXmlNode Read",
    );
}

#[test]
fn metrics_are_checked() {
    let on = "<Version>1.0</Version><Enabled>true</Enabled>";
    check_metrics(&format!("<Version>1.0</Version>{OFF}{RETENTION}"), "ok");
    check_metrics(
        &format!("{on}<IncludeAPIs>FALSE</IncludeAPIs>{RETENTION}"),
        "ok",
    );
    check_metrics(
        &format!("{on}{RETENTION}"),
        "MissingRequiredXmlNode IncludeAPIs",
    );
    check_metrics(
        &format!("<Version>2.0</Version>{OFF}{RETENTION}"),
        "InvalidXmlNodeValue Version",
    );
    check_metrics(
        &format!("<Version>1.0</Version>{OFF}"),
        "MissingRequiredXmlNode RetentionPolicy",
    );
    check_metrics(
        &format!("<Version>1.0</Version>{OFF}{RETENTION}<X/>"),
        "UnsupportedXmlNode X",
    );
    for (days, expected) in [
        ("<Days>1</Days>", "ok"),
        ("<Days>365</Days>", "ok"),
        ("<Days>0</Days>", "InvalidXmlNodeValue Days"),
        ("<Days>366</Days>", "InvalidXmlNodeValue Days"),
        ("<Days>-1</Days>", "InvalidXmlNodeValue Days"),
        ("<Days>a</Days>", "InvalidXmlNodeValue Days"),
        ("", "MissingRequiredXmlNode Days"),
    ] {
        let retention = format!("<RetentionPolicy><Enabled>true</Enabled>{days}</RetentionPolicy>");
        check_metrics(&format!("<Version>1.0</Version>{OFF}{retention}"), expected);
    }
}
