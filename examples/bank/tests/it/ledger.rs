//! What the stores promise.

use kew_bank::audit::{Confirmed, audit};
use kew_bank::ledger::LedgerError;
use kew_bank::message::{Message, Shape};
use kew_bank::money::Money;
use kew_bank::names::AccountKey;
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
        let again = ledger.book(&transaction(1, "10.00")).await.unwrap();
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
            key: AccountKey::new("ann", "savings").unwrap(),
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

#[tokio::test]
async fn a_stored_outcome_is_no_answer_to_another_request() {
    for database in Database::each("one id for two requests").await {
        let ledger = &database.ledger;
        ledger.book(&transaction(1, "10.00")).await.unwrap();
        for (again, expected) in [
            ("99.00", "its amount is 10.00, and not 99.00"),
            ("-10.00", "its kind is Insert, and not Withdrawal"),
        ] {
            let error = ledger.book(&transaction(1, again)).await.unwrap_err();
            assert!(matches!(error, LedgerError::IdReused(_)), "{error}");
            let error = error.to_string().to_lowercase();
            assert!(error.contains(&expected.to_lowercase()), "{error}");
        }
        let card = ledger.approve(&transaction(1, "-10.00")).await;
        assert!(matches!(card, Err(LedgerError::IdReused(_))));
        assert_eq!(database.balance("ann|giro").await, Some(money("10")));
    }
}

fn message(transaction: Transaction) -> Message {
    Message {
        transaction,
        shape: Shape::Text,
    }
}

#[tokio::test]
async fn an_id_is_reserved_before_its_message_is_queued() {
    for database in Database::each("reserved ids").await {
        let ledger = &database.ledger;
        let first = message(transaction(1, "10.00"));
        ledger.log(&first).await.unwrap();
        ledger.log(&first).await.unwrap();
        let key = AccountKey::new("bob", "giro").unwrap();
        for (other, expected) in [
            (
                transaction(1, "11.00"),
                "its amount is 10.00, and not 11.00",
            ),
            (
                transaction(1, "-10.00"),
                "its kind is insert, and not withdrawal",
            ),
            (
                Transaction {
                    key,
                    ..transaction(1, "10.00")
                },
                "its account is not this one",
            ),
        ] {
            let error = ledger.log(&message(other)).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let card = ledger.approve(&transaction(1, "-10.00")).await;
        assert!(matches!(card, Err(LedgerError::IdReused(_))));
        // Both look it up, find nothing, and come at once.
        let [a, b] = ["1.00", "2.00"].map(|amount| message(transaction(2, amount)));
        let (a, b) = tokio::join!(ledger.log(&a), ledger.log(&b));
        assert!(a.is_ok() != b.is_ok(), "{a:?} {b:?}");
    }
}

#[tokio::test]
async fn a_balance_never_leaves_the_numbers_that_can_be_counted() {
    for database in Database::each("the largest balances").await {
        let ledger = &database.ledger;
        database
            .run(
                "INSERT INTO balances VALUES ('ann', 'giro', 9223372036854775000);
                 INSERT INTO balances VALUES ('bob', 'giro', -9223372036854775000);",
            )
            .await;
        let refused = ledger.book(&transaction(1, "10.00")).await.unwrap();
        let details = refused.into_outcome();
        assert_eq!(details.decision, Decision::OutOfRange);
        assert_eq!(details.balance, money("92233720368547750.00"));
        // The outcome is stored, and can be read although the balance is larger than any amount.
        let again = ledger.book(&transaction(1, "10.00")).await.unwrap();
        assert_eq!(again, Answer::Repeated(details));
        let bob = Transaction {
            key: AccountKey::new("bob", "giro").unwrap(),
            ..transaction(2, "-10.00")
        };
        let refused = ledger.book(&bob).await.unwrap().into_outcome();
        assert_eq!(refused.decision, Decision::OutOfRange);
        assert_eq!(database.booked().await, 0);
        let confirmed = Confirmed {
            key: "ann|giro".to_owned(),
            id: id(1).to_string(),
            amount: money("10"),
        };
        let findings = audit(ledger, &[confirmed]).await.unwrap();
        assert!(findings.is_complete(), "{findings}");
        assert_eq!((findings.booked, findings.out_of_range), (0, 1));
        // What fits is booked.
        let fits = ledger.book(&transaction(3, "8.07")).await.unwrap();
        assert_eq!(fits.into_outcome().balance, Money::from_cents(i64::MAX));
        let less = ledger.book(&transaction(4, "-8.07")).await.unwrap();
        assert_eq!(less.into_outcome().decision, Decision::Booked);
    }
}

#[tokio::test]
async fn the_first_of_many_missing_transactions_are_looked_up() {
    for database in Database::each("many missing transactions").await {
        let ledger = &database.ledger;
        database
            .run("INSERT INTO balances VALUES ('ann', 'giro', 9223372036854775000);")
            .await;
        let refused = ledger.book(&transaction(1, "10.00")).await.unwrap();
        assert_eq!(refused.into_outcome().decision, Decision::OutOfRange);
        let confirmed: Vec<Confirmed> = (1..=130)
            .map(|number| Confirmed {
                key: "ann|giro".to_owned(),
                id: id(number).to_string(),
                amount: money("10"),
            })
            .collect();
        // Ids rise with their numbers, so the first is looked up.
        let findings = audit(ledger, &confirmed).await.unwrap();
        assert_eq!((findings.out_of_range, findings.not_looked_up), (1, 30));
        assert!(!findings.is_complete());
        assert!(findings.to_string().contains("not_looked_up=30"));
        let findings = audit(ledger, &confirmed[..100]).await.unwrap();
        assert_eq!((findings.out_of_range, findings.not_looked_up), (1, 0));
    }
}
