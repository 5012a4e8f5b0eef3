//! Our user in a runtime. Its API server does not report changes of this user, which are our own. Pure.
//!
//! A client can choose any field manager, so ours in a request proves nothing. The API server itself authenticates the
//! user. Tidegate asks for it before the first apply. The status records the user beside the digest of what was
//! applied, so a new process need not ask. Each check of all objects asks again, because a new access Secret may belong
//! to another user. If the API server does not tell the user, the webhook configuration names the field manager.

use std::sync::Arc;

use tidegate_core::object::Digest;

/// Our user in one runtime, as far as the process knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownUser {
    /// This process has not asked.
    #[default]
    Unknown,
    /// The answer of the API server; none if it does not tell.
    Known(Option<Arc<str>>),
}

/// How a pass gets the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UserStep {
    /// It asks the API server.
    Ask,
    /// It uses this answer.
    Use(Option<Arc<str>>),
}

/// What the status records of the last apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recorded<'a> {
    /// Digest of the objects.
    pub(super) digest: &'a str,
    /// The user that applied them.
    user: Option<&'a str>,
}

/// Between digest and user.
const AS: &str = " as ";

// === impl KnownUser ===

impl KnownUser {
    /// How a pass gets the user. `checks` is whether it checks all objects of the runtime.
    pub(super) fn step(&self, checks: bool, recorded: Option<Recorded<'_>>) -> UserStep {
        let user = match self {
            KnownUser::Known(user) => Some(user.clone()),
            KnownUser::Unknown => recorded.and_then(|recorded| recorded.user).map(|user| Some(user.into())),
        };
        match user {
            Some(user) if !checks => UserStep::Use(user),
            Some(_) | None => UserStep::Ask,
        }
    }
}

// === impl Recorded ===

impl<'a> Recorded<'a> {
    /// Parses a message of [`record`].
    pub(super) fn parse(message: &'a str) -> Recorded<'a> {
        match message.split_once(AS) {
            Some((digest, user)) => Recorded { digest, user: Some(user) },
            None => Recorded { digest: message, user: None },
        }
    }
}

/// The message of the condition that records what was applied.
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

    #[test]
    fn the_user_is_asked_for_once_and_with_each_check() {
        let known = |user: Option<&str>| KnownUser::Known(user.map(Into::into));
        let uses = |user: Option<&str>| UserStep::Use(user.map(Into::into));
        let recorded = |user| Some(Recorded { digest: "1", user });
        for (known, recorded, checks, expected) in [
            (KnownUser::Unknown, None, false, UserStep::Ask),
            (KnownUser::Unknown, recorded(None), false, UserStep::Ask),
            (KnownUser::Unknown, recorded(Some("admin")), false, uses(Some("admin"))),
            (KnownUser::Unknown, recorded(Some("admin")), true, UserStep::Ask),
            (known(None), recorded(Some("admin")), false, uses(None)),
            (known(Some("new")), recorded(Some("admin")), false, uses(Some("new"))),
            (known(Some("new")), None, true, UserStep::Ask),
        ] {
            assert_eq!(known.step(checks, recorded), expected, "{known:?}, checks: {checks}");
        }
    }
}
