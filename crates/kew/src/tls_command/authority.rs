//! A certificate authority for one server.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, PKCS_ECDSA_P256_SHA256,
};
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

use kew_listen::CertificateFacts;

const AUTHORITY_DAYS: i64 = 3_652;
/// Browsers and macOS refuse certificates of servers that are valid for longer.
const SERVER_DAYS: i64 = 397;
/// Clocks of clients may be behind.
const BACKDATE: Duration = Duration::HOUR;

/// This machine, as it calls itself.
pub(crate) const LOCALHOST: &str = "localhost";
/// The machine on which containers run, seen from these.
pub(crate) const HOST_OF_CONTAINERS: &str = "host.docker.internal";

/// A name or an address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// In lower case. It may begin with `*.`.
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// The names of a server on this machine, from here and from its containers.
    pub(super) fn always() -> Vec<Self> {
        let name = |name: &str| Self::Name(name.into());
        vec![
            name(LOCALHOST),
            name("*.queue.localhost"),
            name(HOST_OF_CONTAINERS),
            Self::Address(std::net::Ipv4Addr::LOCALHOST.into()),
            Self::Address(std::net::Ipv6Addr::LOCALHOST.into()),
        ]
    }

    /// The subtree of names that an authority for this host may sign.
    fn subtree(&self) -> GeneralSubtree {
        match self {
            Self::Name(name) => {
                GeneralSubtree::DnsName(name.strip_prefix("*.").unwrap_or(name).into())
            }
            Self::Address(address) => {
                let bits = if address.is_ipv4() { 32 } else { 128 };
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(*address, bits))
            }
        }
    }

    /// Whether this host is in the subtree of an authority.
    fn is_below(&self, subtree: &GeneralName<'_>) -> bool {
        match (self, subtree) {
            (Self::Name(name), GeneralName::DNSName(above)) => {
                let name = name.strip_prefix("*.").unwrap_or(name);
                let above = above.to_ascii_lowercase();
                name.strip_suffix(&above)
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Self::Address(address), GeneralName::IPAddress(above)) => {
                let octets = match address {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                let Some((network, mask)) = above.split_at_checked(octets.len()) else {
                    return false;
                };
                mask.len() == octets.len()
                    && octets
                        .iter()
                        .zip(network.iter().zip(mask))
                        .all(|(octet, (network, mask))| octet & mask == network & mask)
            }
            _ => false,
        }
    }
}

impl FromStr for Host {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self::Address(address));
        }
        let name = text.to_ascii_lowercase();
        let is_label = |label: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=63).contains(&label.len())
                && label.bytes().all(is_allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let plain = name.strip_prefix("*.").unwrap_or(&name);
        ensure!(
            name.len() <= 253 && plain.split('.').all(is_label),
            "host {text:?} is no name or address, such as queues.example.com or 192.0.2.1; \
             a port does not belong to it"
        );
        Ok(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// The hosts of the certificate in a file; none if there is no file.
pub(super) fn hosts_of(path: &Path) -> Result<Vec<Host>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| cannot_read(path)),
    };
    let facts = CertificateFacts::of_pem(&text)
        .map_err(|reason| anyhow!(reason).context(cannot_read(path)))?;
    let names = facts.names.into_iter().map(Host::Name);
    Ok(names
        .chain(facts.addresses.into_iter().map(Host::Address))
        .collect())
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

/// A certificate authority with its key.
pub(super) struct Authority {
    certificate_pem: String,
    key_pem: String,
    until: OffsetDateTime,
}

/// A server's certificate with its key.
pub(super) struct Server {
    pub(super) certificate_pem: String,
    pub(super) key_pem: String,
    pub(super) valid_until: Timestamp,
}

impl Authority {
    /// Makes an authority that can sign for these hosts, and for no others.
    pub(super) fn new(hosts: &[Host]) -> Result<Self> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("cannot make a key")?;
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&format!("Kew local authority {}", random_suffix()?));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = now - BACKDATE;
        params.not_after = now + Duration::days(AUTHORITY_DAYS);
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: hosts.iter().map(Host::subtree).collect(),
            excluded_subtrees: Vec::new(),
        });
        let certificate = params
            .self_signed(&key)
            .context("cannot make the authority")?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            until: params.not_after,
        })
    }

    /// Reads an authority; `None` if there is none.
    pub(super) fn read(certificate: &Path, key: &Path) -> Result<Option<Self>> {
        let read = |path: &Path| match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| cannot_read(path)),
        };
        let (certificate_pem, key_pem) = match (read(certificate)?, read(key)?) {
            (Some(certificate_pem), Some(key_pem)) => (certificate_pem, key_pem),
            (None, None) => return Ok(None),
            (found, _) => {
                let (found, missing) = match found {
                    Some(_) => (certificate, key),
                    None => (key, certificate),
                };
                bail!(
                    "there is {} and no {}: put it back, or make a new authority with --force",
                    found.display(),
                    missing.display()
                );
            }
        };
        let facts = CertificateFacts::of_pem(certificate_pem.as_bytes())
            .map_err(|reason| anyhow!(reason).context(cannot_read(certificate)))?;
        let authority = Self {
            certificate_pem,
            key_pem,
            until: facts.not_after.into(),
        };
        authority.check_key(certificate, key)?;
        Ok(Some(authority))
    }

    /// Checks that the key belongs to the certificate.
    fn check_key(&self, certificate: &Path, key: &Path) -> Result<()> {
        let pair = KeyPair::from_pem(&self.key_pem).with_context(|| cannot_read(key))?;
        let (_, pem) = parse_x509_pem(self.certificate_pem.as_bytes())
            .with_context(|| cannot_read(certificate))?;
        let parsed = pem.parse_x509().with_context(|| cannot_read(certificate))?;
        ensure!(
            parsed.public_key().subject_public_key.data.as_ref() == pair.public_key_raw(),
            "the key in {} is not that of {}",
            key.display(),
            certificate.display()
        );
        Ok(())
    }

    pub(super) fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub(super) fn key_pem(&self) -> &str {
        &self.key_pem
    }

    pub(super) fn valid_until(&self) -> Timestamp {
        timestamp(self.until)
    }

    /// Makes a certificate for a server with these hosts, and a new key for it.
    pub(super) fn issue(&self, hosts: &[Host]) -> Result<Server> {
        self.refuse_other_hosts(hosts)?;
        let now = OffsetDateTime::now_utc();
        ensure!(
            self.until > now + Duration::days(1),
            "the authority is valid only until {}: make a new one with --force",
            self.valid_until()
        );
        let key = KeyPair::from_pem(&self.key_pem).context("cannot read the authority's key")?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate_pem, key)
            .context("cannot read the authority's certificate")?;
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).context("cannot use the hosts")?;
        params.distinguished_name = named("Kew");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.not_before = now - BACKDATE;
        params.not_after = (params.not_before + Duration::days(SERVER_DAYS)).min(self.until);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("cannot make a key")?;
        let certificate = params
            .signed_by(&key, &issuer)
            .context("cannot make the certificate")?;
        Ok(Server {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            valid_until: timestamp(params.not_after),
        })
    }

    /// Refuses hosts that this authority may not sign for.
    fn refuse_other_hosts(&self, hosts: &[Host]) -> Result<()> {
        let (_, pem) = parse_x509_pem(self.certificate_pem.as_bytes())
            .context("cannot read the authority's certificate")?;
        let parsed = pem
            .parse_x509()
            .context("cannot read the authority's certificate")?;
        let constraints = parsed
            .name_constraints()
            .context("cannot read the authority's names")?;
        let Some(permitted) = constraints.and_then(|found| found.value.permitted_subtrees.as_ref())
        else {
            return Ok(());
        };
        let is_below = |host: &Host| permitted.iter().any(|tree| host.is_below(&tree.base));
        match hosts.iter().find(|host| !is_below(host)) {
            Some(host) => bail!(
                "the authority was not made for {host}: make a new one with --force, and let clients trust that"
            ),
            None => Ok(()),
        }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Distinguishes several authorities that one client trusts.
fn random_suffix() -> Result<String> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).context("the system gives no random numbers")?;
    Ok(format!("{:08x}", u32::from_be_bytes(bytes)))
}

fn timestamp(time: OffsetDateTime) -> Timestamp {
    // Both hold every second up to the year 9999.
    Timestamp::from_second(time.unix_timestamp()).unwrap_or(Timestamp::MAX)
}
