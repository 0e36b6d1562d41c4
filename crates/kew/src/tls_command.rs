//! `kew tls`: certificates for a server and its own clients.

mod authority;
mod files;
mod trust;

pub(crate) use authority::{HOST_OF_CONTAINERS, LOCALHOST};
pub(crate) use trust::quoted;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use self::authority::{Authority, Host};
use crate::cli::{TlsArgs, TlsCommand, TlsInitArgs, print_line};
use crate::settings;
use crate::settings::tls::{SERVER_CERT, SERVER_KEY, TLS_DIR};

const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key";

pub(crate) fn run(args: &TlsArgs) -> Result<()> {
    match &args.command {
        TlsCommand::Init(args) => init(args),
    }
}

fn init(args: &TlsInitArgs) -> Result<()> {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => settings::data_dir_or_default(args.data_dir.clone())?.join(TLS_DIR),
    };
    let is_found = args.dir.is_none();
    files::create_dir(&dir)?;
    let dir = dir
        .canonicalize()
        .with_context(|| format!("cannot use {}", dir.display()))?;
    let hosts = hosts(args, &dir)?;
    let kept = match args.force {
        true => None,
        false => Authority::read(&dir.join(CA_CERT), &dir.join(CA_KEY))?,
    };
    let is_new = kept.is_none();
    let authority = match kept {
        Some(authority) => authority,
        None => Authority::new(&hosts)?,
    };
    let server = authority.issue(&hosts)?;
    if is_new {
        files::write_key(&dir.join(CA_KEY), authority.key_pem())?;
        files::write(&dir.join(CA_CERT), authority.certificate_pem())?;
    }
    files::write_key(&dir.join(SERVER_KEY), &server.key_pem)?;
    files::write(&dir.join(SERVER_CERT), &server.certificate_pem)?;
    let made = Made {
        dir,
        hosts,
        is_new,
        is_found,
        authority_until: authority.valid_until().to_string(),
        server_until: server.valid_until.to_string(),
    };
    if args.json {
        made.print_json();
    } else {
        made.print();
    }
    Ok(())
}

/// The names that every certificate has, those of the last one, and those of the command line.
fn hosts(args: &TlsInitArgs, dir: &Path) -> Result<Vec<Host>> {
    let mut hosts = Host::always();
    // A new authority is made for the names of this command line only.
    if !args.force {
        hosts.extend(authority::hosts_of(&dir.join(SERVER_CERT))?);
    }
    for name in &args.host {
        hosts.push(name.parse()?);
    }
    let mut seen = Vec::new();
    for host in hosts {
        if !seen.contains(&host) {
            seen.push(host);
        }
    }
    Ok(seen)
}

/// The created files, and how to use them.
struct Made {
    dir: PathBuf,
    hosts: Vec<Host>,
    is_new: bool,
    /// Whether a server finds the files without settings.
    is_found: bool,
    authority_until: String,
    server_until: String,
}

impl Made {
    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn print(&self) {
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        let (ca, server) = (self.path(CA_CERT), self.path(SERVER_CERT));
        let made = if self.is_new { "made" } else { "kept" };
        print_line(&format!(
            "{made} the authority {ca}, valid until {}",
            self.authority_until
        ));
        print_line(&format!(
            "made the certificate {server}, valid until {}, for {}",
            self.server_until,
            hosts.join(", ")
        ));
        print_line("");
        if self.is_found {
            print_line("kew serve uses it automatically with this data directory.");
            print_line(
                "A server that runs with TLS loads it within seconds, or at once on SIGHUP (kill -HUP PID).",
            );
            print_line("Restart a server that was started without TLS.");
        } else {
            print_line(&format!(
                "Use it with: kew serve --tls-cert {} --tls-key {}",
                quoted(&server),
                quoted(&self.path(SERVER_KEY))
            ));
        }
        print_line("To make clients trust the authority, use one of these:");
        for line in trust::lines(&ca) {
            print_line("");
            print_line(&format!("# {}: {}", line.client, line.note));
            print_line(&line.command);
        }
    }

    fn print_json(&self) {
        let trust: serde_json::Map<_, _> = trust::lines(&self.path(CA_CERT))
            .into_iter()
            .map(|line| (line.id.to_owned(), line.command.into()))
            .collect();
        let hosts: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        let made = json!({
            "authority": {
                "certificate": self.path(CA_CERT),
                "key": self.path(CA_KEY),
                "is_new": self.is_new,
                "valid_until": self.authority_until,
            },
            "server": {
                "certificate": self.path(SERVER_CERT),
                "key": self.path(SERVER_KEY),
                "hosts": hosts,
                "valid_until": self.server_until,
            },
            "trust": trust,
        });
        print_line(&made.to_string());
    }
}
