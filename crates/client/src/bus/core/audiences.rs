//! Tokens: one for each entity in use, shown to the service before its links are attached, and renewed in time.

use std::sync::Arc;
use std::time::Duration;

use kew_amqp::Millis;

use super::{Core, Token, after};
use crate::error::Error;

/// How long a token may take to come, and how long the service to take it.
const TOKEN_WITHIN: Duration = Duration::from_secs(60);

/// Tokens are not renewed more often.
const RENEWAL_MIN: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A token is being fetched, or shown to the service.
    Asked {
        until: Millis,
    },
}

/// An entity, and how its token stands.
#[derive(Debug)]
pub(super) struct Audience {
    phase: Phase,
    /// What was shown to the service and not answered.
    shown: Option<(Duration, bool)>,
    /// Until when the last token holds that the service took.
    good_until: Option<Millis>,
    renew_at: Option<Millis>,
}

impl Audience {
    fn new() -> Self {
        Self {
            phase: Phase::Idle,
            shown: None,
            good_until: None,
            renew_at: None,
        }
    }

    fn is_good(&self, now: Millis) -> bool {
        self.good_until.is_some_and(|until| until > now)
    }

    pub(super) fn next_timeout(&self) -> Option<Millis> {
        match self.phase {
            Phase::Asked { until } => Some(until),
            Phase::Idle => self.renew_at,
        }
    }
}

impl Core {
    pub(super) fn has_token(&self, audience: &str) -> bool {
        let audience = self.audiences.get(audience);
        audience.is_some_and(|audience| audience.is_good(self.now))
    }

    /// Has a token fetched, unless one is on its way.
    pub(super) fn want_token(&mut self, name: Arc<str>) {
        let until = after(self.now, TOKEN_WITHIN);
        let audience = self
            .audiences
            .entry(name.clone())
            .or_insert_with(Audience::new);
        if audience.phase == Phase::Idle {
            audience.phase = Phase::Asked { until };
            self.tokens_wanted.push(name);
        }
    }

    /// A token was fetched, or there is none.
    pub(in crate::bus) fn token(
        &mut self,
        name: &Arc<str>,
        result: Result<Token, Error>,
        now: Millis,
    ) {
        self.now = now;
        let Some(audience) = self.audiences.get_mut(name) else {
            // The connection that it was for is gone.
            return;
        };
        match result {
            Ok(token) => {
                audience.shown = Some((token.lifetime, token.is_renewable));
                self.put_token(name.clone(), token);
            }
            Err(error) => self.on_no_token(name, &error),
        }
    }

    /// The service has taken a token, or not.
    pub(super) fn on_token_answer(&mut self, name: &Arc<str>, result: Result<(), Error>) {
        if let Err(error) = result {
            self.on_no_token(name, &error);
            return;
        }
        let now = self.now;
        let Some(audience) = self.audiences.get_mut(name) else {
            return;
        };
        audience.phase = Phase::Idle;
        if let Some((lifetime, is_renewable)) = audience.shown.take() {
            audience.good_until = Some(after(now, lifetime));
            let renewal = (lifetime / 4 * 3).max(RENEWAL_MIN);
            audience.renew_at = is_renewable.then(|| after(now, renewal));
        }
        self.stir_links_of(name);
        self.stir_nodes_of(name);
    }

    /// The token in use stays, if there is one. Otherwise all that waits for one fails.
    fn on_no_token(&mut self, name: &Arc<str>, error: &Error) {
        let now = self.now;
        self.forget_shown_token(name);
        let Some(audience) = self.audiences.get_mut(name) else {
            return;
        };
        audience.phase = Phase::Idle;
        audience.shown = None;
        if audience.is_good(now) {
            tracing::warn!(target: "kew::client", entity = %name, %error, "a token could not be renewed");
            audience.renew_at = Some(after(now, RENEWAL_MIN));
            return;
        }
        self.audiences.remove(name);
        self.fail_links_of(name, error);
        self.fail_nodes_of(name, error);
    }

    /// The service says that a token no longer opens an entity.
    pub(super) fn distrust_token(&mut self, name: &str) {
        if let Some(audience) = self.audiences.get_mut(name) {
            audience.good_until = None;
        }
    }

    /// Renews tokens that links use, and forgets the others.
    pub(super) fn renew_tokens(&mut self) {
        let now = self.now;
        let is_due = |audience: &&Audience| audience.next_timeout().is_some_and(|at| at <= now);
        let due: Vec<(Arc<str>, Phase)> = self
            .audiences
            .iter()
            .filter(|(_, audience)| is_due(audience))
            .map(|(name, audience)| (name.clone(), audience.phase))
            .collect();
        for (name, phase) in due {
            match phase {
                Phase::Asked { .. } => {
                    let error = Error::later("no token came in time");
                    self.on_no_token(&name, &error);
                }
                Phase::Idle if self.is_in_use(&name) => self.want_token(name),
                Phase::Idle => {
                    self.audiences.remove(&name);
                }
            }
        }
    }

    fn is_in_use(&self, audience: &str) -> bool {
        let mut links = self.links.values();
        let mut nodes = self.nodes.values();
        links.any(|link| link.is_up() && link.audience() == audience)
            || nodes.any(|node| node.audience() == Some(audience))
    }
}
