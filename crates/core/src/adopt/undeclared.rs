//! What becomes of the objects in the control plane that git does not declare. Pure.
//!
//! The rules are those of [`intake`]: what keeps an object from a prune there keeps it here.

use std::collections::BTreeMap;

use super::{Finding, Level, Topic, UNDECLARED_MAX, managers};
use crate::{
    api::{GitSource, names::label, shared::ObjectMeta},
    definition::{Allow, Kind},
    intake::{self, Id, Live, OtherTool, Terms, Wait},
    landscape::{self, Idle, SourceName},
    name::Key,
    object::Object,
    words::{agreeing, counted, first},
};

/// What becomes of an object in the control plane that git does not declare.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undeclared {
    /// This GitSource owns it, and deletes it.
    Goes,
    /// This GitSource owns it, and does not delete it, for this reason.
    Kept(Keeper),
    /// No GitSource owns it, or another one does.
    Other,
    /// The same, and it is being deleted already.
    Leaving,
}

/// What keeps an object that git does not declare and that this GitSource owns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeper {
    /// The GitSource has `prune: false`.
    PruneOff,
    /// The GitSource is suspended, or being deleted.
    Idle(Idle),
    /// The annotation that disables the prune of the object.
    Annotation,
    /// Flux or Argo CD manages it, for example `the Flux Kustomization flux-system/landscape`.
    Tool(String),
    /// Another GitSource declares it as well, and takes it over.
    Heir(Key),
    /// Another GitSource may declare it, and has applied no revision yet.
    Unread(Key),
    /// It does not match its kind.
    Unreadable,
    /// It is being deleted already.
    Terminating,
}

/// The GitSources, as far as they decide on objects that git does not declare.
pub struct Owners {
    label: String,
    keeps: Option<Keeper>,
    /// What other GitSources declare and hold back, each with the first of them. A landscape may have thousands.
    heirs: BTreeMap<Id, Key>,
    others: Vec<GitSource>,
}

// === impl Owners ===

impl Owners {
    /// `all` are the GitSources in the control plane. If the own one is not among them, `prune` and `suspended` of its
    /// file decide.
    pub fn new(source: &SourceName, all: Vec<GitSource>, prune: bool, suspended: bool) -> Owners {
        let (own, others): (Vec<GitSource>, Vec<GitSource>) =
            all.into_iter().partition(|one| landscape::key(&one.metadata) == *source.key());
        let (idle, prune) = match own.first() {
            Some(own) => (landscape::idle(own), Terms::from_source(own).map_or(prune, |terms| terms.policy.prune)),
            None => (suspended.then_some(Idle::Suspended), prune),
        };
        let keeps = idle.map(Keeper::Idle).or((!prune).then_some(Keeper::PruneOff));
        let mut heirs = BTreeMap::new();
        for other in &others {
            for id in intake::status::held_back(other) {
                heirs.entry(id).or_insert_with(|| landscape::key(&other.metadata));
            }
        }
        Owners { label: source.label_value(), keeps, heirs, others }
    }

    /// What becomes of an object that git does not declare.
    pub fn decide(&self, id: &Id, object: &Object) -> Undeclared {
        if object.label(label::SOURCE) != Some(&self.label) {
            let is_leaving = !object.value()["metadata"]["deletionTimestamp"].is_null();
            return if is_leaving { Undeclared::Leaving } else { Undeclared::Other };
        }
        if let Some(heir) = self.heirs.get(id) {
            return Undeclared::Kept(Keeper::Heir(heir.clone()));
        }
        let metadata = serde_json::from_value::<ObjectMeta>(object.value()["metadata"].clone());
        let Ok(metadata) = metadata else { return Undeclared::Kept(Keeper::Unreadable) };
        let live = Live::from_metadata(&metadata, Some(managers(object.value()).into()));
        let keeper = match intake::stays(&live) {
            Some(Wait::Terminating) => Some(Keeper::Terminating),
            Some(Wait::Kept) => Some(Keeper::Annotation),
            Some(Wait::Unreadable) => Some(Keeper::Unreadable),
            Some(Wait::Tool(tool)) => Some(Keeper::Tool(OtherTool::text(&tool))),
            Some(
                Wait::Errors | Wait::Unread(_) | Wait::Off | Wait::Unconfirmed(_) | Wait::InUse(_) | Wait::Limit { .. },
            )
            | None => self.keeps.clone(),
        };
        match keeper.or_else(|| self.unread(id).map(Keeper::Unread)) {
            Some(keeper) => Undeclared::Kept(keeper),
            None => Undeclared::Goes,
        }
    }

    /// Another GitSource that may declare the object, and that no daemon has read yet.
    fn unread(&self, id: &Id) -> Option<Key> {
        let is_unread =
            |other: &&GitSource| other.status.as_ref().is_none_or(|status| status.attempted_revision.is_none());
        let may_declare = |other: &&GitSource| {
            !landscape::is_idle(other)
                && Terms::from_source(other).map_or(true, |terms| Allow::from(&terms.allow).admits(id.0, &id.1))
        };
        let other = self.others.iter().filter(is_unread).find(may_declare)?;
        Some(landscape::key(&other.metadata))
    }
}

// === impl Keeper ===

impl Keeper {
    /// Why the object is not deleted, as the end of a sentence about one of them.
    fn text(&self) -> String {
        match self {
            Keeper::PruneOff => "stays, because its GitSource says `prune: false`".to_owned(),
            Keeper::Idle(Idle::Suspended) => "stays while its GitSource is suspended".to_owned(),
            Keeper::Idle(Idle::Ending | Idle::SuspendedEnding) => {
                "stays or goes as `spec.deletionPolicy` says, because its GitSource is being deleted".to_owned()
            }
            Keeper::Annotation => "stays, because it is annotated `tidegate.dev/prune: disabled`".to_owned(),
            Keeper::Tool(tool) => format!("stays, because {tool} manages it"),
            Keeper::Heir(heir) => format!("stays, because GitSource {heir} declares it and takes it over"),
            Keeper::Unread(other) => format!("stays until GitSource {other} is read, which may declare it"),
            Keeper::Unreadable => "stays, because it cannot be read".to_owned(),
            Keeper::Terminating => "is being deleted already".to_owned(),
        }
    }
}

/// The findings about objects that git does not declare, by kind and by what becomes of them.
pub(super) fn findings(undeclared: &BTreeMap<(Kind, Undeclared), Vec<Key>>) -> Vec<Finding> {
    let finding = |((kind, undeclared), keys): (&(Kind, Undeclared), &Vec<Key>)| {
        let names: Vec<String> = keys.iter().map(Key::to_string).collect();
        let owned = agreeing(
            names.len(),
            "belongs to this GitSource, is not in git, and",
            "belong to this GitSource, are not in git, and",
        );
        let next =
            "`tidegate diff --live` says which deletions wait for a confirmation; what is to stay must be in git";
        let (what, next) = match undeclared {
            Undeclared::Goes => {
                (format!("{owned} {} to be deleted", agreeing(names.len(), "is", "are")), Some(next.to_owned()))
            }
            Undeclared::Kept(keeper) if names.len() == 1 => (format!("{owned} {}", keeper.text()), None),
            Undeclared::Kept(keeper) => (format!("{owned} each {}", keeper.text()), None),
            Undeclared::Other => {
                (agreeing(names.len(), "is not in git, and stays", "are not in git, and stay").to_owned(), None)
            }
            Undeclared::Leaving => {
                let text = "is not in git, and is being deleted already";
                (agreeing(names.len(), text, "are not in git, and are being deleted already").to_owned(), None)
            }
        };
        let count = counted(names.len(), "object");
        let message = format!("{count} of kind {kind} in the control plane {what}: {}", first(&names, UNDECLARED_MAX));
        Finding { next, ..Finding::new(Level::Note, Topic::Definitions, message) }
    };
    undeclared.iter().filter(|(_, keys)| !keys.is_empty()).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn source(key: &str, more: &Value) -> GitSource {
        let (namespace, name) = key.split_once('/').unwrap();
        let mut source = json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"url": "https://git.example.org/a"},
        });
        for (field, value) in more.as_object().unwrap() {
            source[field]
                .as_object_mut()
                .map(|all| all.extend(value.as_object().unwrap().clone()))
                .unwrap_or_else(|| source[field] = value.clone());
        }
        serde_json::from_value(source).unwrap()
    }

    fn own() -> SourceName {
        SourceName::new(Key::new("kcp-system", "landscape"))
    }

    /// What becomes of a Kyma with more metadata, in one sentence. `sources` are in the control plane.
    fn fate(metadata: &Value, sources: Vec<GitSource>, (prune, suspended): (bool, bool)) -> String {
        let mut kyma = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "a", "namespace": "kcp-system", "labels": {label::SOURCE: own().label_value()}},
            "spec": {"channel": "regular"},
        });
        for (field, value) in metadata.as_object().unwrap() {
            match (kyma["metadata"][field].as_object_mut(), value.as_object()) {
                (Some(all), Some(more)) => all.extend(more.clone()),
                _ => kyma["metadata"][field] = value.clone(),
            }
        }
        let id = (Kind::Kyma, Key::new("kcp-system", "a"));
        let owners = Owners::new(&own(), sources, prune, suspended);
        let undeclared = owners.decide(&id, &Object::new(kyma).unwrap());
        let found = findings(&BTreeMap::from([((Kind::Kyma, undeclared), vec![id.1])]));
        let text = found[0].message.strip_prefix("1 object of kind Kyma in the control plane ").unwrap();
        let text = text.strip_suffix(": kcp-system/a").unwrap();
        assert_eq!(found[0].next.is_some(), text.ends_with("to be deleted"), "{text}");
        text.strip_prefix("belongs to this GitSource, is not in git, and ").unwrap_or(text).to_owned()
    }

    #[test]
    fn what_git_does_not_declare_is_deleted_unless_something_keeps_it() {
        const GOES: &str = "is to be deleted";
        let says = (true, false);
        let none = json!({});
        assert_eq!(fate(&none, Vec::new(), says), GOES);
        assert_eq!(
            fate(&json!({"labels": {label::SOURCE: "kcp-system.b"}}), Vec::new(), says),
            "is not in git, and stays"
        );
        let kept = json!({"annotations": {"tidegate.dev/prune": "disabled"}});
        assert_eq!(fate(&kept, Vec::new(), says), "stays, because it is annotated `tidegate.dev/prune: disabled`");
        let flux = json!({
            "labels": {"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": "flux"},
        });
        assert_eq!(fate(&flux, Vec::new(), says), "stays, because the Flux Kustomization flux/a manages it");
        let argo = json!({"annotations": {"argocd.argoproj.io/tracking-id": "app:g/Kyma:kcp-system/a"}});
        assert_eq!(fate(&argo, Vec::new(), says), "stays, because the Argo CD Application app manages it");
        let ending = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(fate(&ending, Vec::new(), says), "is being deleted already");
        let ending = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {label::SOURCE: "kcp-system.b"}});
        assert_eq!(fate(&ending, Vec::new(), says), "is not in git, and is being deleted already");
    }

    #[test]
    fn the_gitsource_in_the_control_plane_decides_and_its_file_without_one() {
        let none = json!({});
        let off = "stays, because its GitSource says `prune: false`";
        let suspended = "stays while its GitSource is suspended";
        assert_eq!(fate(&none, Vec::new(), (false, false)), off);
        assert_eq!(fate(&none, Vec::new(), (true, true)), suspended);
        let live = |spec: Value| vec![source("kcp-system/landscape", &json!({"spec": spec}))];
        assert_eq!(fate(&none, live(json!({"prune": false})), (true, false)), off);
        assert_eq!(fate(&none, live(json!({})), (false, true)), "is to be deleted");
        assert_eq!(fate(&none, live(json!({"suspend": true})), (true, false)), suspended);
    }

    #[test]
    fn of_several_gitsources_that_declare_an_object_the_first_is_named_and_only_for_this_object() {
        let held = |kind: &str, namespace: &str, name: &str| {
            json!({
                "kind": kind, "namespace": namespace, "name": name, "path": "a.yaml", "line": 1, "reason": "Owned",
                "message": "m",
            })
        };
        let more = json!([{"kind": "Kyma", "namespace": "kcp-system", "names": ["a"]}]);
        let holds = |key: &str, withheld: Value, more: Value| {
            let read = json!({"attemptedRevision": "main@sha1:a", "withheld": withheld, "moreWithheld": more});
            source(key, &json!({"status": read}))
        };
        let own = json!([held("Kyma", "kcp-system", "a")]);
        // Another kind, another namespace and another name are other objects, and a source is not its own heir.
        let others =
            json!([held("Watcher", "kcp-system", "a"), held("Kyma", "team", "a"), held("Kyma", "kcp-system", "b"),]);
        let none = json!([]);
        let mut sources =
            vec![holds("kcp-system/landscape", own, none.clone()), holds("kcp-system/b", others, none.clone())];
        assert_eq!(fate(&json!({}), sources.clone(), (true, false)), "is to be deleted");
        // What does not fit into the list of a status is a name only.
        sources.push(holds("kcp-system/d", none.clone(), more));
        sources.push(holds("kcp-system/c", json!([held("Kyma", "kcp-system", "a")]), none));
        assert_eq!(
            fate(&json!({}), sources, (true, false)),
            "stays, because GitSource kcp-system/d declares it and takes it over"
        );
    }

    #[test]
    fn what_another_gitsource_declares_or_may_declare_stays() {
        let none = json!({});
        let held = json!([{
            "kind": "Kyma", "namespace": "kcp-system", "name": "a", "path": "a.yaml", "line": 1, "reason": "Owned",
            "message": "m",
        }]);
        let read = json!({"attemptedRevision": "main@sha1:a", "withheld": held});
        let heir = source("kcp-system/b", &json!({"status": read}));
        assert_eq!(
            fate(&none, vec![heir], (true, false)),
            "stays, because GitSource kcp-system/b declares it and takes it over"
        );
        let other = |spec: Value, status: Value| vec![source("kcp-system/b", &json!({"spec": spec, "status": status}))];
        let waits = "stays until GitSource kcp-system/b is read, which may declare it";
        assert_eq!(fate(&none, other(json!({}), json!({})), (true, false)), waits);
        let goes = "is to be deleted";
        let kinds = json!({"allow": {"kinds": ["Watcher"]}});
        assert_eq!(fate(&none, other(kinds, json!({})), (true, false)), goes);
        assert_eq!(fate(&none, other(json!({"suspend": true}), json!({})), (true, false)), goes);
        assert_eq!(fate(&none, other(json!({}), json!({"attemptedRevision": "main@sha1:a"})), (true, false)), goes);
    }
}
