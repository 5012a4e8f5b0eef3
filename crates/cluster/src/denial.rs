//! Permissions that an API server denies, and whether it grants them again.
//!
//! No watch tells a client that it got a permission back. But every client may ask whether it has one
//! (`SelfSubjectAccessReview`), which changes nothing and is cheaper than to try again whatever was denied.

use std::fmt;

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::json;

use super::{
    Cluster, Error, Target, position,
    transport::{Ask, Verb},
};

/// A permission that the client of a cluster lacks, as the API server's answer names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    user: String,
    verb: String,
    group: String,
    /// With its subresource: `kymas/status`.
    resource: String,
    /// None for the whole cluster.
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

// === impl Denial ===

impl Denial {
    /// Parses the message of an answer with status 403. `None` if something else than a missing permission forbids the
    /// request, such as an admission plugin or a quota.
    pub(super) fn of_message(message: &str) -> Option<Denial> {
        let (before, rest) = message.split_once("\" cannot ")?;
        let (_, user) = before.rsplit_once("User \"")?;
        let (verb, _) = rest.split_once(" resource \"")?;
        let quoted = |before: &str| rest.split_once(before)?.1.split_once('"').map(|(text, _)| text.to_owned());
        Some(Denial {
            user: user.to_owned(),
            verb: verb.to_owned(),
            group: quoted("in API group \"")?,
            resource: quoted(" resource \"")?,
            namespace: quoted("in the namespace \""),
        })
    }

    /// A sentence with the name of the user. It repeats nothing else of the API server's message, which may be about a
    /// Secret.
    pub fn sentence(&self) -> String {
        format!("user {} cannot {self}", self.user)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, " in API group {}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => f.write_str(" in the cluster"),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// The permission that the client lacked last, until [`Cluster::is_granted`] finds that it has it.
    pub fn denial(&self) -> Option<Denial> {
        self.transport.denied.lock().clone()
    }

    /// Whether the client has a permission now. Then those that wait in [`Cluster::recovered`] are woken.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn is_granted(&self, denial: &Denial) -> Result<bool, Error> {
        let target = Target::Path("selfsubjectaccessreviews");
        let (resource, subresource) = denial.resource.split_once('/').unwrap_or((&denial.resource, ""));
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": denial.verb,
                "group": denial.group,
                "resource": resource,
                "subresource": subresource,
                "namespace": denial.namespace.as_deref().unwrap_or_default(),
            }},
        });
        // The request is a POST but creates nothing.
        let ask = Ask::write(Method::POST, PATH.to_owned(), Verb::Get, target.clone(), Bytes::from(body.to_string()))
            .header(CONTENT_TYPE, "application/json");
        let answer = self.transport.ask(ask).await?;
        let review: Review = serde_json::from_slice(&answer.body).map_err(|error| Error::Answer {
            cluster: self.transport.name(),
            target,
            message: position(&error),
        })?;
        if review.status.allowed {
            let mut denied = self.transport.denied.lock();
            if denied.as_ref() == Some(denial) {
                *denied = None;
            }
            drop(denied);
            self.transport.wake();
        }
        Ok(review.status.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_read_from_the_answer_and_nothing_else_is_one() {
        let user = "User \"system:serviceaccount:kcp-system:tidegate\"";
        for (message, expected) in [
            (
                format!(
                    "kymas.operator.kyma-project.io \"one\" is forbidden: {user} cannot patch resource \
                     \"kymas/status\" in API group \"operator.kyma-project.io\" in the namespace \"kcp-system\""
                ),
                Some("patch kymas/status in API group operator.kyma-project.io in namespace kcp-system"),
            ),
            (
                format!(
                    "namespaces is forbidden: {user} cannot list resource \"namespaces\" in API group \"\" at the \
                         cluster scope"
                ),
                Some("list namespaces in the cluster"),
            ),
            ("pods \"a\" is forbidden: exceeded quota: one, requested: pods=1".to_owned(), None),
            ("unable to create new content in namespace a because it is being terminated".to_owned(), None),
        ] {
            let found = Denial::of_message(&message).map(|denial| denial.to_string());
            assert_eq!(found.as_deref(), expected, "{message}");
            let sentence = Denial::of_message(&message).map(|denial| denial.sentence());
            let account = "system:serviceaccount:kcp-system:tidegate";
            assert_eq!(sentence, expected.map(|right| format!("user {account} cannot {right}")), "{message}");
        }
    }
}
