//! Checks the host name that a client names when it opens its connection.

use kew_amqp::error::{Error, condition};
use kew_listen::Barred;

use crate::authorization::authority::is_public;
use crate::authorization::credential::Credential;
use crate::connection::client::Client;

impl Client {
    /// Revokes the public key of a client that named a host other than this server. A client that
    /// named none used its address.
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
        // Names and keys are sent before the connection is opened.
        if self.has_shown_the_public_key() {
            self.shared
                .observer
                .note_barred(&self.peer.origin, barred, Some(hostname));
            let text = format!("{barred} (this connection: '{hostname}')");
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, text);
            self.connection.close(Some(error));
        }
    }

    /// Whether it has sent the public name and key, and they grant it nothing.
    fn has_shown_the_public_key(&self) -> bool {
        self.credentials
            .grants
            .iter()
            .any(|shown| match &shown.credential {
                Credential::Password(password) => {
                    let authority = &self.shared.authority;
                    let grant = authority.grant_of_password_now(password, self.peer.origin);
                    // If the rules are not known now, no other key is known either.
                    let grants = grant.is_ok_and(|grant| grant.is_some());
                    !grants && is_public(&password.name, &password.key)
                }
                Credential::Signature(_) | Credential::Bearer => false,
            })
    }
}
