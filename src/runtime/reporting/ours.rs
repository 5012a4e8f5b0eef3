//! As whom we write in a runtime, so that its API server leaves out what we write ourselves when it reports changes.
//!
//! Every client chooses its field manager, so ours in a request proves nothing; the user is what the API server itself
//! found out. It is asked for before the first apply, and the status records the answer beside the digest of what was
//! applied, so that a new process need not ask; with each look at the runtime whoever has a new client asks again, since
//! the Secret may have become that of another user. Where the server does not say, the field manager has to do.

use std::sync::Arc;

use tidegate_cluster::{Cluster, Error};
use tidegate_core::object::Digest;

/// What is known of it in one runtime.
#[derive(Debug, Default)]
pub(super) struct Ours(Option<Option<Arc<str>>>);

/// What the status says was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recorded<'a> {
    /// Digest of it.
    pub(super) digest: &'a str,
    /// As whom.
    user: Option<&'a str>,
}

/// Between digest and user.
const AS: &str = " as ";

// === impl Ours ===

impl Ours {
    /// Our user in the runtime. `looks` is whether the runtime is looked at anyway.
    pub(super) async fn user(
        &mut self,
        cluster: &Cluster,
        looks: bool,
        recorded: Option<Recorded<'_>>,
    ) -> Result<Option<Arc<str>>, Error> {
        let known = self.0.take().or_else(|| recorded?.user.map(|user| Some(user.into())));
        let user = match known {
            Some(user) if !looks => user,
            Some(_) | None => cluster.user().await?,
        };
        self.0 = Some(user.clone());
        Ok(user)
    }
}

// === impl Recorded ===

impl<'a> Recorded<'a> {
    /// Reads what [`record`] wrote.
    pub(super) fn parse(message: &'a str) -> Recorded<'a> {
        match message.split_once(AS) {
            Some((digest, user)) => Recorded { digest, user: Some(user) },
            None => Recorded { digest: message, user: None },
        }
    }
}

/// What the status says of what was applied.
pub(super) fn record(digest: &Digest, user: Option<&str>) -> String {
    match user {
        Some(user) => format!("{digest}{AS}{user}"),
        None => digest.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_recorded_is_read_again() {
        let digest = Digest::from_value(&json!("a"));
        for user in [None, Some("system:serviceaccount:kyma-system:admin"), Some("one as another")] {
            let message = record(&digest, user);
            assert_eq!(Recorded::parse(&message), Recorded { digest: &digest.to_string(), user });
        }
    }
}
