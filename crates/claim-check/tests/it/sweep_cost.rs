//! What a sweep asks of the store grows with what it removes, and not with what waits.

use std::time::Duration;

use kew_claim_check::ClaimCheck;

use crate::store::TestStore;
use crate::sweep::large;

const DAY: Duration = Duration::from_hours(24);

/// The other thirty objects are kept.
async fn ten_orphans_of_forty(store: &TestStore) -> ClaimCheck {
    let claims = store.claim_check();
    for n in 0..40 {
        let sent = claims.check_in(large()).await.unwrap();
        if n % 4 != 0 {
            claims.keep(&sent.claim).await.unwrap();
        }
    }
    store.pass(31 * DAY);
    claims
}

/// A day of a million orphans is not listed to its end for each thousand.
#[tokio::test]
async fn a_day_is_listed_as_far_as_the_limit() {
    let store = TestStore::new();
    let claims = store.claim_check();
    for _ in 0..100 {
        claims.check_in(large()).await.unwrap();
    }
    store.pass(31 * DAY);
    for left in (0..100).step_by(5).rev() {
        let before = store.list_requests();
        let swept = claims.sweep(5).await.unwrap();
        assert_eq!((swept.removed, swept.has_more), (5, left > 0), "{left}");
        // One for the days, and one page: it has 10 entries.
        assert_eq!(store.list_requests() - before, 2, "{left}");
        assert!(swept.looked_at <= 5 + 2, "{swept:?}");
    }
    assert_eq!(store.names().await, []);
}

#[tokio::test]
async fn kept_objects_among_orphans_cost_no_request() {
    let store = TestStore::new();
    let claims = ten_orphans_of_forty(&store).await;
    for left in (0..10).rev() {
        let before = store.operations();
        let swept = claims.sweep(1).await.unwrap();
        assert_eq!((swept.removed, swept.has_more), (1, left > 0));
        // The clock and the days, each entry of the list, and two for the orphan.
        let operations = u64::from(store.operations() - before);
        assert_eq!(operations, 4 + swept.looked_at + 2);
    }
    assert_eq!(store.names().await.len(), 60);
}

/// Then every kept object looks like an orphan at first. A sweep must come past those, also with a small limit.
#[tokio::test]
async fn marks_may_be_listed_after_all_objects() {
    let store = TestStore::new();
    store.list_marks_last();
    let claims = ten_orphans_of_forty(&store).await;
    for _ in 0..5 {
        assert_eq!(claims.sweep(2).await.unwrap().removed, 2);
    }
    let swept = claims.sweep(2).await.unwrap();
    assert_eq!((swept.removed, swept.kept, swept.has_more), (0, 30, false));
    assert_eq!(store.names().await.len(), 60);
}
