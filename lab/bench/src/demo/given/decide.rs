//! What the demo makes in clusters of the user, and whether it may use them. Pure.

use std::collections::BTreeMap;

use tidegate_core::api::names::{KCP_NAMESPACE, SKR_NAMESPACE};

/// What a cluster is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The KCP.
    ControlPlane,
    /// A runtime.
    Runtime,
}

/// What exists in a cluster of what the demo makes.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// What identifies the cluster.
    pub(super) uid: String,
    /// Whether an earlier demo says that all this is its own.
    pub(super) is_marked: bool,
    /// What that demo used the cluster for, if it says so.
    pub(super) marked_as: Option<Role>,
    /// The names of its namespaces.
    pub(super) namespaces: Vec<String>,
    /// The names of its definitions.
    pub(super) definitions: Vec<String>,
    /// Cluster-wide objects with the label of Kyma: kind and name.
    pub(super) labelled: Vec<String>,
}

/// Whether the demo may use a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing of what it makes is there.
    Clean,
    /// An earlier demo was cut off.
    Left,
    /// An earlier demo was cut off, and used the cluster for this. What it left cannot be told from what it found.
    LeftAs(Role),
    /// Something is there that no demo has made.
    Foreign(String),
}

/// What the demo makes in a KCP.
pub(super) const MADE_IN_KCP: &str =
    "the namespaces kcp-system and istio-system, the definitions of Kyma, Tidegate and two of Istio, and all in them";
/// What the demo makes in a runtime.
pub(super) const MADE_IN_RUNTIMES: &str = "the namespace kyma-system, the definitions of Kyma and of the example's modules, ClusterRoles, their bindings, and \
     one ValidatingWebhookConfiguration";

/// The API groups of the definitions that the demo makes, with all below them.
const GROUPS: [&str; 4] = ["kyma-project.io", "tidegate.dev", "networking.istio.io", "example.org"];

// === impl Role ===

impl Role {
    /// The namespaces that the demo makes.
    pub(super) fn namespaces(self) -> &'static [&'static str] {
        match self {
            Role::ControlPlane => &[KCP_NAMESPACE, "istio-system"],
            Role::Runtime => &[SKR_NAMESPACE],
        }
    }

    /// The option that names such a cluster. The mark of the demo has it.
    pub(super) fn option(self) -> &'static str {
        match self {
            Role::ControlPlane => "--kubeconfig",
            Role::Runtime => "--runtime-kubeconfig",
        }
    }

    /// The role that an option names.
    pub(super) fn of_option(option: &str) -> Option<Role> {
        [Role::ControlPlane, Role::Runtime].into_iter().find(|role| role.option() == option)
    }
}

/// Whether the demo makes a definition of this name.
pub(super) fn is_made(definition: &str) -> bool {
    let group = definition.split_once('.').map_or("", |(_, group)| group);
    GROUPS.iter().any(|made| group == *made || group.strip_suffix(made).is_some_and(|rest| rest.ends_with('.')))
}

// === impl Seen ===

impl Seen {
    /// Whether the demo may use the cluster.
    pub(super) fn state(&self, role: Role) -> State {
        if self.is_marked {
            return match self.marked_as {
                Some(other) if other != role => State::LeftAs(other),
                Some(_) | None => State::Left,
            };
        }
        let namespace = self.namespaces.iter().find(|name| role.namespaces().contains(&name.as_str()));
        let namespace = namespace.map(|name| format!("the namespace {name}"));
        let definition = self.definitions.iter().find(|name| is_made(name));
        let definition = definition.map(|name| format!("the CustomResourceDefinition {name}"));
        let found = namespace.or(definition).or(self.labelled.first().cloned());
        found.map_or(State::Clean, State::Foreign)
    }
}

/// Whether the clusters, each with its name and identity, are different ones. Fails with a sentence.
pub(super) fn distinct<'a>(clusters: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, uid) in clusters {
        if let Some(other) = known.insert(uid, name) {
            return Err(format!("{other} and {name} are the same cluster: give a cluster for each"));
        }
    }
    Ok(())
}

/// Whether an answer is a yes.
pub(super) fn agrees(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(namespaces: &[&str], definitions: &[&str], labelled: &[&str]) -> Seen {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Seen {
            namespaces: texts(namespaces),
            definitions: texts(definitions),
            labelled: texts(labelled),
            ..Seen::default()
        }
    }

    #[test]
    fn a_cluster_with_anything_that_the_demo_would_remove_is_not_used() {
        let usual = ["default", "kube-system"];
        let foreign = |what: &str| State::Foreign(what.to_owned());
        assert_eq!(seen(&usual, &["widgets.example.com"], &[]).state(Role::Runtime), State::Clean);
        assert_eq!(seen(&["kyma-system"], &[], &[]).state(Role::Runtime), foreign("the namespace kyma-system"));
        assert_eq!(seen(&["kcp-system"], &[], &[]).state(Role::ControlPlane), foreign("the namespace kcp-system"));
        assert_eq!(seen(&["istio-system"], &[], &[]).state(Role::Runtime), State::Clean);
        for name in ["kymas.operator.kyma-project.io", "gitsources.tidegate.dev", "caches.cache.example.org"] {
            let expected = foreign(&format!("the CustomResourceDefinition {name}"));
            assert_eq!(seen(&usual, &[name], &[]).state(Role::ControlPlane), expected);
        }
        let role = "the ClusterRole cache-manager";
        assert_eq!(seen(&usual, &[], &[role]).state(Role::Runtime), foreign(role));
        let left = Seen { is_marked: true, ..seen(&["kyma-system"], &["kymas.operator.kyma-project.io"], &[]) };
        assert_eq!(left.state(Role::Runtime), State::Left);
    }

    #[test]
    fn what_a_demo_left_is_removed_only_in_the_role_that_it_used() {
        for (marked_as, role, expected) in [
            (None, Role::Runtime, State::Left),
            (Some(Role::Runtime), Role::Runtime, State::Left),
            (Some(Role::Runtime), Role::ControlPlane, State::LeftAs(Role::Runtime)),
            (Some(Role::ControlPlane), Role::Runtime, State::LeftAs(Role::ControlPlane)),
        ] {
            let left = Seen { is_marked: true, marked_as, ..Seen::default() };
            assert_eq!(left.state(role), expected, "{marked_as:?} {role:?}");
        }
        for role in [Role::ControlPlane, Role::Runtime] {
            assert_eq!(Role::of_option(role.option()), Some(role));
        }
        assert_eq!(Role::of_option("--other"), None);
    }

    #[test]
    fn a_definition_is_made_by_the_demo_by_its_group() {
        for (name, expected) in [
            ("gateways.networking.istio.io", true),
            ("wasmplugins.extensions.istio.io", false),
            ("caches.example.org", true),
            ("caches.another-example.org", false),
            ("example.org", false),
        ] {
            assert_eq!(is_made(name), expected, "{name}");
        }
    }

    #[test]
    fn one_cluster_is_not_used_twice() {
        assert_eq!(distinct([("kcp", "1"), ("skr-1", "2"), ("skr-2", "3")]), Ok(()));
        let same = Err("skr-1 and skr-2 are the same cluster: give a cluster for each".to_owned());
        assert_eq!(distinct([("kcp", "1"), ("skr-1", "2"), ("skr-2", "2")]), same);
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        assert!(agrees("yes\n") && agrees(" Y "));
        assert!(!agrees("") && !agrees("no") && !agrees("yes please"));
    }
}
