//! Selects the runtimes of a comparison, if not all are compared.
//!
//! Runtimes with the same modules, channels and permissions form a stratum: a change affects all of
//! them or none. The sample covers as many strata as possible, the largest first, and the rest is
//! distributed by size. Within a stratum the selection depends only on names. So two runs select
//! the same runtimes, and a new runtime replaces few others.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};
use tidegate_core::{api::Kyma, name::Key, object::Digest, plan::Class};

/// The properties that make runtimes alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stratum {
    /// Their permissions.
    pub class: Class,
    /// Module, channel and version of wanted or installed modules; unknown ones are empty.
    pub modules: BTreeSet<[String; 3]>,
}

// === impl Stratum ===

impl Stratum {
    /// The stratum of a Kyma, from its status, and from requested modules that the status lacks.
    pub fn for_kyma(kyma: &Kyma, class: Class) -> Stratum {
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

/// A sample of at most `size` runtimes.
pub fn sample<S: Ord>(runtimes: impl IntoIterator<Item = (Key, S)>, size: usize) -> BTreeSet<Key> {
    let mut strata: BTreeMap<S, Vec<Key>> = BTreeMap::new();
    for (key, stratum) in runtimes {
        strata.entry(stratum).or_default().push(key);
    }
    // A stable sort: strata of equal size keep their order.
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

/// The sample size per stratum: one each as far as possible, the rest by size, the largest
/// remainders first. `sizes` are in descending order.
fn shares(sizes: &[usize], size: usize) -> Vec<usize> {
    let total: usize = sizes.iter().sum();
    let size = size.min(total);
    let mut shares: Vec<usize> = sizes.iter().enumerate().map(|(index, _)| usize::from(index < size)).collect();
    let rest = size - shares.iter().sum::<usize>();
    // The rest beyond one of each. Integers make the result independent of rounding.
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
