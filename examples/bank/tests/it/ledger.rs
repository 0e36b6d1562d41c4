//! What the stores promise.

use kew_bank::message::{Message, Shape};
use kew_bank::money::Money;
use kew_bank::transaction::{Decision, Transaction};
use kew_idempotency::{Answer, ErrorKind};
use serde_json::json;

use crate::database::{Database, id, key, transaction};

fn money(text: &str) -> Money {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_transaction_is_booked_once_and_repeated_with_its_details() {
    for database in Database::each("booking once").await {
        let ledger = &database.ledger;
        assert_eq!(ledger.look_up(&key(), &id(1)).await.unwrap(), None);
        let first = ledger.book(&transaction(1, "10.00")).await.unwrap();
        let Answer::New(details) = first else {
            panic!("it was new");
        };
        assert_eq!(details.balance, money("10"));
        // The stored details count, and not what comes now.
        let again = ledger.book(&transaction(1, "99.00")).await.unwrap();
        assert_eq!(again, Answer::Repeated(details.clone()));
        let found = ledger.look_up(&key(), &id(1)).await.unwrap();
        assert_eq!(found, Some(details));
        ledger.book(&transaction(2, "-25.50")).await.unwrap();
        assert_eq!(database.balance("ann|giro").await, Some(money("-15.50")));
        assert_eq!(database.booked().await, 2);
    }
}

#[tokio::test]
async fn two_at_once_are_booked_once() {
    for database in Database::each("two at once").await {
        let one = transaction(1, "10.00");
        let (a, b) = tokio::join!(database.ledger.book(&one), database.ledger.book(&one));
        let repeated = [a.unwrap(), b.unwrap()].map(|it| it.is_repeated());
        assert!(repeated.contains(&true) && repeated.contains(&false));
        assert_eq!(database.balance("ann|giro").await, Some(money("10")));
    }
}

#[tokio::test]
async fn the_key_is_unique_even_if_the_look_up_finds_nothing() {
    for database in Database::each("the unique key").await {
        database
            .ledger
            .book(&transaction(1, "10.00"))
            .await
            .unwrap();
        database.run("DELETE FROM kew_outcomes").await;
        assert_eq!(database.ledger.look_up(&key(), &id(1)).await.unwrap(), None);
        assert!(
            database
                .ledger
                .book(&transaction(1, "10.00"))
                .await
                .is_err()
        );
        assert_eq!(database.balance("ann|giro").await, Some(money("10")));
        // The same id in another account is another transaction.
        let other = Transaction {
            key: kew_bank::names::AccountKey::new("ann", "savings").unwrap(),
            ..transaction(1, "5.00")
        };
        assert!(!database.ledger.book(&other).await.unwrap().is_repeated());
    }
}

#[tokio::test]
async fn only_not_found_means_new() {
    for database in Database::each("a damaged store").await {
        database
            .run("ALTER TABLE kew_outcomes RENAME TO away")
            .await;
        let error = database.ledger.look_up(&key(), &id(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(
            database
                .ledger
                .book(&transaction(1, "10.00"))
                .await
                .is_err()
        );
        database
            .run("ALTER TABLE away RENAME TO kew_outcomes")
            .await;
        assert_eq!(database.ledger.look_up(&key(), &id(1)).await.unwrap(), None);
        assert_eq!(database.balance("ann|giro").await, None);
    }
}

#[tokio::test]
async fn a_card_payment_is_covered_or_declined_and_stays_so() {
    for database in Database::each("card payments").await {
        let ledger = &database.ledger;
        let payment = transaction(1, "-30.00");
        let declined = ledger.approve(&payment).await.unwrap().into_outcome();
        assert_eq!(declined.decision, Decision::Declined);
        ledger.book(&transaction(2, "100.00")).await.unwrap();
        let again = ledger.approve(&payment).await.unwrap();
        assert_eq!(again, Answer::Repeated(declined), "it was answered");
        let next = ledger.approve(&transaction(3, "-30.00")).await.unwrap();
        assert_eq!(next.into_outcome().decision, Decision::Booked);
        assert_eq!(database.balance("ann|giro").await, Some(money("70")));
        let too_much = ledger.approve(&transaction(4, "-70.01")).await.unwrap();
        assert_eq!(too_much.into_outcome().decision, Decision::Declined);
    }
}

#[tokio::test]
async fn the_log_keeps_fields_that_the_text_has_no_place_for() {
    for database in Database::each("unknown fields").await {
        let mut logged = transaction(1, "10.00");
        logged.unknown.fields = serde_json::from_value(json!({"branch": {"no": 7}})).unwrap();
        let message = Message {
            transaction: logged.clone(),
            shape: Shape::Text,
        };
        database.ledger.log(&message).await.unwrap();
        let received = Message::from_body(message.to_body().unwrap().as_bytes()).unwrap();
        assert!(received.transaction.unknown.is_empty());
        let booked = database.ledger.book(&received.transaction).await.unwrap();
        assert_eq!(booked.into_outcome().unknown, logged.unknown);
    }
}
