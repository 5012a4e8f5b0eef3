//! Deliveries of git hosts: who sent one, and which repository and refs it names. Pure.
//!
//! [`Host::of`] recognizes the host by the headers, [`is_authentic`] checks its signature or token, and [`parse`] reads
//! the body. [`Push::names`] says whether a push names what a source follows. A push wakes a source and nothing more:
//! what the source applies comes from its own fetch.
//!
//! Nothing here trusts a delivery before [`is_authentic`]. Its comparisons take the same time whatever the secret is.
//! No error quotes a delivery.

mod address;
mod payload;
mod proof;

use std::fmt;

pub use self::{
    address::RepositoryAddress,
    payload::{Delivered, ParseDeliveryError, Push, UPDATES_MAX, Update, parse},
    proof::{HookSecret, HookSecretError, is_authentic},
};

/// The headers of a delivery, by lower-case name.
///
/// A header that occurs twice, or that is not visible ASCII, does not exist: two signatures are none. `Debug` shows no
/// values, because some hosts send their token in one.
#[derive(Clone, Default)]
pub struct Headers(Vec<(String, Option<String>)>);

/// A kind of git host, as the headers of its deliveries show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// Azure DevOps: a service hook with basic authentication.
    AzureDevOps,
    /// Bitbucket Cloud.
    BitbucketCloud,
    /// Bitbucket Data Center, formerly Server.
    BitbucketServer,
    /// Forgejo.
    Forgejo,
    /// Gitea.
    Gitea,
    /// GitHub, also GitHub Enterprise Server.
    GitHub,
    /// GitLab, also self-managed.
    GitLab,
    /// Any program with HMAC-SHA256, as in Flux: header `X-Signature`.
    Generic,
}

// === impl Headers ===

impl Headers {
    /// The headers of a request, in any order.
    pub fn new<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Headers {
        let mut all: Vec<(String, Option<String>)> = Vec::new();
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, twice)) => *twice = None,
                None => all.push((name, visible(value))),
            }
        }
        Headers(all)
    }

    /// The value of a header, by its lower-case name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name)?.1.as_deref()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

fn visible(value: &[u8]) -> Option<String> {
    let is_visible = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
    is_visible.then(|| String::from_utf8_lossy(value).trim().to_owned())
}

// === impl Host ===

impl Host {
    /// All hosts.
    pub const ALL: [Host; 8] = [
        Host::AzureDevOps,
        Host::BitbucketCloud,
        Host::BitbucketServer,
        Host::Forgejo,
        Host::Gitea,
        Host::GitHub,
        Host::GitLab,
        Host::Generic,
    ];

    /// The host that sent a delivery with these headers; `None` if it is none that we know.
    pub fn of(headers: &Headers) -> Option<Host> {
        let has = |name: &str| headers.get(name).is_some();
        // Forgejo sends the headers of Gitea and of GitHub as well, and Gitea those of GitHub.
        if has("x-forgejo-event") {
            Some(Host::Forgejo)
        } else if has("x-gitea-event") {
            Some(Host::Gitea)
        } else if has("x-gitlab-event") {
            Some(Host::GitLab)
        } else if has("x-github-event") {
            Some(Host::GitHub)
        } else if has("x-event-key") {
            Some(if has("x-hook-uuid") { Host::BitbucketCloud } else { Host::BitbucketServer })
        } else if has("x-signature") {
            Some(Host::Generic)
        } else if has("authorization") {
            Some(Host::AzureDevOps)
        } else {
            None
        }
    }

    /// The name in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Host::AzureDevOps => "azure-devops",
            Host::BitbucketCloud => "bitbucket-cloud",
            Host::BitbucketServer => "bitbucket-server",
            Host::Forgejo => "forgejo",
            Host::Gitea => "gitea",
            Host::GitHub => "github",
            Host::GitLab => "gitlab",
            Host::Generic => "generic",
        }
    }

    /// The header with the id of a delivery. A retry has the same id. Hosts that are too old to send it repeat a
    /// delivery at the price of a fetch.
    fn id_header(self) -> Option<&'static str> {
        match self {
            // Its id is in the body.
            Host::AzureDevOps => None,
            Host::BitbucketCloud => Some("x-request-uuid"),
            Host::BitbucketServer => Some("x-request-id"),
            Host::Forgejo => Some("x-forgejo-delivery"),
            Host::Gitea => Some("x-gitea-delivery"),
            Host::GitHub => Some("x-github-delivery"),
            // `X-Gitlab-Event-UUID` is the same for pushes that follow from one another.
            Host::GitLab => Some("idempotency-key"),
            Host::Generic => Some("x-delivery-id"),
        }
    }

    /// The header with the kind of event; Azure DevOps has it in the body, and a generic delivery is always a push.
    fn event_header(self) -> Option<&'static str> {
        match self {
            Host::AzureDevOps | Host::Generic => None,
            Host::BitbucketCloud | Host::BitbucketServer => Some("x-event-key"),
            Host::Forgejo => Some("x-forgejo-event"),
            Host::Gitea => Some("x-gitea-event"),
            Host::GitHub => Some("x-github-event"),
            Host::GitLab => Some("x-gitlab-event"),
        }
    }
}

#[cfg(test)]
mod tests;
