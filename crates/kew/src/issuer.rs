//! The settings of one issuer of bearer tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hyper::Uri;
use kew_issuer::{IssuerOptions, Role};
use serde::Deserialize;

use crate::settings::SettingsError;

/// The longest URL of an issuer: it becomes part of a header.
const URL_SIZE_BYTES_MAX: usize = 1024;

/// The settings of an issuer in one place. In the file it is a table `issuer`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IssuerLayer {
    pub(crate) url: Option<String>,
    pub(crate) keys: Option<String>,
    pub(crate) audience: Option<Vec<String>>,
    pub(crate) role_claim: Option<String>,
    pub(crate) roles: Option<BTreeMap<String, String>>,
    pub(crate) allow_http: Option<bool>,
}

/// The issuer to trust, complete and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IssuerSettings {
    pub(crate) options: IssuerOptions,
    pub(crate) keys: KeySource,
}

/// Where an issuer's keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    File(PathBuf),
    Url(Uri),
    /// The document at this address names the keys.
    Discovery(Uri),
}

impl IssuerLayer {
    /// These settings, completed by those of the next place.
    pub(crate) fn or(self, next: Self) -> Self {
        Self {
            url: self.url.or(next.url),
            keys: self.keys.or(next.keys),
            audience: self.audience.or(next.audience),
            role_claim: self.role_claim.or(next.role_claim),
            roles: self.roles.or(next.roles),
            allow_http: self.allow_http.or(next.allow_http),
        }
    }

    /// Refuses invalid settings.
    pub(crate) fn complete(self) -> Result<Option<IssuerSettings>, SettingsError> {
        let Some(issuer) = self.url else {
            let others = [
                ("--issuer-keys", self.keys.is_some()),
                ("--audience", self.audience.is_some()),
                ("--role-claim", self.role_claim.is_some()),
                ("--role", self.roles.is_some()),
                ("--issuer-allow-http", self.allow_http == Some(true)),
            ];
            return match others.into_iter().find(|(_, is_given)| *is_given) {
                None => Ok(None),
                Some((name, _)) => Err(SettingsError::new(format!(
                    "{name} is set without an issuer of bearer tokens: set --issuer too, or remove \
                     it"
                ))),
            };
        };
        check_url("--issuer", &issuer)?;
        let keys = match self.keys {
            Some(keys) if keys.contains("://") => {
                KeySource::Url(check_url("--issuer-keys", &keys)?)
            }
            Some(path) => KeySource::File(path.into()),
            None => {
                let base = issuer.trim_end_matches('/');
                let document = format!("{base}/.well-known/openid-configuration");
                KeySource::Discovery(check_url("--issuer", &document)?)
            }
        };
        let mut options = IssuerOptions::new(&issuer);
        options.allow_plain_loopback = self.allow_http.unwrap_or(false);
        options.audiences = non_empty("--audience", self.audience)?;
        if let Some(claim) = self.role_claim {
            options.role_claim = non_empty("--role-claim", Some(vec![claim]))?.remove(0);
        }
        for (value, role) in self.roles.unwrap_or_default() {
            options
                .roles
                .insert(value.clone().into(), parse_role(&value, &role)?);
        }
        Ok(Some(IssuerSettings { options, keys }))
    }
}

fn non_empty(name: &str, texts: Option<Vec<String>>) -> Result<Vec<Box<str>>, SettingsError> {
    let texts = texts.unwrap_or_default();
    if texts.iter().any(String::is_empty) {
        return Err(SettingsError::new(format!("{name} is empty")));
    }
    Ok(texts.into_iter().map(Into::into).collect())
}

/// `VALUE=ROLE`. The value may contain `=`.
pub(crate) fn split_role(pair: &str) -> (String, String) {
    let (value, role) = pair.rsplit_once('=').unwrap_or((pair, ""));
    (value.into(), role.into())
}

fn parse_role(value: &str, role: &str) -> Result<Role, SettingsError> {
    let mut roles = Role::ALL.into_iter();
    roles.find(|known| known.word() == role).ok_or_else(|| {
        let words: Vec<_> = Role::ALL.iter().map(|role| role.word()).collect();
        SettingsError::new(format!(
            "the role of {value:?} is {role:?}, and must be one of {}: use --role VALUE=ROLE",
            words.join(", ")
        ))
    })
}

/// A trustworthy address: with TLS, or on this machine.
fn check_url(name: &str, text: &str) -> Result<Uri, SettingsError> {
    let wrong = |why: &str| SettingsError::new(format!("{name} is {text:?}, which {why}"));
    if text.len() > URL_SIZE_BYTES_MAX {
        return Err(wrong("is too long for a URL"));
    }
    let url: Uri = text.parse().map_err(|_| wrong("is not a URL"))?;
    if is_trusted(&url) {
        Ok(url)
    } else {
        Err(wrong(
            "is neither an https URL nor an http URL of this machine (127.0.0.1, [::1] or localhost)",
        ))
    }
}

/// Whether no one else can change what is read from this address.
pub(crate) fn is_trusted(url: &Uri) -> bool {
    let Some(host) = url.host() else {
        return false;
    };
    let has_user = url
        .authority()
        .is_some_and(|whole| whole.as_str().contains('@'));
    match url.scheme_str() {
        _ if has_user || url.query().is_some() => false,
        Some("https") => true,
        Some("http") => matches!(host, "127.0.0.1" | "[::1]" | "localhost"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://login.example/tenant/v2.0";

    fn layer(change: impl FnOnce(&mut IssuerLayer)) -> Result<Option<IssuerSettings>, String> {
        let mut layer = IssuerLayer {
            url: Some(URL.into()),
            ..IssuerLayer::default()
        };
        change(&mut layer);
        layer.complete().map_err(|error| error.to_string())
    }

    #[test]
    fn a_single_url_is_enough_for_an_issuer() {
        let settings = layer(|_| {}).unwrap().unwrap();
        assert_eq!(settings.options, IssuerOptions::new(URL));
        let document = format!("{URL}/.well-known/openid-configuration");
        assert_eq!(
            settings.keys,
            KeySource::Discovery(document.parse().unwrap())
        );
        assert_eq!(layer(|layer| layer.url = None), Ok(None));
    }

    #[test]
    fn keys_are_in_a_file_or_at_a_url() {
        for (keys, expected) in [
            ("keys.json", KeySource::File("keys.json".into())),
            (
                "https://k.example/k",
                KeySource::Url("https://k.example/k".parse().unwrap()),
            ),
            (
                "http://[::1]:8/k",
                KeySource::Url("http://[::1]:8/k".parse().unwrap()),
            ),
        ] {
            let settings = layer(|layer| layer.keys = Some(keys.into()));
            assert_eq!(settings.unwrap().unwrap().keys, expected);
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        let refused = |part: &str, change: fn(&mut IssuerLayer)| {
            let error = layer(change).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        refused("--issuer is \"login\"", |layer| {
            layer.url = Some("login".into())
        });
        refused("neither", |layer| {
            layer.url = Some("http://login.example".into())
        });
        refused("neither", |layer| {
            layer.url = Some("http://127.0.0.1.login.example".into())
        });
        refused("neither", |layer| {
            layer.url = Some("https://a:b@login.example".into())
        });
        refused("--issuer-keys", |layer| {
            layer.keys = Some("ftp://login.example/".into())
        });
        refused("--role VALUE=ROLE", |layer| {
            layer.roles = Some([split_role("a=b=owner")].into());
        });
        refused("--audience is empty", |layer| {
            layer.audience = Some(vec![String::new()])
        });
        refused("--role-claim is empty", |layer| {
            layer.role_claim = Some(String::new())
        });
        refused("--role is set without an issuer", |layer| {
            layer.url = None;
            layer.roles = Some([split_role("a=reader")].into());
        });
    }

    #[test]
    fn each_setting_comes_from_the_first_place_that_has_it() {
        let first = IssuerLayer {
            role_claim: Some("groups".into()),
            ..IssuerLayer::default()
        };
        let second: IssuerLayer = toml::from_str(
            "url = \"https://login.example\"\nrole_claim = \"roles\"\nallow_http = true\n\
             audience = [\"api://kew\"]\n[roles]\nworkers = \"processor\"\n",
        )
        .unwrap();
        let settings = first.or(second).complete().unwrap().unwrap();
        assert_eq!(&*settings.options.role_claim, "groups");
        assert_eq!(settings.options.audiences, ["api://kew".into()]);
        assert_eq!(settings.options.roles["workers"], Role::Processor);
        assert!(settings.options.allow_plain_loopback);
    }
}
