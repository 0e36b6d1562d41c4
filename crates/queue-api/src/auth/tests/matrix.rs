//! Every operation with every credential: a second copy of the documented rights.
//!
//! The operations come from the table of routes. One without a row here fails.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::door::{
    ACCOUNT, Door, Kind, NEWEST, NOW, NOW_SECONDS, PLAIN, SECOND_KEY, SECURE, Sas, WRONG_KEY, key,
};
use super::keys::{Signer, TENANT, USER, claims, issuer, with};
use crate::accounts::Accounts;
use crate::auth::{DelegationFields, Role, Roles};
use crate::origin::Origin;
use crate::route;

/// The rights that an operation needs: the resource type and letters of an account SAS, the letter
/// of a service SAS, and the roles.
struct Row {
    operation: &'static str,
    account: Option<(char, &'static str)>,
    queue: Option<char>,
    roles: &'static [Role],
}

const fn row(
    operation: &'static str,
    account: Option<(char, &'static str)>,
    queue: Option<char>,
    roles: &'static [Role],
) -> Row {
    Row {
        operation,
        account,
        queue,
        roles,
    }
}

use Role::{Contributor, Processor, Reader, Sender};

const ROWS: [Row; 17] = [
    row("ListQueues", Some(('s', "l")), None, &[Reader, Contributor]),
    row(
        "GetServiceProperties",
        Some(('s', "r")),
        None,
        &[Contributor],
    ),
    row(
        "SetServiceProperties",
        Some(('s', "w")),
        None,
        &[Contributor],
    ),
    row("GetServiceStats", Some(('s', "r")), None, &[Contributor]),
    row("CreateQueue", Some(('c', "cw")), None, &[Contributor]),
    row("DeleteQueue", Some(('c', "d")), None, &[Contributor]),
    row(
        "GetQueueMetadata",
        Some(('c', "r")),
        Some('r'),
        &[Reader, Contributor],
    ),
    row("SetQueueMetadata", Some(('c', "w")), None, &[Contributor]),
    row("GetQueueAcl", None, None, &[Contributor]),
    row("SetQueueAcl", None, None, &[Contributor]),
    row(
        "PutMessage",
        Some(('o', "a")),
        Some('a'),
        &[Sender, Contributor],
    ),
    row(
        "GetMessages",
        Some(('o', "p")),
        Some('p'),
        &[Processor, Contributor],
    ),
    row(
        "PeekMessages",
        Some(('o', "r")),
        Some('r'),
        &[Reader, Processor, Contributor],
    ),
    row("ClearMessages", Some(('o', "d")), None, &[Contributor]),
    row("UpdateMessage", Some(('o', "u")), Some('u'), &[Contributor]),
    row(
        "DeleteMessage",
        Some(('o', "p")),
        Some('p'),
        &[Processor, Contributor],
    ),
    row(
        "GetUserDelegationKey",
        None,
        None,
        &[Reader, Processor, Sender, Contributor, Role::Delegator],
    ),
];

/// The expected result: an error, or that the request does not fail for lack of rights.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Allowed,
    Refused(u16, &'static str),
}

use Expected::{Allowed, Refused};

const FAILED: Expected = Refused(403, "AuthenticationFailed");
const PERMISSION: Expected = Refused(403, "AuthorizationPermissionMismatch");
const NEVER: Expected = Refused(403, "AuthorizationFailure");
const TOKEN: Expected = Refused(401, "InvalidAuthenticationInfo");

fn allowed_if(condition: bool, otherwise: Expected) -> Expected {
    if condition { Allowed } else { otherwise }
}

/// One credential of a request.
struct Case {
    name: String,
    origin: Origin,
    /// The part in the query.
    sas: String,
    authorization: Option<String>,
    expected: Expected,
}

struct Cases(Vec<Case>);

impl Cases {
    fn sas(&mut self, name: impl Into<String>, sas: String, expected: Expected) {
        self.sas_from(PLAIN, name, sas, expected);
    }

    fn sas_from(
        &mut self,
        origin: Origin,
        name: impl Into<String>,
        sas: String,
        expected: Expected,
    ) {
        self.0.push(Case {
            name: name.into(),
            origin,
            sas,
            authorization: None,
            expected,
        });
    }

    fn header(
        &mut self,
        origin: Origin,
        name: impl Into<String>,
        value: Option<String>,
        expected: Expected,
    ) {
        self.0.push(Case {
            name: name.into(),
            origin,
            sas: String::new(),
            authorization: value,
            expected,
        });
    }
}

const PAST: &str = "2026-06-21T07:59:59Z";
const FUTURE: &str = "2026-06-21T08:00:01Z";
const LETTERS: &str = "rwdlacup";

fn shared_key(cases: &mut Cases, row: &Row, method: &str, target: &str) {
    cases.header(
        PLAIN,
        "none",
        None,
        Refused(401, "NoAuthenticationInformation"),
    );
    let is_owner = row.operation != "GetUserDelegationKey";
    for (name, base64, expected) in [
        ("wrong key", WRONG_KEY, FAILED),
        (
            "first key",
            Accounts::WELL_KNOWN_KEY,
            allowed_if(is_owner, FAILED),
        ),
        ("second key", SECOND_KEY, allowed_if(is_owner, FAILED)),
    ] {
        let comp = target.split(['?', '&']).find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.eq_ignore_ascii_case("comp").then_some(value)
        });
        let comp = comp.map_or(String::new(), |comp| {
            format!("?comp={}", comp.replace("%64", "d"))
        });
        let path = target.split('?').next().unwrap();
        let text = format!(
            "{method}\n\n\n\nx-ms-date:{NOW}\nx-ms-version:{NEWEST}\n/{ACCOUNT}/{ACCOUNT}{path}{comp}"
        );
        let signature = STANDARD.encode(key(base64).sign(text.as_bytes()));
        let value = format!("SharedKeyLite {ACCOUNT}:{signature}");
        cases.header(PLAIN, name, Some(value), expected);
    }
}

fn account_sas(cases: &mut Cases, row: &Row) {
    let sas = Sas::of(
        Kind::Account,
        &[
            ("sp", LETTERS),
            ("ss", "q"),
            ("srt", "sco"),
            ("se", FUTURE),
            ("sv", NEWEST),
        ],
    );
    let sign = |sas: &Sas| sas.signed(Accounts::WELL_KNOWN_KEY);
    let possible = row.account.is_some();
    let good = allowed_if(possible, NEVER);
    cases.sas("account SAS", sign(&sas), good);
    cases.sas("account SAS, second key", sas.signed(SECOND_KEY), good);
    cases.sas("account SAS, wrong key", sas.signed(WRONG_KEY), FAILED);
    cases.sas(
        "account SAS, expired",
        sign(&sas.clone().with("se", PAST)),
        FAILED,
    );
    cases.sas(
        "account SAS, expires now",
        sign(&sas.clone().with("se", "2026-06-21T08:00:00Z")),
        FAILED,
    );
    cases.sas(
        "account SAS, not yet valid",
        sign(&sas.clone().with("st", FUTURE)),
        FAILED,
    );
    cases.sas(
        "account SAS, valid",
        sign(&sas.clone().with("st", PAST)),
        good,
    );
    cases.sas(
        "account SAS, no expiry",
        sign(&sas.clone().with("se", "")),
        FAILED,
    );
    cases.sas(
        "account SAS, of other services",
        sign(&sas.clone().with("ss", "btf")),
        Refused(403, "AuthorizationServiceMismatch"),
    );
    cases.sas(
        "account SAS, other address",
        sign(&sas.clone().with("sip", "10.0.0.10-10.0.0.20")),
        Refused(403, "AuthorizationSourceIPMismatch"),
    );
    cases.sas(
        "account SAS, its address",
        sign(&sas.clone().with("sip", "10.0.0.9")),
        good,
    );
    let https = sign(&sas.clone().with("spr", "https"));
    cases.sas_from(SECURE, "account SAS, https", https.clone(), good);
    cases.sas(
        "account SAS, http",
        https,
        Refused(403, "AuthorizationProtocolMismatch"),
    );
    let Some((resource_type, needed)) = row.account else {
        return;
    };
    for letter in LETTERS.chars() {
        let name = format!("account SAS, {letter} alone");
        let sas = sas.clone().with("sp", &letter.to_string());
        cases.sas(
            name,
            sign(&sas),
            allowed_if(needed.contains(letter), PERMISSION),
        );
    }
    let others: String = LETTERS
        .chars()
        .filter(|letter| !needed.contains(*letter))
        .collect();
    cases.sas(
        "account SAS, all others",
        sign(&sas.clone().with("sp", &others)),
        PERMISSION,
    );
    for letter in ['s', 'c', 'o'] {
        let name = format!("account SAS, resource type {letter}");
        let sas = sas.clone().with("srt", &letter.to_string());
        let mismatch = Refused(403, "AuthorizationResourceTypeMismatch");
        cases.sas(
            name,
            sign(&sas),
            allowed_if(letter == resource_type, mismatch),
        );
    }
}

fn service_sas(cases: &mut Cases, row: &Row, target: &str) {
    let has_queue = target.starts_with("/orders");
    let sas = Sas::of(
        Kind::Queue("orders"),
        &[("sp", "raup"), ("se", FUTURE), ("sv", NEWEST)],
    );
    let sign = |sas: &Sas| sas.signed(Accounts::WELL_KNOWN_KEY);
    let expected = |letters: &str| match row.queue {
        _ if !has_queue => FAILED,
        None => NEVER,
        Some(needed) => allowed_if(letters.contains(needed), PERMISSION),
    };
    for letters in ["raup", "r", "a", "u", "p", "rau", "aup", "rup", "rap"] {
        let name = format!("service SAS {letters}");
        cases.sas(
            name,
            sign(&sas.clone().with("sp", letters)),
            expected(letters),
        );
    }
    cases.sas(
        "service SAS, second key",
        sas.signed(SECOND_KEY),
        expected("raup"),
    );
    cases.sas("service SAS, wrong key", sas.signed(WRONG_KEY), FAILED);
    let other = Sas {
        kind: Kind::Queue("others"),
        ..sas.clone()
    };
    cases.sas("service SAS of another queue", sign(&other), FAILED);
    cases.sas(
        "service SAS, expired",
        sign(&sas.clone().with("se", PAST)),
        FAILED,
    );
    cases.sas(
        "service SAS, not yet valid",
        sign(&sas.clone().with("st", FUTURE)),
        FAILED,
    );
    cases.sas(
        "service SAS, no expiry",
        sign(&sas.clone().with("se", "")),
        FAILED,
    );
    cases.sas(
        "service SAS, no permissions",
        sign(&sas.clone().with("sp", "")),
        FAILED,
    );
    cases.sas(
        "service SAS, no such policy",
        sign(&sas.clone().with("si", "gone")),
        FAILED,
    );
}

fn delegation_sas(cases: &mut Cases, row: &Row, target: &str) {
    let has_queue = target.starts_with("/orders");
    let accounts = Accounts::well_known();
    let account = accounts.find(ACCOUNT).unwrap();
    let made_for = DelegationFields {
        user: USER,
        tenant: TENANT,
        start: PAST,
        expiry: FUTURE,
        version: NEWEST,
        delegated_tenant: "",
    };
    let sas = Sas::of(
        Kind::Delegation("orders"),
        &[
            ("sp", "raup"),
            ("se", FUTURE),
            ("skoid", USER),
            ("sktid", TENANT),
            ("skt", PAST),
            ("ske", FUTURE),
            ("sks", "q"),
            ("skv", NEWEST),
            ("sv", NEWEST),
        ],
    );
    for role in Role::ALL {
        let roles = Roles::from_iter([role]).delegated();
        let value = STANDARD.encode(made_for.value(account, account.primary(), roles));
        let expected = |letters: &str| match row.queue {
            _ if !has_queue => FAILED,
            None => NEVER,
            Some(needed) => allowed_if(
                letters.contains(needed) && row.roles.contains(&role),
                PERMISSION,
            ),
        };
        for letters in ["raup", "r", "a", "u", "p"] {
            let name = format!("{letters} by {}", role.name());
            let sas = sas.clone().with("sp", letters);
            cases.sas(name, sas.signed(&value), expected(letters));
        }
        if role == Contributor {
            let other = Sas {
                kind: Kind::Delegation("others"),
                ..sas.clone()
            };
            cases.sas("another queue by a user", other.signed(&value), FAILED);
            cases.sas(
                "expired, by a user",
                sas.clone().with("se", PAST).signed(&value),
                FAILED,
            );
            cases.sas(
                "longer key",
                sas.clone().with("ske", "2027-01-01").signed(&value),
                FAILED,
            );
            let user = sas.clone().with("sduoid", USER).signed(&value);
            let expected = if has_queue { TOKEN } else { FAILED };
            cases.sas_from(SECURE, "without the token of sduoid", user, expected);
        }
    }
}

fn bearer(cases: &mut Cases, row: &Row, signer: &Signer) {
    let bearer = |claims: &Value| Some(format!("Bearer {}", signer.token(claims)));
    let none = if row.roles.is_empty() {
        NEVER
    } else {
        PERMISSION
    };
    for role in Role::ALL {
        let expected = allowed_if(row.roles.contains(&role), none);
        let value = bearer(&claims(role.name()));
        cases.header(SECURE, format!("bearer, {}", role.name()), value, expected);
    }
    cases.header(
        SECURE,
        "bearer without a role",
        bearer(&claims("Owner")),
        none,
    );
    let good = claims(Contributor.name());
    for (name, claim, value) in [
        ("expired", "exp", json!(NOW_SECONDS - 3600)),
        ("not yet valid", "nbf", json!(NOW_SECONDS + 3600)),
        (
            "of another audience",
            "aud",
            json!("https://vault.azure.net"),
        ),
        (
            "of another issuer",
            "iss",
            json!("https://issuer.example/other/v2.0"),
        ),
    ] {
        let value = bearer(&with(good.clone(), claim, value));
        cases.header(SECURE, format!("bearer, {name}"), value, TOKEN);
    }
    cases.header(PLAIN, "bearer over http", bearer(&good), FAILED);
    let stranger = format!("Bearer {}", Signer::new("one").token(&good));
    cases.header(SECURE, "bearer, signed by another", Some(stranger), TOKEN);
}

#[tokio::test]
async fn every_operation_with_every_credential() {
    let signer = Signer::new("one");
    let door = Door::open(Some(issuer(&signer))).await;
    let mut count = 0;
    for (operation, method, target) in route::examples() {
        let operation = format!("{operation:?}");
        let row = ROWS.iter().find(|row| row.operation == operation);
        let row = row.unwrap_or_else(|| panic!("{operation} has no row"));
        let mut cases = Cases(Vec::new());
        shared_key(&mut cases, row, method, &target);
        account_sas(&mut cases, row);
        service_sas(&mut cases, row, &target);
        delegation_sas(&mut cases, row, &target);
        bearer(&mut cases, row, &signer);
        for case in cases.0 {
            let target = format!("{target}&{}", case.sas);
            let mut headers = vec![("x-ms-version", NEWEST), ("x-ms-date", NOW)];
            headers.extend(
                case.authorization
                    .as_deref()
                    .map(|value| ("Authorization", value)),
            );
            let answer = door.ask(case.origin, method, &target, &headers, "").await;
            let is_expected = match case.expected {
                Allowed => !matches!(answer.status, 401 | 403 | 500..),
                Refused(status, code) => answer.is(status, code),
            };
            assert!(
                is_expected,
                "{operation} ({method}) with {}: expected {:?}, answered {answer:#?}",
                case.name, case.expected
            );
            count += 1;
        }
    }
    assert!(count > 1000, "{count} cases");
}
