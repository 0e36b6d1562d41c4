//! By what name a client called the server, as it says when it opens its connection.

use kew_amqp::error::{Error, condition};
use kew_listen::Barred;

use crate::authorization::authority::is_public;
use crate::authorization::credential::Credential;
use crate::connection::client::Client;

impl Client {
    /// Takes back the public key from a client that called the server by a name that is none of its own.
    /// One that named none called it by its address.
    pub(super) fn on_hostname(&mut self, hostname: Option<&str>) {
        let Some(hostname) = hostname.filter(|hostname| !hostname.is_empty()) else {
            return;
        };
        let names = &self.shared.names;
        let is_own = names.has(hostname) || names.admits_public_key(hostname);
        if self.peer.origin.public_key.is_err() || is_own {
            return;
        }
        let barred = Barred::Host;
        self.peer.origin.public_key = Err(barred);
        // Names and keys are shown before the connection is opened.
        if self.has_shown_the_public_key() {
            self.shared
                .observer
                .note_barred(&self.peer.origin, barred, Some(hostname));
            let text = format!("{barred} (this connection: '{hostname}')");
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, text);
            self.connection.close(Some(error));
        }
    }

    /// Whether it has shown a name and key that hold for those alone who may use the public key.
    fn has_shown_the_public_key(&self) -> bool {
        self.credentials
            .grants
            .iter()
            .any(|shown| match &shown.credential {
                Credential::Password(password) => {
                    let (name, key) = (&password.name, &password.key);
                    let grant =
                        self.shared
                            .authority
                            .grant_of_password(name, key, self.peer.origin);
                    grant.is_none() && is_public(name, key)
                }
                Credential::Signature(_) | Credential::Bearer => false,
            })
    }
}
