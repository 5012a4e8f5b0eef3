//! The codes of this module's diagnostics. They are stable. `docs/diagnostics.md` explains each,
//! and a test compares the two.

/// The text is not valid YAML or JSON.
pub const SYNTAX: &str = "yaml-syntax";
/// A mapping has a key twice.
pub const DUPLICATE_KEY: &str = "yaml-duplicate-key";
/// A limit on depth, values, documents or aliases is exceeded.
pub const YAML_LIMIT: &str = "yaml-limit";
/// The budget of a check ended before the check.
pub const UNFINISHED: &str = "check-unfinished";
/// The file is not UTF-8.
pub const NOT_UTF8: &str = "not-utf8";
/// The file is larger than the limit.
pub const FILE_TOO_LARGE: &str = "file-too-large";
/// All files together are larger than the limit.
pub const OVER_BUDGET: &str = "total-too-large";
/// A symbolic link.
pub const SYMLINK: &str = "symlink";
/// A submodule.
pub const SUBMODULE: &str = "submodule";
/// A Git LFS pointer.
pub const LFS_POINTER: &str = "lfs-pointer";
/// A file name that is not UTF-8.
pub const NAME_NOT_UTF8: &str = "file-name-not-utf8";
/// A name that several entries of a folder have.
pub const AMBIGUOUS_NAME: &str = "ambiguous-name";
/// A YAML tag of another program.
pub const TAG: &str = "yaml-tag";
/// A document that SOPS encrypted.
pub const ENCRYPTED: &str = "sops-encrypted";
/// A Helm chart.
pub const CHART: &str = "helm-chart";
/// The index of an OCI image layout.
pub const OCI_LAYOUT: &str = "oci-layout";
/// An entry of `paths` that does not exist.
pub const PATH_MISSING: &str = "path-missing";
/// An invalid entry of `paths` or `ignore`, or an invalid `templates`.
pub const PATH_INVALID: &str = "path-invalid";

/// A document that is not a mapping, or an object that is nested in one that is not an object.
pub const NOT_AN_OBJECT: &str = "not-an-object";
/// `apiVersion` or `kind` is missing or not a string.
pub const TYPE_MISSING: &str = "type-missing";
/// One of our kinds with an unsupported `apiVersion`.
pub const API_VERSION: &str = "api-version";
/// An unknown kind of our group, probably misspelt.
pub const UNKNOWN_KIND: &str = "unknown-kind";
/// An object of a kind that Tidegate does not apply to the control plane.
pub const FOREIGN_KIND: &str = "foreign-kind";
/// A kind that only controllers write.
pub const REFUSED_KIND: &str = "refused-kind";
/// A GitSource in git.
pub const GIT_SOURCE: &str = "git-source-in-git";
/// A list of definitions, or one of a module without items.
pub const LIST: &str = "list";

/// The schema has no such field.
pub const UNKNOWN_FIELD: &str = "unknown-field";
/// A required field is missing.
pub const REQUIRED: &str = "required-field";
/// A value of the wrong type.
pub const WRONG_TYPE: &str = "wrong-type";
/// A value that does not match its format.
pub const FORMAT: &str = "format";
/// A value that does not match its pattern.
pub const PATTERN: &str = "pattern";
/// A value that is not one of the allowed values.
pub const ENUM: &str = "enum";
/// A value that is too short, or a list with too few items.
pub const TOO_SHORT: &str = "too-short";
/// A value that is too long, or a list with too many items.
pub const TOO_LONG: &str = "too-long";
/// A number outside its range.
pub const RANGE: &str = "range";
/// Two items of a list have the same key.
pub const DUPLICATE_ITEM: &str = "duplicate-item";
/// A combination that the schema does not allow.
pub const COMBINATION: &str = "combination";
/// A validation rule of the schema is violated.
pub const RULE: &str = "rule";
/// Metadata that is invalid for every object.
pub const METADATA: &str = "metadata";

/// `generateName` instead of a name.
pub const GENERATE_NAME: &str = "generate-name";
/// The namespace is missing.
pub const NAMESPACE_MISSING: &str = "namespace-missing";
/// An object of a module is in a namespace that nothing creates and that looks like another one.
pub const MODULE_NAMESPACE: &str = "module-namespace";
/// A namespace in which definitions are not allowed.
pub const NAMESPACE_REFUSED: &str = "namespace-refused";
/// The GitSource does not allow this definition.
pub const NOT_ALLOWED: &str = "not-allowed";
/// A field that the API server or a controller sets.
pub const SERVER_FIELD: &str = "server-field";
/// A label or annotation that Tidegate sets.
pub const RESERVED_MARK: &str = "reserved-mark";
/// An annotation of ours that is unknown or has an invalid value.
pub const ANNOTATION: &str = "annotation";
/// A name that violates the rule of its kind.
pub const NAME_RULE: &str = "name-rule";
/// The channel `none`.
pub const RESERVED_CHANNEL: &str = "reserved-channel";
/// A field with a value that nothing reads.
pub const NO_EFFECT: &str = "no-effect";
/// A selector that is malformed or can never match.
pub const SELECTOR: &str = "selector";
/// An invalid port.
pub const PORT: &str = "port";

/// A rule of kcp landscapes that the schema cannot express.
pub const SETUP_RULE: &str = "kcp-rule";
/// A resource of a kcp landscape refers to one that is not declared.
pub const SETUP_REFERENCE: &str = "kcp-reference";
/// Definitions of kinds that the daemon does not reconcile.
pub const NOT_RECONCILED: &str = "kcp-not-reconciled";

/// Two places declare the same object.
pub const DUPLICATE_DEFINITION: &str = "duplicate-definition";
/// A channel's version has no ModuleTemplate.
pub const TEMPLATE_MISSING: &str = "template-missing";
/// The definition refers to one that is held back.
pub const REFERENCE_WITHHELD: &str = "reference-withheld";
/// A module that no ModuleReleaseMeta declares.
pub const UNKNOWN_MODULE: &str = "unknown-module";
/// A channel that the module does not have.
pub const UNKNOWN_CHANNEL: &str = "unknown-channel";
/// A mandatory module in the module list of a Kyma.
pub const MANDATORY_MODULE: &str = "mandatory-module";

/// An invalid module path.
pub const MODULE_PATH: &str = "module-path";
/// A module path that does not exist.
pub const MODULE_PATH_MISSING: &str = "module-path-missing";
/// A kustomization below a module path that would change objects.
pub const KUSTOMIZATION: &str = "kustomization";
/// `ignore` names a file of a module.
pub const MODULE_IGNORE: &str = "module-ignore";
/// A module path without objects.
pub const MODULE_EMPTY: &str = "module-empty";
/// A document of a module that is not a valid object.
pub const MODULE_OBJECT: &str = "module-object";
/// A custom resource that some versions of another module's CRD reject.
pub const MODULE_OBJECT_UNFIT: &str = "module-object-unfit";
/// A kind or API version that Kubernetes does not serve.
pub const KUBERNETES_KIND: &str = "kubernetes-kind";
/// A field that Kubernetes does not know, or a value of the wrong type in one that it knows.
pub const KUBERNETES_FIELD: &str = "kubernetes-field";
/// A kind that neither Kubernetes nor a CustomResourceDefinition of the repository defines.
pub const UNDEFINED_KIND: &str = "undefined-kind";
/// An object that a module contains twice.
pub const MODULE_DUPLICATE: &str = "module-duplicate-object";
/// One of our kinds among a module's objects.
pub const DEFINITION_IN_MODULE: &str = "definition-in-module";
/// `spec.manager` names no object of the module.
pub const MODULE_MANAGER: &str = "module-manager";
/// The objects of a module are invalid.
pub const MODULE_BROKEN: &str = "module-broken";
