//! Credentials, as Secrets of type `kubernetes.io/dockerconfigjson` have them. Pure.

use std::fmt;

use base64::{
    Engine,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::HeaderValue;
use serde_json::{Map, Value};
use tidegate_core::component::{ParseAddressError, RegistryAddress};

/// What proves who we are. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// User name and password.
    Basic {
        /// The user name.
        username: String,
        /// The password, or the key file of a cloud.
        password: String,
    },
    /// A token that the registry accepts as it is.
    Bearer(String),
}

/// The registry and its credentials in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerConfig {
    /// The registry.
    pub registry: RegistryAddress,
    /// Its credentials.
    pub credentials: Credentials,
}

/// Why a Secret has no usable credentials. The first three texts are Lifecycle Manager's. Quotes no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DockerConfigError {
    /// The Secret has another key, or none.
    #[error("secret missing .dockerconfigjson field")]
    Missing,
    /// There is no registry, or more than one.
    #[error(".dockerconfigjson must contain exactly one registry")]
    NotOne,
    /// The registry has no name.
    #[error("registry in .dockerconfigjson is empty")]
    Empty,
    /// The text is not JSON, or not of this shape.
    #[error(".dockerconfigjson is not valid: create it with `kubectl create secret docker-registry`")]
    Syntax,
    /// The registry's name is invalid.
    #[error("the registry in .dockerconfigjson is invalid: {0}")]
    Registry(ParseAddressError),
    /// There is no user name, password or token.
    #[error("the registry in .dockerconfigjson has neither `auth` nor `username` and `password`")]
    NoCredentials,
    /// The user name and password cannot be decoded.
    #[error("`auth` in .dockerconfigjson is not base64 of `username:password`")]
    Auth,
    /// The credentials are a token that must first be exchanged.
    #[error("`identitytoken` in .dockerconfigjson is not supported: use `auth`")]
    IdentityToken,
}

/// Docker writes padding, and some tools do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

// === impl Credentials ===

impl Credentials {
    /// The value of the header `Authorization`. `None` if it cannot be sent.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let value = match self {
            // A key file of a cloud has line breaks, which base64 hides. In a user name they are a mistake.
            Credentials::Basic { username, .. } if username.contains(':') || username.chars().any(char::is_control) => {
                return None;
            }
            Credentials::Basic { username, password } => {
                format!("Basic {}", BASE64.encode(format!("{username}:{password}")))
            }
            Credentials::Bearer(token) => format!("Bearer {token}"),
        };
        let mut header = HeaderValue::from_str(&value).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::Basic { .. } => "Basic(…)",
            Credentials::Bearer(_) => "Bearer(…)",
        })
    }
}

// === impl DockerConfig ===

impl DockerConfig {
    /// The key of the Secret.
    pub const KEY: &str = ".dockerconfigjson";

    /// Reads the value of [`DockerConfig::KEY`]; `None` if the Secret does not have it.
    ///
    /// # Errors
    ///
    /// Fails if the value does not name exactly one registry with credentials.
    pub fn parse(value: Option<&[u8]>) -> Result<DockerConfig, DockerConfigError> {
        let bytes = value.filter(|bytes| !bytes.is_empty()).ok_or(DockerConfigError::Missing)?;
        let value: Value = serde_json::from_slice(bytes).map_err(|_| DockerConfigError::Syntax)?;
        let none = Map::new();
        let registries = match value.get("auths") {
            Some(Value::Object(registries)) => registries,
            None | Some(Value::Null) => &none,
            Some(_) => return Err(DockerConfigError::Syntax),
        };
        let mut registries = registries.iter();
        let (Some((name, entry)), None) = (registries.next(), registries.next()) else {
            return Err(DockerConfigError::NotOne);
        };
        if name.is_empty() {
            return Err(DockerConfigError::Empty);
        }
        // Docker's own tools write the path of an API that no longer exists.
        let address = name.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
        let registry = address.parse().map_err(DockerConfigError::Registry)?;
        Ok(DockerConfig { registry, credentials: credentials(entry)? })
    }
}

fn credentials(entry: &Value) -> Result<Credentials, DockerConfigError> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(token) = text("registrytoken") {
        return Ok(Credentials::Bearer(token.to_owned()));
    }
    if text("identitytoken").is_some() {
        return Err(DockerConfigError::IdentityToken);
    }
    if let Some(auth) = text("auth") {
        let decoded = BASE64.decode(auth.trim()).map_err(|_| DockerConfigError::Auth)?;
        let decoded = String::from_utf8(decoded).map_err(|_| DockerConfigError::Auth)?;
        let (username, password) = decoded.split_once(':').ok_or(DockerConfigError::Auth)?;
        return Ok(Credentials::Basic { username: username.to_owned(), password: password.to_owned() });
    }
    match (text("username"), text("password")) {
        (Some(username), Some(password)) => {
            Ok(Credentials::Basic { username: username.to_owned(), password: password.to_owned() })
        }
        _ => Err(DockerConfigError::NoCredentials),
    }
}

#[cfg(test)]
mod tests;
