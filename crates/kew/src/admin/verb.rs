//! The verbs of both kinds of principals, and how they are carried out.

use std::fmt::Debug;

use kew_principals::{Key, Kind, PrincipalError, Principals, Secret, WhichKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::routes::VerbName;
use super::{Answer, Failure};

/// A kind of principals as it is administered.
pub(crate) trait Administrable: Kind {
    /// What one is called in the audit log.
    const AUDITED_AS: &'static str;
    /// The commands that administer them.
    const COMMAND: &'static str;
    /// Their path on the administration socket.
    const PATH: &'static str;

    /// One to add.
    type New: Debug + Serialize + DeserializeOwned + Send;
    /// What is to be different.
    type Change: Debug + Serialize + DeserializeOwned + Send;
    /// What an answer shows of one: no key.
    type View;
    /// Where their clients connect.
    type Endpoint: Sync;

    /// The key that the administrator brings.
    fn brought_key(new: &Self::New) -> Option<&Secret>;
    fn name_of_new(new: &Self::New) -> &str;
    fn made(new: Self::New, keys: &[Key; 2]) -> Self::Principal;
    fn apply(principal: &mut Self::Principal, change: Self::Change);

    fn view(principal: &Self::Principal, scope: &Self::Scope) -> Self::View;
    fn connection_string(
        endpoint: &Self::Endpoint,
        name: &str,
        key: &str,
        scope: &Self::Scope,
    ) -> String;
    fn listed(views: Vec<Self::View>) -> Answer;
    fn shown(view: Self::View, keys: Vec<KeyView>) -> Answer;

    /// The flag of a command that names the scope, after a space.
    fn scope_flag(scope: &Self::Scope) -> String;
    /// What the audit log adds to `remove`.
    fn removal_note(removal: Self::Removal) -> &'static str;
    /// The query of a request, with its question mark.
    fn query(scope: &Self::Scope, removal: Option<Self::Removal>) -> String;
    /// Reads the query of a request.
    fn read_query(
        query: Option<&str>,
        verb: VerbName,
    ) -> Result<(Self::Scope, Self::Removal), Failure>;
}

/// What to do with the principals of a scope.
#[derive(Debug)]
pub(crate) struct Asked<K: Administrable> {
    pub(crate) scope: K::Scope,
    pub(crate) verb: Verb<K>,
}

#[derive(Debug)]
pub(crate) enum Verb<K: Administrable> {
    List,
    Add(K::New),
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
        change: K::Change,
    },
    Remove {
        name: String,
        removal: K::Removal,
    },
}

/// Which key to replace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    pub(crate) key: WhichKey,
}

/// A key, for someone who may see it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeyView {
    pub(crate) key: WhichKey,
    pub(crate) value: Secret,
    pub(crate) connection_string: Secret,
}

impl<K: Administrable> Verb<K> {
    /// The name of the principal, unless all are meant.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::List => None,
            Self::Add(new) => Some(K::name_of_new(new)),
            Self::Show { name }
            | Self::Keys { name }
            | Self::Rotate { name, .. }
            | Self::Set { name, .. }
            | Self::Remove { name, .. } => Some(name),
        }
    }

    /// What the audit log says.
    pub(super) fn describe(&self) -> String {
        let noun = K::AUDITED_AS;
        match self {
            Self::List => format!("list {noun}s"),
            Self::Add(_) => format!("add {noun}"),
            Self::Show { .. } => format!("show {noun}"),
            Self::Keys { .. } => format!("show keys of {noun}"),
            Self::Rotate { key, .. } => format!("rotate {} key of {noun}", key.name()),
            Self::Set { .. } => format!("change {noun}"),
            Self::Remove { removal, .. } => format!("remove {noun}{}", K::removal_note(*removal)),
        }
    }

    /// Whether the audit log has a record of success. Refusals are recorded for every verb.
    pub(super) fn is_audited(&self) -> bool {
        match self {
            Self::List | Self::Show { .. } => false,
            Self::Add(_)
            | Self::Keys { .. }
            | Self::Rotate { .. }
            | Self::Set { .. }
            | Self::Remove { .. } => true,
        }
    }
}

impl<K: Administrable> Asked<K> {
    pub(super) async fn carry_out(
        self,
        store: &Principals<K>,
        endpoint: &K::Endpoint,
    ) -> Result<Answer, Failure> {
        let Self { scope, verb } = self;
        let done = carry_out(verb, &scope, store, endpoint).await;
        done.map_err(|error| Failure::of(&error, K::COMMAND, &K::scope_flag(&scope)))
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
            let brought = K::brought_key(&new).map(|text| Key::brought(text.as_str()));
            let keys = Key::pair(brought.transpose()?)?;
            let added = store.add(scope, K::made(new, &keys)).await?;
            (added, WhichKey::ALL.to_vec())
        }
        Verb::Show { name } => (store.find(scope, &name).await?, vec![]),
        Verb::Keys { name } => (store.find(scope, &name).await?, WhichKey::ALL.to_vec()),
        Verb::Rotate { name, key } => (store.rotate(scope, &name, key).await?, vec![key]),
        Verb::Set { name, change } => {
            let apply = |principal: &mut K::Principal| K::apply(principal, change);
            (store.change(scope, &name, apply).await?, vec![])
        }
    };
    let keys = shown.into_iter().map(|which| {
        let value = K::key(&principal, which);
        let connection_string = K::connection_string(endpoint, K::name(&principal), &value, scope);
        KeyView {
            key: which,
            value: Secret::new(value),
            connection_string: Secret::new(connection_string),
        }
    });
    let keys = keys.collect();
    Ok(K::shown(K::view(&principal, scope), keys))
}
