//! GitSource: where definitions come from.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    crd::{self, pattern},
    shared::{Condition, is_false, tolerant},
};

/// A git repository with definitions, and how to apply them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tidegate.dev",
    version = "v1alpha1",
    kind = "GitSource",
    plural = "gitsources",
    shortname = "gs",
    namespaced,
    status = "GitSourceStatus",
    printcolumn(json_path = r#".status.conditions[?(@.type=="Ready")].status"#, name = "Ready", type_ = "string"),
    printcolumn(json_path = r#".status.conditions[?(@.type=="Ready")].message"#, name = "Status", type_ = "string"),
    printcolumn(json_path = ".status.appliedRevision", name = "Revision", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct GitSourceSpec {
    /// `https://…`, `ssh://…` or `user@host:path`; a local path if the daemon allows it.
    #[schemars(length(min = 1, max = 2048), extend("x-kubernetes-validations" = [
        {
            "rule": "!self.startsWith('http://')",
            "message": "http:// is not encrypted: use https:// or ssh://",
        },
        {
            "rule": "!self.matches('^https://[^/]*@')",
            "message": "user name and password belong in a Secret: name it in spec.secretRef",
        },
        {
            "rule": "!self.matches('^(ssh://[^/]*|[^/@:]+):[^/:]*@')",
            "message": "an ssh URL must not contain a password: add the private key to a Secret as identity",
        },
        {
            "rule": "!self.matches('^ssh://([^/@]*@)?[^/@:\\\\[]+:[^/@]*[^0-9/@][^/@]*(/|$)')",
            "message": "an ssh:// URL has a slash after the host, and a colon only before a port: use \
                        ssh://git@host/path, or git@host:path without a scheme",
        },
        {
            "rule": "self.startsWith('/') || !self.matches('[?#]')",
            "message": "a repository URL must not contain ? or #",
        },
        {
            "rule": "!self.matches('^ssh://[^/]+/*$')",
            "message": "the ssh URL names no repository: use ssh://git@host/path or git@host:path",
        },
        {
            "rule": pattern::GIT_URL_PORT_RULE,
            "message": "a port is a number from 1 to 65535",
        },
        {
            "rule": "!self.matches('^(ssh://)?([^/@:]*@)?-')",
            "message": "neither user name nor host may begin with a hyphen",
        },
        {
            "rule": "!self.matches('^[A-Za-z0-9+._-]+::')",
            "message": "remote helpers of git (name::…) are not supported: use an https:// or ssh:// URL",
        },
        {
            "rule": pattern::GIT_URL_RULE,
            "message": "supported are https://host/path, ssh://user@host/path, user@host:path, and file:///path or \
                        /path if the daemon allows it",
        },
    ]))]
    pub url: String,
    /// The reference to follow. Default: the default branch of the repository.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRef>,
    /// Folders and files with definitions. Default: the whole repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(regex(pattern = pattern::REPOSITORY_PATH), length(min = 1, max = 4096)))]
    pub paths: Vec<String>,
    /// How often to fetch, at least `10s`. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = pattern::DURATION),
        length(min = 2, max = 16),
        extend(
            "default" = "1m",
            "x-kubernetes-validations" = [{
                "rule": "duration(self) >= duration('10s')",
                "message": "the interval must be at least 10s",
            }]
        )
    )]
    pub interval: Option<String>,
    /// Timeout of a fetch together with the check of its revision. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = pattern::DURATION),
        length(min = 2, max = 16),
        extend(
            "default" = "60s",
            "x-kubernetes-validations" = [{
                "rule": "duration(self) >= duration('1s')",
                "message": "the timeout must be at least 1s",
            }]
        )
    )]
    pub timeout: Option<String>,
    /// Secret with the credentials. For `https`: `username` and `password`, or `bearerToken`, or a GitHub App with
    /// `githubAppID`, `githubAppInstallationID` or `githubAppInstallationOwner`, `githubAppPrivateKey` and
    /// `githubAppBaseURL`; `ca.crt`; `tls.crt` and `tls.key`. For `ssh`: `identity`, its `password`, and `known_hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// File on Tidegate's machine with a bearer token for an `https` URL, which each fetch reads again: a workload
    /// identity. Only in a file of `--source-file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::ABSOLUTE_PATH), length(min = 2, max = 4096))]
    pub bearer_token_file: Option<String>,
    /// Secret with the HTTP proxy of this source: `address`; `username` and `password`; `noProxy`. Default: for an
    /// `https` URL, the proxy of the daemon's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<SecretRef>,
    /// Which signatures a revision needs. A revision without them is not used, and the active one stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// Folder of template overrides in this repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::REPOSITORY_PATH), length(min = 1, max = 4096))]
    pub templates: Option<String>,
    /// Files to ignore, as gitignore patterns. Without effect on files of a module.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(min = 1, max = 4096)))]
    pub ignore: Vec<String>,
    /// What this source may declare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Allow>,
    /// What happens if a definition is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Withhold"))]
    pub on_error: Option<OnError>,
    /// Whether the branch may be rewritten.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub allow_rewrite: bool,
    /// Whether foreign kinds are errors.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub strict: bool,
    /// Whether objects that are removed from git are deleted from KCP. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub prune: Option<bool>,
    /// The limit of a prune without confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"objects": 50, "percent": 10}))]
    pub prune_limit: Option<PruneLimit>,
    /// From how many runtimes one commit may remove a module, or objects of a version that stays installed, without
    /// confirmation. 0: none. Default: max(5, min(50, 10 %)) of the runtimes with the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub removal_limit: Option<i32>,
    /// What happens to the objects if the GitSource is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Orphan"))]
    pub deletion_policy: Option<DeletionPolicy>,
    /// Accepts deliveries of the git host at `/hooks/<namespace>/<name>`, so that a push is fetched at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Receiver>,
    /// Suspends this source: no fetch, apply or prune.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub suspend: bool,
}

/// The reference to follow: at most one. Default: the default branch of the repository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.branch), has(self.tag), has(self.semver), has(self.name), has(self.commit)]\
             .filter(given, given).size() <= 1",
    "message": "at most one of branch, tag, semver, name and commit may be set",
}]))]
pub struct GitRef {
    /// Branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::GIT_REF_NAME), length(min = 1, max = 255))]
    pub branch: Option<String>,
    /// Tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::GIT_REF_NAME), length(min = 1, max = 255))]
    pub tag: Option<String>,
    /// Range of versions, for example `^1.2` or `>=1.0.0 <2.0.0`: the tag with the highest version in it. Versions with
    /// a pre-release count if a bound has one, for example `>=1.0.0-0`. A tag may begin with `v`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    pub semver: Option<String>,
    /// Any reference by its full name, for example `refs/pull/42/head`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::GIT_FULL_REF_NAME), length(min = 6, max = 255))]
    pub name: Option<String>,
    /// Commit, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::COMMIT))]
    pub commit: Option<String>,
}

/// A Secret in the GitSource's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Where deliveries of the git host come in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Receiver {
    /// Secret with `token`, which the git host knows as well, and `previousToken` while the token is rotated.
    pub secret_ref: SecretRef,
}

/// Which signatures a revision needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// What must be signed: the commit, the annotated tag that `ref` names, or both.
    #[serde(default)]
    pub mode: VerifyMode,
    /// Secret with the trusted keys: armored OpenPGP public keys under any name, and `allowed_signers` of SSH.
    pub secret_ref: SecretRef,
    /// Who may sign changes of which files. Each commit since the active revision is checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"])
    )]
    pub paths: Vec<VerifyPath>,
}

/// What must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum VerifyMode {
    /// The commit.
    #[default]
    Head,
    /// The annotated tag that `ref` names.
    Tag,
    /// Both. Also a value that this version does not know.
    TagAndHead,
}

tolerant!(VerifyMode, TagAndHead, { "Head" => Head, "Tag" => Tag });

/// Who may sign changes of some files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyPath {
    /// The files, as a gitignore pattern, for example `landscapes/prod/**`.
    #[schemars(regex(pattern = pattern::GUARDED_PATH), length(min = 1, max = 1024))]
    pub path: String,
    /// Who may sign: a name of the key (a mail address, a principal), or its fingerprint.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 256)))]
    pub signers: Vec<String>,
}

/// What a source may declare. An empty list allows everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allow {
    /// Kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = {
        "type": "string",
        "enum": ["Kyma", "ModuleReleaseMeta", "ModuleTemplate", "Watcher"],
    }, "x-kubernetes-list-type" = "set"))]
    pub kinds: Vec<String>,
    /// Namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1000),
        inner(regex(pattern = pattern::NAMESPACE), length(max = 63)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub namespaces: Vec<String>,
    /// Names; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1000),
        inner(regex(pattern = pattern::NAME_GLOB), length(max = 253)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub names: Vec<String>,
}

/// What happens if a definition is invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum OnError {
    /// It is held back, with all definitions that refer to it. Everything else is applied.
    #[default]
    Withhold,
    /// Nothing of the revision is applied. Also a value that this version does not know.
    RefuseRevision,
}

tolerant!(OnError, RefuseRevision, { "Withhold" => Withhold });

/// The limit of a prune without confirmation: max(5, min(objects, percent of the declared objects)).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PruneLimit {
    /// Number of objects. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 50))]
    pub objects: Option<i32>,
    /// Percentage of the declared objects. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100), extend("default" = 10))]
    pub percent: Option<i32>,
}

/// What happens to the objects if the GitSource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They stay, without the ownership label. Also a policy that this version does not know.
    #[default]
    Orphan,
    /// They are pruned.
    Delete,
}

tolerant!(DeletionPolicy, Orphan, { "Delete" => Delete });

/// The state of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSourceStatus {
    /// Generation that the status refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`, `Fetched`, `Applied`; `Received` with a receiver, `Verified` with `verify`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
    /// The last read commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_revision: Option<String>,
    /// The last commit without held back definitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_revision: Option<String>,
    /// The last revision whose signatures were verified. Later commits are checked from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_revision: Option<String>,
    /// Last handled value of annotation `tidegate.dev/reconcile-requested-at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
    /// The number of definitions in each state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The first 20 definitions that are held back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<WithheldEntry>,
    /// The names of the others, up to 10000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_withheld: Vec<NamesEntry>,
    /// The first 20 objects with its ownership label that it no longer declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeclared: Vec<ObjectEntry>,
    /// The names of the others, up to 10000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_undeclared: Vec<NamesEntry>,
    /// The first 20 diagnostics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnostics: Vec<DiagnosticEntry>,
}

/// The number of definitions in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Objects in KCP that match git.
    pub applied: i64,
    /// Definitions that are held back; the diagnostics say why.
    pub withheld: i64,
    /// Objects that are removed from git and still in KCP.
    pub to_prune: i64,
}

/// A definition that is held back.
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
    /// The reason.
    pub message: String,
    /// Whether another GitSource owns the object and this one takes it over with other content, once the owner no
    /// longer declares it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopts: bool,
    /// The object as it then is, as JSON. Only if `adopts`, and up to 4096 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The objects of the module that a ModuleTemplate then names, as `group/version/Kind/namespace/name`. Only if
    /// `adopts` and the module is in git, and up to 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
}

/// Names of definitions or objects of one kind in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamesEntry {
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Whether another GitSource owns the objects and this one takes them over with other content, once the owner no
    /// longer declares them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub adopts: bool,
    /// The names.
    pub names: Vec<String>,
}

/// An object in KCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectEntry {
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A diagnostic, without an excerpt.
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
