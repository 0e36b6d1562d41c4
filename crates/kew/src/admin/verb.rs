//! The verbs of both kinds of principals, and how they are carried out.

use std::fmt::Debug;

use kew_principals::{Key, Kind, PrincipalError, Principals, Secret, WhichKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Answer, Failure, Record};

/// A kind of principals as it is administered.
pub(crate) trait Administrable: Kind {
    /// The commands that administer them, without `kew`. It is also the noun in the audit log.
    const COMMAND: &'static str;
    /// Their path on the administration socket.
    const PATH: &'static str;
    /// The parameter in the query of a request, which is also the name of a flag.
    const PARAMETER: &'static str;

    /// The settings of a principal besides its name and its keys. A missing field stays as it is.
    type Settings: Debug + Serialize + DeserializeOwned + Send;
    /// A principal as an answer shows it, without keys.
    type View;
    /// Where their clients connect.
    type Endpoint: Sync;

    /// A new one, without settings.
    fn new(name: &str, keys: &[Key; 2]) -> Self::Principal;
    fn set(principal: &mut Self::Principal, settings: Self::Settings);
    fn view(principal: &Self::Principal, scope: &Self::Scope) -> Self::View;
    fn connection_string(
        endpoint: &Self::Endpoint,
        name: &str,
        key: &str,
        scope: &Self::Scope,
    ) -> String;
    fn listed(views: Vec<Self::View>) -> Answer;
    fn shown(view: Self::View, keys: Vec<KeyView>) -> Answer;

    /// The value of the parameter. A request that removes a principal has a `removal`.
    fn parameter(scope: &Self::Scope, removal: Option<Self::Removal>) -> Option<String>;
    /// The text that the audit log adds to `remove`.
    fn removal_note(removal: Self::Removal) -> &'static str;
    /// Reads the value of the parameter. `None` if it cannot have this value.
    fn of_parameter(value: Option<&str>) -> Option<(Self::Scope, Self::Removal)>;
}

/// A verb for the principals of a scope.
#[derive(Debug)]
pub(crate) struct Asked<K: Administrable> {
    pub(crate) scope: K::Scope,
    pub(crate) verb: Verb<K>,
}

#[derive(Debug)]
pub(crate) enum Verb<K: Administrable> {
    List,
    Add(New<K::Settings>),
    /// Show one without its keys.
    Show {
        name: String,
    },
    /// Show one with its keys.
    Keys {
        name: String,
    },
    Rotate {
        name: String,
        key: WhichKey,
    },
    Set {
        name: String,
        settings: K::Settings,
    },
    Remove {
        name: String,
        removal: K::Removal,
    },
}

/// A principal to add.
#[derive(Debug, Serialize)]
pub(crate) struct New<S> {
    pub(crate) name: String,
    /// A key in Base64, used as primary and secondary key. Without it, Kew makes two keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Secret>,
    #[serde(flatten)]
    pub(crate) settings: S,
}

/// Which key to replace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    pub(crate) key: WhichKey,
}

/// A key, for a user who may see it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyView {
    pub(crate) key: WhichKey,
    pub(crate) value: Secret,
    pub(crate) connection_string: Secret,
}

impl<K: Administrable> Verb<K> {
    /// The name of the principal, unless the verb is about all.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::List => None,
            Self::Add(New { name, .. })
            | Self::Show { name }
            | Self::Keys { name }
            | Self::Rotate { name, .. }
            | Self::Set { name, .. }
            | Self::Remove { name, .. } => Some(name),
        }
    }
}

impl<K: Administrable> Asked<K> {
    /// The record in the audit log. Showing principals without keys leaves no record, unless it is refused.
    pub(super) fn record(&self) -> Record {
        let noun = K::COMMAND;
        let (what, is_audited) = match &self.verb {
            Verb::List => (format!("list {noun}s"), false),
            Verb::Show { .. } => (format!("show {noun}"), false),
            Verb::Add(_) => (format!("add {noun}"), true),
            Verb::Keys { .. } => (format!("show keys of {noun}"), true),
            Verb::Rotate { key, .. } => (format!("rotate {} key of {noun}", key.name()), true),
            Verb::Set { .. } => (format!("change {noun}"), true),
            Verb::Remove { removal, .. } => {
                (format!("remove {noun}{}", K::removal_note(*removal)), true)
            }
        };
        Record {
            what,
            is_audited,
            name: self.verb.name().map(str::to_owned),
            entity: K::parameter(&self.scope, None),
        }
    }

    pub(super) async fn carry_out(
        self,
        store: &Principals<K>,
        endpoint: &K::Endpoint,
    ) -> Result<Answer, Failure> {
        let Self { scope, verb } = self;
        let done = carry_out(verb, &scope, store, endpoint).await;
        done.map_err(|error| {
            let flag = K::parameter(&scope, None).map(|of| format!(" --{} {of}", K::PARAMETER));
            Failure::of(&error, K::COMMAND, &flag.unwrap_or_default())
        })
    }
}

async fn carry_out<K: Administrable>(
    verb: Verb<K>,
    scope: &K::Scope,
    store: &Principals<K>,
    endpoint: &K::Endpoint,
) -> Result<Answer, PrincipalError> {
    let (principal, shown) = match verb {
        Verb::List => {
            let all = store.list(scope).await?;
            let views = all.iter().map(|it| K::view(it, scope)).collect();
            return Ok(K::listed(views));
        }
        Verb::Remove { name, removal } => {
            store.remove(scope, &name, removal).await?;
            return Ok(Answer::Removed { removed: name });
        }
        Verb::Add(new) => {
            let brought = new.key.map(|text| Key::brought(text.as_str()));
            let keys = Key::pair(brought.transpose()?)?;
            let mut principal = K::new(&new.name, &keys);
            K::set(&mut principal, new.settings);
            (store.add(scope, principal).await?, WhichKey::ALL.to_vec())
        }
        Verb::Show { name } => (store.find(scope, &name).await?, vec![]),
        Verb::Keys { name } => (store.find(scope, &name).await?, WhichKey::ALL.to_vec()),
        Verb::Rotate { name, key } => (store.rotate(scope, &name, key).await?, vec![key]),
        Verb::Set { name, settings } => {
            let set = |principal: &mut K::Principal| K::set(principal, settings);
            (store.change(scope, &name, set).await?, vec![])
        }
    };
    let keys = shown.into_iter().map(|key| {
        let value = K::key(&principal, key);
        let name = K::name(&principal);
        let connection_string = K::connection_string(endpoint, name, &value, scope);
        KeyView {
            key,
            value: Secret::new(value),
            connection_string: Secret::new(connection_string),
        }
    });
    let keys = keys.collect();
    Ok(K::shown(K::view(&principal, scope), keys))
}
