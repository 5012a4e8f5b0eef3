//! Decides how a resource of a kcp landscape goes: a decision over values.
//!
//! Resources go in the reverse order of their creation, while kcp is up. Nothing goes because the
//! CustomResourceDefinition of its kind is deleted, unless a user confirmed that. What happens inside kcp first, is
//! decided in [`super::inside`].

use tidegate_core::{
    api::{
        names::{annotation, finalizer},
        setup::Kind,
        shared::ObjectMeta,
    },
    landscape::setup::Resources,
    name::Key,
};

/// How many names a sentence lists.
pub(super) const NAMED_MAX: usize = 5;

/// What the API server says about the CustomResourceDefinition of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    /// It is there, or a user has confirmed its deletion.
    Stands,
    /// It is being deleted, with all its objects.
    Leaves,
}

/// Whether Tidegate or kcp-operator holds the resource.
pub(super) fn is_held(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|name| finalizers().contains(&name.as_str()))
}

/// The finalizers that Tidegate removes.
pub(super) fn finalizers() -> [&'static str; 3] {
    let [shard, access] = finalizer::KCP_OPERATOR;
    [finalizer::SETUP, shard, access]
}

/// Why a resource that is being deleted stays for now: one sentence. `None` if its objects may go.
pub(super) fn waits(resources: &Resources, kind: Kind, key: &Key, definition: Definition) -> Option<String> {
    if definition == Definition::Leaves {
        return Some(format!(
            "the CustomResourceDefinition of {kind} is being deleted, so its objects stay; if they shall go, run \
             `kubectl annotate crd {}.{} {}=true`",
            kind.plural(),
            tidegate_core::api::setup::SETUP_GROUP,
            annotation::CONFIRM_DELETION,
        ));
    }
    let dependents = resources.dependents(kind, key);
    if !dependents.is_empty() {
        let names: Vec<String> =
            dependents.iter().take(NAMED_MAX).map(|(kind, key)| format!("{kind} {}", key.name())).collect();
        let more = dependents.len().saturating_sub(NAMED_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        return Some(format!(
            "{kind} {} goes after {}{more}: delete them, or change what they name",
            key.name(),
            names.join(", ")
        ));
    }
    None
}

/// Why a Shard stays that may hold workspaces, and what to do.
pub(super) fn holds_workspaces(key: &Key, why: &str) -> String {
    let (namespace, name) = (key.namespace(), key.name());
    format!(
        "Shard {name} may hold workspaces: {why}; move or delete them, or run `kubectl annotate shards.operator.kcp.io \
         -n {namespace} {name} {}=true`",
        annotation::FORCE_REMOVAL
    )
}

#[cfg(test)]
mod tests;
