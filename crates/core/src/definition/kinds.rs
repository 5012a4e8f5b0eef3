//! Classifies a document by `apiVersion` and `kind` alone.

use super::{Kind, code, layout, near};
use crate::{
    api::{KYMA_GROUP, KYMA_VERSION, TIDEGATE_GROUP},
    diagnostic::Diagnostic,
    yaml::{Entry, Node, NodeValue, short},
};

/// What a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// One of our kinds, in our version.
    Ours(Kind),
    /// One of our kinds with an unsupported `apiVersion`.
    WrongVersion { kind: String, api_version: String },
    /// A kind of our group that only controllers write.
    Refused { kind: String },
    /// A GitSource.
    GitSource,
    /// An unknown kind of our group, and the known kind that it resembles.
    Misspelt { kind: String, meant: Option<&'static str> },
    /// A list of objects. Contains its kind.
    List { kind: String },
    /// The document is not a mapping.
    NoMapping,
    /// An object of any other kind.
    Foreign { api_version: String, kind: String },
    /// A kustomization.
    Kustomization,
    /// `apiVersion` and `kind` are both missing.
    Untyped,
    /// One of the two is missing.
    HalfTyped(&'static str),
    /// One of the two is not a string.
    NoText(&'static str),
}

/// Every kind of our group that a user may write.
const KNOWN: [&str; 5] = ["ModuleTemplate", "ModuleReleaseMeta", "Watcher", "Kyma", "Manifest"];

/// The kinds among them that no other group has.
const ONLY_OURS: [&str; 3] = ["ModuleTemplate", "ModuleReleaseMeta", "Kyma"];

/// Classifies a document.
pub(super) fn find(node: &Node) -> Found {
    if !matches!(node.value, NodeValue::Map(_)) {
        return Found::NoMapping;
    }
    let (api_version, kind) = match (node.get("apiVersion"), node.get("kind")) {
        (None, None) => return Found::Untyped,
        (None, Some(_)) => return Found::HalfTyped("apiVersion"),
        (Some(_), None) => return Found::HalfTyped("kind"),
        (Some(api_version), Some(kind)) => match (api_version.as_str(), kind.as_str()) {
            (None | Some(""), _) => return Found::NoText("apiVersion"),
            (_, None | Some("")) => return Found::NoText("kind"),
            (Some(api_version), Some(kind)) => (api_version, kind),
        },
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let owned = || (api_version.to_owned(), kind.to_owned());
    if group == "kustomize.config.k8s.io" {
        return Found::Kustomization;
    }
    let is_list = kind == "List" && group.is_empty();
    if is_list || group == KYMA_GROUP && kind.ends_with("List") || ONLY_OURS.iter().any(|ours| is_list_of(kind, ours)) {
        return Found::List { kind: kind.to_owned() };
    }
    if group == TIDEGATE_GROUP && kind == "GitSource" {
        return Found::GitSource;
    }
    if KNOWN.contains(&kind) {
        if group == KYMA_GROUP && version == KYMA_VERSION {
            return kind.parse().map_or_else(|_| Found::Refused { kind: kind.to_owned() }, Found::Ours);
        }
        // Other groups have kinds of these names as well. Only an object meant for our group is an error.
        if group.is_empty() || group.contains("kyma") || ONLY_OURS.contains(&kind) {
            let (api_version, kind) = owned();
            return Found::WrongVersion { kind, api_version };
        }
    }
    if group == KYMA_GROUP {
        return Found::Misspelt { kind: kind.to_owned(), meant: near::nearest(kind, KNOWN.into_iter()) };
    }
    let (api_version, kind) = owned();
    Found::Foreign { api_version, kind }
}

fn is_list_of(kind: &str, item: &str) -> bool {
    kind.strip_suffix("List") == Some(item)
}

/// The items of a list of objects, such as a `List` or a `RoleList`; otherwise the document. As for kubectl, an item
/// with neither `apiVersion` nor `kind` has those of the list. A list that SOPS encrypted stays whole.
pub(super) fn into_items(mut node: Node) -> Result<Vec<Node>, Node> {
    let text = |field: &str| node.get(field).and_then(Node::as_str).map(str::to_owned);
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else { return Err(node) };
    let Some(kind) = kind.strip_suffix("List") else { return Err(node) };
    if layout::of_document(&node, &Found::Untyped).is_some() {
        return Err(node);
    }
    let Some(mut items) = take_items(&mut node) else { return Err(node) };
    if !kind.is_empty() {
        items.iter_mut().for_each(|item| complete(item, &api_version, kind));
    }
    Ok(items)
}

fn take_items(node: &mut Node) -> Option<Vec<Node>> {
    let NodeValue::Map(entries) = &mut node.value else { return None };
    match &mut entries.iter_mut().find(|entry| entry.key == "items")?.value.value {
        NodeValue::Seq(items) => Some(std::mem::take(items)),
        _ => None,
    }
}

/// Gives an object with neither `apiVersion` nor `kind` these.
fn complete(node: &mut Node, api_version: &str, kind: &str) {
    if node.get("apiVersion").is_some() || node.get("kind").is_some() {
        return;
    }
    let (line, column) = (node.line, node.column);
    let entry = |key: &str, text: &str| {
        let value = Node { value: NodeValue::Str(text.to_owned()), line, column };
        Entry { key: key.to_owned(), key_line: line, key_column: column, value }
    };
    if let NodeValue::Map(entries) = &mut node.value {
        entries.extend([entry("apiVersion", api_version), entry("kind", kind)]);
    }
}

/// The first object of our group that is nested in a document that is not an object itself: most
/// likely a wrongly indented definition.
pub(super) fn within(node: &Node) -> Option<&Node> {
    let ours = |node: &Node| {
        node.get("apiVersion").and_then(Node::as_str).is_some_and(|version| version.starts_with(KYMA_GROUP))
    };
    match &node.value {
        NodeValue::Seq(items) => items.iter().find_map(|item| if ours(item) { Some(item) } else { within(item) }),
        NodeValue::Map(entries) => entries
            .iter()
            .map(|entry| &entry.value)
            .find_map(|value| if ours(value) { Some(value) } else { within(value) }),
        _ => None,
    }
}

/// Whether a file of this name is a kustomization.
pub(super) fn is_kustomization_name(path: &str) -> bool {
    matches!(path.rsplit('/').next(), Some("kustomization.yaml" | "kustomization.yml"))
}

/// Reports that `apiVersion` or `kind` is missing.
pub(super) fn half_typed(field: &str) -> Diagnostic {
    let hint = match field {
        "kind" => "definitions have `kind: ModuleTemplate`, `ModuleReleaseMeta`, `Watcher` or `Kyma`".to_owned(),
        _ => format!("definitions have `apiVersion: {KYMA_GROUP}/{KYMA_VERSION}`"),
    };
    Diagnostic::error(code::TYPE_MISSING, format!("this object has no `{field}`")).hint(hint)
}

/// Reports that `apiVersion` or `kind` is not a string.
pub(super) fn no_text(field: &str) -> Diagnostic {
    Diagnostic::error(code::TYPE_MISSING, format!("`{field}` must be a non-empty string"))
}

/// Reports a list of objects.
pub(super) fn list(kind: &str) -> Diagnostic {
    Diagnostic::error(code::LIST, format!("a `{}` of objects is not supported", short(kind)))
        .hint("write each of its items as a separate document, separated by `---`")
}

/// Reports a document that is not a mapping.
pub(super) fn no_mapping(node: &Node) -> Diagnostic {
    let (found, hint) = match &node.value {
        NodeValue::Seq(_) => ("a list", "write each item as a separate document, separated by `---`, without its `-`"),
        NodeValue::Str(text) if text.starts_with("//") => {
            ("a string", "JSON and YAML have no `//` comments: remove them")
        }
        NodeValue::Str(_) => ("a string", "a definition begins with `apiVersion:`"),
        _ => ("a single value", "a definition begins with `apiVersion:`"),
    };
    let message = format!("this document is {found} and not an object, so Tidegate skips it");
    Diagnostic::error(code::NOT_AN_OBJECT, message)
        .hint(format!("{hint}; name the file in `ignore` if it contains no definitions"))
}

/// The diagnostic for an object that is not one of ours. Its place is that of `apiVersion` or
/// `kind`.
pub(super) fn refusal(found: &Found, strict: bool) -> Option<(Diagnostic, &'static str)> {
    match found {
        Found::WrongVersion { kind, api_version } => {
            let message = format!("{kind} does not exist in `{}`", short(api_version));
            let hint = format!("write `apiVersion: {KYMA_GROUP}/{KYMA_VERSION}`");
            Some((Diagnostic::error(code::API_VERSION, message).hint(hint), "apiVersion"))
        }
        Found::Refused { kind } => {
            let message = format!("a {kind} must not be in git: Tidegate creates one for each module of a Kyma");
            let hint = "add the module to `spec.modules` of a Kyma instead";
            Some((Diagnostic::error(code::REFUSED_KIND, message).hint(hint), "kind"))
        }
        Found::GitSource => {
            let message = "Tidegate does not apply a GitSource from git: it defines what git may change, so git must \
                           not change it";
            let hint = "apply it with kubectl, and name the file in `ignore`";
            Some((Diagnostic::warning(code::GIT_SOURCE, message).hint(hint), "kind"))
        }
        Found::Misspelt { kind, meant } => {
            let message = format!("`{}` is not a kind of {KYMA_GROUP} that Tidegate knows", short(kind));
            let hint = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "definitions are of kind ModuleTemplate, ModuleReleaseMeta, Watcher or Kyma".to_owned(),
            };
            Some((Diagnostic::error(code::UNKNOWN_KIND, message).hint(hint), "kind"))
        }
        Found::Foreign { api_version, kind } => {
            let message = format!(
                "an object of kind {} ({}) is not applied to the control plane",
                short(kind),
                short(api_version)
            );
            let hint = "put objects for runtimes below a `tidegate.dev/module-path`; name other files in `ignore`";
            let diagnostic = if strict {
                Diagnostic::error(code::FOREIGN_KIND, message)
            } else {
                Diagnostic::warning(code::FOREIGN_KIND, message)
            };
            Some((diagnostic.hint(hint), "kind"))
        }
        Found::List { kind } => Some((list(kind), "kind")),
        Found::HalfTyped(field) => Some((half_typed(field), "")),
        Found::NoText(field) => Some((no_text(field), field)),
        Found::Ours(_) | Found::Kustomization | Found::Untyped | Found::NoMapping => None,
    }
}
