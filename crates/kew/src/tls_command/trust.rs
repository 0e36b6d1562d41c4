//! How each SDK is made to trust an authority.

/// A shell command that makes one kind of client trust the authority.
pub(super) struct Line {
    /// Its name in JSON.
    pub(super) id: &'static str,
    /// The kind of client.
    pub(super) client: &'static str,
    /// Further notes.
    pub(super) note: &'static str,
    pub(super) command: String,
}

/// The lines for the authority in the file `ca`, which is an absolute path.
pub(super) fn lines(ca: &str) -> Vec<Line> {
    let quoted_ca = quoted(ca);
    let line = |id, client, note, command| Line {
        id,
        client,
        note,
        command,
    };
    vec![
        line(
            "python",
            "Python",
            "azure-storage-queue and ServiceBusAdministrationClient; in code: connection_verify=PATH",
            format!("export REQUESTS_CA_BUNDLE={quoted_ca}"),
        ),
        line(
            "python_aio",
            "Python, asyncio",
            "azure-storage-queue.aio and everything that uses Python's own ssl",
            format!("export SSL_CERT_FILE={quoted_ca}"),
        ),
        line(
            "python_servicebus",
            "Python, Service Bus",
            "azure-servicebus trusts only the authorities of certifi and ignores the environment. \
             Best in code: ServiceBusClient(..., connection_verify=PATH). Or add the authority to \
             certifi, again after each update of it",
            format!("cat {quoted_ca} >> \"$(python3 -m certifi)\""),
        ),
        line(
            "node",
            "Node.js",
            "besides the public authorities",
            format!("export NODE_EXTRA_CA_CERTS={quoted_ca}"),
        ),
        line(
            "dotnet",
            ".NET",
            "on Linux; in place of the system's authorities",
            format!("export SSL_CERT_FILE={quoted_ca}"),
        ),
        line(
            "go",
            "Go",
            "on Linux; in place of the system's authorities",
            format!("export SSL_CERT_FILE={quoted_ca}"),
        ),
        line(
            "rust",
            "Rust",
            "with native roots (rustls-native-certs or OpenSSL)",
            format!("export SSL_CERT_FILE={quoted_ca}"),
        ),
        line(
            "java",
            "Java",
            "makes a trust store beside it; JAVA_TOOL_OPTIONS is read by every JVM",
            format!(
                "keytool -importcert -noprompt -alias kew -file {quoted_ca} -keystore {store} \
                 -storetype PKCS12 -storepass changeit && export \
                 JAVA_TOOL_OPTIONS={options}",
                store = quoted(&format!("{ca}.p12")),
                options = quoted(&format!(
                    "-Djavax.net.ssl.trustStore={ca}.p12 \
                     -Djavax.net.ssl.trustStorePassword=changeit"
                )),
            ),
        ),
        line(
            "curl",
            "curl",
            "or with each call: --cacert PATH",
            format!("export CURL_CA_BUNDLE={quoted_ca}"),
        ),
    ]
}

/// A word quoted for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:,@".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_paths_whole() {
        assert_eq!(quoted("/a/ca.pem"), "/a/ca.pem");
        assert_eq!(quoted("/my dir/it's"), r"'/my dir/it'\''s'");
        let lines = lines("/my dir/ca.pem");
        assert!(
            lines
                .iter()
                .all(|line| line.command.contains("'/my dir/ca.pem"))
        );
    }
}
