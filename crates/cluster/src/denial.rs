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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denial {
    user: String,
    verb: String,
    group: String,
    /// With its subresource: `kymas/status`.
    resource: String,
    /// None for the whole cluster.
    namespace: Option<String>,
}

/// The permissions that a client lacks, as far as it has tried to use them. Of too many, the latest.
#[derive(Debug, Default)]
pub(super) struct Denials(Vec<Denial>);

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
/// The resource of the question whether a permission is granted.
const REVIEWS: &str = "selfsubjectaccessreviews";
/// How many missing permissions are kept. Each is asked for again and again, and a role that lacks more lacks most.
const DENIALS_MAX: usize = 16;

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

    /// Whether only Events need the permission. Nothing waits for an Event.
    pub fn is_of_events(&self) -> bool {
        self.resource == "events"
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

// === impl Denials ===

impl Denials {
    /// Notes that a permission is missing. That of the question itself says nothing of any work.
    pub(super) fn add(&mut self, denial: Denial) {
        if denial.resource == REVIEWS {
            return;
        }
        self.remove(&denial);
        if self.0.len() == DENIALS_MAX {
            self.0.remove(0);
        }
        self.0.push(denial);
    }

    fn remove(&mut self, denial: &Denial) {
        self.0.retain(|known| known != denial);
    }
}

// === impl Cluster ===

impl Cluster {
    /// The permission that the client lacked last, until [`Cluster::is_granted`] finds that it has it.
    pub fn denial(&self) -> Option<Denial> {
        self.transport.denied.lock().0.last().cloned()
    }

    /// All permissions that the client lacked, each until [`Cluster::is_granted`] finds that it has it. The last one is
    /// that of [`Cluster::denial`].
    pub fn denials(&self) -> Vec<Denial> {
        self.transport.denied.lock().0.clone()
    }

    /// Whether the client has a permission now. Then those that wait in [`Cluster::recovered`] are woken.
    ///
    /// # Errors
    ///
    /// Fails if the request fails or the answer is invalid.
    pub async fn is_granted(&self, denial: &Denial) -> Result<bool, Error> {
        let target = Target::Path(REVIEWS);
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
            self.transport.denied.lock().remove(denial);
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

    #[test]
    fn each_missing_permission_is_kept_once_and_of_too_many_the_latest() {
        let of = |resource: &str| Denial {
            user: "a".to_owned(),
            verb: "create".to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: None,
        };
        let mut denials = Denials::default();
        for resource in ["secrets", "events", "secrets", REVIEWS] {
            denials.add(of(resource));
        }
        assert_eq!(denials.0, [of("events"), of("secrets")]);
        assert_eq!(denials.0.iter().map(Denial::is_of_events).collect::<Vec<_>>(), [true, false]);
        denials.remove(&of("events"));
        assert_eq!(denials.0, [of("secrets")]);
        for index in 0..DENIALS_MAX {
            denials.add(of(&format!("kind{index}")));
        }
        assert_eq!((denials.0.len(), denials.0.first()), (DENIALS_MAX, Some(&of("kind0"))));
    }
}
