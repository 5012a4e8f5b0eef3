//! Which registry has a component. Pure.

use tidegate_core::component::ComponentName;

use crate::config::Registry;

/// The place of a registry in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegistryIndex(pub(super) usize);

/// The registries of components.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    /// Beginnings of names, the longest first.
    named: Vec<(String, RegistryIndex)>,
    /// The registry of all others.
    others: Option<RegistryIndex>,
}

// === impl Routes ===

impl Routes {
    /// The routes to these registries.
    pub(super) fn to(registries: &[Registry]) -> Routes {
        let mut routes = Routes::default();
        for (index, registry) in registries.iter().enumerate() {
            let index = RegistryIndex(index);
            match &registry.components {
                None => routes.others = Some(index),
                Some(names) => routes.named.extend(names.iter().map(|name| (name.clone(), index))),
            }
        }
        routes.named.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        routes
    }

    /// The registry of a component, if it has one.
    pub(super) fn of(&self, name: &ComponentName) -> Option<RegistryIndex> {
        let name = name.as_str();
        let is_below = |(beginning, _): &&(String, RegistryIndex)| {
            name.strip_prefix(beginning.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.named.iter().find(is_below).map(|(_, index)| *index).or(self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RegistryAccess;

    fn registry(components: Option<&[&str]>) -> Registry {
        Registry {
            components: components.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
            access: RegistryAccess::Anonymous("r.example.com".parse().unwrap()),
            subpath: String::new(),
            ca: None,
            token_hosts: Vec::new(),
        }
    }

    #[test]
    fn the_longest_beginning_up_to_a_slash_decides() {
        let named = [registry(Some(&["example.org", "other.org/a"])), registry(Some(&["example.org/team/x"]))];
        let with_others = [&named[..], &[registry(None)]].concat();
        for (name, expected, otherwise) in [
            ("example.org/keda", Some(0), Some(0)),
            ("example.org/team/x", Some(1), Some(1)),
            ("example.org/team/x/y", Some(1), Some(1)),
            ("example.org/team/xy", Some(0), Some(0)),
            ("other.org/a", Some(0), Some(0)),
            ("other.org/b", None, Some(2)),
            ("example.organic/keda", None, Some(2)),
        ] {
            let name: ComponentName = name.parse().unwrap();
            assert_eq!(Routes::to(&named).of(&name), expected.map(RegistryIndex), "{name:?}");
            assert_eq!(Routes::to(&with_others).of(&name), otherwise.map(RegistryIndex), "{name:?}");
        }
    }
}
