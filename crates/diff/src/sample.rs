//! Which runtimes a comparison looks at, where it does not look at all of them.
//!
//! Runtimes that have the same modules from the same channels, and may use the same ones, form a stratum: a change hits
//! all of them or none. Each stratum is looked at as far as the sample is large enough, the largest first, and what is
//! left is shared out by size. Within a stratum the choice depends on names alone, so that two runs look at the same
//! runtimes, and a runtime that is new takes the place of few others.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use tidegate_core::{api::Kyma, name::Key, object::Digest, plan::Class};

/// What makes runtimes alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stratum {
    /// What they may use.
    pub class: Class,
    /// Module, channel and version, of what is wanted or installed; what is not known is empty.
    pub modules: BTreeSet<[String; 3]>,
}

// === impl Stratum ===

impl Stratum {
    /// That of a Kyma, as the control plane tells: what its status says, and what it asks for and does not have yet.
    pub fn of(kyma: &Kyma, class: Class) -> Stratum {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let installed = kyma.status.iter().flat_map(|status| &status.modules);
        let mut modules: BTreeSet<[String; 3]> =
            installed.map(|module| [module.name.clone(), text(&module.channel), text(&module.version)]).collect();
        let known: BTreeSet<String> = modules.iter().map(|[name, ..]| name.clone()).collect();
        for module in kyma.spec.modules.iter().filter(|module| !known.contains(&module.name)) {
            let channel = module.channel.as_ref().unwrap_or(&kyma.spec.channel);
            modules.insert([module.name.clone(), channel.clone(), String::new()]);
        }
        Stratum { class, modules }
    }
}

/// At most `size` of the runtimes.
pub fn sample<S: Ord>(runtimes: impl IntoIterator<Item = (Key, S)>, size: usize) -> BTreeSet<Key> {
    let mut strata: BTreeMap<S, Vec<Key>> = BTreeMap::new();
    for (key, stratum) in runtimes {
        strata.entry(stratum).or_default().push(key);
    }
    // A stable sort: strata of one size stay in their own order.
    let mut strata: Vec<Vec<Key>> = strata.into_values().collect();
    strata.sort_by_key(|members| Reverse(members.len()));
    let shares = shares(&strata.iter().map(Vec::len).collect::<Vec<_>>(), size);
    let mut chosen = BTreeSet::new();
    for (mut members, share) in strata.into_iter().zip(shares) {
        members.sort_by_cached_key(|key| Digest::of_bytes(key.to_string().as_bytes()).to_string());
        chosen.extend(members.into_iter().take(share));
    }
    chosen
}

/// How many of each stratum: one of each as far as that goes, the rest by size, the largest remainders first.
/// `sizes` descend.
fn shares(sizes: &[usize], size: usize) -> Vec<usize> {
    let total: usize = sizes.iter().sum();
    let size = size.min(total);
    let mut shares: Vec<usize> = sizes.iter().enumerate().map(|(index, _)| usize::from(index < size)).collect();
    let rest = size - shares.iter().sum::<usize>();
    // What is left beyond one of each; in whole numbers, so that no rounding depends on the machine.
    let spare: usize = sizes.iter().map(|members| members - 1).sum();
    if rest == 0 || spare == 0 {
        return shares;
    }
    let mut remainders: Vec<(Reverse<usize>, usize)> = Vec::with_capacity(sizes.len());
    for (index, members) in sizes.iter().enumerate() {
        let exact = (members - 1) * rest;
        shares[index] += exact / spare;
        remainders.push((Reverse(exact % spare), index));
    }
    remainders.sort_unstable();
    let missing = size - shares.iter().sum::<usize>();
    remainders.into_iter().take(missing).for_each(|(_, index)| shares[index] += 1);
    shares
}

#[cfg(test)]
mod tests;
