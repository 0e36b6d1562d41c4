//! The settings of all issuers of bearer tokens, one or several, from flags, variables and the
//! file.
//!
//! Flags and variables have lists that belong together by their order; the file has a table for
//! each issuer. A place that names issuers replaces those of later places. Settings in a place
//! without issuers apply to every issuer that a later place names.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::SettingsError;
use super::issuer::{IssuerLayer, IssuerSettings, split_role};
use super::layer::Variable;
use crate::serve_args::ServeArgs;

/// The settings of issuers in one place.
#[derive(Debug)]
pub(crate) enum IssuersLayer {
    /// For one issuer, or for all issuers of a later place.
    One(Box<IssuerLayer>),
    /// Of each of several.
    Several(Vec<IssuerLayer>),
    /// Invalid settings.
    Refused(SettingsError),
}

impl Default for IssuersLayer {
    fn default() -> Self {
        Self::One(Box::default())
    }
}

/// Lists in the form of flags and variables.
#[derive(Default)]
struct Lists {
    urls: Vec<String>,
    keys: Vec<String>,
    audience: Option<Vec<String>>,
    role_claims: Vec<String>,
    roles: Option<Vec<String>>,
    allow_http: Option<bool>,
}

impl Lists {
    fn layer(self) -> IssuersLayer {
        let roles = self.roles.map(|pairs| {
            let pairs = pairs.iter().map(|pair| split_role(pair));
            pairs.collect()
        });
        let common = IssuerLayer {
            audience: self.audience,
            roles,
            allow_http: self.allow_http,
            ..IssuerLayer::default()
        };
        let (urls, keys, claims) = (self.urls, self.keys, self.role_claims);
        if urls.len() <= 1 && keys.len() <= 1 && claims.len() <= 1 {
            return IssuersLayer::One(Box::new(IssuerLayer {
                url: urls.into_iter().next(),
                keys: keys.into_iter().next(),
                role_claim: claims.into_iter().next(),
                ..common
            }));
        }
        let count = urls.len();
        let wrong = |name: &str, given: usize, allowed: &str| {
            IssuersLayer::Refused(SettingsError::new(format!(
                "{name} is given {given} times and --issuer {count} times: give it {allowed}"
            )))
        };
        if !keys.is_empty() && keys.len() != count {
            return wrong(
                "--issuer-keys",
                keys.len(),
                "once for each issuer, in their order",
            );
        }
        if claims.len() > 1 && claims.len() != count {
            let allowed = "once, or once for each issuer, in their order";
            return wrong("--role-claim", claims.len(), allowed);
        }
        let layers = urls
            .into_iter()
            .enumerate()
            .map(|(index, url)| IssuerLayer {
                url: Some(url),
                keys: keys.get(index).filter(|keys| !keys.is_empty()).cloned(),
                role_claim: claims.get(index).or(claims.first()).cloned(),
                ..common.clone()
            });
        IssuersLayer::Several(layers.collect())
    }
}

impl IssuersLayer {
    pub(super) fn of_flags(args: &ServeArgs) -> Self {
        let lists = Lists {
            urls: args.issuer.clone(),
            keys: args.issuer_keys.clone(),
            audience: (!args.audience.is_empty()).then(|| args.audience.clone()),
            role_claims: args.role_claim.clone(),
            roles: (!args.role.is_empty()).then(|| args.role.clone()),
            allow_http: args.issuer_allow_http.then_some(true),
        };
        lists.layer()
    }

    pub(super) fn of_environment(
        variable: Variable<'_>,
        switch: &dyn Fn(&str) -> Result<Option<bool>, SettingsError>,
    ) -> Result<Self, SettingsError> {
        let text = |name: &str| {
            let Some(value) = variable(name) else {
                return Ok(None);
            };
            value.into_string().map(Some).map_err(|value| {
                SettingsError::new(format!("{name} is {value:?}, which is not text"))
            })
        };
        let list = |name: &str| Ok::<_, SettingsError>(text(name)?.map(|list| split(&list)));
        let urls = text("KEW_ISSUER")?.map_or_else(Vec::new, |urls| split_urls(&urls));
        // With one issuer each is a single text, even if it contains commas.
        let each = |name: &str| {
            Ok::<_, SettingsError>(match text(name)? {
                None => Vec::new(),
                Some(text) if urls.len() > 1 => split(&text),
                Some(text) => vec![text],
            })
        };
        let lists = Lists {
            keys: each("KEW_ISSUER_KEYS")?,
            audience: list("KEW_AUDIENCE")?,
            role_claims: each("KEW_ROLE_CLAIM")?,
            roles: list("KEW_ROLES")?,
            allow_http: switch("KEW_ISSUER_ALLOW_HTTP")?,
            urls,
        };
        Ok(lists.layer())
    }

    /// These settings, completed by those of the next place.
    pub(super) fn or(self, next: Self) -> Self {
        match (self, next) {
            (Self::Refused(error), _) | (_, Self::Refused(error)) => Self::Refused(error),
            (Self::One(own), Self::One(next)) => Self::One(Box::new(own.or(*next))),
            // These issuers are others than those of the next place.
            (Self::Several(own), Self::Several(_)) => Self::Several(own),
            (Self::One(own), Self::Several(_)) if own.url.is_some() => Self::One(own),
            (Self::One(own), Self::Several(_)) if own.keys.is_some() => {
                Self::Refused(SettingsError::new(
                    "--issuer-keys is given without --issuer, and the configuration file names \
                     several",
                ))
            }
            (Self::One(own), Self::Several(next)) => {
                let each = next.into_iter().map(|next| (*own).clone().or(next));
                Self::Several(each.collect())
            }
            (Self::Several(own), Self::One(next)) => {
                // The keys belong to another issuer.
                let next = IssuerLayer {
                    keys: None,
                    ..*next
                };
                let each = own.into_iter().map(|own| own.or(next.clone()));
                Self::Several(each.collect())
            }
        }
    }

    /// Refuses invalid settings.
    pub(super) fn complete(self) -> Result<Vec<IssuerSettings>, SettingsError> {
        let layers = match self {
            Self::One(layer) => return Ok(layer.complete()?.into_iter().collect()),
            Self::Several(layers) => layers,
            Self::Refused(error) => return Err(error),
        };
        let mut issuers: Vec<IssuerSettings> = Vec::with_capacity(layers.len());
        for layer in layers {
            let issuer = layer.complete()?.ok_or_else(|| {
                SettingsError::new("a table [[issuer]] of the configuration file has no url")
            })?;
            let url = &issuer.options.issuer;
            if issuers.iter().any(|other| other.options.issuer == *url) {
                return Err(SettingsError::new(format!(
                    "the issuer {url:?} is named twice: give each issuer once"
                )));
            }
            issuers.push(issuer);
        }
        Ok(issuers)
    }
}

/// The items of a variable, separated by commas.
fn split(list: &str) -> Vec<String> {
    list.split(',').map(|item| item.trim().to_owned()).collect()
}

/// The URLs of a variable: a comma within a URL does not separate.
fn split_urls(list: &str) -> Vec<String> {
    let items = split(list);
    match items.iter().all(|item| item.contains("://")) {
        true => items,
        false => vec![list.to_owned()],
    }
}

impl<'de> Deserialize<'de> for IssuersLayer {
    /// Reads a table, or a list of tables.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tables;

        impl<'de> Visitor<'de> for Tables {
            type Value = IssuersLayer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of settings of an issuer, or several of them")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<IssuersLayer, A::Error> {
                let layer = IssuerLayer::deserialize(MapAccessDeserializer::new(map))?;
                Ok(IssuersLayer::One(Box::new(layer)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<IssuersLayer, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(IssuersLayer::Several)
            }
        }

        deserializer.deserialize_any(Tables)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::issuer::KeySource;
    use super::*;

    const ONE: &str = "https://one.example";
    const TWO: &str = "https://two.example";

    fn flags(pairs: &[(&str, &str)]) -> IssuersLayer {
        let mut args = ServeArgs::default();
        for (name, value) in pairs {
            let list = match *name {
                "issuer" => &mut args.issuer,
                "issuer-keys" => &mut args.issuer_keys,
                "audience" => &mut args.audience,
                "role-claim" => &mut args.role_claim,
                "role" => &mut args.role,
                other => panic!("{other}"),
            };
            list.push((*value).to_owned());
        }
        IssuersLayer::of_flags(&args)
    }

    fn environment(pairs: &[(&str, &str)]) -> IssuersLayer {
        let variable = |name: &str| {
            let found = pairs.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| OsString::from(value))
        };
        IssuersLayer::of_environment(&variable, &|_| Ok(None)).unwrap()
    }

    fn file(text: &str) -> IssuersLayer {
        #[derive(Deserialize)]
        struct File {
            issuer: IssuersLayer,
        }
        toml::from_str::<File>(text).unwrap().issuer
    }

    /// URL, claim, audiences and keys of each.
    fn shown(layer: IssuersLayer) -> Vec<String> {
        let issuers = layer.complete().unwrap();
        let shown = issuers.iter().map(|issuer| {
            let options = &issuer.options;
            let keys = match &issuer.keys {
                KeySource::File(path) => path.display().to_string(),
                KeySource::Url(url) => url.to_string(),
                KeySource::Discovery(_) => "discovery".to_owned(),
            };
            let (url, claim) = (&options.issuer, &options.role_claim);
            format!(
                "{url} {claim} {:?} {} {keys}",
                options.audiences,
                options.roles.len()
            )
        });
        shown.collect()
    }

    fn refused(layer: IssuersLayer) -> String {
        layer.complete().unwrap_err().to_string()
    }

    const FILE: &str = "[[issuer]]\nurl = 'https://one.example'\nkeys = 'one.json'\n\
        [[issuer]]\nurl = 'https://two.example'\nrole_claim = 'groups'\naudience = ['b']\n\
        roles = { a = 'sender' }\n";

    #[test]
    fn flags_belong_together_by_their_order() {
        let two = [("issuer", ONE), ("issuer", TWO)];
        assert_eq!(
            shown(flags(&two)),
            [
                format!("{ONE} roles [] 0 discovery"),
                format!("{TWO} roles [] 0 discovery"),
            ]
        );
        let all = [
            &two[..],
            &[("issuer-keys", ""), ("issuer-keys", "two.json")],
            &[
                ("role-claim", "groups"),
                ("audience", "a"),
                ("role", "a=sender"),
            ],
        ]
        .concat();
        assert_eq!(
            shown(flags(&all)),
            [
                format!("{ONE} groups [\"a\"] 1 discovery"),
                format!("{TWO} groups [\"a\"] 1 two.json"),
            ]
        );
        let claims = [&two[..], &[("role-claim", "a"), ("role-claim", "b")]].concat();
        let claims = shown(flags(&claims));
        assert!(
            claims[0].contains(" a ") && claims[1].contains(" b "),
            "{claims:?}"
        );
    }

    #[test]
    fn settings_without_an_issuer_are_refused() {
        let two = [("issuer", ONE), ("issuer", TWO)];
        for (more, part) in [
            (
                ("issuer-keys", "one.json"),
                "--issuer-keys is given 1 times",
            ),
            (("issuer", ONE), "named twice"),
            (("issuer", "x"), "--issuer is \"x\""),
        ] {
            let error = refused(flags(&[&two[..], &[more]].concat()));
            assert!(error.contains(part), "{error}");
        }
        let three = ["a", "b", "c"].map(|claim| ("role-claim", claim));
        let error = refused(flags(&[&two[..], &three].concat()));
        assert!(error.contains("--role-claim is given 3 times"), "{error}");
        let error = refused(flags(&[("issuer-keys", "a"), ("issuer-keys", "b")]));
        assert!(error.contains("--issuer 0 times"), "{error}");
        let error = refused(file("[[issuer]]\nkeys = 'a'\n"));
        assert!(
            error.contains("--issuer-keys is set without an issuer"),
            "{error}"
        );
        assert!(refused(file("[[issuer]]\n")).contains("has no url"));
    }

    #[test]
    fn variables_have_lists_only_where_there_are_several() {
        let several = environment(&[
            ("KEW_ISSUER", "https://one.example, https://two.example"),
            ("KEW_ISSUER_KEYS", ",two.json"),
            ("KEW_ROLE_CLAIM", "groups"),
        ]);
        assert_eq!(
            shown(several),
            [
                format!("{ONE} groups [] 0 discovery"),
                format!("{TWO} groups [] 0 two.json"),
            ]
        );
        let one = environment(&[("KEW_ISSUER", ONE), ("KEW_ISSUER_KEYS", "a,b.json")]);
        assert_eq!(shown(one), [format!("{ONE} roles [] 0 a,b.json")]);
        let comma = "https://one.example/a,b";
        let one = environment(&[("KEW_ISSUER", comma)]);
        assert_eq!(shown(one), [format!("{comma} roles [] 0 discovery")]);
    }

    #[test]
    fn a_file_has_a_table_for_each() {
        let in_file = [
            format!("{ONE} roles [] 0 one.json"),
            format!("{TWO} groups [\"b\"] 1 discovery"),
        ];
        assert_eq!(shown(file(FILE)), in_file);
        assert_eq!(shown(IssuersLayer::default().or(file(FILE))), in_file);
        // A place that names issuers names all of them.
        let one = flags(&[("issuer", TWO)]).or(file(FILE));
        assert_eq!(shown(one), [format!("{TWO} roles [] 0 discovery")]);
        // Settings in a place without issuers apply to all of them.
        let claim = flags(&[("role-claim", "x")]).or(file(FILE));
        let claim = shown(claim);
        assert!(claim.iter().all(|it| it.contains(" x ")), "{claim:?}");
        let keys = refused(flags(&[("issuer-keys", "x")]).or(file(FILE)));
        assert!(keys.contains("names several"), "{keys}");
        // A table's settings apply to the issuers of a flag, except for its keys.
        let table = file("[issuer]\nurl = 'https://x'\nkeys = 'x'\naudience = ['a']\n");
        let two = flags(&[("issuer", ONE), ("issuer", TWO)]).or(table);
        assert_eq!(
            shown(two),
            [
                format!("{ONE} roles [\"a\"] 0 discovery"),
                format!("{TWO} roles [\"a\"] 0 discovery"),
            ]
        );
        let error = toml::from_str::<IssuerLayer>("unknown = 1").unwrap_err();
        assert!(error.to_string().contains("unknown field"), "{error}");
    }
}
