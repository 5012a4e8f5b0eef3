//! Our user in a runtime. Its API server does not report changes of this user, which are our own. Pure.
//!
//! A client can choose any field manager, so ours in a request proves nothing. The API server itself authenticates the
//! user. Tidegate asks for it before the first apply. The status records the user beside the digest of what was
//! applied, so a new process need not ask. Each check of all objects asks again, because a new access Secret may belong
//! to another user. If the API server does not tell the user, the webhook configuration names the field manager.

use std::sync::Arc;

use tidegate_core::{api::shared::Condition, conditions, object::Digest, status::WatchApplied};

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
    /// What the conditions of a Kyma record.
    pub(super) fn of(conditions: &'a [Condition]) -> Option<Recorded<'a>> {
        let digest = conditions::recorded(conditions, conditions::WATCH_APPLIED)?;
        let message = conditions::message(conditions, conditions::WATCH_APPLIED)?;
        Some(Recorded { digest, user: message.split_once(AS).map(|(_, user)| user) })
    }
}

/// What to record of the objects that were applied.
pub(super) fn record(digest: &Digest, user: Option<&str>) -> WatchApplied {
    let user = user.map(|user| format!("{AS}{user}")).unwrap_or_default();
    WatchApplied { digest: *digest, message: format!("the objects that report changes are applied{user}") }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;
    use tidegate_core::api::shared::Time;

    use super::*;

    #[test]
    fn what_is_recorded_is_read_again() {
        let digest = Digest::from_value(&json!("a"));
        for user in [None, Some("system:serviceaccount:kyma-system:admin"), Some("one as another")] {
            let (WatchApplied { digest, message }, now) = (record(&digest, user), Time(Timestamp::UNIX_EPOCH));
            let mut conditions = Vec::new();
            conditions::record(&mut conditions, conditions::WATCH_APPLIED, &digest, &message, None, &now);
            let text = digest.to_string();
            assert_eq!(Recorded::of(&conditions), Some(Recorded { digest: &text, user }));
            assert!(!conditions[0].message.contains(&text), "a sentence");
            // As earlier versions wrote it.
            conditions[0].reason = conditions::APPLIED_REASON.to_owned();
            conditions[0].message = user.map_or(text.clone(), |user| format!("{text} as {user}"));
            assert_eq!(Recorded::of(&conditions), Some(Recorded { digest: &text, user }));
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
