//! Classifies a document by `apiVersion` and `kind` alone.

use super::{Kind, code, layout, near};
use crate::{
    api::{KYMA_GROUP, KYMA_VERSION, TIDEGATE_GROUP, setup},
    diagnostic::Diagnostic,
    yaml::{Entry, Node, NodeValue, short},
};

/// What a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DocumentKind {
    /// One of our kinds, in our version.
    Ours(Kind),
    /// One of our kinds with an unsupported `apiVersion`, and the group that it has.
    WrongVersion { kind: String, api_version: String, group: &'static Group },
    /// A kind of our groups that must not be in git.
    Refused(&'static Refused),
    /// A GitSource.
    GitSource,
    /// An unknown kind of one of our groups, and the known kind that it resembles.
    Misspelt { kind: String, group: &'static Group, meant: Option<&'static str> },
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
    /// One of the two is missing. Contains the group that the other one suggests.
    HalfTyped(&'static str, &'static Group),
    /// One of the two is not a string.
    NoText(&'static str),
}

/// An API group with kinds that users write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    name: &'static str,
    version: &'static str,
    /// Part of the names of groups whose objects are meant for this one, if they have one of its kinds.
    resembles: Option<&'static str>,
    rows: &'static [Row],
}

/// A kind of a group.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    kind: &'static str,
    role: Role,
    /// Whether no other group has a kind of this name.
    is_unique: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Role {
    Declared(Kind),
    Refused(Refused),
}

/// A kind that must not be in git.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    kind: &'static str,
    reason: &'static str,
    hint: &'static str,
}

const KYMA: Group = Group {
    name: KYMA_GROUP,
    version: KYMA_VERSION,
    resembles: Some("kyma"),
    rows: &[
        Row::unique(Kind::ModuleTemplate),
        Row::unique(Kind::ModuleReleaseMeta),
        Row::common(Kind::Watcher),
        Row::unique(Kind::Kyma),
        Row::refused(Refused {
            kind: "Manifest",
            reason: "Tidegate creates one for each module of a Kyma",
            hint: "add the module to `spec.modules` of a Kyma instead",
        }),
    ],
};

/// kcp itself has a kind Shard, in another group.
const SETUP: Group = Group {
    name: setup::SETUP_GROUP,
    version: setup::SETUP_VERSION,
    resembles: None,
    rows: &[
        Row::common(Kind::Setup(setup::Kind::CacheServer)),
        Row::unique(Kind::Setup(setup::Kind::RootShard)),
        Row::unique(Kind::Setup(setup::Kind::FrontProxy)),
        Row::common(Kind::Setup(setup::Kind::Shard)),
        Row::common(Kind::Setup(setup::Kind::VirtualWorkspace)),
        Row::common(Kind::Setup(setup::Kind::Kubeconfig)),
        Row::refused(Refused { kind: "Bundle", reason: "kcp-operator has no such kind any more", hint: "remove it" }),
    ],
};

static GROUPS: [Group; 2] = [KYMA, SETUP];

/// Classifies a document.
pub(super) fn find(node: &Node) -> DocumentKind {
    if !matches!(node.value, NodeValue::Map(_)) {
        return DocumentKind::NoMapping;
    }
    let (api_version, kind) = match (node.get("apiVersion"), node.get("kind")) {
        (None, None) => return DocumentKind::Untyped,
        (None, Some(kind)) => return DocumentKind::HalfTyped("apiVersion", suggested(kind, Group::has)),
        (Some(version), None) => {
            let is_of = |group: &Group, text: &str| text.split('/').next() == Some(group.name);
            return DocumentKind::HalfTyped("kind", suggested(version, is_of));
        }
        (Some(api_version), Some(kind)) => match (api_version.as_str(), kind.as_str()) {
            (None | Some(""), _) => return DocumentKind::NoText("apiVersion"),
            (_, None | Some("")) => return DocumentKind::NoText("kind"),
            (Some(api_version), Some(kind)) => (api_version, kind),
        },
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let owned = || (api_version.to_owned(), kind.to_owned());
    if group == "kustomize.config.k8s.io" {
        return DocumentKind::Kustomization;
    }
    let is_list = kind == "List" && group.is_empty();
    let own = GROUPS.iter().find(|own| own.name == group);
    let mut rows = GROUPS.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)));
    let is_list_of_ours = kind
        .strip_suffix("List")
        .is_some_and(|item| own.is_some() || rows.clone().any(|(_, row)| row.is_unique && row.kind == item));
    if is_list || is_list_of_ours {
        return DocumentKind::List { kind: kind.to_owned() };
    }
    if group == TIDEGATE_GROUP && kind == "GitSource" {
        return DocumentKind::GitSource;
    }
    if let Some((of, row)) = rows.find(|(_, row)| row.kind == kind) {
        if group == of.name && version == of.version {
            return match &row.role {
                Role::Declared(kind) => DocumentKind::Ours(*kind),
                Role::Refused(refused) => DocumentKind::Refused(refused),
            };
        }
        // Other groups have kinds of these names as well. Only an object meant for our group is an error.
        let resembles = of.resembles.is_some_and(|part| group.contains(part));
        if group.is_empty() || group == of.name || resembles || row.is_unique {
            let (api_version, kind) = owned();
            return DocumentKind::WrongVersion { kind, api_version, group: of };
        }
    }
    if let Some(group) = own {
        let meant = near::nearest(kind, group.rows.iter().map(|row| row.kind));
        return DocumentKind::Misspelt { kind: kind.to_owned(), group, meant };
    }
    let (api_version, kind) = owned();
    DocumentKind::Foreign { api_version, kind }
}

/// The group that a text suggests; the one of Kyma if none.
fn suggested(node: &Node, is_of: impl Fn(&Group, &str) -> bool) -> &'static Group {
    let text = node.as_str().unwrap_or_default();
    GROUPS.iter().find(|group| is_of(group, text)).unwrap_or(&GROUPS[0])
}

// === impl Group ===

impl Group {
    fn has(&self, kind: &str) -> bool {
        self.rows.iter().any(|row| row.kind == kind)
    }

    /// The kinds that git declares, for example `Kyma`, `Watcher` or `Manifest`.
    fn declared(&self) -> Vec<&'static str> {
        let declared = |row: &Row| matches!(row.role, Role::Declared(_)).then_some(row.kind);
        self.rows.iter().filter_map(declared).collect()
    }
}

// === impl Row ===

impl Row {
    const fn unique(kind: Kind) -> Row {
        Row { is_unique: true, ..Row::common(kind) }
    }

    const fn common(kind: Kind) -> Row {
        Row { kind: kind.as_str(), role: Role::Declared(kind), is_unique: false }
    }

    const fn refused(refused: Refused) -> Row {
        Row { kind: refused.kind, role: Role::Refused(refused), is_unique: false }
    }
}

/// The items of a list of objects, such as a `List` or a `RoleList`; otherwise the document. As for kubectl, an item
/// with neither `apiVersion` nor `kind` has those of the list. A list that SOPS encrypted stays whole.
pub(super) fn into_items(mut node: Node) -> Result<Vec<Node>, Node> {
    let text = |field: &str| node.get(field).and_then(Node::as_str).map(str::to_owned);
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else { return Err(node) };
    let Some(kind) = kind.strip_suffix("List") else { return Err(node) };
    if layout::of_document(&node, &DocumentKind::Untyped).is_some() {
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
        let version = node.get("apiVersion").and_then(Node::as_str);
        version.is_some_and(|version| GROUPS.iter().any(|group| version.starts_with(group.name)))
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
pub(super) fn half_typed(field: &str, group: &Group) -> Diagnostic {
    let hint = match field {
        "kind" => format!("definitions have `kind: {}`", either(&group.declared(), "`, `", "` or `")),
        _ => format!("definitions have `apiVersion: {}/{}`", group.name, group.version),
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

/// Joins names, the last one with its own separator.
fn either(names: &[&str], separator: &str, last: &str) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{}{last}{end}", first.join(separator)),
    }
}

/// The diagnostic for an object that is not one of ours. Its place is that of `apiVersion` or
/// `kind`.
pub(super) fn refusal(found: &DocumentKind, strict: bool) -> Option<(Diagnostic, &'static str)> {
    match found {
        DocumentKind::WrongVersion { kind, api_version, group } => {
            let message = format!("{kind} does not exist in `{}`", short(api_version));
            let hint = format!("write `apiVersion: {}/{}`", group.name, group.version);
            Some((Diagnostic::error(code::API_VERSION, message).hint(hint), "apiVersion"))
        }
        DocumentKind::Refused(Refused { kind, reason, hint }) => {
            let message = format!("a {kind} must not be in git: {reason}");
            Some((Diagnostic::error(code::REFUSED_KIND, message).hint(*hint), "kind"))
        }
        DocumentKind::GitSource => {
            let message = "Tidegate does not apply a GitSource from git: it defines what git may change, so git must \
                           not change it";
            let hint = "apply it with kubectl, and name the file in `ignore`";
            Some((Diagnostic::warning(code::GIT_SOURCE, message).hint(hint), "kind"))
        }
        DocumentKind::Misspelt { kind, group, meant } => {
            let message = format!("`{}` is not a kind of {} that Tidegate knows", short(kind), group.name);
            let hint = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("definitions are of kind {}", either(&group.declared(), ", ", " or ")),
            };
            Some((Diagnostic::error(code::UNKNOWN_KIND, message).hint(hint), "kind"))
        }
        DocumentKind::Foreign { api_version, kind } => {
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
        DocumentKind::List { kind } => Some((list(kind), "kind")),
        DocumentKind::HalfTyped(field, group) => Some((half_typed(field, group), "")),
        DocumentKind::NoText(field) => Some((no_text(field), field)),
        DocumentKind::Ours(_) | DocumentKind::Kustomization | DocumentKind::Untyped | DocumentKind::NoMapping => None,
    }
}
