//! The log through its public interface, on failing disks.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot continue has failed, and helpers are not marked as tests"
)]

mod anew;
mod backup;
mod crash;
mod damage;
mod faults;
mod following;
mod golden;
mod golden_pages;
mod life;
mod looking;
mod manifests;
mod node;
mod page_space;
mod paged;
mod pages;
mod random;
mod recycle;
mod scrub;
mod search;
mod space;
mod storage;
mod tidy;
