//! Says in words how an object of kcp-operator differs from what Tidegate renders. Pure; quotes no values.

use std::collections::BTreeSet;

use serde_json::Value;
use tidegate_core::{
    api::names::{FIELD_MANAGER, annotation, label},
    object::Object,
};
use tidegate_diff::live::{applied_by, stripped};

use crate::setup::hold;

/// Differences that have a name: the path of the field begins and ends with these, and contains all of the third.
const NAMED: [(&str, &str, &str, &str); 12] = [
    ("template.metadata.labels[\"operator.kcp.io/", "-rev\"]", "", "revision labels"),
    ("template.metadata.annotations", "", annotation::MOUNTS, "digest of the mounted keys"),
    ("template.metadata.labels", "", label::SETUP, "ownership label of the pods"),
    ("template.spec.volumes", "items", "", "volumes of CAs without their keys"),
    ("template.spec.volumes", "secretName", "", "Secrets of volumes"),
    ("template.spec.volumes", "", "", "volumes"),
    ("template.spec.imagePullSecrets", "", "", "image pull Secrets"),
    ("template.spec.containers", "", "].args", "arguments"),
    ("template.spec.containers", "", "].image", "image"),
    ("template.spec.containers", "", "].resources", "resources"),
    ("dnsNames", "", "", "names of the certificate"),
    ("privateKey.rotationPolicy", "", "", "the key stays on renewal"),
];

/// Fields that the API server sets again when kcp-operator's claims on them are given up.
const DEFAULTED: [&str; 13] = [
    "allocateLoadBalancerNodePorts",
    "dnsPolicy",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "ipFamilyPolicy",
    "progressDeadlineSeconds",
    "restartPolicy",
    "revisionHistoryLimit",
    "schedulerName",
    "sessionAffinity",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

/// In how many words an object's differences are said.
const WORDS_MAX: usize = 8;

/// What an apply changes of a live object. Of a Secret, no value is said.
pub(super) fn changes(live: &Object, desired: &Object) -> Vec<String> {
    let after = applied_by(live.value(), desired.value(), &[FIELD_MANAGER]);
    let mut all = Vec::new();
    hold::differences(&mut all, String::new(), &stripped(live.value()), &after);
    all.retain(|(path, _)| !path.contains(annotation::DIGEST) && !is_defaulted(path));
    let paths: BTreeSet<String> = all.into_iter().map(|(path, _)| path).collect();
    if paths.is_empty() { vec!["annotations of Tidegate".to_owned()] } else { few(paths) }
}

/// How two specs differ.
pub(super) fn differences(before: &Value, after: &Value) -> Vec<String> {
    let mut all = Vec::new();
    hold::differences(&mut all, String::new(), before, after);
    let said = all.into_iter().filter(|(path, _)| !is_defaulted(path)).map(|(path, _)| said(&path));
    few(said.collect())
}

fn is_defaulted(path: &str) -> bool {
    DEFAULTED.contains(&path.rsplit('.').next().unwrap_or_default())
}

fn few(all: BTreeSet<String>) -> Vec<String> {
    let more = all.len().saturating_sub(WORDS_MAX);
    let mut words: Vec<String> = all.into_iter().take(WORDS_MAX).collect();
    if 0 < more {
        words.push(format!("{more} more fields"));
    }
    words
}

fn said(path: &str) -> String {
    let is_it = |(begin, end, within, _): &&(&str, &str, &str, &str)| {
        path.starts_with(begin) && path.ends_with(end) && path.contains(within)
    };
    NAMED.iter().find(is_it).map_or_else(|| format!("`spec.{path}`"), |(.., words)| (*words).to_owned())
}
