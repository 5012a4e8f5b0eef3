//! GitSource: where definitions come from.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shared::{Condition, is_false};

/// A git repository with definitions, and what may be done with them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tidegate.dev",
    version = "v1alpha1",
    kind = "GitSource",
    plural = "gitsources",
    shortname = "gs",
    namespaced,
    status = "GitSourceStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct GitSourceSpec {
    /// `https://…`; local paths only where the daemon allows them.
    pub url: String,
    /// What to follow; without it the branch `main`.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// Folders and files with definitions; without them the whole repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// How often to look, at least `10s`; without it `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// How long a fetch may take; without it `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Secret with `username` and `password`, or `bearerToken`, and `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Folder of template overrides in this repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<String>,
    /// What is passed over, in gitignore's syntax.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// What this source may declare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Allow>,
    /// What happens when a definition is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// Whether the branch may be rewritten.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_rewrite: bool,
    /// Whether foreign kinds are errors.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
    /// Whether what leaves git leaves KCP; without it `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// When a prune stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_limit: Option<PruneLimit>,
    /// What becomes of the objects when the GitSource is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Stops everything for this source.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
}

/// What to follow: exactly one of the three.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GitRef {
    /// Branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Commit, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// A Secret in the GitSource's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Name.
    pub name: String,
}

/// What a source may declare; an empty list allows everything that we know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allow {
    /// Kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// Namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Names; `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// What happens when a definition is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnError {
    /// It and what refers to it stay as they are; everything else goes on.
    #[default]
    Withhold,
    /// Nothing of the revision is applied.
    RefuseRevision,
}

/// When a prune stops: above max(5, min(objects, percent of what the source declares)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PruneLimit {
    /// Number of objects; without it 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<i32>,
    /// Share of what the source declares; without it 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<i32>,
}

/// What becomes of the objects when the GitSource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay, without our mark.
    #[default]
    Orphan,
    /// They are pruned.
    Delete,
}

/// How a source fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSourceStatus {
    /// Generation that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Fetched`, `Applied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The commit last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_revision: Option<String>,
    /// The last commit of which nothing was withheld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<String>,
    /// Last handled value of annotation `tidegate.dev/reconcile-requested-at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// How many definitions are where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The first 20 withheld definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<WithheldEntry>,
    /// The first 20 diagnostics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticEntry>,
}

/// How many definitions are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// In KCP as git has them.
    pub applied: i64,
    /// Kept back, for a reason among the diagnostics.
    pub withheld: i64,
    /// Gone from git, still in KCP.
    pub to_prune: i64,
}

/// A definition that is kept back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WithheldEntry {
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// File, relative to the repository.
    pub path: String,
    /// Line, from 1.
    pub line: i64,
    /// Why.
    pub message: String,
}

/// A diagnostic, without excerpt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiagnosticEntry {
    /// `error` or `warning`.
    pub severity: String,
    /// Stable code.
    pub code: String,
    /// File, relative to the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<i64>,
    /// Column, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<i64>,
    /// One sentence.
    pub message: String,
}
