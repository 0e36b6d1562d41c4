//! The settings file. Its parser is part of the binary, so its source is compiled in here.

use std::fs;

use kew_fuzz::gauge;
use kew_fuzz::mutate::{Input, changes};

use crate::{INPUT_SIZE_MAX, INPUTS};

use crate::serve_args::ServeArgs;

/// A TOML parser and the text of its error.
const MEMORY_MAX_BYTES: usize = 1 << 20;

const EXAMPLE: &str = "data_dir = \"/var/lib/kew\"\nephemeral = false\n\
    queue_listen = [\"127.0.0.1:10001\", \"[::1]:10001\"]\nallow_public_key = true\n\
    no_public_key = false\nadmin_socket = \"/run/kew.sock\"\ntls_cert = \"/etc/kew/server.pem\"\n\
    tls_key = \"/etc/kew/server.key\"\ntls_only = false\nallow_plain_http = true\n";

#[test]
fn configuration() {
    let place = crate::scratch();
    let path = place.path().join("kew.toml");
    let check = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("writable");
        let args = ServeArgs {
            config: Some(path.clone()),
            ..ServeArgs::default()
        };
        let _ = gauge::within(MEMORY_MAX_BYTES, || {
            crate::settings::Settings::from_args(args)
        });
    };
    bolero::check!()
        .with_iterations(INPUTS / 4)
        .with_max_len(INPUT_SIZE_MAX)
        .for_each(|bytes| {
            check(bytes);
            let mut text = EXAMPLE.as_bytes().to_vec();
            changes(&mut text, &mut Input::new(bytes));
            check(&text);
        });
}
