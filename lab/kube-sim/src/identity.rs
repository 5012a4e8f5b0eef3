// SPDX-License-Identifier: Apache-2.0

//! Authentication by bearer token or client certificate, and impersonation.
//!
//! There is no RBAC: an authenticated user may do everything, and impersonate every user. As by the real server's
//! defaults, an anonymous user may only read versions and health.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::{
    refusal::{Named, Refusal},
    request::decode,
};

/// A user, as the server sees one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name: the common name of a certificate.
    pub name: String,
    /// The user's groups: the organisations of a certificate.
    pub groups: Vec<String>,
    /// The user's UID; empty if there is none.
    pub uid: String,
    /// Additional attributes of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

const ANONYMOUS: &str = "system:anonymous";
/// The groups of all authenticated and of all anonymous users.
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The accepted tokens and their users.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(HashMap<String, User>);

// === impl User ===

impl User {
    /// The administrator.
    pub fn admin() -> User {
        let groups = vec!["system:masters".to_owned(), AUTHENTICATED.to_owned()];
        User { name: "admin".to_owned(), groups, ..User::default() }
    }

    /// The anonymous user.
    pub(super) fn anonymous() -> User {
        User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
    }

    pub(super) fn is_known(&self) -> bool {
        self.name != ANONYMOUS
    }

    /// The user info of admission reviews.
    pub(super) fn info(&self) -> Value {
        let mut info = json!({"username": self.name, "groups": self.groups});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }

    /// The user after impersonation, by the headers of a request. Every authenticated user may impersonate.
    pub(super) fn acting(self, headers: &HeaderMap) -> Result<User, Refusal> {
        let texts = |name: &str| -> Vec<String> {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
        };
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in headers.keys() {
            if let Some(key) = name.as_str().strip_prefix("impersonate-extra-") {
                let key = decode(key, false).map_or_else(|| key.to_owned(), Cow::into_owned);
                extra.entry(key).or_default().extend(texts(name.as_str()));
            }
        }
        let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
        let (name, uid, mut groups) = (first("impersonate-user"), first("impersonate-uid"), texts("impersonate-group"));
        if name.is_empty() {
            if groups.is_empty() && uid.is_empty() && extra.is_empty() {
                return Ok(self);
            }
            let list = |texts: &[String]| match texts {
                [] => "[]string(nil)".to_owned(),
                texts => {
                    let texts: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
                    format!("[]string{{{}}}", texts.join(", "))
                }
            };
            let entries: Vec<String> =
                extra.iter().map(|(key, texts)| format!("{}:{}", Value::from(key.as_str()), list(texts))).collect();
            let extra = if entries.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", entries.join(", ")) };
            return Err(Refusal::bad_request(format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:map[string][]string{extra}}} without \
                 impersonating a user name",
                Value::from(uid),
                list(&groups)
            )));
        }
        if !self.is_known() {
            let why = format!(
                "User {} cannot impersonate resource \"users\" in API group \"\" at the cluster scope",
                Value::from(self.name)
            );
            return Err(Refusal::forbidden(&Named { group: "", kind: "users", name: &name }, &why));
        }
        let account = name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let all = if name == ANONYMOUS { UNAUTHENTICATED } else { AUTHENTICATED };
        if !groups.iter().any(|group| group == all || group == UNAUTHENTICATED) {
            groups.push(all.to_owned());
        }
        Ok(User { name, groups, uid, extra })
    }
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn add(&mut self, token: String, user: User) {
        self.0.insert(token, user);
    }

    /// The user of a token.
    pub(super) fn user_of(&self, token: &str) -> Option<User> {
        self.0.get(token).cloned()
    }

    /// The user of a request. A certificate takes precedence; an unknown token is refused.
    pub(super) fn user(&self, headers: &HeaderMap, certificate: Option<&User>) -> Result<User, Refusal> {
        if let Some(user) = certificate {
            return Ok(user.clone());
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(User::anonymous()) };
        let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
        token.and_then(|token| self.0.get(token.trim())).cloned().ok_or_else(Refusal::unauthorized)
    }
}
