//! Who asks: by bearer token, by client certificate, or nobody.
//!
//! Who is known may do everything: there is no RBAC here. Who is not known may ask for versions and health, as in the
//! real server's defaults, and is refused everything else.

use std::collections::HashMap;

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::refusal::Refusal;

/// A user, as the server sees one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's name: the common name of a certificate.
    pub name: String,
    /// The user's groups: the organisations of a certificate.
    pub groups: Vec<String>,
}

/// Tokens that are accepted, and whose they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(HashMap<String, User>);

// === impl User ===

impl User {
    /// The administrator.
    pub fn admin() -> User {
        User { name: "admin".to_owned(), groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()] }
    }

    /// Nobody.
    pub(super) fn anonymous() -> User {
        User { name: "system:anonymous".to_owned(), groups: vec!["system:unauthenticated".to_owned()] }
    }

    pub(super) fn is_known(&self) -> bool {
        self.name != "system:anonymous"
    }

    /// As admission webhooks are told.
    pub(super) fn info(&self) -> Value {
        json!({"username": self.name, "groups": self.groups})
    }
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn add(&mut self, token: String, user: User) {
        self.0.insert(token, user);
    }

    /// Whose a token is.
    pub(super) fn of(&self, token: &str) -> Option<User> {
        self.0.get(token).cloned()
    }

    /// Whose request this is. A certificate counts if there is one; a token that is not known is refused.
    pub(super) fn user(&self, headers: &HeaderMap, certificate: Option<&User>) -> Result<User, Refusal> {
        if let Some(user) = certificate {
            return Ok(user.clone());
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(User::anonymous()) };
        let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        token.and_then(|token| self.0.get(token.trim())).cloned().ok_or_else(Refusal::unauthorized)
    }
}
