//! Which service a client uses, and with which credential.

use aws_lc_rs::hmac;

/// The account that every emulator of the service knows.
pub(crate) const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// The key of [`DEVELOPMENT_ACCOUNT`]. It is public and protects nothing.
pub(crate) const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// An endpoint and a credential for it, from a connection string.
#[derive(Clone)]
pub struct Account {
    pub(crate) endpoint: Endpoint,
    pub(crate) credential: Credential,
    /// The endpoint for reads of the secondary, if it is known.
    pub(crate) secondary: Option<Endpoint>,
}

/// `http://HOST[:PORT][/PATH]`, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Host and, if it was given, port.
    pub(crate) authority: String,
    /// Empty or `/PATH`, without a slash at the end: the account where it is addressed by path.
    pub(crate) path: String,
}

/// What proves that a request may be made.
#[derive(Clone)]
pub(crate) enum Credential {
    SharedKey {
        account: String,
        key: Box<hmac::Key>,
    },
    /// The query parameters of a shared access signature, without the question mark.
    SharedAccessSignature(String),
}

impl Account {
    /// The well-known account at 127.0.0.1:10001, the default address of `kew serve`.
    #[must_use]
    pub fn development() -> Self {
        Self::from_connection_string("UseDevelopmentStorage=true")
            .expect("the development account has a valid endpoint and key")
    }

    /// The URL of the endpoint, without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// Whether the endpoint is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        let host = self.endpoint.host();
        host == "localhost" || host == "[::1]" || host.starts_with("127.")
    }
}

impl Endpoint {
    /// The endpoint as a URL.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.path)
    }

    fn host(&self) -> &str {
        match self.authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.authority,
        }
    }

    /// The read-only copy of the account, by the rules of both styles of address: the account's name
    /// with `-secondary`, as the path or as the first label of the host.
    pub(crate) fn secondary(&self) -> Option<Self> {
        let mut secondary = self.clone();
        if self.path.is_empty() {
            let (account, rest) = self.authority.split_once('.')?;
            secondary.authority = format!("{account}-secondary.{rest}");
        } else {
            secondary.path = format!("{}-secondary", self.path);
        }
        Some(secondary)
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("endpoint", &self.endpoint)
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SharedKey { account, .. } => write!(f, "SharedKey({account})"),
            Self::SharedAccessSignature(_) => f.write_str("SharedAccessSignature(..)"),
        }
    }
}
