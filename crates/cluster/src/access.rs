//! How to connect to a runtime: the kubeconfig of an access Secret. Only inline data is accepted.
//!
//! A kubeconfig can name programs to run, files to read and proxies. Tidegate has many permissions, and others write
//! these Secrets. So every such field is refused before anything is used. Messages name the field, never its content.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tidegate_core::yaml;

/// How to connect to a runtime.
#[derive(Clone)]
pub struct Access {
    server: http::Uri,
    server_name: Option<String>,
    authorities: Vec<Vec<u8>>,
    /// The `user` of the kubeconfig: `token`, or certificate and key.
    user: Value,
}

/// Why a kubeconfig is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The Secret does not exist or lacks the key.
    #[error("no kubeconfig found")]
    Missing,
    /// It is not UTF-8, not YAML, or does not have the structure of a kubeconfig.
    #[error("it is not a kubeconfig")]
    NotAKubeconfig,
    /// It is larger than any kubeconfig with inline data.
    #[error("it is larger than {LEN_MAX} bytes")]
    TooLarge,
    /// A required field is missing.
    #[error("`{0}` is missing")]
    Absent(&'static str),
    /// A field refers to an entry that does not exist.
    #[error("`{0}` refers to an entry that does not exist")]
    Dangling(&'static str),
    /// The kubeconfig uses a field that is not accepted.
    #[error("`{field}` is not accepted: {why}")]
    Field {
        /// The field.
        field: &'static str,
        /// Why it is not accepted, and what to use instead.
        why: &'static str,
    },
    /// A field has an invalid value.
    #[error("`{field}` is not {expected}")]
    Malformed {
        /// The field.
        field: &'static str,
        /// What the field must contain.
        expected: &'static str,
    },
}

/// Limit of the size. A kubeconfig with inline data takes some ten kilobytes.
const LEN_MAX: usize = 256 << 10;

/// Fields of `cluster` and `user` that are not accepted, with the reason.
const REFUSED: [(&str, &str); 15] = [
    ("insecure-skip-tls-verify", "the server's certificate is always verified; use `certificate-authority-data`"),
    ("proxy-url", "Tidegate connects to runtimes directly"),
    ("certificate-authority", "files are not read; use `certificate-authority-data`"),
    ("exec", "no program is run; use a token or a client certificate"),
    ("auth-provider", "authentication plug-ins are not run; use a token or a client certificate"),
    ("tokenFile", "files are not read; use `token`"),
    ("token-file", "files are not read; use `token`"),
    ("client-certificate", "files are not read; use `client-certificate-data`"),
    ("client-key", "files are not read; use `client-key-data`"),
    ("username", "passwords are not accepted; use a token or a client certificate"),
    ("password", "passwords are not accepted; use a token or a client certificate"),
    ("as", "impersonation is not supported"),
    ("as-uid", "impersonation is not supported"),
    ("as-groups", "impersonation is not supported"),
    ("as-user-extra", "impersonation is not supported"),
];

/// Reads a kubeconfig.
///
/// # Errors
///
/// Fails if it is invalid or uses a field that is not accepted.
pub fn parse(kubeconfig: &[u8]) -> Result<Access, Refused> {
    if kubeconfig.len() > LEN_MAX {
        return Err(Refused::TooLarge);
    }
    let text = std::str::from_utf8(kubeconfig).map_err(|_| Refused::NotAKubeconfig)?;
    let config = read(text)?;
    let context = match &config["current-context"] {
        Value::String(name) if !name.is_empty() => named(&config, "contexts", name, "context"),
        Value::String(_) | Value::Null => {
            Some(only(&config, "contexts", "context").ok_or(Refused::Absent("current-context"))?)
        }
        _ => None,
    }
    .ok_or(Refused::Dangling("current-context"))?;
    let part = |list, field: &'static str, dangling: &'static str| {
        let name = context[field].as_str().ok_or(Refused::Absent(dangling))?;
        named(&config, list, name, field).ok_or(Refused::Dangling(dangling))
    };
    let cluster = part("clusters", "cluster", "context.cluster")?;
    let user = part("users", "user", "context.user")?;
    // Refuse the fields of unused contexts as well, so that users do not believe that they are accepted.
    for (list, field) in [("clusters", "cluster"), ("users", "user")] {
        for entry in config[list].as_array().into_iter().flatten() {
            refuse(&entry[field])?;
        }
    }
    Ok(Access {
        server: server(cluster)?,
        server_name: cluster["tls-server-name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
        authorities: authorities(cluster)?,
        user: credentials(user)?,
    })
}

fn read(text: &str) -> Result<Value, Refused> {
    // The parser's message may quote the text, so it is dropped.
    let documents = yaml::parse(text, &yaml::Limits::default()).map_err(|_| Refused::NotAKubeconfig)?;
    match documents.as_slice() {
        [document] if matches!(document.value, yaml::NodeValue::Map(_)) => Ok(document.to_json()),
        _ => Err(Refused::NotAKubeconfig),
    }
}

fn refuse(part: &Value) -> Result<(), Refused> {
    let is_set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value != "";
    match REFUSED.iter().find(|(field, _)| part.get(field).is_some_and(is_set)) {
        Some(&(field, why)) => Err(Refused::Field { field, why }),
        None => Ok(()),
    }
}

fn named<'a>(config: &'a Value, list: &str, name: &str, field: &str) -> Option<&'a Value> {
    let entry = config[list].as_array()?.iter().find(|entry| entry["name"] == name)?;
    entry.get(field).filter(|value| value.is_object())
}

fn only<'a>(config: &'a Value, list: &str, field: &str) -> Option<&'a Value> {
    match config[list].as_array()?.as_slice() {
        [entry] => entry.get(field).filter(|value| value.is_object()),
        _ => None,
    }
}

fn server(cluster: &Value) -> Result<http::Uri, Refused> {
    let malformed = Refused::Malformed { field: "server", expected: "an https URL without user, query or fragment" };
    let text = cluster["server"].as_str().ok_or(Refused::Absent("server"))?;
    let server: http::Uri = text.parse().map_err(|_| malformed)?;
    let authority = server.authority().ok_or(malformed)?;
    let plain = !authority.as_str().contains('@') && server.query().is_none() && !text.contains('#');
    if server.scheme() == Some(&http::uri::Scheme::HTTPS) && plain { Ok(server) } else { Err(malformed) }
}

fn authorities(cluster: &Value) -> Result<Vec<Vec<u8>>, Refused> {
    const FIELD: &str = "certificate-authority-data";
    let malformed = Refused::Malformed { field: FIELD, expected: "base64-encoded PEM certificates" };
    let data = cluster[FIELD].as_str().filter(|data| !data.is_empty()).ok_or(Refused::Absent(FIELD))?;
    let pem = decode(data).ok_or(malformed)?;
    let certificates = certificates(&pem).ok_or(malformed)?;
    if certificates.is_empty() { Err(malformed) } else { Ok(certificates) }
}

fn certificates(pem: &[u8]) -> Option<Vec<Vec<u8>>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::pem_slice_iter(pem).map(|certificate| certificate.ok().map(|der| der.to_vec())).collect()
}

fn credentials(user: &Value) -> Result<Value, Refused> {
    let text = |field: &str| user[field].as_str().filter(|text| !text.trim().is_empty());
    let data = |field: &'static str, expected: &'static str| match text(field) {
        None => Ok(None),
        Some(data) => decode(data).map(|_| Some(data)).ok_or(Refused::Malformed { field, expected }),
    };
    if let Some(token) = text("token") {
        return Ok(json!({ "token": token.trim() }));
    }
    let certificate = data("client-certificate-data", "a base64-encoded PEM certificate")?;
    let key = data("client-key-data", "a base64-encoded PEM key")?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(json!({ "client-certificate-data": certificate, "client-key-data": key })),
        (Some(_), None) => Err(Refused::Absent("client-key-data")),
        (None, Some(_)) => Err(Refused::Absent("client-certificate-data")),
        (None, None) => Err(Refused::Absent("token")),
    }
}

fn decode(data: &str) -> Option<Vec<u8>> {
    let data: String = data.split_ascii_whitespace().collect();
    STANDARD.decode(data).ok()
}

// === impl Access ===

impl Access {
    /// The URL of the API server. It contains no secret.
    pub fn server(&self) -> &http::Uri {
        &self.server
    }

    /// The configuration of a client.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is not valid for kube.
    pub fn config(&self) -> Result<kube::Config, Refused> {
        let mut config = kube::Config::new(self.server.clone());
        config.root_cert = Some(self.authorities.clone());
        config.tls_server_name = self.server_name.clone();
        config.auth_info = serde_json::from_value(self.user.clone()).map_err(|_| Refused::NotAKubeconfig)?;
        Ok(config)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
