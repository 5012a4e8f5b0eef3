//! The codes of this module's diagnostics. Stable: `docs/diagnostics.md` explains each, and a test compares the two.

/// The text is no YAML or JSON.
pub const SYNTAX: &str = "yaml-syntax";
/// A mapping has a key twice.
pub const DUPLICATE_KEY: &str = "yaml-duplicate-key";
/// A limit on depth, values, documents or aliases was met.
pub const YAML_LIMIT: &str = "yaml-limit";
/// The file is no UTF-8.
pub const NOT_UTF8: &str = "not-utf8";
/// The file is larger than the limit.
pub const FILE_TOO_LARGE: &str = "file-too-large";
/// All files together are larger than the limit.
pub const OVER_BUDGET: &str = "total-too-large";
/// A symbolic link.
pub const SYMLINK: &str = "symlink";
/// A submodule.
pub const SUBMODULE: &str = "submodule";
/// A pointer of Git LFS.
pub const LFS_POINTER: &str = "lfs-pointer";
/// A file name that is no UTF-8.
pub const NAME_NOT_UTF8: &str = "file-name-not-utf8";
/// An entry of `paths` that names nothing.
pub const PATH_MISSING: &str = "path-missing";
/// An entry of `paths` or `ignore`, or `templates`, that cannot be used.
pub const PATH_INVALID: &str = "path-invalid";

/// A document that is no mapping, or an object that stands within one that is no object.
pub const NOT_AN_OBJECT: &str = "not-an-object";
/// `apiVersion` or `kind` is missing or no text.
pub const TYPE_MISSING: &str = "type-missing";
/// One of our kinds with another `apiVersion`.
pub const API_VERSION: &str = "api-version";
/// A kind of our group that is probably misspelt.
pub const UNKNOWN_KIND: &str = "unknown-kind";
/// An object of a kind that git does not declare in the control plane.
pub const FOREIGN_KIND: &str = "foreign-kind";
/// A kind that only controllers write.
pub const REFUSED_KIND: &str = "refused-kind";
/// A GitSource in git.
pub const GIT_SOURCE: &str = "git-source-in-git";
/// A `List` of objects.
pub const LIST: &str = "list";

/// The schema has no such field.
pub const UNKNOWN_FIELD: &str = "unknown-field";
/// A required field is absent.
pub const REQUIRED: &str = "required-field";
/// A value of another type.
pub const WRONG_TYPE: &str = "wrong-type";
/// A value that is not of its format.
pub const FORMAT: &str = "format";
/// A value that does not match its pattern.
pub const PATTERN: &str = "pattern";
/// A value that is none of those allowed.
pub const ENUM: &str = "enum";
/// A value that is too short or has too few items.
pub const TOO_SHORT: &str = "too-short";
/// A value that is too long or has too many items.
pub const TOO_LONG: &str = "too-long";
/// A number out of its range.
pub const RANGE: &str = "range";
/// Two items of a list that must differ.
pub const DUPLICATE_ITEM: &str = "duplicate-item";
/// A combination that the schema does not allow.
pub const COMBINATION: &str = "combination";
/// A rule of the schema that does not hold.
pub const RULE: &str = "rule";
/// Metadata that no object may have.
pub const METADATA: &str = "metadata";

/// `generateName` in place of a name.
pub const GENERATE_NAME: &str = "generate-name";
/// No namespace is written.
pub const NAMESPACE_MISSING: &str = "namespace-missing";
/// A namespace that does not count.
pub const NAMESPACE_REFUSED: &str = "namespace-refused";
/// Something that the GitSource does not allow.
pub const NOT_ALLOWED: &str = "not-allowed";
/// A field that the API server or a controller sets.
pub const SERVER_FIELD: &str = "server-field";
/// A label or annotation that Tidegate sets.
pub const RESERVED_MARK: &str = "reserved-mark";
/// An annotation of ours with a value that it cannot have, or unknown to us.
pub const ANNOTATION: &str = "annotation";
/// A name that is not what the rule for its kind says.
pub const NAME_RULE: &str = "name-rule";
/// The channel `none`.
pub const RESERVED_CHANNEL: &str = "reserved-channel";
/// A selector that selects nothing that can exist, or is malformed.
pub const SELECTOR: &str = "selector";
/// A port that does not exist.
pub const PORT: &str = "port";

/// Two places declare one object.
pub const DUPLICATE_DEFINITION: &str = "duplicate-definition";
/// A channel's version has no ModuleTemplate.
pub const TEMPLATE_MISSING: &str = "template-missing";
/// What a definition refers to is withheld.
pub const REFERENCE_WITHHELD: &str = "reference-withheld";
/// A module that no ModuleReleaseMeta describes.
pub const UNKNOWN_MODULE: &str = "unknown-module";
/// A channel that the module does not have.
pub const UNKNOWN_CHANNEL: &str = "unknown-channel";
/// A mandatory module in a list of modules.
pub const MANDATORY_MODULE: &str = "mandatory-module";

/// A module path that cannot be used.
pub const MODULE_PATH: &str = "module-path";
/// A module path that names nothing.
pub const MODULE_PATH_MISSING: &str = "module-path-missing";
/// A kustomization below a module path that would change objects.
pub const KUSTOMIZATION: &str = "kustomization";
/// A module path with no objects.
pub const MODULE_EMPTY: &str = "module-empty";
/// A document of a module that is no object.
pub const MODULE_OBJECT: &str = "module-object";
/// A custom resource that another module's definition of its kind refuses, in some of the versions that there are.
pub const MODULE_OBJECT_UNFIT: &str = "module-object-unfit";
/// An object that a module has twice.
pub const MODULE_DUPLICATE: &str = "module-duplicate-object";
/// One of our kinds among a module's objects.
pub const DEFINITION_IN_MODULE: &str = "definition-in-module";
/// The objects of a module are broken.
pub const MODULE_BROKEN: &str = "module-broken";
