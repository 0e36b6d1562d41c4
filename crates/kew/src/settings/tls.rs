//! The settings of TLS, and which clients may connect without it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Layer, Place, SettingsError, is_loopback};

/// The folder of `kew tls init` in a data directory.
pub(crate) const TLS_DIR: &str = "tls";
pub(crate) const SERVER_CERT: &str = "server.pem";
pub(crate) const SERVER_KEY: &str = "server.key";

/// The certificate, and which clients may connect without TLS.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) files: Option<TlsFiles>,
    pub(crate) plain: PlainHttp,
}

/// The server's certificate and its key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// From where unencrypted requests are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainHttp {
    Nowhere,
    /// From this machine: no one else can read them on the way.
    Loopback,
    Anywhere,
}

impl PlainHttp {
    /// Whether a client at `peer` may speak without TLS.
    pub(crate) fn admits(self, peer: SocketAddr) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Loopback => is_loopback(peer.ip()),
            Self::Anywhere => true,
        }
    }
}

impl TlsSettings {
    /// Refuses listeners that other machines could reach, but that would serve them nothing.
    pub(super) fn refuse_plain_beyond_loopback(
        &self,
        listen: &[SocketAddr],
    ) -> Result<(), SettingsError> {
        let exposed = listen.iter().find(|address| !is_loopback(address.ip()));
        match exposed {
            Some(address) if self.files.is_none() && self.plain != PlainHttp::Anywhere => {
                Err(SettingsError(format!(
                    "listen address {address} is reachable from other machines, and without TLS \
                     anyone who can see a request on the network can read it, and repeat it for 15 \
                     minutes: create a certificate with kew tls init, set --tls-cert and --tls-key, \
                     or allow it with --allow-plain-http"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Completes the settings of TLS. `layers` come with their names, the strongest first.
pub(super) fn complete(
    layers: &[(&Layer, &str)],
    place: &Place,
) -> Result<TlsSettings, SettingsError> {
    let files = files(layers, place)?;
    let tls_only = layers.iter().find_map(|(layer, _)| layer.tls_only);
    let allow_plain = layers.iter().find_map(|(layer, _)| layer.allow_plain_http);
    let plain = match (tls_only.unwrap_or(false), allow_plain.unwrap_or(false)) {
        (true, true) => {
            return Err(SettingsError(
                "--tls-only and --allow-plain-http contradict each other: set only one of them"
                    .into(),
            ));
        }
        (true, false) if files.is_none() => {
            return Err(SettingsError(
                "--tls-only needs a certificate: create one with kew tls init, or set --tls-cert and \
                 --tls-key"
                    .into(),
            ));
        }
        (true, false) => PlainHttp::Nowhere,
        (false, true) => PlainHttp::Anywhere,
        (false, false) => PlainHttp::Loopback,
    };
    Ok(TlsSettings { files, plain })
}

/// The files from the first place that has any, or those in the data directory.
fn files(layers: &[(&Layer, &str)], place: &Place) -> Result<Option<TlsFiles>, SettingsError> {
    for (layer, name) in layers {
        let (named, missing) = match (&layer.tls_cert, &layer.tls_key) {
            (None, None) => continue,
            (Some(cert), Some(key)) => {
                let (cert, key) = (cert.clone(), key.clone());
                return Ok(Some(TlsFiles { cert, key }));
            }
            (Some(_), None) => ("a certificate (--tls-cert)", "its key (--tls-key)"),
            (None, Some(_)) => ("a key (--tls-key)", "its certificate (--tls-cert)"),
        };
        return Err(SettingsError(format!(
            "{name} names {named} without {missing}: both are needed"
        )));
    }
    let Place::Directory(path) = place else {
        return Ok(None);
    };
    let cert = path.join(TLS_DIR).join(SERVER_CERT);
    let key = path.join(TLS_DIR).join(SERVER_KEY);
    // One without the other is a mistake, which reading them reports.
    Ok((cert.exists() || key.exists()).then_some(TlsFiles { cert, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(layers: &[(&Layer, &str)], place: &Place) -> Result<TlsSettings, String> {
        complete(layers, place).map_err(|error| error.to_string())
    }

    fn named(cert: Option<&str>, key: Option<&str>) -> Layer {
        Layer {
            tls_cert: cert.map(PathBuf::from),
            tls_key: key.map(PathBuf::from),
            ..Layer::default()
        }
    }

    #[test]
    fn the_first_place_that_names_files_names_both() {
        let (flags, file) = (named(None, None), named(Some("c"), Some("k")));
        let found = with(&[(&flags, "flags"), (&file, "file")], &Place::Memory).unwrap();
        let (cert, key) = ("c".into(), "k".into());
        assert_eq!(found.files, Some(TlsFiles { cert, key }));
        for half in [named(Some("c"), None), named(None, Some("k"))] {
            let error = with(&[(&half, "flags"), (&file, "file")], &Place::Memory).unwrap_err();
            assert!(error.contains("flags names"), "{error}");
        }
    }

    #[test]
    fn files_in_the_data_directory_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().into());
        assert_eq!(with(&[], &place).unwrap().files, None);
        std::fs::create_dir(dir.path().join(TLS_DIR)).unwrap();
        std::fs::write(dir.path().join(TLS_DIR).join(SERVER_KEY), "").unwrap();
        assert!(with(&[], &place).unwrap().files.is_some());
        assert_eq!(with(&[], &Place::Memory).unwrap().files, None);
    }

    #[test]
    fn without_tls_only_loopback_is_served() {
        let exposed = ["127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap()];
        let check = |layer: &Layer, is_allowed| {
            let settings = with(&[(layer, "flags")], &Place::Memory).unwrap();
            let judged = settings.refuse_plain_beyond_loopback(&exposed);
            assert_eq!(judged.is_ok(), is_allowed, "{layer:?}");
            assert!(settings.refuse_plain_beyond_loopback(&exposed[..1]).is_ok());
            settings.plain
        };
        assert_eq!(check(&Layer::default(), false), PlainHttp::Loopback);
        let mut layer = named(Some("c"), Some("k"));
        assert_eq!(check(&layer, true), PlainHttp::Loopback);
        layer.tls_only = Some(true);
        assert_eq!(check(&layer, true), PlainHttp::Nowhere);
        let allowed = Layer {
            allow_plain_http: Some(true),
            ..Layer::default()
        };
        assert_eq!(check(&allowed, true), PlainHttp::Anywhere);
        layer.allow_plain_http = Some(true);
        assert!(with(&[(&layer, "flags")], &Place::Memory).is_err());
        let only = Layer {
            tls_only: Some(true),
            ..Layer::default()
        };
        assert!(with(&[(&only, "flags")], &Place::Memory).is_err());
    }

    #[test]
    fn clients_that_may_connect_without_tls() {
        let (near, far) = ("[::ffff:127.0.0.1]:9", "192.0.2.1:9");
        for (plain, of_near, of_far) in [
            (PlainHttp::Nowhere, false, false),
            (PlainHttp::Loopback, true, false),
            (PlainHttp::Anywhere, true, true),
        ] {
            assert_eq!(plain.admits(near.parse().unwrap()), of_near, "{plain:?}");
            assert_eq!(plain.admits(far.parse().unwrap()), of_far, "{plain:?}");
        }
    }
}
