//! The Events of a Kyma about its modules: which are installed, upgraded, removed, held or paused. Pure.
//!
//! One Event names all modules that became ready in one pass, because a rollout touches thousands of runtimes. A module
//! that is ready again in the same version is no news.

use std::collections::BTreeMap;

use tidegate_core::{
    api::{
        kyma::{KymaStatus, ModuleStatus},
        shared::State,
    },
    conditions, status, version_range,
};

use crate::controller::events::reason;

/// The modules of a runtime that users know to be installed.
#[derive(Debug, Default)]
pub(super) struct KnownProgress {
    /// The version of each module that was ready; `None` before the first status of this process.
    ready: Option<BTreeMap<String, String>>,
}

/// News about the modules of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Reason of the Event.
    pub(super) reason: &'static str,
    /// One sentence.
    pub(super) note: String,
}

// === impl KnownProgress ===

impl KnownProgress {
    /// The news in a status that follows another one.
    pub(super) fn news(&mut self, before: &KymaStatus, next: &KymaStatus) -> Vec<Progress> {
        let ready = self.ready.get_or_insert_with(|| before.modules.iter().filter_map(ready_version).collect());
        let (mut installed, mut removed) = (Vec::new(), Vec::new());
        let (mut upgraded, mut downgraded) = (Vec::new(), Vec::new());
        let unmanaged: Vec<String> = next.modules.iter().filter_map(|module| left(before, module)).collect();
        for (name, version) in next.modules.iter().filter_map(ready_version) {
            match ready.insert(name.clone(), version.clone()) {
                None => installed.push(format!("{name} {version}")),
                Some(former) if former != version => {
                    let list = if version_range::is_lower(&version, &former) { &mut downgraded } else { &mut upgraded };
                    list.push(format!("{name} from {former} to {version}"));
                }
                Some(_) => {}
            }
        }
        ready.retain(|name, version| {
            let stays = next.modules.iter().any(|module| module.name == *name);
            if !stays {
                removed.push(format!("{name} {version}"));
            }
            stays
        });
        let lists = [
            (reason::MODULE_INSTALLED, "installed", installed),
            (reason::MODULE_UPGRADED, "upgraded", upgraded),
            (reason::MODULE_DOWNGRADED, "downgraded", downgraded),
            (reason::MODULE_REMOVED, "removed", removed),
        ];
        let changed = lists.into_iter().filter(|(.., modules)| !modules.is_empty());
        let changed =
            changed.map(|(reason, what, modules)| Progress { reason, note: format!("{what} {}", modules.join(", ")) });
        let unmanaged = (!unmanaged.is_empty()).then(|| Progress {
            reason: reason::MODULE_UNMANAGED,
            note: format!("no longer managed: {}; the objects stay in the runtime", unmanaged.join(", ")),
        });
        changed.chain(unmanaged).chain(held(before, next)).chain(paused(before, next)).collect()
    }
}

/// A module that works, and its version.
fn ready_version(module: &ModuleStatus) -> Option<(String, String)> {
    let works = matches!(module.state, State::Ready | State::Warning);
    module.version.clone().filter(|_| works).map(|version| (module.name.clone(), version))
}

/// A module that has become unmanaged, with the version that it had.
fn left(before: &KymaStatus, module: &ModuleStatus) -> Option<String> {
    let former = before.modules.iter().find(|former| former.name == module.name)?;
    let is_left = module.state == State::Unmanaged && former.state != State::Unmanaged;
    is_left.then(|| format!("{} {}", module.name, former.version.as_deref().unwrap_or_default()).trim_end().to_owned())
}

/// New versions that wait since this status, or for another reason.
fn held(before: &KymaStatus, next: &KymaStatus) -> Vec<Progress> {
    let news = |type_: &&str| {
        let found = conditions::find(&next.conditions, type_)?;
        let is_known = conditions::find(&before.conditions, type_).is_some_and(|known| known.reason == found.reason);
        (!is_known).then(|| Progress { reason: reason::MODULE_HELD, note: found.message.clone() })
    };
    [conditions::MAINTENANCE_WINDOW, conditions::ROLLOUT].iter().filter_map(news).collect()
}

/// Modules whose pause holds something back since this status.
fn paused(before: &KymaStatus, next: &KymaStatus) -> Vec<Progress> {
    let known = status::held_by_pauses(&before.conditions);
    let is_news = |name: &str| known.iter().all(|(known, _)| *known != name);
    let held = status::held_by_pauses(&next.conditions).into_iter().filter(|(name, _)| is_news(name));
    held.map(|(name, what)| Progress { reason: reason::SUSPENDED, note: format!("module {name}: {what}") }).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_core::{api::shared::Time, conditions::Status};

    use super::*;

    fn status(modules: &[(&str, &str, State)]) -> KymaStatus {
        let module = |&(name, version, state): &(&str, &str, State)| ModuleStatus {
            name: name.to_owned(),
            version: Some(version.to_owned()),
            state,
            ..ModuleStatus::default()
        };
        KymaStatus { modules: modules.iter().map(module).collect(), ..KymaStatus::default() }
    }

    /// The news of each status, which follows the one before it.
    fn check(start: &KymaStatus, steps: &[(KymaStatus, &[&str])]) {
        let (mut known, mut before) = (KnownProgress::default(), start.clone());
        for (next, expected) in steps {
            let found = known.news(&before, next);
            let texts: Vec<String> = found.iter().map(|one| format!("{}: {}", one.reason, one.note)).collect();
            assert_eq!(texts, *expected, "{next:?}");
            before = next.clone();
        }
    }

    #[test]
    fn a_module_is_installed_upgraded_and_removed_once() {
        use State::{Deleting, Error, Processing, Ready};
        check(
            &status(&[]),
            &[
                (status(&[("cache", "1.0.0", Processing), ("mailer", "2.0.0", Processing)]), &[]),
                (
                    status(&[("cache", "1.0.0", Ready), ("mailer", "2.0.0", Ready)]),
                    &["ModuleInstalled: installed cache 1.0.0, mailer 2.0.0"],
                ),
                (status(&[("cache", "1.0.0", Error), ("mailer", "2.0.0", Ready)]), &[]),
                (status(&[("cache", "1.0.0", Ready), ("mailer", "2.0.0", Ready)]), &[]),
                (status(&[("cache", "1.1.0", Processing), ("mailer", "2.0.0", Deleting)]), &[]),
                (
                    status(&[("cache", "1.1.0", Ready)]),
                    &["ModuleUpgraded: upgraded cache from 1.0.0 to 1.1.0", "ModuleRemoved: removed mailer 2.0.0"],
                ),
                (status(&[("cache", "1.1.0", Ready)]), &[]),
                (status(&[("cache", "1.0.9", Ready)]), &["ModuleDowngraded: downgraded cache from 1.1.0 to 1.0.9"]),
                (status(&[("cache", "next", Ready)]), &["ModuleUpgraded: upgraded cache from 1.0.9 to next"]),
            ],
        );
    }

    #[test]
    fn a_module_that_is_no_longer_managed_is_said_once() {
        let left = || ModuleStatus { name: "cache".to_owned(), state: State::Unmanaged, ..ModuleStatus::default() };
        let unmanaged = || KymaStatus { modules: vec![left()], ..KymaStatus::default() };
        let said: &[&str] = &["ModuleUnmanaged: no longer managed: cache 1.0.0; the objects stay in the runtime"];
        check(&status(&[("cache", "1.0.0", State::Ready)]), &[(unmanaged(), said), (unmanaged(), &[])]);
        check(&unmanaged(), &[(unmanaged(), &[])]);
    }

    #[test]
    fn a_new_process_repeats_nothing() {
        let installed = status(&[("cache", "1.0.0", State::Ready)]);
        let other = status(&[("cache", "1.1.0", State::Ready)]);
        let upgraded: &[&str] = &["ModuleUpgraded: upgraded cache from 1.0.0 to 1.1.0"];
        check(&installed, &[(installed.clone(), &[]), (other, upgraded)]);
    }

    #[test]
    fn what_holds_a_version_back_is_news_until_its_reason_is_known() {
        let held = |reason: &str, message: &str| {
            let mut status = KymaStatus::default();
            let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
            let (type_, status_) = (conditions::ROLLOUT, Status::False);
            conditions::set(&mut status.conditions, type_, status_, reason, message, None, &now);
            status
        };
        check(
            &KymaStatus::default(),
            &[
                (held("EarlierWave", "cache 1.1.0 waits"), &["ModuleHeld: cache 1.1.0 waits"]),
                (held("EarlierWave", "cache 1.1.0 still waits"), &[]),
                (held("Paused", "it is paused"), &["ModuleHeld: it is paused"]),
                (KymaStatus::default(), &[]),
            ],
        );
    }

    #[test]
    fn a_pause_is_news_once_it_holds_something_back() {
        let hinted = |message: &str| {
            let mut status = KymaStatus::default();
            let now = Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
            let (type_, reason) = (conditions::HINTS, conditions::HINTS_REASON);
            conditions::set(&mut status.conditions, type_, Status::True, reason, message, None, &now);
            status
        };
        let idle = "module cache: paused by the label l of its Manifest; to continue, run `x`";
        let change = "module cache: paused by the label l of its Manifest, which holds back a change; to continue, \
                      run `x`";
        let others = format!("{change}; module mailer: waits for Deployment a/b");
        let said = format!("Suspended: {change}");
        check(
            &KymaStatus::default(),
            &[
                (hinted(idle), &[]),
                (hinted(change), &[said.as_str()]),
                (hinted(&others), &[]),
                (hinted("module mailer: waits for Deployment a/b, which holds back a change"), &[]),
                (hinted(&others), &[said.as_str()]),
            ],
        );
    }
}
