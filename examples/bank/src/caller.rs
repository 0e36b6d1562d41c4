//! A caller that repeats each call with the same transaction id until it is confirmed. So must every real one.

use std::time::Duration;

use hyper::Method;
use serde_json::json;
use tokio::time::sleep;

use crate::audit::Confirmed;
use crate::chance::Chance;
use crate::client::Client;
use crate::contract::{Answer, Status};
use crate::money::Money;

/// The longest pause before a call is repeated.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What one caller does next.
#[derive(Clone, Debug)]
pub struct Order {
    /// The transaction.
    pub confirmed: Confirmed,
    user: String,
    account: String,
    is_xml: bool,
    /// Whether the call is made again after its confirmation, as a caller does that lost the answer.
    is_repeated: bool,
}

impl Order {
    /// An insert or a withdrawal on one of so many accounts.
    pub fn any(chance: &mut Chance, accounts: u64) -> Self {
        let number = chance.below(accounts.max(1));
        let (user, account) = (
            format!("user-{:03}", number / 2),
            format!("a{}", number % 2),
        );
        let cents = i64::try_from(1 + chance.below(100_000)).unwrap_or(1);
        let sign = if chance.below(3) == 0 { -1 } else { 1 };
        Self {
            confirmed: Confirmed {
                key: format!("{user}|{account}"),
                id: chance.id().to_string(),
                amount: Money::from_cents(sign * cents),
            },
            user,
            account,
            is_xml: chance.below(2) == 0,
            is_repeated: chance.below(10) == 0,
        }
    }

    /// Calls until it is confirmed, and returns how often the call failed before.
    pub async fn place(&self, web: &Client) -> u32 {
        let failures = self.place_once(web).await;
        if self.is_repeated {
            self.place_once(web).await;
        }
        failures
    }

    async fn place_once(&self, web: &Client) -> u32 {
        let mut failures = 0;
        let mut pause = Duration::from_millis(20);
        while !self.is_confirmed(web).await {
            failures += 1;
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        failures
    }

    async fn is_confirmed(&self, web: &Client) -> bool {
        let amount = self.confirmed.amount;
        let (path, amount) = match amount.is_positive() {
            true => ("/transactions/insert", amount),
            false => ("/transactions/withdraw", amount.negated()),
        };
        let body = json!({
            "userId": self.user,
            "accountId": self.account,
            "amount": amount,
            "queueAsXml": self.is_xml,
            "channel": "replay",
        });
        let id = Some(self.confirmed.id.as_str());
        let called = web.call(Method::POST, path, id, body.to_string()).await;
        let answer = called
            .ok()
            .and_then(|reply| serde_json::from_slice::<Answer>(&reply.body).ok());
        match answer.map(|it| it.status) {
            Some(Status::Succeeded | Status::Completed) => true,
            Some(Status::Failed | Status::Proceed) | None => false,
        }
    }
}
