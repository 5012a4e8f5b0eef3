//! Namespaces of modules' objects that look like a misspelt one: nothing creates such a namespace, and the API server
//! refuses the object in every runtime.
//!
//! A namespace that nothing in git creates may be one that a user or another tool creates, so only the likeness of
//! another name is a reason to warn. Names that differ as `team-a` and `team-b` or `cache1` and `cache2` do are no
//! misspelling of each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{ModuleObjects, code, near};
use crate::{
    api::names::{KCP_NAMESPACE, SKR_NAMESPACE},
    diagnostic::{Diagnostic, FilePosition},
    yaml,
};

/// Namespaces that need no definition.
const KNOWN: [&str; 7] =
    ["default", "istio-system", "kube-node-lease", "kube-public", "kube-system", KCP_NAMESPACE, SKR_NAMESPACE];

/// A warning about each namespace of these modules that looks misspelt, at the first object that names it.
pub(super) fn misspelt<'m>(modules: impl Iterator<Item = &'m ModuleObjects>) -> Vec<Diagnostic> {
    let mut named: BTreeMap<&str, (&FilePosition, usize)> = BTreeMap::new();
    let mut created: BTreeSet<&str> = KNOWN.into();
    for object in modules.flat_map(ModuleObjects::objects) {
        let id = object.id();
        if (&*id.group, &*id.kind) == ("", "Namespace") {
            created.insert(&id.name);
        } else if !id.namespace.is_empty() {
            let (first, count) = named.entry(&id.namespace).or_insert((&object.place, 0));
            *first = (*first).min(&object.place);
            *count += 1;
        }
    }
    let warning = |(name, (place, count)): (&str, (&FilePosition, usize))| {
        let meant = created.iter().find(|meant| is_misspelt(name, meant))?;
        let objects = if count == 1 { "an object".to_owned() } else { format!("{count} objects") };
        let message = format!(
            "{objects} of a module {} in namespace `{}`, which no module in git creates",
            if count == 1 { "is" } else { "are" },
            yaml::short(name)
        );
        let hint = format!("did you mean `{meant}`? otherwise add the Namespace to the module");
        Some(Diagnostic::warning(code::MODULE_NAMESPACE, message).hint(hint).at(place.clone()))
    };
    named.into_iter().filter(|(name, _)| !created.contains(name)).filter_map(warning).collect()
}

/// Whether a name is most likely meant to be another one: one part of it differs, in at most a third of its letters.
fn is_misspelt(name: &str, meant: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>();
    if name == meant || letters(name) == letters(meant) {
        return false;
    }
    let (parts, others): (Vec<&str>, Vec<&str>) = (name.split('-').collect(), meant.split('-').collect());
    if parts.len() != others.len() {
        return near::distance(name, meant) <= 2;
    }
    let mut differing = parts.iter().zip(&others).filter(|(part, other)| part != other);
    match (differing.next(), differing.next()) {
        (Some((part, other)), None) => near::distance(part, other) <= (other.chars().count() / 3).min(2),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_told_from_another_name() {
        for (name, meant, expected) in [
            ("kyma-sytem", "kyma-system", true),
            ("kyam-system", "kyma-system", true),
            ("kymasystem", "kyma-system", true),
            ("cahce-system", "cache-system", true),
            ("istio-systems", "istio-system", true),
            ("kcp-system", "kyma-system", false),
            ("dev-system", "kcp-system", false),
            ("keda-system", "kyma-system", false),
            ("team-a", "team-b", false),
            ("cache1", "cache2", false),
            ("cache-eu", "cache-us", false),
            ("monitoring", "kube-public", false),
        ] {
            assert_eq!(is_misspelt(name, meant), expected, "{name} {meant}");
        }
    }
}
