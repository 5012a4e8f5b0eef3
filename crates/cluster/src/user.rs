//! The client's user name in a cluster, as its API server sees it.
//!
//! Only the API server knows the name, because it may add a prefix or map it. So the client asks it once.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE};
use serde::Deserialize;
use serde_json::json;

use super::{
    Cluster, Error, Target, position,
    transport::{Ask, Verb},
};

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewStatus {
    #[serde(default)]
    user_info: UserInfo,
}

#[derive(Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
}

/// Every user may ask for its own name here, since Kubernetes 1.28.
const PATH: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

// === impl Cluster ===

impl Cluster {
    /// The client's user name, as the API server's admission sees it; `None` if the server does not report it.
    ///
    /// Asks at most once successfully: after a failure, the next call asks again.
    ///
    /// # Errors
    ///
    /// Fails if the cluster cannot be reached.
    pub async fn user(&self) -> Result<Option<Arc<str>>, Error> {
        self.user.get_or_try_init(async || self.ask_for_user().await).await.cloned()
    }

    async fn ask_for_user(&self) -> Result<Option<Arc<str>>, Error> {
        let target = Target::Path("selfsubjectreviews");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        // The request is a POST but creates nothing.
        let ask = Ask::write(Method::POST, PATH.to_owned(), Verb::Get, target.clone(), Bytes::from(body.to_string()))
            .header(CONTENT_TYPE, "application/json");
        let answer = match self.transport.ask(ask).await {
            Ok(answer) => answer,
            // The server is older or forbids the request.
            Err(Error::NotFound { .. } | Error::NotServed { .. } | Error::Forbidden { .. } | Error::Invalid { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let review: Review = serde_json::from_slice(&answer.body).map_err(|error| Error::Answer {
            cluster: self.transport.name(),
            target,
            message: position(&error),
        })?;
        Ok(Some(review.status.user_info.username.into()).filter(|user: &Arc<str>| !user.is_empty()))
    }
}
