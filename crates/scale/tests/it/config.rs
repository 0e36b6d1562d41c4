//! The configuration file: what it means, and each error with its line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kew_scale::{ClientSources, Config, Connecting, Connection, Group, Process, TargetConfig};
use kew_scaling::{Day, Goal, Peak, Settings, TimeOfWeek};

const WHOLE: &str = r#"
[[group]]
name = "billing"
goal = { backlog_per_task = 50 }
minimum = 1
maximum = 30
spare = 2
every = "5s"
start_delay = "20s"
cool_down = "40s"
idle_after = "3m"
tasks_max = 4
rate_per_task = 2
time_zone = "UTC"
peaks = [{ days = ["mon", "fri"], from = "22:00", until = "06:30", instances = 12 }]
announcements = { connection_env = "THREE", prefix = "wakeup-" }

[[group.source]]
queue = "in"
connection_env = "ONE"

[[group.source]]
queue = "in"
connection_env = "TWO"
ca_cert = "/etc/ca.pem"
metrics = "http://[::1]:9464"

[[group.source]]
queue = "other"
connection_env = "ONE"

[group.target.process]
command = ["worker", "--tasks", "{tasks}", "--port", "{port}"]
state_directory = "/var/lib/x"
stop_within = "1m"
ports = "23400-23499"
"#;

fn parse(text: &str) -> Result<Config, String> {
    let parsed = Config::parse(Path::new("scale.toml"), text);
    parsed.map_err(|error| error.to_string())
}

fn only(text: &str) -> Group {
    parse(text).unwrap().groups.into_iter().next().unwrap()
}

#[test]
fn looks_that_are_too_rare_for_the_goal_are_named() {
    let with = |lines: &str| {
        let text = format!(
            "[[group]]\nname = 'a'\n{lines}\n[[group.source]]\nqueue = 'q'\nconnection_env = 'ONE'\n\
             [group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n"
        );
        only(&text).warning()
    };
    let rare = "every is 1m, not shorter than the goal of 1m: messages ";
    let warning = with("every = '60s'").unwrap();
    assert!(
        warning.starts_with(&format!("{rare}can be older")),
        "{warning}"
    );
    let hears = "announcements = { connection_env = 'B', topic = 't' }";
    let warning = with(&format!("every = '60s'\n{hears}")).unwrap();
    assert!(
        warning.starts_with(&format!("{rare}that nobody announces")),
        "{warning}"
    );
    for fits in [
        "",
        "every = '59s'",
        "every = '60s'\ngoal = { age = '2m' }",
        "every = '60s'\ngoal = { backlog_per_task = 5 }",
    ] {
        assert_eq!(with(fits), None, "{fits}");
    }
}

#[test]
fn every_setting_is_read() {
    let group = only(WHOLE);
    let peak = |from, until| Peak {
        from: TimeOfWeek::new(from, 22, 0),
        until: TimeOfWeek::new(until, 6, 30),
        instances: 12,
    };
    let law = Settings {
        goal: Goal::BacklogPerTask(50),
        minimum: 1,
        maximum: 30,
        spare: 2,
        tasks_max: 4,
        tolerance: 0.0,
        rate_per_task: Some(2.0),
        start_delay: Duration::from_secs(20),
        cool_down: Duration::from_secs(40),
        idle_after: Duration::from_mins(3),
        peaks: vec![
            peak(Day::Monday, Day::Tuesday),
            peak(Day::Friday, Day::Saturday),
        ],
    };
    assert_eq!(group.name, "billing");
    assert_eq!(group.law, law);
    assert_eq!(group.every, Duration::from_secs(5));
    let names: Vec<_> = group.sources.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["in (ONE)", "in (TWO)", "other"]);
    let pages = group
        .sources
        .iter()
        .map(|it| it.metrics.as_ref().map(ToString::to_string));
    let page = Some("http://[::1]:9464/metrics".to_owned());
    assert_eq!(pages.collect::<Vec<_>>(), [None, page, None]);
    let announced = group.announcements.as_ref().unwrap();
    assert_eq!(announced.own.queue, "wakeup-scale-billing");
    assert_eq!(announced.own.connection_env, "THREE");
    assert_eq!(announced.topic, None);
    let process = process(&group);
    assert_eq!(
        process.command,
        ["worker", "--tasks", "{tasks}", "--port", "{port}"]
    );
    assert_eq!(process.ports, Some(23_400..=23_499));
    assert_eq!(process.state_directory, PathBuf::from("/var/lib/x"));
    assert_eq!(process.stop_within, Duration::from_mins(1));
}

/// The least that a group needs, with a line for each of the texts. The first is line 3, the second line 7, and the last
/// ones come after the target.
fn with(group: &str, source: &str, target: &str) -> String {
    format!(
        "[[group]]\nname = 'a'\n{group}\n[[group.source]]\nqueue = 'in'\nconnection_env = 'ONE'\n{source}\n\
         [group.target.process]\ncommand = ['worker']\nstate_directory = '/s'\n{target}\n"
    )
}

/// The same with another target.
fn with_target(key: &str, lines: &str) -> String {
    let text = with("", "", "");
    let (before, _) = text.split_once("[group.target.process]").unwrap();
    match key {
        "" => format!("{before}[group.target]\n"),
        key => format!("{before}[group.target.{key}]\n{lines}\n"),
    }
}

fn process(group: &Group) -> &Process {
    match &group.target {
        TargetConfig::Process(process) => process,
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_targets_are_read() {
    let command = "count = ['c', 'x']\nset = ['s']\ntimeout = '3s'";
    let TargetConfig::Command(command) = only(&with_target("command", command)).target else {
        panic!("another target");
    };
    assert_eq!(
        (command.count, command.set),
        (vec!["c".into(), "x".into()], vec!["s".into()])
    );
    assert_eq!(command.timeout, Duration::from_secs(3));
    let TargetConfig::Http(http) = only(&with_target("http", "url = 'http://h/n'")).target else {
        panic!("another target");
    };
    assert_eq!(http.set_url.with(7), "http://h/n");
    assert_eq!(http.body.with(7), "7");
    assert_eq!(
        (http.content_type.as_str(), http.number),
        ("application/json", None)
    );
    assert_eq!(http.timeout, Duration::from_secs(10));
    let http =
        "url = 'https://h/n?x=1'\nset_url = 'https://h/{instances}'\nbody = '{\"a\": {instances}}'";
    let TargetConfig::Http(http) = only(&with_target("http", http)).target else {
        panic!("another target");
    };
    assert_eq!(
        (http.set_url.with(7), http.body.with(7)),
        ("https://h/7".into(), "{\"a\": 7}".into())
    );
    let TargetConfig::Kubernetes(found) = only(&with_target("kubernetes", "name = 'w'")).target
    else {
        panic!("another target");
    };
    assert_eq!(
        (found.api, found.resource.as_str()),
        (("apps".into(), "v1".into()), "deployments")
    );
    assert_eq!(
        (found.namespace, found.kubeconfig, found.context),
        (None, None, None)
    );
    let keda = "listen = '[::1]:9090'\nworkload = { name = 'w', namespace = 'n', api = 'a.b/v2', resource = 'r' }";
    let TargetConfig::Keda(found) = only(&with_target("keda", keda)).target else {
        panic!("another target");
    };
    assert_eq!(found.listen.to_string(), "[::1]:9090");
    assert_eq!(
        (found.workload.api, found.workload.resource.as_str()),
        (("a.b".into(), "v2".into()), "r")
    );
}

/// Two agents of one target would undo what the other does.
#[test]
fn two_groups_do_not_share_a_target() {
    let both = |one: (&str, &str), two: (&str, &str)| {
        let other = with_target(two.0, two.1)
            .replace("'a'", "'b'")
            .replace("'in'", "'out'");
        parse(&(with_target(one.0, one.1) + &other)).err()
    };
    let command = ("command", "count = ['c']\nset = ['s']");
    let http = ("http", "url = 'http://h/n'");
    let workload = ("kubernetes", "name = 'w'");
    let keda = (
        "keda",
        "listen = '127.0.0.1:9090'\nworkload = { name = 'w' }",
    );
    let ended = "as of the group \"a\": each group needs its own";
    for (one, two, expected) in [
        (command, command, "set is [\"s\"], "),
        (http, http, "set_url and body are the same, "),
        (workload, workload, "the workload is \"w\", "),
        (workload, keda, "the workload is \"w\", "),
        (
            keda,
            (
                "keda",
                "listen = '127.0.0.1:9090'\nworkload = { name = 'x' }",
            ),
            "listen is 127.0.0.1:9090, ",
        ),
    ] {
        let error = both(one, two).expect("an error");
        assert!(
            error.contains(expected) && error.ends_with(ended),
            "{error}"
        );
    }
    for two in [
        ("command", "count = ['c']\nset = ['s', 'b']"),
        ("http", "url = 'http://h/n'\nbody = '{\"b\": {instances}}'"),
        ("kubernetes", "name = 'x'"),
        ("kubernetes", "name = 'w'\nnamespace = 'n'"),
    ] {
        for one in [command, http, workload] {
            assert_eq!(both(one, two), None, "{one:?} {two:?}");
        }
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let group = only(&with("", "", ""));
    assert_eq!(group.law, Settings::default());
    assert_eq!(group.every, Duration::from_secs(10));
    assert_eq!(process(&group).stop_within, Duration::from_secs(30));
}

#[test]
fn each_error_names_its_place_the_value_and_what_was_expected() {
    let group = |text: &str| with(text, "", "");
    let source = |text: &str| with("", text, "");
    let target = |text: &str| with("", "", text);
    let second = |name: &str, queue: &str, directory: &str| {
        let other = with("", "", "").replace("'a'", &format!("'{name}'"));
        let other = other.replace("'in'", &format!("'{queue}'"));
        let other = other.replace("'/s'", &format!("'{directory}'"));
        with("", "", "") + &other
    };
    let source_of =
        |queue: &str| format!("[[group.source]]\nqueue = '{queue}'\nconnection_env = 'ONE'\n");
    let number = "body = '{instances}'";
    let http = |line: &str| with_target("http", &format!("url = 'http://h/n'\n{line}"));
    let http_at = |url: &str| with_target("http", &format!("url = '{url}'"));
    let kubernetes = |line: &str| with_target("kubernetes", &format!("name = 'w'\n{line}"));
    let keda = "listen = '127.0.0.1:9090'\nworkload = { name = 'w' }";
    for (text, expected) in [
        ("".into(), "1:1: there is no group: write one as [[group]]".into()),
        ("group = 1\n".into(), "1:9: invalid type: integer `1`, expected a sequence".into()),
        ("[[group]]\nname = \n".into(), "2:8: string values must be quoted, expected literal string".to_owned()),
        (with("", "", "").repeat(101), "1101:1: there are 101 groups, above the limit of 100: write another file".into()),
        (source(&source_of("x").repeat(1000)), "the group \"a\" has 1001 sources, above the limit of 1000".into()),
        (group("nmae = 1"), "3:1: unknown field `nmae`, expected one of".into()),
        (source("nmae = 1"), "7:1: unknown field `nmae`, expected one of".into()),
        (target("nmae = 1"), "11:1: unknown field `nmae`, expected one of".into()),
        (group("maximum = 'many'"), "3:11: invalid type: string \"many\", expected u32".into()),
        (group("maximum = -1"), "3:11: invalid value: integer `-1`, expected u32".into()),
        (group("maximum = 0"), "3:11: the maximum of instances is 0: set it to 1 or more".into()),
        (group("maximum = 1001"), "3:11: maximum is 1001, above the limit of 1000".into()),
        (group("minimum = 21"), "3:11: the minimum of 21 instances is above the maximum of 20".into()),
        (group("spare = 20"), "3:9: 20 spare instances leave none of the maximum of 20 for messages".into()),
        (group("tasks_max = 0"), "3:13: an instance has 0 tasks: set it to 1 or more".into()),
        (group("rate_per_task = nan"), "3:17: the rate of a task is NaN messages a second: set it from 0.000001 to 1000000, or leave it out".into()),
        (group("every = '10'"), "3:9: every: \"10\" is no time: write a whole number with ms, s, m, h or d, such as \"90s\"".into()),
        (group("every = '500ms'"), "3:9: every: \"500ms\" is below the minimum of 1s".into()),
        (group("start_delay = '2h'"), "3:15: start_delay: \"2h\" is above the maximum of 1h".into()),
        (group("cool_down = 30"), "3:13: invalid type: integer `30`, expected a string".into()),
        (group("idle_after = '31d'"), "3:14: idle_after: \"31d\" is above the maximum of 30d".into()),
        (group("goal = {}"), "3:8: the goal is one of { age = \"60s\" } and { backlog_per_task = 50 }".into()),
        (group("goal = { age = '1m', backlog_per_task = 1 }"), "3:8: the goal is one of".into()),
        (group("goal = { age = '0s' }"), "3:16: age: \"0s\" is below the minimum of 1s".into()),
        (group("goal = { backlog_per_task = 0 }"), "3:8: the goal is 0: set an age, or a backlog for each task, above 0".into()),
        (group("time_zone = 'Europe/Atlantis'"), "3:13: time_zone: \"Europe/Atlantis\" is no time zone of this system".into()),
        (group("peaks = [{ days = ['mo'], from = '08:00', until = '09:00', instances = 1 }]"), "3:20: days: \"mo\" is no day: write mon, tue, wed, thu, fri, sat or sun".into()),
        (group("peaks = [{ days = ['monday'], from = '08:00', until = '09:00', instances = 1 }]"), "3:20: days: \"monday\" is no day: write mon, tue".into()),
        (group("peaks = [{ days = [], from = '08:00', until = '09:00', instances = 1 }]"), "3:10: days is empty".into()),
        (group("peaks = [{ days = ['mon'], from = '8:00', until = '09:00', instances = 1 }]"), "3:35: from: \"8:00\" is no time of a day: write hour and minute, 00:00 to 24:00".into()),
        (group("peaks = [{ days = ['mon'], from = '08:00', until = '08:00', instances = 1 }]"), "3:10: the peak of Monday 08:00 to Monday 08:00 ends when it begins".into()),
        (group("peaks = [{ days = ['mon'], from = '08:00', until = '09:00', instances = 21 }]"), "3:10: the peak of Monday 08:00 to Monday 09:00 needs 21 instances, above the maximum of 20".into()),
        (group("peaks = [{ days = ['mon'], from = '08:00', until = '09:00', instances = 0 }]"), "3:73: instances is 0, which has no effect: set it to 1 or more, or leave the peak out".into()),
        (group("announcements = { connection_env = 'X' }"), "3:17: announcements come over a topic or over queues: write one of topic and prefix".into()),
        (group("announcements = { connection_env = 'X', prefix = 'p', topic = 't' }"), "3:17: announcements come over a topic or".into()),
        (group("announcements = { connection_env = 'X', topic = ' ' }"), "3:49: topic is empty: write a name".into()),
        (group("announcements = { connection_env = 'X', topic = 't' }").replace("'a'", &format!("'{}'", "n".repeat(45))), "is too long for a subscription of announcements: write at most 44 characters".into()),
        (group("announcements = { connection_env = 'X', prefix = '' }"), "3:50: prefix is empty: write a name".into()),
        (group("announcements = { connection_env = 'A B', prefix = 'p' }"), "3:36: connection_env is the name of an environment variable".into()),
        (group("socket = 'a.sock'"), "3:10: socket is \"a.sock\": write an absolute path, such as \"/run/kew-scale.sock\"".into()),
        (group(&format!("socket = '/{}'", "s".repeat(100))), "3:10: socket has 101 characters: the system allows 100".into()),
        (group("metrics = ['http://x', 'https://y']"), "3:24: metrics: \"https://y\" is no URL of a metrics page: write http://HOST:PORT/metrics".into()),
        (source("metrics = 'x'"), "7:11: metrics: \"x\" is no URL of a metrics page: write http://HOST:PORT/metrics".into()),
        (source("metrics = 'https://x/metrics'"), "7:11: metrics: \"https://x/metrics\" is no URL".into()),
        (source("metrics = 'http://a@x/'"), "7:11: metrics: \"http://a@x/\" is no URL".into()),
        (source("metrics = 1"), "7:11: invalid type: integer `1`, expected a string".into()),
        (source("topic = 't'"), "7:9: a subscription is a queue with its whole name: write queue = \"TOPIC/subscriptions/NAME\"".into()),
        (source("subscription = 's'"), "7:16: a subscription is a queue with its whole name".into()),
        (with("", "", "").replace("queue = 'in'\n", ""), "4:1: the source has no queue: write its name as queue".into()),
        (with("", "", "").replace("'in'", "''"), "5:9: queue is empty: write a name".into()),
        (with("", "", "").replace("connection_env = 'ONE'\n", ""), "4:1: missing field `connection_env`".into()),
        (with("", "[[group.source]]\nqueue = 'in'\nconnection_env = 'ONE'", ""), "7:1: queue is \"in\", which is there twice".into()),
        (with("", "", "").replace("queue = 'in'", "queue = 'in?'"), "5:9: queue: \"in?\" can be no name: write letters, digits, \"-\"".into()),
        (group("announcements = { connection_env = 'B', topic = 'a b' }"), "3:49: topic: \"a b\" can be no name".into()),
        (group("announcements = { connection_env = 'B', prefix = '-' }"), "3:50: prefix: \"-scale\" can be no name".into()),
        (with("", "", "").replace("name = 'a'", "name = 'a b'"), "2:8: \"a b\" is no name of a group".into()),
        (target("stop_within = '2h'"), "11:15: stop_within: \"2h\" is above the maximum of 1h".into()),
        (with("", "", "").replace("'/s'", "\"/s\\u0000\""), "10:19: state_directory has a zero byte, which no path can have".into()),
        (with("", "", "").replace("['worker']", "['worker', '{port}']"), "9:22: command has {port}: write ports = \"23400-23499\", too".into()),
        (with("", "", "ports = '2000-2099'"), "9:11: command has no {port}: write it where the port of the metrics page goes".into()),
        (with("", "", "ports = '2000-2018'"), "11:9: ports are 19, fewer than the maximum of 20 instances".into()),
        (with("", "", "ports = '2000'"), "11:9: ports is \"2000\": write the first and the last of 1024 to 65535, such as \"23400-23499\"".into()),
        (with("", "", "ports = '1000-2000'"), "11:9: ports is \"1000-2000\": write".into()),
        (with("", "", "ports = '3000-2000'"), "11:9: ports is \"3000-2000\": write".into()),
        (with("", "", "").replace("'/s'", "'s'"), "10:19: state_directory is \"s\": write an absolute path".into()),
        (with("", "", "").replace("['worker']", "[]"), "9:11: command is empty: write the program and its arguments".into()),
        (with("", "", "").replace("['worker']", "['']"), "9:11: command is empty".into()),
        (with("", "", "").replace("['worker']", "['a', \"\\u0000\"]"), "9:17: command has a zero byte".into()),
        (with("", "", "").replace("[group.target.process]", "[group.target.porcess]"), "8:15: unknown field `porcess`, expected one of".into()),
        (with_target("command", "count = ['c']"), "8:1: missing field `set`".into()),
        (with_target("command", "count = []\nset = ['s']"), "9:9: count is empty: write the program and its arguments".into()),
        (with_target("command", "count = ['c']\nset = ['']"), "10:7: set is empty".into()),
        (with_target("command", "count = ['c']\nset = ['s', \"\\u0000\"]"), "10:13: set has a zero byte".into()),
        (with_target("command", "count = ['c']\nset = ['s']\ntimeout = '6m'"), "11:11: timeout: \"6m\" is above the maximum of 5m".into()),
        (with_target("command", "count = ['c']\nset = ['s']\nshell = true"), "11:1: unknown field `shell`".into()),
        (with_target("http", number), "8:1: missing field `url`".into()),
        (http_at("ftp://h/n"), "9:7: url is \"ftp://h/n\": write an address such as \"http://127.0.0.1:8080/instances\"".into()),
        (http_at("http:///n"), "9:7: url is \"http:///n\": write".into()),
        (http_at("http://h/a b"), "9:7: url is \"http://h/a b\": write".into()),
        (http_at("http://h/n#f"), "9:7: url is".into()),
        (http_at("http://u:secret@h/n"), "9:7: url has a user: leave it out, and set token_env".into()),
        (http("set_url = 'h'"), "10:11: set_url is \"h\": write an address".into()),
        (http("body = '{count}'"), "10:8: neither body nor set_url has {instances}: write it where the number goes".into()),
        (http("number = 'spec.replicas'"), "10:10: number is \"spec.replicas\": write a JSON pointer, such as \"/spec/replicas\"".into()),
        (http("content_type = \"a\\nb\""), "10:16: content_type has characters that a header cannot have".into()),
        (http("token_env = 'to-ken'"), "10:13: token_env is the name of an environment variable, such as \"SCALE_TOKEN\", and not the token".into()),
        (http("token_env = 'T'"), "9:7: url begins with http:// and leads to another machine, and token_env sends a token: write https://, or leave token_env out".into()),
        (http_at("https://h/n'\nset_url = 'http://127.0.0.1.example/n'\ntoken_env = 'T"), "10:11: set_url begins with http:// and leads".into()),
        (http("timeout = '50ms'"), "10:11: timeout: \"50ms\" is below the minimum of 100ms".into()),
        (with_target("kubernetes", "namespace = 'n'"), "8:1: missing field `name`".into()),
        (kubernetes("namespace = 'a/b'"), "10:13: namespace: \"a/b\" is no name in Kubernetes: write small letters, digits, hyphens and dots".into()),
        (kubernetes("resource = 'Deployment'"), "10:12: resource: \"Deployment\" is no name in Kubernetes".into()),
        (kubernetes("api = 'apps'"), "10:7: api is \"apps\": write group and version, such as \"apps/v1\"".into()),
        (kubernetes("replicas = 3"), "10:1: unknown field `replicas`".into()),
        (with_target("kubernetes", "name = '../x'"), "9:8: name: \"../x\" is no name in Kubernetes".into()),
        (with_target("keda", "workload = { name = 'w' }"), "8:1: missing field `listen`".into()),
        (with_target("keda", "listen = '127.0.0.1:9090'"), "8:1: missing field `workload`".into()),
        (with_target("keda", &keda.replace("127.0.0.1:9090", "localhost:9090")), "9:10: listen is \"localhost:9090\": write an IP address and a port, such as \"0.0.0.0:9090\"".into()),
        (with_target("keda", &format!("{keda}\ntolerance = 0.6")), "11:13: the tolerance is 0.6: set it from 0 to 0.5".into()),
        (with_target("keda", &keda.replace("'w'", "'W'")), "10:21: name: \"W\" is no name in Kubernetes".into()),
        (target("[group.target.keda]\nlisten = '127.0.0.1:9090'\nworkload = { name = 'w' }"), "8:8: the group has two targets: write one, and a group of its own for the other".into()),
        (with_target("", ""), "8:1: the target is empty: write one of [group.target.process], [group.target.command], ".into()),
        ("[[group]]\nname = 'a'\n[group.target.process]\ncommand = ['w']\nstate_directory = '/s'\n".into(), "1:1: the group \"a\" has no source: write one as [[group.source]]".into()),
        (second("a", "x", "/x"), "13:8: there are two groups of the name \"a\"".into()),
        (second("b", "x", "/s"), "state_directory is \"/s\", as of the group \"a\": each group needs its own".into()),
        (second("b", "in", "/x"), "15:1: queue is \"in\", a source of the group \"a\" too: each queue belongs to one group".into()),
    ] {
        let error = parse(&text).expect_err(&text);
        let place = error.strip_prefix("scale.toml:").expect(&error);
        assert!(place.contains(&expected), "{error}\n{expected}\n{text}");
        assert_eq!(error.lines().count(), 1, "{error}");
        let parts: Vec<&str> = place.splitn(3, ':').collect();
        assert!(parts[..2].iter().all(|it| it.parse::<usize>().is_ok()), "{error}");
        // A column, and a line where it is stated, are exact.
        if expected.starts_with(|it: char| it.is_ascii_digit()) {
            assert!(place.starts_with(&expected), "{error}\n{expected}\n{text}");
        }
    }
    let error = Config::read(Path::new("/absent/scale.toml")).unwrap_err();
    let expected = "cannot read /absent/scale.toml: No such file or directory";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn connection_strings_come_from_the_environment_and_are_not_shown() {
    let group = only(&with("", "", ""));
    let source = &group.sources[0];
    let connect = |value: Option<&'static str>| {
        let connection = source.connection(&|name| {
            assert_eq!(name, "ONE");
            value.map(OsString::from)
        });
        connection.map_err(|error| error.to_string())
    };
    let key = "c2VjcmV0LWtleQ==";
    let storage = "AccountName=a1;AccountKey=c2VjcmV0LWtleQ==;QueueEndpoint=http://127.0.0.1:1/a1";
    let bus = "Endpoint=sb://localhost;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0LWtleQ==";
    assert!(matches!(connect(Some(storage)), Ok(Connection::Storage(_))));
    assert!(matches!(connect(Some(bus)), Ok(Connection::Bus(_))));
    // The likeliest mistake: the connection string itself in the file.
    for wrong in [storage, bus, "1X", "A B", "ÄX"] {
        let text = with("", "", "").replace("'ONE'", &format!("'{wrong}'"));
        let error = parse(&text).unwrap_err();
        let expected = "scale.toml:6:18: connection_env is the name of an environment variable, ";
        assert!(
            error.starts_with(expected) && !error.contains(wrong),
            "{error}"
        );
    }
    let missing = "scale.toml:6:18: connection_env is \"ONE\", and this environment variable is not set: \
                   set it to a connection string";
    assert_eq!(connect(None).unwrap_err(), missing);
    assert_eq!(connect(Some("")).unwrap_err(), missing);
    let error = connect(Some("AccountKey=c2VjcmV0LWtleQ==")).unwrap_err();
    let expected = "scale.toml:6:18: the environment variable ONE: the connection string ";
    assert!(
        error.starts_with(expected) && !error.contains(key),
        "{error}"
    );
    let group = only(&with("", "ca_cert = '/absent.pem'", ""));
    let opened = ClientSources::open(&group, &|_| Some(storage.into()), &Connecting::default());
    let error = opened.unwrap_err().to_string();
    let expected = "scale.toml:7:11: ca_cert is \"/absent.pem\", which cannot be read: ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_file_without_certificates_is_an_error_at_its_line() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("key.pem");
    std::fs::write(&path, "-----BEGIN PRIVATE KEY-----").unwrap();
    let group = only(&with("", &format!("ca_cert = {path:?}"), ""));
    let storage = "UseDevelopmentStorage=true";
    let opened = ClientSources::open(&group, &|_| Some(storage.into()), &Connecting::default());
    let error = opened.unwrap_err().to_string();
    assert!(error.starts_with("scale.toml:7:11: ca_cert is "), "{error}");
    let expected = ", which has no certificate in PEM: name a file that has one";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_damaged_certificate_is_an_error_at_the_line_of_its_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("ca.pem");
    let open = |source: &str| {
        let group = only(&with("", source, ""));
        let storage = "UseDevelopmentStorage=true";
        let opened = ClientSources::open(&group, &|_| Some(storage.into()), &Connecting::default());
        opened.unwrap_err().to_string()
    };
    for damaged in ["AAAA", "not base64!"] {
        let pem = format!("-----BEGIN CERTIFICATE-----\n{damaged}\n-----END CERTIFICATE-----\n");
        std::fs::write(&path, pem).unwrap();
        let error = open(&format!("ca_cert = {path:?}"));
        let expected =
            format!("scale.toml:7:11: ca_cert is {path:?}, whose certificate 1 cannot be used: ");
        assert!(error.starts_with(&expected), "{error}");
    }
}

/// Each example of a target in docs/scale.md.
#[test]
fn the_targets_of_the_page_are_accepted() {
    let page = include_str!("../../../../docs/scale.md");
    let blocks = page.split("```toml\n").skip(1);
    let blocks = blocks.filter_map(|it| it.split("```").next());
    let targets = blocks.filter(|it| it.starts_with("[group.target."));
    let mut found = Vec::new();
    for target in targets {
        let text = with("", "", "");
        let (before, _) = text.split_once("[group.target.process]").unwrap();
        let group = only(&format!("{before}{target}"));
        found.push(match group.target {
            TargetConfig::Process(_) => "process",
            TargetConfig::Command(_) => "command",
            TargetConfig::Http(_) => "http",
            TargetConfig::Kubernetes(_) => "kubernetes",
            TargetConfig::Keda(_) => "keda",
        });
    }
    assert_eq!(found, ["command", "http", "kubernetes", "keda"]);
}

/// Which service a queue is of is known only when its connection string is.
#[tokio::test]
async fn a_name_that_the_service_does_not_allow_is_refused() {
    let open = |queue: &str, connection: &'static str| {
        let text = format!(
            "[[group]]\nname = 'a'\n[[group.source]]\nqueue = '{queue}'\nconnection_env = 'ONE'\n\
             [group.target.process]\ncommand = ['x']\nstate_directory = '/x'\n"
        );
        let variable = |_: &str| Some(OsString::from(connection));
        let opened = ClientSources::open(&only(&text), &variable, &Connecting::default());
        opened.map(drop).map_err(|error| error.to_string())
    };
    let storage = "UseDevelopmentStorage=true";
    let bus = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;\
         SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;";
    assert_eq!(open("billing-in", storage), Ok(()));
    assert_eq!(open("Billing.in/subscriptions/s", bus), Ok(()));
    let error = open("Billing", storage).unwrap_err();
    let expected = "scale.toml:5:18: queue: \"Billing\" can be no name in Queue Storage: write 3 to 63 small letters";
    assert!(error.starts_with(expected), "{error}");
    assert!(
        error.ends_with("; ONE has a connection string of Queue Storage"),
        "{error}"
    );
}
