//! Decides how to remove finalizers of Tidegate from an object. Pure.

use tidegate_cluster::{Error, Metadata};
use tidegate_core::api::shared::ObjectMeta;

/// What a pass has found out about the object so far.
#[derive(Debug)]
pub(super) enum FinalizerState {
    /// Its finalizers are not known at a resource version.
    Unknown,
    /// It has these finalizers.
    Listed {
        /// The finalizers, of Tidegate and of others.
        finalizers: Vec<String>,
        /// The resource version at which it has them.
        resource_version: String,
    },
    /// Another client changed it before the write.
    Changed(Error),
    /// The write has left these finalizers of others.
    Released(Vec<String>),
    /// It does not exist any more.
    Gone,
}

/// The next step.
#[derive(Debug)]
pub(super) enum Step {
    /// Reads the object.
    Read,
    /// Replaces the finalizers.
    Write {
        /// The finalizers of others.
        left: Vec<String>,
        /// The resource version at which the object has them.
        resource_version: String,
    },
    /// Ends with the finalizers of others.
    End(Result<Vec<String>, Error>),
}

/// The next step, while `writes_left` more writes may be sent.
pub(super) fn next(found: FinalizerState, ours: &[&str], writes_left: u32) -> Step {
    match found {
        FinalizerState::Unknown => Step::Read,
        FinalizerState::Listed { finalizers, resource_version } => {
            let of_others = |name: &&String| !ours.contains(&name.as_str());
            let left: Vec<String> = finalizers.iter().filter(of_others).cloned().collect();
            if left.len() == finalizers.len() { Step::End(Ok(left)) } else { Step::Write { left, resource_version } }
        }
        FinalizerState::Changed(error) if writes_left == 0 => Step::End(Err(error)),
        FinalizerState::Changed(_) => Step::Read,
        FinalizerState::Released(left) => Step::End(Ok(left)),
        FinalizerState::Gone => Step::End(Ok(Vec::new())),
    }
}

// === impl FinalizerState ===

impl FinalizerState {
    /// What a watch or an earlier write tells.
    pub(super) fn shown(known: &ObjectMeta) -> FinalizerState {
        match &known.resource_version {
            Some(resource_version) => FinalizerState::Listed {
                finalizers: known.finalizers.clone().unwrap_or_default(),
                resource_version: resource_version.clone(),
            },
            None => FinalizerState::Unknown,
        }
    }

    /// What a read tells. A later object of the same name is another one, and is left alone.
    pub(super) fn read(known: &ObjectMeta, live: Option<Metadata>) -> FinalizerState {
        match live {
            Some(live) if known.uid.as_ref().is_none_or(|uid| *uid == live.uid) => {
                FinalizerState::Listed { finalizers: live.finalizers, resource_version: live.resource_version }
            }
            Some(_) | None => FinalizerState::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::Target;

    use super::*;

    const OURS: [&str; 2] = ["ours", "ours-too"];

    fn listed(finalizers: &[&str]) -> FinalizerState {
        let finalizers = finalizers.iter().map(|&name| name.to_owned()).collect();
        FinalizerState::Listed { finalizers, resource_version: "7".to_owned() }
    }

    fn changed() -> FinalizerState {
        FinalizerState::Changed(Error::Changed { target: Target::Path("a") })
    }

    #[track_caller]
    fn check(found: FinalizerState, writes_left: u32, expected: &str) {
        let step = match next(found, &OURS, writes_left) {
            Step::Read => "read".to_owned(),
            Step::Write { left, resource_version } => format!("write [{}] at {resource_version}", left.join(" ")),
            Step::End(Ok(left)) => format!("end [{}]", left.join(" ")),
            Step::End(Err(error)) => format!("fail: {error}"),
        };
        assert_eq!(step, expected);
    }

    #[test]
    fn only_finalizers_of_tidegate_are_removed_and_only_at_the_version_that_was_read() {
        check(FinalizerState::Unknown, 3, "read");
        check(listed(&["ours", "theirs", "ours-too"]), 3, "write [theirs] at 7");
        check(listed(&["ours"]), 3, "write [] at 7");
        check(FinalizerState::Released(vec!["theirs".to_owned()]), 2, "end [theirs]");
    }

    #[test]
    fn an_object_without_them_gets_no_request() {
        check(listed(&[]), 3, "end []");
        check(listed(&["theirs"]), 3, "end [theirs]");
        check(FinalizerState::Gone, 3, "end []");
    }

    #[test]
    fn an_object_that_others_keep_changing_is_read_again_a_few_times() {
        check(changed(), 2, "read");
        check(changed(), 1, "read");
        check(changed(), 0, "fail: a has changed in the meantime");
    }

    #[test]
    fn a_later_object_of_the_same_name_is_gone() {
        let known = ObjectMeta { uid: Some("1".to_owned()), ..ObjectMeta::default() };
        check(FinalizerState::read(&known, None), 3, "end []");
        check(FinalizerState::shown(&known), 3, "read");
        let shown = ObjectMeta { resource_version: Some("7".to_owned()), ..known };
        check(FinalizerState::shown(&shown), 3, "end []");
    }
}
