//! The objects of modules that live in git: their location in a ModuleTemplate, and their content.

mod names;
pub(super) mod object;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

pub use self::names::ModuleNames;
use super::{
    Kind, Options, code,
    file::{self, Cache, ModuleRead},
    kinds::{self, DocumentKind},
    layout, paths,
};
use serde_json::Value;

use crate::{
    budget::Budget,
    component::{Images, Layer},
    content::ContentId,
    diagnostic::{Diagnostic, Diagnostics, FilePosition, Severity},
    object::{Object, ObjectId},
    render,
    revision::Oid,
    schema,
    snapshot::{Content, File, Snapshot, is_below, is_definition_name},
    yaml::{self, Node, NodeValue},
};

/// Where the objects of a module live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSource {
    /// Folder or file, relative to the root of the repository.
    pub path: String,
    /// The git tree or blob at that path.
    pub tree: Oid,
}

/// All objects of one module.
///
/// Exists only if every document of the module could be read: with an error, the objects that could
/// not be read are missing, and they would be pruned.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleObjects {
    content: ContentId,
    objects: Vec<SourceObject>,
}

/// An object of a module, with its location.
///
/// Kept as JSON: a tree of values takes several times the memory of its text.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceObject {
    id: ObjectId,
    json: Box<str>,
    /// Where it begins.
    pub place: FilePosition,
}

/// What a kustomization is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kustomized {
    /// Objects of a module.
    Module,
    /// Definitions.
    Definitions,
}

/// Fields of a kustomization that do not change objects.
const KUSTOMIZATION_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "resources"];

/// Size of the files of a module whose documents are kept between the two steps of a check.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// The file that places in a layer name.
const RAW_MANIFEST: &str = "raw-manifest.yaml";

const ROOT_HINT: &str = "write a folder or file relative to the root of the repository, such as `modules/keda/objects`";

// === impl SourceObject ===

impl SourceObject {
    /// The object that begins at this place.
    pub(super) fn new(object: &Object, place: FilePosition) -> SourceObject {
        SourceObject { id: object.id(), json: object.value().to_string().into(), place }
    }

    /// Its identity.
    pub fn id(&self) -> &ObjectId {
        &self.id
    }

    fn replace_images(&mut self, images: &Images<'_>) {
        let mut value: Value = serde_json::from_str(&self.json).expect("it is the JSON of a value");
        images.replace(&mut value);
        self.json = value.to_string().into();
    }

    /// The object, as written. Parses it.
    pub fn object(&self) -> Object {
        let value = serde_json::from_str(&self.json).expect("it is the JSON of a value");
        Object::new(value).expect("it was an object before")
    }
}

// === impl ModuleObjects ===

impl ModuleObjects {
    /// The result of reading a module. Fails with the first error among the diagnostics.
    fn complete(
        content: impl Into<ContentId>,
        objects: Vec<SourceObject>,
        diagnostics: &Diagnostics,
    ) -> Result<ModuleObjects, Diagnostic> {
        match diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error) {
            None => Ok(ModuleObjects { content: content.into(), objects }),
            Some(first) => Err(first.clone()),
        }
    }

    /// Objects that were complete when they were stored.
    pub(super) fn stored(tree: Oid, objects: Vec<SourceObject>) -> ModuleObjects {
        ModuleObjects { content: tree.into(), objects }
    }

    /// What they are made from.
    pub fn content(&self) -> ContentId {
        self.content
    }

    /// In the order of paths and documents.
    pub fn objects(&self) -> &[SourceObject] {
        &self.objects
    }
}

/// Resolves the annotation of a ModuleTemplate. Fails with a diagnostic without a place if the path
/// is invalid, missing, behind a link or submodule, or contains the ModuleTemplate.
pub(super) fn locate(
    snapshot: &Snapshot,
    definition: &FilePosition,
    written: &str,
) -> Result<ModuleSource, Diagnostic> {
    let annotation = crate::api::names::annotation::MODULE_PATH;
    let shown = yaml::short(written);
    let refuse = |message: String| Err(Diagnostic::error(code::MODULE_PATH, message).hint(ROOT_HINT));
    if written.trim().is_empty() {
        return refuse(format!("`{annotation}` is empty"));
    }
    let path = match paths::normalise(written) {
        Ok(path) => path,
        Err(problem) => return refuse(format!("the module path `{shown}` {problem}")),
    };
    if is_below(&definition.path, &path) {
        let message = format!("the module path `{shown}` contains this definition");
        let hint = "put the module's objects into a separate folder";
        return Err(Diagnostic::error(code::MODULE_PATH, message).hint(hint));
    }
    // A link or submodule has no children in the snapshot, so the first one on the path is the reason.
    for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
        let problem = match snapshot.files.get(&path[..end]).map(|file| &file.content) {
            Some(Content::Symlink) => "a symbolic link, and Tidegate does not follow links",
            Some(Content::Submodule) => "a submodule, and Tidegate does not fetch submodules",
            _ => continue,
        };
        return refuse(format!("in the module path `{shown}`, `{}` is {problem}", yaml::short(&path[..end])));
    }
    match snapshot.object_id(&path) {
        Some(tree) => Ok(ModuleSource { path, tree }),
        None => Err(missing(snapshot, definition, &path, &shown)),
    }
}

fn missing(snapshot: &Snapshot, definition: &FilePosition, path: &str, shown: &str) -> Diagnostic {
    let message =
        format!("the module path `{shown}` is not in the repository, or is neither a folder nor a YAML or JSON file");
    let folder = definition.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let beside = format!("{folder}/{path}");
    let hint = if snapshot.object_id(&beside).is_some() {
        format!("module paths are relative to the root of the repository: write `{beside}`")
    } else {
        ROOT_HINT.to_owned()
    };
    Diagnostic::error(code::MODULE_PATH_MISSING, message).hint(hint)
}

/// Reads the objects of a module through the cache.
pub(super) fn read(
    cache: &mut Cache,
    snapshot: &Snapshot,
    source: &ModuleSource,
    options: &Options,
) -> Arc<ModuleRead> {
    cache.module(&source.path, source.tree, &options.budget, || parse(snapshot, source, options))
}

/// Reads the objects of a module.
pub(super) fn parse(snapshot: &Snapshot, source: &ModuleSource, options: &Options) -> ModuleRead {
    let Options { limits, budget, .. } = options;
    let mut diagnostics = Diagnostics::default();
    let charts = layout::charts(snapshot, snapshot.below(&source.path));
    diagnostics.extend(layout::of_charts(&charts));
    let files = snapshot.below(&source.path).filter(|(path, _)| !layout::is_of_chart(&charts, path));
    let files: Vec<_> = files.filter(|(path, file)| is_definition_name(path) || file.text().is_none()).collect();
    diagnostics.extend(files.iter().filter_map(|(path, file)| file::unreadable(path, &file.content)));
    diagnostics.extend(ignored(&source.path, &files, options));
    let texts = files.iter().filter_map(|(path, file)| file.text().map(|bytes| (*path, &**bytes)));
    let mut others = Others::default();
    let (mut found, mut check) = (Diagnostics::default(), object::ModuleCheck::new(options.kubernetes));
    let objects = objects(&mut diagnostics, texts.clone(), limits, budget, |path, bytes, node| {
        if object::is_definition(&node) {
            check.definition(&mut found, path, &node, budget);
        } else {
            others.add(path, bytes, node);
        }
    });
    others.each(texts, limits, budget, |path, node| check.object(&mut found, path, node, budget));
    diagnostics.append(found);
    let objects = ModuleObjects::complete(source.tree, objects, &diagnostics).ok().map(Arc::new);
    let (kinds, rejected) = check.into_kinds();
    diagnostics.append(rejected);
    ModuleRead { diagnostics: diagnostics.sorted(), objects, kinds }
}

/// A warning about files of a module that `ignore` names. The daemon addresses the objects by their git tree, which has
/// all files, so they are objects of the module for every command.
fn ignored(folder: &str, files: &[(&Arc<str>, &File)], options: &Options) -> Option<Diagnostic> {
    let path = paths::ignored_below(folder, files.iter().map(|(path, _)| *path), &options.ignore)?;
    let message = format!("`ignore` has no effect on this file: it is below the module path `{}`", yaml::short(folder));
    let hint = "move it out of the module path, or delete it";
    Some(Diagnostic::warning(code::MODULE_IGNORE, message).hint(hint).at(FilePosition::file(path)))
}

/// The documents of a module that are checked after its CustomResourceDefinitions. A tree takes some ten times the
/// memory of its text: beyond [`KEPT_BYTES_MAX`], only places are kept, and the files are parsed again.
#[derive(Default)]
struct Others {
    kept: Vec<(Arc<str>, Node)>,
    again: HashMap<Arc<str>, HashSet<(u32, u32)>>,
    /// The file of the last document, and the size of all files up to it.
    last: Option<Arc<str>>,
    bytes: usize,
}

// === impl Others ===

impl Others {
    fn add(&mut self, path: &Arc<str>, bytes: &[u8], node: Node) {
        if self.last.as_ref() != Some(path) {
            self.last = Some(Arc::clone(path));
            self.bytes += bytes.len();
        }
        if self.bytes <= KEPT_BYTES_MAX {
            self.kept.push((Arc::clone(path), node));
        } else {
            self.again.entry(Arc::clone(path)).or_default().insert((node.line, node.column));
        }
    }

    /// Calls a function with each document. Ends with the budget.
    fn each<'a>(
        self,
        files: impl Iterator<Item = (&'a Arc<str>, &'a [u8])>,
        limits: &yaml::Limits,
        budget: &Budget,
        mut check: impl FnMut(&Arc<str>, &Node),
    ) {
        for (path, node) in self.kept {
            if budget.is_over() {
                return;
            }
            check(&path, &node);
        }
        for (path, bytes) in files {
            let Some(places) = self.again.get(path) else { continue };
            for node in documents(path, bytes, limits).into_iter().flatten() {
                if budget.is_over() {
                    return;
                }
                if places.contains(&(node.line, node.column)) {
                    check(path, &node);
                }
            }
        }
    }
}

/// Reads the objects of a module from its YAML and JSON files, which must be in path order.
///
/// Every document must be an object with `apiVersion`, `kind` and a name, or a list of such objects. Only kustomization
/// files are skipped.
///
/// # Errors
///
/// Fails with the first error.
pub fn module_objects<'a>(
    tree: Oid,
    files: impl Iterator<Item = (&'a Arc<str>, &'a [u8])>,
    limits: &yaml::Limits,
) -> Result<ModuleObjects, Diagnostic> {
    let mut diagnostics = Diagnostics::default();
    let objects = objects(&mut diagnostics, files, limits, &Budget::default(), |_, _, _| {});
    ModuleObjects::complete(tree, objects, &diagnostics)
}

/// Reads the objects of a module from the YAML of a layer, and replaces images in them.
///
/// As [`module_objects`].
///
/// # Errors
///
/// Fails with the first error, whose place is in a file `raw-manifest.yaml`, or if there is no object: a layer that
/// lost its content must not look like a module without objects.
pub fn layer_objects(
    layer: Layer,
    images: &[String],
    text: &[u8],
    limits: &yaml::Limits,
) -> Result<ModuleObjects, Diagnostic> {
    let path: Arc<str> = RAW_MANIFEST.into();
    let mut diagnostics = Diagnostics::default();
    let mut found = objects(&mut diagnostics, [(&path, text)].into_iter(), limits, &Budget::default(), |_, _, _| {});
    if found.is_empty() && diagnostics.is_empty() {
        let diagnostic = Diagnostic::error(code::MODULE_EMPTY, "the layer contains no objects");
        return Err(diagnostic.at(FilePosition::file(RAW_MANIFEST)));
    }
    if !images.is_empty() {
        let images = Images::new(images);
        found.iter_mut().for_each(|source| source.replace_images(&images));
    }
    ModuleObjects::complete(ContentId::layer(layer.digest, layer.kind, images), found, &diagnostics)
}

/// The objects that could be read. Every other document is a diagnostic.
fn objects<'a>(
    diagnostics: &mut Diagnostics,
    files: impl Iterator<Item = (&'a Arc<str>, &'a [u8])>,
    limits: &yaml::Limits,
    budget: &Budget,
    mut keep: impl FnMut(&Arc<str>, &[u8], Node),
) -> Vec<SourceObject> {
    let mut objects = Vec::new();
    let mut seen: HashMap<ObjectId, FilePosition> = HashMap::new();
    for (path, bytes) in files.filter(|(path, _)| is_definition_name(path)) {
        if budget.is_over() {
            break;
        }
        for document in documents(path, bytes, limits) {
            if let Ok(node) = &document
                && (kinds::is_kustomization_name(path) || kinds::find(node) == DocumentKind::Kustomization)
            {
                diagnostics.extend(kustomization(path, node, Kustomized::Module));
                continue;
            }
            if let Ok(node) = &document
                && let Some(diagnostic) = layout::of_document(node, &DocumentKind::Untyped)
            {
                diagnostics.push(diagnostic.at(FilePosition::at(path, node.line, node.column)));
                continue;
            }
            let found = document.and_then(|node| Ok((object(path, &node)?, node)));
            let (found, node) = match found {
                Ok(found) => found,
                Err(diagnostic) => {
                    diagnostics.push(diagnostic);
                    continue;
                }
            };
            if let Some(first) = seen.get(found.id()) {
                let message = format!("{} is already in this module, at {first}", found.id());
                let diagnostic = Diagnostic::error(code::MODULE_DUPLICATE, message).hint("remove one of them");
                diagnostics.push(diagnostic.at(found.place));
                continue;
            }
            seen.insert(found.id().clone(), found.place.clone());
            objects.push(found);
            keep(path, bytes, node);
        }
    }
    objects
}

/// The documents of a file. A list of objects is its items, as for kubectl and Lifecycle Manager.
fn documents(path: &Arc<str>, bytes: &[u8], limits: &yaml::Limits) -> Vec<Result<Node, Diagnostic>> {
    let mut found = Vec::new();
    for document in file::parse(path, bytes, limits) {
        match document {
            Ok(node) if !kinds::is_kustomization_name(path) => flatten(node, &mut found),
            other => found.push(other),
        }
    }
    found
}

/// Adds a document, or the items of a list. Lists are nested at most half as deep as YAML may be.
pub(super) fn flatten(node: Node, found: &mut Vec<Result<Node, Diagnostic>>) {
    match kinds::into_items(node) {
        Ok(items) => items.into_iter().for_each(|item| flatten(item, found)),
        Err(node) => found.push(Ok(node)),
    }
}

/// Reports a kustomization that does more than list the files that exist anyway.
pub(super) fn kustomization(path: &Arc<str>, node: &Node, of: Kustomized) -> Option<Diagnostic> {
    let NodeValue::Map(entries) = &node.value else { return None };
    let entry = entries.iter().find(|entry| !KUSTOMIZATION_FIELDS.contains(&entry.key.as_str()))?;
    let (what, elsewhere) = match of {
        Kustomized::Module => (
            "every object below the module path is installed as written",
            "move it out of the module path, name its folder in `ignore`",
        ),
        Kustomized::Definitions => (
            "every definition that the GitSource reads is applied as written",
            "name its folder in `ignore` of the GitSource",
        ),
    };
    let field = yaml::short(&entry.key);
    let message = format!("Tidegate does not run kustomizations: `{field}` has no effect, and {what}");
    let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
    let hint = format!(
        "{elsewhere}, and commit its objects: `kustomize build {} > objects.yaml`; a pipeline can do it, see \
         examples/ci/render-github.yaml",
        yaml::short(folder)
    );
    let place = FilePosition::at(path, entry.key_line, entry.key_column);
    Some(Diagnostic::warning(code::KUSTOMIZATION, message).hint(hint).at(place))
}

/// The object in a document. Fails with a diagnostic if the document is not a valid module object.
fn object(path: &Arc<str>, node: &Node) -> Result<SourceObject, Diagnostic> {
    let at = |(line, column): (u32, u32)| FilePosition::at(path, line, column);
    let here = at((node.line, node.column));
    let error = |message: &str, hint: &str, place: FilePosition| {
        Err(Diagnostic::error(code::MODULE_OBJECT, message).hint(hint).at(place))
    };
    match kinds::find(node) {
        DocumentKind::NoMapping => {
            return error("a module's document must be an object", "write `apiVersion`, `kind` and `metadata`", here);
        }
        DocumentKind::Untyped => {
            let hint = "every document below a module path must be an object; move other files elsewhere";
            return error("this object has neither `apiVersion` nor `kind`", hint, here);
        }
        DocumentKind::HalfTyped(missing, group) => {
            let hint = format!("add `{missing}`; every document below a module path must be an object");
            return Err(kinds::half_typed(missing, group).hint(hint).at(here));
        }
        DocumentKind::NoText(field) => return Err(kinds::no_text(field).at(at(node.position(&[field.into()])))),
        DocumentKind::List { kind } => {
            let message = format!("this `{}` has no list of `items`", yaml::short(&kind));
            let hint = "write the objects below `items`, or each as a separate document";
            return Err(Diagnostic::error(code::LIST, message).hint(hint).at(here));
        }
        // Runtimes may have kcp landscapes of their own.
        DocumentKind::Ours(Kind::Setup(_)) => {}
        DocumentKind::Ours(kind) => {
            let message =
                format!("a {kind} must not be among a module's objects, because these are installed in runtimes");
            let hint = "move it out of the module path";
            return Err(Diagnostic::error(code::DEFINITION_IN_MODULE, message).hint(hint).at(here));
        }
        DocumentKind::WrongVersion { .. }
        | DocumentKind::Refused { .. }
        | DocumentKind::GitSource
        | DocumentKind::Misspelt { .. }
        | DocumentKind::Kustomization
        | DocumentKind::Foreign { .. } => {}
    }
    check_metadata(path, node)?;
    match Object::new(node.to_json()) {
        Ok(object) if render::is_in_every_runtime(&object.id()) => {
            let id = object.id();
            let message =
                format!("{id} must not be among a module's objects, because Tidegate keeps it in every runtime");
            error(&message, "remove it from the module", here)
        }
        Ok(object) => Ok(SourceObject::new(&object, here)),
        // Anything that `check_metadata` did not report.
        Err(problem) => error(&problem.to_string(), "complete the object", here),
    }
}

/// Checks name, namespace, labels and annotations without quoting a value: the object may be a
/// Secret. Fails with the first problem.
fn check_metadata(path: &Arc<str>, node: &Node) -> Result<(), Diagnostic> {
    let error = |message: String, hint: &str, (line, column): (u32, u32)| {
        Err(Diagnostic::error(code::MODULE_OBJECT, message).hint(hint).at(FilePosition::at(path, line, column)))
    };
    let Some(metadata) = node.get("metadata") else {
        return error("`metadata.name` is missing".to_owned(), "give the object a name", (node.line, node.column));
    };
    if !matches!(metadata.value, NodeValue::Map(_)) {
        return error(
            "`metadata` must be a mapping".to_owned(),
            "write `metadata:` and a name below",
            (metadata.line, metadata.column),
        );
    }
    match metadata.get("name").map(|name| (&name.value, name)) {
        Some((NodeValue::Str(text), name)) => {
            if text.is_empty() || text.contains(['/', '%']) || matches!(text.as_str(), "." | "..") {
                let message = "`metadata.name` is not a valid object name".to_owned();
                return error(message, "use lower-case letters, digits, `-` and `.`", (name.line, name.column));
            }
        }
        None | Some((NodeValue::Null, _)) if metadata.get("generateName").is_some() => {
            let message = "`generateName` would create a new object on every pass".to_owned();
            return error(message, "write `name`", node.key_position(&["metadata".into(), "generateName".into()]));
        }
        None | Some((NodeValue::Null, _)) => {
            let position = node.key_position(&["metadata".into()]);
            return error("`metadata.name` is missing".to_owned(), "give the object a name", position);
        }
        Some((_, name)) => {
            let message = "`metadata.name` must be a string".to_owned();
            return error(message, "write it in quotes", (name.line, name.column));
        }
    }
    if let Some(namespace) = metadata.get("namespace")
        && !matches!(namespace.value, NodeValue::Str(_) | NodeValue::Null)
    {
        let message = "`metadata.namespace` must be a string".to_owned();
        return error(message, "write it in quotes", (namespace.line, namespace.column));
    }
    // Tools write `creationTimestamp: null`, which means nothing.
    for field in ["creationTimestamp", "deletionTimestamp"] {
        let Some(time) = metadata.get(field) else { continue };
        let is_time = match &time.value {
            NodeValue::Null => true,
            NodeValue::Str(text) => schema::is_date_time(text),
            _ => false,
        };
        if !is_time {
            let message = format!("`metadata.{field}` is not a time");
            return error(message, "remove it: the API server sets it", (time.line, time.column));
        }
    }
    for field in ["labels", "annotations"] {
        let Some(NodeValue::Map(entries)) = metadata.get(field).map(|node| &node.value) else { continue };
        for entry in entries {
            if !matches!(entry.value.value, NodeValue::Str(_) | NodeValue::Null) {
                let message = format!("`metadata.{field}[{}]` must be a string", yaml::short(&entry.key));
                return error(message, "write it in quotes", (entry.value.line, entry.value.column));
            }
        }
    }
    Ok(())
}
