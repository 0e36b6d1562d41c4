//! A PostgreSQL server of its own, from the distribution's packages.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use kew_idempotency::tokio_postgres::{Config, NoTls};

/// Runs the server until standard input ends, and then stops it as a crash would. The folder is removed unless a line
/// came in. So nothing stays, however the tests end.
const KEEPER: &str = r#"
folder=$1; shift
trap : HUP INT TERM
"$@" >>"$folder/log" 2>&1 &
server=$!
keep=
while read -r line; do keep=$line; done
kill -QUIT $server
wait $server
[ -n "$keep" ] || rm -rf "$folder"
"#;

/// A server on a socket in a folder.
#[derive(Debug)]
pub(crate) struct Server {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    /// Options of the server, beside those that every server has.
    options: Vec<String>,
    running: Option<(Child, ChildStdin)>,
}

/// Where the programs of the server are. Distributions do not have them in `PATH`.
fn programs() -> Option<PathBuf> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    // One that was unpacked runs only if its libraries are there.
    let runs = |program: &Path| run(Command::new(program).arg("--version")).is_ok();
    folders.into_iter().find(|folder| {
        ["postgres", "initdb"]
            .iter()
            .all(|name| runs(&folder.join(name)))
    })
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0)
}

/// Programs that a user without rights can run. Those that were unpacked below the home of root are copied.
fn reachable(programs: PathBuf, folder: &Path) -> PathBuf {
    if !is_root() || programs.starts_with("/usr") {
        return programs;
    }
    // usr/lib/postgresql/15/bin
    let root = programs
        .ancestors()
        .nth(4)
        .expect("the folders of a package");
    run(Command::new("cp")
        .arg("-r")
        .arg(root)
        .arg(folder.join("usr")))
    .unwrap();
    let below = programs.strip_prefix(root).expect("its own parent");
    folder.join("usr").join(below)
}

/// A command that runs as a user without rights, because the server refuses to run as root.
fn command(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
    command.arg(program);
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

impl Server {
    /// Starts a server with no data, on a socket. `None`: the machine has none.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(5432, |_| Vec::new()).await
    }

    /// Starts one that speaks TLS too, at a port of the loopback address that was free before.
    pub(crate) async fn start_tls(certificate: &str, key: &str) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let options = |folder: &Path| {
            let files = [("certificate", certificate), ("key", key)].map(|(name, text)| {
                let file = folder.join(name);
                std::fs::write(&file, text).unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
                std::fs::set_permissions(&file, mode).unwrap();
                if is_root() {
                    run(Command::new("chown").arg("nobody").arg(&file)).unwrap();
                }
                file.display().to_string()
            });
            let [certificate, key] = files;
            vec![
                "listen_addresses=127.0.0.1".to_owned(),
                "ssl=on".to_owned(),
                format!("ssl_cert_file={certificate}"),
                format!("ssl_key_file={key}"),
            ]
        };
        Self::start_with(port, options).await
    }

    async fn start_with(port: u16, options: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new()
            .prefix("kew-postgres-")
            .tempdir()
            .unwrap()
            .keep();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&folder, mode).unwrap();
        let mut server = Self {
            programs: reachable(programs, &folder),
            port,
            options: options(&folder),
            folder,
            running: None,
        };
        let mut initdb = command(&server.programs.join("initdb"));
        initdb.arg("--pgdata").arg(server.folder.join("data"));
        initdb.args([
            "--username=kew",
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
        ]);
        initdb
            .args(["--locale=C", "--no-instructions"])
            .current_dir("/");
        run(&mut initdb).unwrap();
        server.restart().await;
        Some(server)
    }

    /// Starts it on the data that it has.
    pub(crate) async fn restart(&mut self) {
        let server = command(&self.programs.join("postgres"));
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "sh"]).arg(&self.folder);
        keeper.arg(server.get_program()).args(server.get_args());
        keeper
            .arg("-D")
            .arg(self.folder.join("data"))
            .arg("-k")
            .arg(&self.folder);
        // What a crash of the process leaves does not depend on the disk.
        keeper.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        keeper.args(["-c", &format!("port={}", self.port)]);
        for option in &self.options {
            keeper.args(["-c", option]);
        }
        keeper.stdin(Stdio::piped()).current_dir("/");
        let mut child = keeper.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        self.running = Some((child, stdin));
        let config = self.config("postgres");
        let ready = async {
            while config.connect(NoTls).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let ready = tokio::time::timeout(Duration::from_secs(120), ready).await;
        assert!(ready.is_ok(), "{}", self.log());
    }

    /// Ends all of its processes at once, as they are, and waits for their end.
    pub(crate) fn crash(&mut self) {
        let (mut child, mut stdin) = self.running.take().unwrap();
        stdin.write_all(b"keep\n").unwrap();
        drop(stdin);
        child.wait().unwrap();
    }

    pub(crate) fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host_path(&self.folder).user("kew").dbname(database);
        config.port(self.port);
        config
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Over TCP, by the name that is in the certificate.
    pub(crate) fn tcp_config(&self) -> Config {
        let mut config = Config::new();
        config
            .host("localhost")
            .hostaddr(Ipv4Addr::LOCALHOST.into());
        config.port(self.port).user("kew").dbname("postgres");
        config
    }

    fn log(&self) -> String {
        let mut log = String::new();
        let file = std::fs::File::open(self.folder.join("log"));
        let _ = file.and_then(|mut file| file.read_to_string(&mut log));
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match self.running.take() {
            Some((mut child, stdin)) => {
                drop(stdin);
                let _ = child.wait();
            }
            None => {
                let _ = std::fs::remove_dir_all(&self.folder);
            }
        }
    }
}
