//! `kew log damage`: lists what the scrub of a running server has found.

use anyhow::{Result, anyhow, bail};

use crate::admin::client::Connection;
use crate::admin::damage::Damage;
use crate::admin::{Act, Answer};
use crate::cli::print_line;
use crate::flags::DirectoryArgs;
use crate::tls_command::quoted;
use crate::{safe_json, settings};

/// Fails if anything is damaged, like `kew log verify`, and if the server looks for nothing.
pub(super) fn run(args: &DirectoryArgs) -> Result<()> {
    let socket = match (&args.of.data_dir, &args.admin_socket) {
        (_, Some(socket)) => socket.clone(),
        (data_dir, None) => {
            settings::data_dir_or_default(data_dir.clone())?.join(settings::ADMIN_SOCKET)
        }
    };
    let Some(server) = Connection::open(&socket)? else {
        bail!(
            "no server answers at {}: start it, or check a stopped one with: kew log verify",
            socket.display()
        );
    };
    let damage = match server.ask(&Act::ListDamage)? {
        Ok(Answer::Damage { damage }) => damage,
        Ok(
            Answer::Accounts { .. }
            | Answer::Account { .. }
            | Answer::Rules { .. }
            | Answer::Rule { .. }
            | Answer::Config { .. }
            | Answer::Removed { .. },
        ) => bail!("the server sent an unexpected answer"),
        Err(failure) => return Err(anyhow!("{}", failure.message)),
    };
    match args.json {
        true => print_line(&safe_json::to_string(&damage)?),
        false => print(&damage),
    }
    let (places, messages) = (
        damage.places_count,
        damage.messages_count + damage.quarantined_count,
    );
    match (places, messages, damage.unreadable_pages) {
        (0, 0, 0) if !damage.scrub => bail!(
            "the server does not look for damage: its scrub is off (--scrub-rate 0), or its messages are in memory. \
             With a data directory, stop the server and check everything with: kew log verify"
        ),
        (0, 0, 0) => Ok(()),
        (_, _, 0) => bail!(
            "{places} damaged places and {messages} damaged messages or session states, listed above; see \
             docs/reliability.md"
        ),
        (_, _, pages) => bail!(
            "{pages} unreadable pages with messages, {places} damaged places, and {messages} damaged messages or session \
             states, listed above; do not restart the server before you have read docs/reliability.md"
        ),
    }
}

fn print(damage: &Damage) {
    for place in &damage.places {
        let (file, what) = (&place.file, &place.what);
        print_line(&format!("DAMAGED {file} at byte {}: {what}", place.offset));
    }
    for message in &damage.messages {
        let of = match (&message.sequence_number, &message.session) {
            (Some(number), _) => format!("message {number}"),
            (None, Some(session)) => format!("state of session {}", quoted(session)),
            (None, None) => "message".into(),
        };
        print_line(&format!(
            "DAMAGED {of} of {} queue {} of {}: {} at byte {}",
            message.service, message.queue, message.account, message.file, message.offset
        ));
    }
    for run in &damage.quarantined {
        print_line(&format!(
            "QUARANTINED {} messages of {} queue {} of {}, the first is number {}: both copies of their records are damaged, \
             and nobody receives them",
            run.count, run.service, run.queue, run.account, run.first_sequence_number
        ));
    }
    if damage.unreadable_pages > 0 {
        print_line(&format!(
            "{} pages with messages or remembered ids are damaged in both copies: the server sets these messages aside as far as \
             it can, which takes minutes; as long as such pages are counted, no backup can be made, and a start that has to read \
             remembered ids from one needs: kew log repair --accept-loss",
            damage.unreadable_pages
        ));
    }
    if !damage.scrub {
        return;
    }
    let mib = damage.read_bytes.div_ceil(1 << 20);
    print_line(&format!(
        "the scrub has read {mib} MiB since the start, and everything {} times",
        damage.passes
    ));
}
