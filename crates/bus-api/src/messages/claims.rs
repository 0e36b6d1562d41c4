//! Locks that open transactions will end: meanwhile nothing else may settle their messages.
//!
//! Until the commit, only its connection knows the operations of a transaction. So claims are kept
//! here, for all connections, and never outlive their transaction. They guarantee nothing: a lock
//! can still expire, and then the broker refuses the commit.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kew_engine::Token;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The number of claims, so that settlements can check it without the mutex.
    count: AtomicUsize,
    locks: Mutex<HashSet<Token>>,
}

impl Claims {
    /// Claims a lock, unless it is claimed already.
    pub(crate) fn claim(self: &Arc<Self>, lock: Token) -> Option<Claim> {
        let is_free = self.locks().insert(lock);
        is_free.then(|| {
            self.count.fetch_add(1, Ordering::Release);
            Claim {
                claims: Arc::clone(self),
                lock,
            }
        })
    }

    pub(crate) fn has(&self, lock: Token) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.locks().contains(&lock)
    }

    fn locks(&self) -> MutexGuard<'_, HashSet<Token>> {
        // A set is consistent between any two of its operations.
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claimed lock. Dropping it ends the claim.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    lock: Token,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.locks().remove(&self.lock);
        self.claims.count.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_claimed_once_until_it_is_given_up() {
        let claims = Arc::<Claims>::default();
        let [one, two] = [1, 2].map(|byte| Token::from_bytes([byte; 16]));
        let claim = claims.claim(one).unwrap();
        assert!(claims.claim(one).is_none());
        assert!(claims.has(one) && !claims.has(two));
        let other = claims.claim(two);
        drop(claim);
        assert!(!claims.has(one) && claims.has(two));
        assert!(claims.claim(one).is_some());
        drop(other);
        assert!(!claims.has(two));
    }
}
