//! Which place determines a setting, and which settings are invalid.

use std::ffi::OsString;

use super::*;

fn listen(addresses: &[&str]) -> ServeArgs {
    ServeArgs {
        data_dir: Some("d".into()),
        queue_listen: addresses.iter().map(ToString::to_string).collect(),
        ..ServeArgs::default()
    }
}

fn with(args: ServeArgs, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_layers(args, &|name| {
        let mut variables = variables.iter();
        let (_, value) = variables.find(|(other, _)| *other == name)?;
        Some(OsString::from(value))
    })
}

fn error(args: ServeArgs, variables: &[(&str, &str)]) -> String {
    with(args, variables).unwrap_err().to_string()
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kew.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path)
}

#[test]
fn the_default_is_what_development_storage_means() {
    let settings = with(listen(&[]), &[]).unwrap();
    assert_eq!(settings.queue_listen, ["127.0.0.1:10001".parse().unwrap()]);
    assert_eq!(settings.place, Place::Directory("d".into()));
}

#[test]
fn the_public_key_is_kept_from_other_machines_unless_it_is_let_out() {
    let served = |args: ServeArgs, variables: &[(&str, &str)]| {
        let settings = with(args, variables).unwrap();
        let mut addresses = settings.queue_listen.iter();
        addresses.all(|address| settings.public_key.is_served_at(*address))
    };
    let nowhere = [("KEW_NO_PUBLIC_KEY", "true")];
    for address in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
        let plain = [("KEW_ALLOW_PLAIN_HTTP", "true")];
        assert!(!served(listen(&[address]), &plain), "{address}");
        let mut args = listen(&[address]);
        args.allow_public_key = true;
        args.allow_plain_http = true;
        assert!(served(args, &nowhere));
        let allowed = [
            ("KEW_ALLOW_PUBLIC_KEY", "true"),
            ("KEW_ALLOW_PLAIN_HTTP", "true"),
        ];
        assert!(served(listen(&[address]), &allowed));
    }
    let loopback = [
        "127.0.0.2:1",
        "[::1]:1",
        "localhost:1",
        "[::ffff:127.0.0.1]:1",
    ];
    assert!(served(listen(&loopback), &[]));
    assert!(!served(listen(&loopback), &nowhere));
    let both = [
        ("KEW_NO_PUBLIC_KEY", "true"),
        ("KEW_ALLOW_PUBLIC_KEY", "true"),
    ];
    assert!(error(listen(&[]), &both).contains("--no-public-key"));
}

#[test]
fn names_of_the_server_come_from_the_first_place_that_has_any() {
    let named = |names: &[&str]| ServeArgs {
        server_name: names.iter().map(ToString::to_string).collect(),
        ..listen(&[])
    };
    let parsed = |names: &[&str]| {
        let names = names.iter().map(|name| name.parse());
        names.collect::<Result<Vec<ServerName>, _>>().unwrap()
    };
    let variable = [("KEW_SERVER_NAME", "kew, *.example.net")];
    assert_eq!(with(listen(&[]), &[]).unwrap().server_names, []);
    let settings = with(listen(&[]), &variable).unwrap();
    assert_eq!(settings.server_names, parsed(&["kew", "*.example.net"]));
    let settings = with(named(&["kew.example.net:5672", "10.0.0.5"]), &variable).unwrap();
    assert_eq!(
        settings.server_names,
        parsed(&["kew.example.net", "10.0.0.5"])
    );
    let (_dir, path) = file("server_name = [\"kew\"]");
    let mut args = listen(&[]);
    args.config = Some(path);
    assert_eq!(with(args, &[]).unwrap().server_names, parsed(&["kew"]));
    let error = error(named(&["http://kew"]), &[]);
    assert!(
        error.contains("\"http://kew\"") && error.contains("--server-name"),
        "{error}"
    );
}

#[test]
fn service_bus_is_served_where_it_is_asked_for() {
    let bus = |address: &str| ServeArgs {
        bus_listen: vec![address.into()],
        ..listen(&[])
    };
    let settings = with(bus("localhost:5672"), &[]).unwrap();
    let named = ["127.0.0.1:5672".parse().unwrap()];
    assert_eq!(settings.bus_listen.addresses, named);
    let variables = [
        ("KEW_BUS_LISTEN", "127.0.0.1:1, [::1]:2"),
        ("KEW_IMPORT", "c.json"),
    ];
    let settings = with(listen(&[]), &variables).unwrap();
    assert_eq!(settings.bus_listen.addresses.len(), 2);
    assert_eq!(settings.import, Some("c.json".into()));
    assert!(error(bus("0.0.0.0:1"), &[]).contains("--allow-plain-http"));
    let nowhere = [("KEW_NO_PUBLIC_KEY", "true")];
    assert!(with(bus("127.0.0.1:1"), &nowhere).is_ok());
    let plain = [("KEW_ALLOW_PLAIN_HTTP", "true")];
    let settings = with(bus("0.0.0.0:1"), &plain).unwrap();
    let address = settings.bus_listen.addresses[0];
    assert!(!settings.public_key.is_served_at(address));
    assert!(error(bus("x"), &[]).contains("\"x\""));
}

#[test]
fn the_socket_is_in_the_data_directory_unless_it_is_put_elsewhere() {
    let settings = with(listen(&[]), &[]).unwrap();
    assert_eq!(settings.admin_socket, Some("d/admin.sock".into()));
    let ephemeral = || ServeArgs {
        ephemeral: true,
        ..ServeArgs::default()
    };
    assert_eq!(with(ephemeral(), &[]).unwrap().admin_socket, None);
    let elsewhere = [("KEW_ADMIN_SOCKET", "s")];
    let settings = with(ephemeral(), &elsewhere).unwrap();
    assert_eq!(settings.admin_socket, Some("s".into()));
}

#[test]
fn the_memory_for_messages_is_limited() {
    let (_dir, path) = file("resident_memory = 64\n");
    let with_flag = |resident_memory| ServeArgs {
        config: Some(path.clone()),
        resident_memory,
        ..listen(&[])
    };
    let limit = |args| with(args, &[]).unwrap().resident_limit;
    assert_eq!(limit(listen(&[])), ResidentLimit::ByBacklog);
    assert_eq!(limit(with_flag(None)), ResidentLimit::Bytes(64 << 20));
    assert_eq!(limit(with_flag(Some(1))), ResidentLimit::Bytes(1 << 20));
    assert_eq!(limit(with_flag(Some(0))), ResidentLimit::None);
    let wrong = with_flag(Some((1 << 20) + 1));
    assert!(error(wrong, &[]).contains("above the maximum of 1048576 MiB"));
    let in_memory = || ServeArgs {
        ephemeral: true,
        ..ServeArgs::default()
    };
    assert_eq!(limit(in_memory()), ResidentLimit::None);
    let limited = [("KEW_RESIDENT_MEMORY", "64")];
    assert!(error(in_memory(), &limited).contains("with --ephemeral everything is in memory"));
}

#[test]
fn the_rate_of_the_scrub_can_be_set_and_turned_off() {
    let (_dir, path) = file("scrub_rate = 0\n");
    let with_flag = |scrub_rate| ServeArgs {
        config: Some(path.clone()),
        scrub_rate,
        ..listen(&[])
    };
    let rate = |args| with(args, &[]).unwrap().scrub_bytes_per_second;
    assert_eq!(rate(listen(&[])), 8 << 20);
    assert_eq!(rate(with_flag(None)), 0);
    assert_eq!(rate(with_flag(Some(100))), 100 << 20);
    assert!(error(with_flag(Some(10_001)), &[]).contains("maximum of 10000 MiB/s"));
}

#[test]
fn the_names_of_deleted_queues_are_reserved_if_configured() {
    let (_dir, path) = file("queue_deletion_delay = 30\n");
    let with_flag = |seconds| ServeArgs {
        config: Some(path.clone()),
        queue_deletion_delay: seconds,
        ..listen(&[])
    };
    let held = |args, variables: &[(&str, &str)]| {
        with(args, variables)
            .unwrap()
            .queue_deletion_delay
            .as_secs()
    };
    let variables = [("KEW_QUEUE_DELETION_DELAY", "40")];
    assert_eq!(held(listen(&[]), &[]), 0);
    assert_eq!(held(with_flag(None), &[]), 30);
    assert_eq!(held(with_flag(None), &variables), 40);
    assert_eq!(held(with_flag(Some(3600)), &variables), 3600);
    assert!(error(with_flag(Some(3601)), &[]).contains("maximum of 3600 s"));
    let wrong = [("KEW_QUEUE_DELETION_DELAY", "soon")];
    assert!(error(listen(&[]), &wrong).contains("\"soon\""));
}

#[test]
fn a_wrong_address_is_named() {
    for address in ["10001", "localhost", "localhost:x", "127.0.0.1:70000", ""] {
        assert!(error(listen(&[address]), &[]).contains(&format!("{address:?}")));
    }
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let (_dir, path) = file("data_dir = \"f\"\nqueue_listen = [\"127.0.0.1:5\"]\n");
    let check = |mut args: ServeArgs, variables: &[(&str, &str)], place, port: u16| {
        args.config = Some(path.clone());
        let settings = with(args, variables).unwrap();
        assert_eq!(settings.place, place);
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        assert_eq!(settings.queue_listen, [address]);
    };
    let directory = |name: &str| Place::Directory(name.into());
    let variables = [("KEW_DATA_DIR", "e"), ("KEW_QUEUE_LISTEN", "127.0.0.1:6")];
    check(ServeArgs::default(), &[], directory("f"), 5);
    check(ServeArgs::default(), &variables, directory("e"), 6);
    check(listen(&["127.0.0.1:7"]), &variables, directory("d"), 7);
    let ephemeral = || ServeArgs {
        ephemeral: true,
        ..ServeArgs::default()
    };
    check(ephemeral(), &variables, Place::Memory, 6);
    check(
        ServeArgs::default(),
        &[("KEW_EPHEMERAL", "1")],
        Place::Memory,
        5,
    );
    check(listen(&[]), &[("KEW_EPHEMERAL", "1")], directory("d"), 5);
}

#[test]
fn the_environment_names_several_addresses_and_the_file() {
    let (_dir, path) = file("ephemeral = true\n");
    let variables = [
        ("KEW_QUEUE_LISTEN", "127.0.0.1:6, [::1]:7"),
        ("KEW_CONFIG", path.to_str().unwrap()),
    ];
    let settings = with(ServeArgs::default(), &variables).unwrap();
    assert_eq!(settings.queue_listen.len(), 2);
    assert_eq!(settings.place, Place::Memory);
}

#[test]
fn an_unknown_setting_in_the_file_is_named() {
    let (_dir, path) = file("data_dri = \"f\"\n");
    let args = ServeArgs {
        config: Some(path),
        ..ServeArgs::default()
    };
    assert!(error(args, &[]).contains("data_dri"));
}

#[test]
fn keeping_nothing_does_not_go_with_a_directory_in_one_place() {
    let mut args = listen(&[]);
    args.ephemeral = true;
    assert!(error(args, &[]).contains("the command line"));
    let variables = [("KEW_EPHEMERAL", "true"), ("KEW_DATA_DIR", "e")];
    assert!(error(ServeArgs::default(), &variables).contains("the environment"));
    let (_dir, path) = file("ephemeral = true\ndata_dir = \"f\"\n");
    let args = ServeArgs {
        config: Some(path),
        ..ServeArgs::default()
    };
    assert!(error(args, &[]).contains("the configuration file"));
}

#[test]
fn a_switch_is_on_or_off() {
    let on = [("KEW_EPHEMERAL", "maybe")];
    assert!(error(ServeArgs::default(), &on).contains("\"maybe\""));
}
