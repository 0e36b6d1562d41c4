//! Kills and power cuts of a server that copies messages into the subscriptions of a topic: `topic_load` has the clients
//! and the check.
//!
//! `KEW_TOPIC_KILLS` sets how often the server is killed, and `KEW_TOPIC_POWER_CUTS` how often its power fails.

use std::path::Path;
use std::process::Command;

use crate::load::{self, Random, from_environment, stop_in_order};
use crate::power_cut::Disk;
use crate::server::{Server, show};
use crate::topic_load::TopicLoad;

const KILLS_DEFAULT: u64 = 15;
const CUTS_DEFAULT: u64 = 6;

/// How many messages are accepted between two ends of the server, at least and at most.
const ACCEPTED: std::ops::Range<u64> = 40..160;

/// After so many ends another topic is begun: the check looks at all that was ever sent.
const ENDS_OF_A_TOPIC: u64 = 15;

/// Once in so many rounds clients publish in all ways.
const ROUNDS_TO_ALL_WAYS: u64 = 2;

/// Once in so many rounds the server ends again as soon as it is ready, while it makes the copies that were left.
const ROUNDS_TO_A_SHORT_LIFE: u64 = 2;

fn arrange(command: &mut Command, data_dir: &Path) {
    command.arg("serve").arg("--data-dir").arg(data_dir);
    command.args(["--queue-listen", "127.0.0.1:0"]);
    command.args(["--bus-listen", "127.0.0.1:0"]);
}

#[test]
fn kills_neither_lose_nor_double_copies_of_topics() {
    let kills = from_environment("KEW_TOPIC_KILLS").unwrap_or(KILLS_DEFAULT);
    let mut killed = 0;
    while killed < kills {
        let place = tempfile::tempdir().expect("a temporary directory");
        let start = |_: &mut (), _| Server::start_with(|command| arrange(command, place.path()));
        let end = |(): &mut (), server: Server, _: &mut Random| server.kill();
        killed += load::run(ends(kills - killed, &mut (), start, end));
    }
    show(&format!("topic_kills={killed}"));
}

#[test]
fn power_cuts_neither_lose_nor_double_copies_of_topics() {
    let cuts = from_environment("KEW_TOPIC_POWER_CUTS").unwrap_or(CUTS_DEFAULT);
    let mut cut = 0;
    while cut < cuts {
        let Some(mut disk) = Disk::new() else {
            return;
        };
        let start = |disk: &mut Disk, seed| {
            Server::start_with(|command| {
                arrange(command, &disk.data_dir());
                disk.put_under(command, seed);
            })
        };
        let end = |disk: &mut Disk, server: Server, random: &mut Random| {
            server.kill();
            disk.lose_names(random);
        };
        cut += load::run(ends(cuts - cut, &mut disk, start, end));
    }
    show(&format!("topic_power_cuts={cut}"));
}

/// Ends a server under load again and again, as often as one topic allows. Returns how often.
async fn ends<D>(
    wanted: u64,
    on: &mut D,
    start: impl Fn(&mut D, u64) -> Server,
    end: impl Fn(&mut D, Server, &mut Random),
) -> u64 {
    let mut random = Random::new(load::seed());
    let mut server = start(on, random.next());
    TopicLoad::create(&server).await;
    let mut load = TopicLoad::default();
    let (mut ended, mut round) = (0, 0);
    while ended < wanted.min(ENDS_OF_A_TOPIC) {
        round += 1;
        load.begin(&server, round % ROUNDS_TO_ALL_WAYS == 0);
        let more = ACCEPTED.start + random.below(ACCEPTED.end - ACCEPTED.start);
        load.accepted(more).await;
        end(on, server, &mut random);
        load.server_is_gone().await;
        ended += 1;
        if round % ROUNDS_TO_A_SHORT_LIFE == 0 {
            server = start(on, random.next());
            end(on, server, &mut random);
            ended += 1;
        }
        server = start(on, random.next());
        load.check(&server).await;
    }
    stop_in_order(server).await;
    // The last topic of many has only what is left.
    if ended >= CUTS_DEFAULT {
        load.assert_tried();
    }
    ended
}
