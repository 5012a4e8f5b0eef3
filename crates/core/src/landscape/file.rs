//! The landscape file: the Kymas of a control plane, for a pipeline without access to a cluster.
//!
//! `tidegate export --landscape` writes it and `tidegate diff --landscape` reads it. It contains
//! identities, labels and the fields that select modules, and the catalog: ModuleTemplates and ModuleReleaseMetas, so
//! that a repository whose Kymas use modules of another one can be checked. It contains no value of a Secret. It
//! contains its time of export, because a landscape changes. It is JSON with one Kyma a line, so that it reads well in
//! a diff. YAML is read as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{Idle, Landscape, SourceName, annotation, label};
use crate::{
    api::{
        GitSource, Kyma, ModuleReleaseMeta, ModuleTemplate,
        git_source::{GitSourceSpec, PruneLimit},
        kyma::{KymaSpec, KymaStatus, Module, ModuleStatus, Modules},
        names,
        shared::{CustomResourcePolicy, ObjectMeta, State, Time, is_default},
    },
    content::ContentId,
    definition::{Channels, Definition, Elsewhere, Kind, ModuleNames, ModuleObjects},
    intake::{self, Policy, TermsError},
    name::{Key, check_subdomain},
    object::Object,
    revision::Oid,
    yaml,
};

/// Version of the format.
pub const API_VERSION: &str = "tidegate.dev/v1alpha1";
/// Kind of the file. No API server serves it.
pub const KIND: &str = "Landscape";

/// The names of Tidegate's labels and annotations begin with this.
const OWN_PREFIX: &str = "tidegate.dev/";
/// The names of Lifecycle Manager's labels begin with this.
const KYMA_PREFIX: &str = "operator.kyma-project.io/";
/// Annotations of a Kyma that affect its modules, or say which GitSource owns it and what that has applied.
const DECIDING: [&str; 4] = [
    names::annotation::MODULES_FROM,
    names::annotation::ALLOW_DOWNGRADE,
    names::annotation::SOURCE,
    names::annotation::DIGEST,
];

/// The Kymas of a control plane at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LandscapeFile {
    /// [`API_VERSION`].
    #[serde(deserialize_with = "api_version")]
    api_version: String,
    /// [`KIND`].
    #[serde(deserialize_with = "kind")]
    kind: String,
    /// When it was written.
    #[serde(deserialize_with = "time")]
    pub written: Time,
    /// GitSources that are suspended, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    suspended: Vec<String>,
    /// GitSources that are being deleted, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ending: Vec<String>,
    /// The GitSources. A file of a former version has only those of which it knows more than the name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<KnownSource>,
    /// The Kymas, by namespace and name.
    #[serde(deserialize_with = "kymas")]
    pub kymas: Vec<KnownKyma>,
    /// The ModuleTemplates, whoever declares them: with the digest of a module in git.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    templates: Vec<ModuleTemplate>,
    /// The ModuleReleaseMetas, whoever declares them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    releases: Vec<ModuleReleaseMeta>,
    /// What runtimes have of the modules in git, if there are several GitSources. The repository of one does not have
    /// the objects of another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    modules: Vec<KnownModuleObjects>,
}

/// What runtimes have of a version of a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownModuleObjects {
    /// The ModuleTemplate, as `namespace/name`.
    template: String,
    /// The objects, as `group/version/Kind/namespace/name`.
    objects: Vec<String>,
}

/// The part of a GitSource that determines what waits for a confirmation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownSource {
    /// Its namespace.
    #[serde(deserialize_with = "subdomain")]
    pub namespace: String,
    /// Its name.
    #[serde(deserialize_with = "subdomain")]
    pub name: String,
    /// As in its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<bool>,
    /// As in its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune_limit: Option<PruneLimit>,
    /// As in its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removal_limit: Option<i32>,
    /// What else its spec says that the file in its repository may say as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Value>,
    /// The revision of which something waits for a confirmation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconfirmed: Option<String>,
    /// The first definitions that it declares and holds back, as `Kind namespace/name`: another source or a user may
    /// have their objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_back: Vec<String>,
    /// How many more definitions it holds back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back_unnamed: Option<usize>,
    /// Those of them whose objects it takes over with other content once their owners no longer declare them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopts: Vec<String>,
    /// The objects of these as they then are, as far as they are known. Of the metadata, what modules depend on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<Value>,
    /// The objects of the modules that ModuleTemplates of these then name, by `Kind namespace/name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub adopted_modules: BTreeMap<String, Vec<String>>,
    /// The first objects with its ownership label that it no longer declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeclared: Vec<String>,
}

/// What another source makes of an object once this one no longer declares it.
#[derive(Clone, Debug, PartialEq)]
pub enum Takeover {
    /// It says the same, or waits for leave to change it.
    Stays,
    /// It has other content: this one, if it is known.
    Changes(Option<Box<Object>>),
}

/// Who declares a definition of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A GitSource.
    Source(SourceName),
    /// A user or another tool.
    User,
}

/// The part of a Kyma that determines its modules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownKyma {
    /// Its namespace.
    #[serde(deserialize_with = "subdomain")]
    pub namespace: String,
    /// Its name.
    #[serde(deserialize_with = "subdomain")]
    pub name: String,
    /// Its labels, for selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations that affect its modules.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Default channel of its modules.
    pub channel: String,
    /// Its effective modules, whether the user or the operator selected them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<KnownModule>,
    /// What is installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub installed: Vec<InstalledModule>,
    /// The modules whose Manifests a label pauses, mandatory ones among them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub paused: BTreeSet<String>,
    /// The installed modules in git of which the control plane had other objects than the runtime.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub behind: BTreeSet<String>,
}

/// One wanted module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KnownModule {
    /// Its name.
    pub name: String,
    /// Channel, if it differs from the Kyma's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Policy for the default custom resource.
    #[serde(default, skip_serializing_if = "is_default")]
    pub custom_resource_policy: CustomResourcePolicy,
    /// Whether Tidegate manages the module.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub managed: bool,
}

/// One installed module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstalledModule {
    /// Its name.
    pub name: String,
    /// Channel of the installed version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it is in state `Error`: what the runtime has may differ from git.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: bool,
}

/// Why a landscape file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReadError {
    /// Line, from 1; 0 if unknown.
    pub line: usize,
    /// One sentence.
    pub message: String,
}

fn yes() -> bool {
    true
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("texts, flags and maps of texts are JSON")
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Time).map_err(|_| D::Error::custom("`written` is not an RFC 3339 timestamp"))
}

fn api_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    exactly(deserializer, "apiVersion", API_VERSION)
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    exactly(deserializer, "kind", KIND)
}

fn exactly<'de, D: Deserializer<'de>>(deserializer: D, field: &str, expected: &str) -> Result<String, D::Error> {
    let found = String::deserialize(deserializer)?;
    if found == expected {
        return Ok(found);
    }
    Err(D::Error::custom(format!("`{field}` is not `{expected}`")))
}

fn subdomain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match check_subdomain(&text) {
        Ok(()) => Ok(text),
        Err(error) => Err(D::Error::custom(format!("invalid name: {error}"))),
    }
}

/// The metadata that modules depend on: identity, ownership, and what annotations of Tidegate ask for.
fn deciding(metadata: &ObjectMeta) -> ObjectMeta {
    let kept = |all: &Option<BTreeMap<String, String>>, prefixes: &[&str]| {
        let is_kept = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let all = all.iter().flatten().filter(|(name, _)| is_kept(name));
        let kept: BTreeMap<String, String> = all.map(|(name, value)| (name.clone(), value.clone())).collect();
        (!kept.is_empty()).then_some(kept)
    };
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        labels: kept(&metadata.labels, &[OWN_PREFIX, KYMA_PREFIX]),
        annotations: kept(&metadata.annotations, &[OWN_PREFIX]),
        ..ObjectMeta::default()
    }
}

/// The GitSource that a label names in full. A long name is cut.
fn named(label: &str) -> Option<SourceName> {
    let (namespace, name) = label.split_once('.')?;
    Some(SourceName::new(Key::new(namespace, name))).filter(|source| source.label_value() == label)
}

/// The content of a module in git that a ModuleTemplate names.
fn tree(metadata: &ObjectMeta) -> Option<ContentId> {
    let tree: Oid = annotation(metadata, names::annotation::MODULE_TREE)?.parse().ok()?;
    Some(tree.into())
}

fn is_other(metadata: &ObjectMeta, source: &SourceName) -> bool {
    label(metadata, names::label::SOURCE) != Some(&source.label_value())
}

/// An object after another source has taken it over, as far as the file knows that: with the spec, and with the labels
/// and annotations that the file has. Other labels and annotations stay.
pub fn as_taken_over(former: &Object, adopted: &Object) -> Object {
    let mut object = former.clone();
    object.map_mut().insert("spec".to_owned(), adopted.value()["spec"].clone());
    for (field, prefixes) in [("labels", &[OWN_PREFIX, KYMA_PREFIX][..]), ("annotations", &[OWN_PREFIX])] {
        let kept = |name: &str| !prefixes.iter().any(|prefix| name.starts_with(prefix));
        let mut all = former.value()["metadata"][field].as_object().cloned().unwrap_or_default();
        all.retain(|name, _| kept(name));
        all.extend(adopted.value()["metadata"][field].as_object().cloned().unwrap_or_default());
        object.metadata_mut().insert(field.to_owned(), Value::Object(all));
    }
    object
}

/// Whether an object of the catalog is there whatever this source declares. `heirs` are those that others declare.
fn stays_without(source: &SourceName, heirs: &BTreeSet<&str>, kind: Kind, metadata: &ObjectMeta) -> bool {
    is_other(metadata, source) || heirs.contains(intake::text(&(kind, super::key(metadata))).as_str())
}

/// Adds a list with one item a line; nothing if it is empty.
fn lines<T: Serialize>(text: &mut String, field: &str, items: &[T]) {
    for (index, item) in items.iter().enumerate() {
        let start = if index == 0 { format!(",\n\"{field}\": [") } else { ",".to_owned() };
        // Writing to a string cannot fail.
        let _ = write!(text, "{start}\n{}", json(item));
    }
    if !items.is_empty() {
        text.push_str("\n]");
    }
}

fn kymas<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<KnownKyma>, D::Error> {
    let mut kymas = Vec::<KnownKyma>::deserialize(deserializer)?;
    kymas.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let twice = kymas.windows(2).find(|pair| pair[0].namespace == pair[1].namespace && pair[0].name == pair[1].name);
    match twice {
        Some(pair) => Err(D::Error::custom(format!("Kyma {} is in the file twice", pair[0].key()))),
        None => Ok(kymas),
    }
}

// === impl LandscapeFile ===

impl LandscapeFile {
    /// Creates the file from the Kymas at one time.
    pub fn new(written: Time, mut kymas: Vec<KnownKyma>) -> LandscapeFile {
        kymas.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        LandscapeFile {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            written,
            suspended: Vec::new(),
            ending: Vec::new(),
            sources: Vec::new(),
            kymas,
            templates: Vec::new(),
            releases: Vec::new(),
            modules: Vec::new(),
        }
    }

    /// Adds what is to be known of GitSources.
    #[must_use]
    pub fn with_sources<'s>(mut self, sources: impl IntoIterator<Item = &'s GitSource>) -> LandscapeFile {
        for source in sources {
            let name = super::key(&source.metadata).to_string();
            self.suspended.extend(source.spec.suspend.then(|| name.clone()));
            self.ending.extend(source.metadata.deletion_timestamp.is_some().then_some(name));
            self.sources.push(KnownSource::from_source(source));
        }
        self.suspended.sort();
        self.ending.sort();
        self.sources.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        self
    }

    /// What is known of a GitSource.
    pub fn source(&self, key: &Key) -> Option<&KnownSource> {
        self.sources.iter().find(|source| source.namespace == key.namespace() && source.name == key.name())
    }

    /// Another source than `source` that declares an object, and holds its definition back.
    pub fn heir(&self, id: &intake::Id, source: &SourceName) -> Option<SourceName> {
        let text = intake::text(id);
        let others = self.sources.iter().filter(|other| other.held_back.contains(&text));
        let mut names = others.map(|other| SourceName::new(other.key()));
        names.find(|name| name != source)
    }

    /// What a source makes of an object of another one once that no longer declares it.
    pub fn takeover(&self, id: &intake::Id, heir: &SourceName) -> Takeover {
        let text = intake::text(id);
        let known = self.source(heir.key()).filter(|known| known.adopts.contains(&text));
        // A source that is suspended or being deleted takes nothing over.
        let Some(known) = known.filter(|_| self.idle(heir.key()).is_none()) else { return Takeover::Stays };
        let mut objects = known.adopted.iter().filter_map(|value| Object::new(value.clone()).ok());
        let is_it = |object: &Object| {
            let found = object.id();
            *found.kind == *id.0.as_str() && *found.namespace == *id.1.namespace() && *found.name == *id.1.name()
        };
        Takeover::Changes(objects.find(is_it).map(Box::new))
    }

    /// Whether a source no longer declares an object that it owns.
    pub fn is_undeclared(&self, id: &intake::Id, owner: &SourceName) -> bool {
        self.source(owner.key()).is_some_and(|known| known.undeclared.contains(&intake::text(id)))
    }

    /// Adds the catalog. Of the metadata it keeps what modules depend on.
    #[must_use]
    pub fn with_catalog(mut self, templates: Vec<ModuleTemplate>, releases: Vec<ModuleReleaseMeta>) -> LandscapeFile {
        self.templates = templates;
        self.releases = releases;
        self.templates.iter_mut().for_each(|template| template.metadata = deciding(&template.metadata));
        self.releases.iter_mut().for_each(|release| release.metadata = deciding(&release.metadata));
        self.templates.sort_by_key(|template| super::key(&template.metadata));
        self.releases.sort_by_key(|release| super::key(&release.metadata));
        self
    }

    /// Adds what runtimes have of modules in git, by ModuleTemplate.
    #[must_use]
    pub fn with_modules(mut self, modules: BTreeMap<Key, ModuleNames>) -> LandscapeFile {
        let known = |(template, names): (Key, ModuleNames)| KnownModuleObjects {
            template: template.to_string(),
            objects: names.to_texts(),
        };
        self.modules = modules.into_iter().map(known).collect();
        self
    }

    /// What runtimes have of the module of a ModuleTemplate; `None` if the file does not say that.
    pub fn module(&self, template: &Key) -> Option<ModuleNames> {
        let text = template.to_string();
        let known = self.modules.iter().find(|known| known.template == text)?;
        Some(ModuleNames::from_texts(&known.objects))
    }

    /// What the control plane has of modules in git, by ModuleTemplate: the content that is applied in runtimes next.
    pub fn contents(&self) -> BTreeMap<Key, ContentId> {
        let content = |template: &ModuleTemplate| Some((super::key(&template.metadata), tree(&template.metadata)?));
        self.templates.iter().filter_map(content).collect()
    }

    /// The objects of the module that a ModuleTemplate names once a source takes it over; `None` if that is not known.
    pub fn module_of_takeover(&self, id: &intake::Id, heir: &SourceName) -> Option<ModuleNames> {
        let objects = self.source(heir.key())?.adopted_modules.get(&intake::text(id))?;
        Some(ModuleNames::from_texts(objects))
    }

    /// The modules of other repositories of which only the names of the objects are known.
    pub fn outlines(&self) -> BTreeMap<ContentId, Arc<ModuleObjects>> {
        let outline = |content: ContentId, names: &ModuleNames| (content, Arc::new(names.outline(content)));
        let present = self.templates.iter().filter_map(|template| {
            let names = self.module(&super::key(&template.metadata))?;
            Some(outline(tree(&template.metadata)?, &names))
        });
        let adopted = self.sources.iter().flat_map(|source| {
            source.adopted.iter().filter_map(|object| {
                let metadata: ObjectMeta = serde_json::from_value(object["metadata"].clone()).ok()?;
                let id = (object["kind"].as_str()?.parse().ok()?, super::key(&metadata));
                let names = ModuleNames::from_texts(source.adopted_modules.get(&intake::text(&id))?);
                Some(outline(tree(&metadata)?, &names))
            })
        });
        present.chain(adopted).collect()
    }

    /// What references of a source may resolve to: the catalog without the objects of that source, apart from those
    /// that another source takes over once this one no longer declares them.
    pub fn elsewhere(&self, source: &SourceName) -> Elsewhere {
        let heirs = self.heirs(source);
        let stays = |kind: Kind, metadata: &ObjectMeta| stays_without(source, &heirs, kind, metadata);
        let templates = self.templates.iter().filter(|template| stays(Kind::ModuleTemplate, &template.metadata));
        let templates: BTreeSet<Key> = templates.map(|template| super::key(&template.metadata)).collect();
        let releases = self.releases.iter().filter(|release| stays(Kind::ModuleReleaseMeta, &release.metadata));
        let modules = templates.iter().filter_map(|template| self.module(template));
        Elsewhere {
            groups: modules.flat_map(|module| module.groups()).collect(),
            templates,
            releases: releases.map(|release| (super::key(&release.metadata), Channels::from(release))).collect(),
        }
    }

    /// Adds what stays of the catalog without a source, as in [`LandscapeFile::elsewhere`], to the definitions of this
    /// source, which take precedence.
    pub fn complete(&self, landscape: &mut Landscape, source: &SourceName) {
        let heirs = self.heirs(source);
        let stays = |kind: Kind, metadata: &ObjectMeta| stays_without(source, &heirs, kind, metadata);
        for template in self.templates.iter().filter(|template| stays(Kind::ModuleTemplate, &template.metadata)) {
            let add = || Arc::new(template.clone());
            landscape.templates.entry(super::key(&template.metadata)).or_insert_with(add);
        }
        for release in self.releases.iter().filter(|release| stays(Kind::ModuleReleaseMeta, &release.metadata)) {
            let add = || Arc::new(release.clone());
            landscape.releases.entry(super::key(&release.metadata)).or_insert_with(add);
        }
    }

    /// The other sources than this one that hold back more definitions than the file names, and how many more.
    pub fn unnamed<'s>(&'s self, own: &'s SourceName) -> impl Iterator<Item = (Key, usize)> + 's {
        let others = self.sources.iter().filter(|other| other.key() != *own.key());
        others.filter_map(|other| Some((other.key(), other.held_back_unnamed?)))
    }

    /// Whether it lists GitSources. A file of a former version lists only those of which it knows more than the name,
    /// or none.
    pub fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// What other sources than this one declare and hold back, by [`intake::text`].
    fn heirs(&self, source: &SourceName) -> BTreeSet<&str> {
        let others = self.sources.iter().filter(|other| other.key() != *source.key());
        others.flat_map(|other| &other.held_back).map(String::as_str).collect()
    }

    /// Whether the owner of the object has last applied what a definition says.
    pub fn has_content(&self, definition: &Definition) -> bool {
        if definition.kind == Kind::Kyma {
            let kyma = self.kyma(&definition.key).map(KnownKyma::to_kyma);
            return kyma.is_some_and(|kyma| super::has_content(definition, &kyma.metadata));
        }
        let metadata = self.metadata(definition.kind, &definition.key);
        metadata.is_some_and(|metadata| super::has_content(definition, metadata))
    }

    /// Whether a source of this name has left an object when it was deleted, see [`super::is_left_by`].
    pub fn is_left(&self, (kind, key): &intake::Id, source: &SourceName) -> bool {
        match kind {
            Kind::Kyma => self.kyma(key).is_some_and(|kyma| super::is_left_by(source, &kyma.to_kyma().metadata)),
            _ => self.metadata(*kind, key).is_some_and(|metadata| super::is_left_by(source, metadata)),
        }
    }

    /// Whether a source that has left an object has last applied what a definition says.
    pub fn is_as_left(&self, definition: &Definition, source: &SourceName) -> bool {
        let is_it = |metadata: &ObjectMeta| super::as_left(definition, source, metadata).is_some();
        match definition.kind {
            Kind::Kyma => self.kyma(&definition.key).is_some_and(|kyma| is_it(&kyma.to_kyma().metadata)),
            kind => self.metadata(kind, &definition.key).is_some_and(is_it),
        }
    }

    /// The metadata of an object of the catalog.
    fn metadata(&self, kind: Kind, key: &Key) -> Option<&ObjectMeta> {
        match kind {
            Kind::ModuleTemplate => self.templates.iter().map(|one| &one.metadata).find(|one| super::key(one) == *key),
            Kind::ModuleReleaseMeta => {
                self.releases.iter().map(|one| &one.metadata).find(|one| super::key(one) == *key)
            }
            Kind::Kyma | Kind::Watcher | Kind::Setup(_) => None,
        }
    }

    /// A definition of the catalog as it is in KCP, as far as the file knows it.
    pub fn object(&self, kind: Kind, key: &Key) -> Option<Object> {
        fn found<T: Serialize>(all: &[T], is_it: impl Fn(&T) -> bool) -> Option<Value> {
            all.iter().find(|one| is_it(one)).and_then(|one| serde_json::to_value(one).ok())
        }
        let value = match kind {
            Kind::ModuleTemplate => found(&self.templates, |one| super::key(&one.metadata) == *key),
            Kind::ModuleReleaseMeta => found(&self.releases, |one| super::key(&one.metadata) == *key),
            Kind::Watcher | Kind::Kyma | Kind::Setup(_) => None,
        };
        Object::new(value?).ok()
    }

    /// The last good version of a ModuleReleaseMeta of a source, which the control plane keeps while the definition is
    /// invalid.
    pub fn last_good(&self, kind: Kind, key: &Key, source: &SourceName) -> Option<Object> {
        let metadata = self.metadata(kind, key).filter(|_| kind == Kind::ModuleReleaseMeta)?;
        if is_other(metadata, source) { None } else { self.object(kind, key) }
    }

    /// The GitSource of a repository that does not name it: the only one, or the one that declares all Kymas, if the
    /// repository declares Kymas. `declares` says whether the repository declares one of the definitions that are
    /// meant. `None` if the file does not say its name in full, or if the repository has nothing of the only one.
    pub fn only_source(&self, declares: impl Fn(&dyn Fn(Kind, &Key) -> bool) -> bool) -> Option<SourceName> {
        match self.sources.as_slice() {
            [only] => {
                // A second repository, whose source is not in the file yet, declares nothing of the first one's.
                let source = SourceName::new(only.key());
                let is_its = |kind: Kind, key: &Key| {
                    let id = (kind, key.clone());
                    self.is_of(&source, &id) || only.held_back.contains(&intake::text(&id))
                };
                return (!self.has_objects_of(&source) || declares(&is_its)).then_some(source);
            }
            // Another one than that of the Kymas may be meant.
            [_, _, ..] if !declares(&|kind, _| kind == Kind::Kyma) => return None,
            // A file of a former version may list none.
            [] | [_, _, ..] => {}
        }
        let labels = self.kymas.iter().filter_map(|kyma| kyma.labels.get(names::label::SOURCE));
        let labels: BTreeSet<&String> = labels.collect();
        let (Some(label), 1) = (labels.first(), labels.len()) else { return None };
        named(label)
    }

    /// Who declares a definition, if it is not this source: another source, or a user. `None` if nothing does.
    pub fn owner(&self, kind: Kind, key: &Key, source: &SourceName) -> Option<Owner> {
        if kind == Kind::Kyma {
            return self.owner_of_kyma(key, source);
        }
        let metadata = self.metadata(kind, key).filter(|metadata| is_other(metadata, source))?;
        Some(SourceName::from_metadata(metadata).map_or(Owner::User, Owner::Source))
    }

    /// Who declares a Kyma, if it is not this source: another source, or a user if the Kyma has no label of a source.
    /// If the file does not know this source, its name may be an assumption, and another label says nothing.
    fn owner_of_kyma(&self, key: &Key, source: &SourceName) -> Option<Owner> {
        let kyma = self.kyma(key)?;
        let Some(label) = kyma.labels.get(names::label::SOURCE) else { return Some(Owner::User) };
        if !self.knows(source) {
            return None;
        }
        // A label does not name a long name in full.
        let owner = SourceName::from_metadata(&kyma.to_kyma().metadata).or_else(|| named(label));
        owner.filter(|other| other != source).map(Owner::Source)
    }

    /// The Kyma of this name, also if another source or a user declares it.
    pub fn kyma(&self, key: &Key) -> Option<&KnownKyma> {
        let wanted = (key.namespace(), key.name());
        let found = self.kymas.binary_search_by(|kyma| (kyma.namespace.as_str(), kyma.name.as_str()).cmp(&wanted));
        self.kymas.get(found.ok()?)
    }

    /// Whether the control plane has a GitSource of this name, as far as the file says: it lists the source, or has an
    /// object of the source.
    fn knows(&self, source: &SourceName) -> bool {
        self.source(source.key()).is_some() || self.has_objects_of(source)
    }

    /// Whether it has an object of a source.
    fn has_objects_of(&self, source: &SourceName) -> bool {
        let own = source.label_value();
        let of_kyma = |kyma: &KnownKyma| kyma.labels.get(names::label::SOURCE) == Some(&own);
        let mut catalog =
            self.templates.iter().map(|one| &one.metadata).chain(self.releases.iter().map(|one| &one.metadata));
        self.kymas.iter().any(of_kyma) || catalog.any(|metadata| !is_other(metadata, source))
    }

    /// Whether it has this object, as one of a source.
    fn is_of(&self, source: &SourceName, (kind, key): &intake::Id) -> bool {
        match kind {
            Kind::Kyma => {
                let label = self.kyma(key).and_then(|kyma| kyma.labels.get(names::label::SOURCE));
                label == Some(&source.label_value())
            }
            kind => self.metadata(*kind, key).is_some_and(|metadata| !is_other(metadata, source)),
        }
    }

    /// The annotations with which users have paused rollouts of modules of a source, by ModuleReleaseMeta. What
    /// `declared` has of it is git's.
    pub fn pauses(&self, declared: &Landscape, source: &SourceName) -> Vec<(Key, BTreeMap<String, String>)> {
        let own = self.releases.iter().filter(|release| !is_other(&release.metadata, source));
        let pause = |release: &ModuleReleaseMeta| {
            let key = super::key(&release.metadata);
            let is_of_git = |declared: &Arc<ModuleReleaseMeta>| {
                annotation(&declared.metadata, names::annotation::ROLLOUT_PAUSED).is_some()
            };
            let value = |name: &str| Some((name.to_owned(), annotation(&release.metadata, name)?.to_owned()));
            let paused = value(names::annotation::ROLLOUT_PAUSED)?;
            let all = [Some(paused), value(names::annotation::SUSPENDED)].into_iter().flatten().collect();
            (!declared.releases.get(&key).is_some_and(is_of_git)).then_some((key, all))
        };
        own.filter_map(pause).collect()
    }

    /// Why a GitSource applied nothing; none if it did.
    pub fn idle(&self, source: &Key) -> Option<Idle> {
        let source = source.to_string();
        Idle::new(self.suspended.contains(&source), self.ending.contains(&source))
    }

    /// Reads JSON or YAML.
    ///
    /// # Errors
    ///
    /// Fails if the text is neither, has unknown fields, or contains a Kyma twice. The error quotes no value: the text
    /// may be another file, with secrets.
    pub fn parse(text: &str) -> Result<LandscapeFile, ReadError> {
        if text.trim_start().starts_with('{') {
            // JSON is several times faster to read, which matters for thousands of Kymas.
            return serde_json::from_str(text).map_err(|error| {
                let line = error.line();
                let message = error.to_string();
                let end = message.rfind(" at line ").unwrap_or(message.len());
                ReadError { line, message: yaml::without_values(&message[..end]) }
            });
        }
        yaml::read_own(text)
            .map_err(|error| ReadError { line: error.line as usize, message: yaml::without_values(&error.message) })
    }

    /// Writes JSON with one Kyma a line.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{{\n\"apiVersion\": {},\n\"kind\": {},\n\"written\": {},\n{}\"kymas\": [",
            json(&self.api_version),
            json(&self.kind),
            json(&self.written),
            [("suspended", &self.suspended), ("ending", &self.ending)]
                .into_iter()
                .filter(|(_, sources)| !sources.is_empty())
                .map(|(field, sources)| format!("\"{field}\": {},\n", json(sources)))
                .collect::<String>(),
        );
        for (index, kyma) in self.kymas.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}\n{}", json(kyma));
        }
        text.push_str("\n]");
        lines(&mut text, "sources", &self.sources);
        lines(&mut text, "templates", &self.templates);
        lines(&mut text, "releases", &self.releases);
        lines(&mut text, "modules", &self.modules);
        text.push_str("\n}\n");
        text
    }
}

// === impl KnownSource ===

impl KnownSource {
    fn from_source(source: &GitSource) -> KnownSource {
        let key = super::key(&source.metadata);
        let unconfirmed = source.status.as_ref().filter(|status| intake::status::is_unconfirmed(status));
        let takeovers = intake::status::takeovers(source);
        let modules = takeovers.iter().filter_map(|(id, takeover)| {
            let names = takeover.module.as_ref().filter(|_| takeover.object.is_some())?;
            Some((intake::text(id), names.to_texts()))
        });
        let adopted_modules = modules.collect();
        let adopted = takeovers.values().filter_map(|takeover| takeover.object.as_ref()).map(|object| {
            let mut object = object.value().clone();
            let metadata = serde_json::from_value(object["metadata"].clone()).unwrap_or_default();
            object["metadata"] = serde_json::to_value(deciding(&metadata)).unwrap_or_default();
            object
        });
        KnownSource {
            adopts: takeovers.keys().map(intake::text).collect(),
            adopted: adopted.collect(),
            adopted_modules,
            undeclared: intake::status::undeclared(source).iter().map(intake::text).collect(),
            settings: Some(intake::settings(&source.spec)),
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            unconfirmed: unconfirmed.and_then(|status| status.attempted_revision.clone()),
            held_back: intake::status::held_back(source).iter().map(intake::text).collect(),
            held_back_unnamed: Some(intake::status::unnamed(source)).filter(|&count| 0 < count),
            ..KnownSource::from_spec(&source.spec)
        }
    }

    /// Namespace and name.
    fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// Its spec without what says where its repository is; `None` if the file does not have it.
    pub fn spec(&self) -> Option<GitSourceSpec> {
        let mut spec = self.settings.clone()?;
        spec["url"] = intake::SOME_URL.into();
        serde_json::from_value(spec).ok()
    }

    /// The settings of a spec, without a name.
    pub fn from_spec(spec: &GitSourceSpec) -> KnownSource {
        KnownSource {
            prune: spec.prune,
            prune_limit: spec.prune_limit.clone(),
            removal_limit: spec.removal_limit,
            ..KnownSource::default()
        }
    }

    /// The prune settings, where a field that is not set here is as in `other`.
    ///
    /// # Errors
    ///
    /// Fails if a limit is negative.
    pub fn policy(&self, other: &KnownSource) -> Result<Policy, TermsError> {
        let spec = GitSourceSpec {
            prune: self.prune.or(other.prune),
            prune_limit: self.prune_limit.clone().or_else(|| other.prune_limit.clone()),
            removal_limit: self.removal_limit.or(other.removal_limit),
            ..GitSourceSpec::default()
        };
        intake::policy(&spec, None)
    }
}

// === impl KnownKyma ===

impl KnownKyma {
    /// Converts a Kyma in KCP. `spec` is its effective spec, see [`crate::plan::effective`].
    pub fn from_kyma(kyma: &Kyma, spec: &KymaSpec) -> KnownKyma {
        let key = super::key(&kyma.metadata);
        let deciding = DECIDING
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), annotation(&kyma.metadata, name)?.to_owned())));
        let modules = spec.modules.iter().map(|module| KnownModule {
            name: module.name.clone(),
            channel: module.channel.clone(),
            custom_resource_policy: module.custom_resource_policy,
            managed: module.managed,
        });
        let installed = kyma.status.iter().flat_map(|status| &status.modules).map(|module| InstalledModule {
            name: module.name.clone(),
            channel: module.channel.clone(),
            version: module.version.clone(),
            failed: module.state == State::Error,
        });
        KnownKyma {
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            labels: kyma.metadata.labels.clone().unwrap_or_default(),
            annotations: deciding.collect(),
            channel: spec.channel.clone(),
            modules: modules.collect(),
            installed: installed.collect(),
            paused: BTreeSet::new(),
            behind: BTreeSet::new(),
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    /// The effective spec of the runtime.
    pub fn spec(&self) -> KymaSpec {
        let module = |module: &KnownModule| Module {
            name: module.name.clone(),
            channel: module.channel.clone(),
            controller: None,
            custom_resource_policy: module.custom_resource_policy,
            managed: module.managed,
            remote_module_template_ref: None,
        };
        // The file does not distinguish an empty list from a missing one.
        let modules = self.modules.iter().map(module);
        let modules = if self.modules.is_empty() { Modules::default() } else { modules.collect() };
        KymaSpec { channel: self.channel.clone(), skip_maintenance_windows: false, modules }
    }

    /// The installed modules, from its status.
    pub fn status(&self) -> KymaStatus {
        let module = |module: &InstalledModule| ModuleStatus {
            name: module.name.clone(),
            channel: module.channel.clone(),
            version: module.version.clone(),
            ..ModuleStatus::default()
        };
        KymaStatus { modules: self.installed.iter().map(module).collect(), ..KymaStatus::default() }
    }

    /// A definition of the Kyma as it was before another source takes it over: with the owner, the channel and the
    /// modules that the file knows. What it does not know is as in the definition.
    pub fn before(&self, definition: &Object) -> Object {
        let mut object = definition.clone();
        let owner = [
            ("labels", names::label::SOURCE, self.labels.get(names::label::SOURCE)),
            ("annotations", names::annotation::SOURCE, self.annotations.get(names::annotation::SOURCE)),
            ("annotations", names::annotation::ADOPT, None),
        ];
        for (field, name, value) in owner {
            let Some(all) = object.metadata_mut().get_mut(field).and_then(Value::as_object_mut) else { continue };
            match value {
                Some(value) => drop(all.insert(name.to_owned(), Value::from(value.as_str()))),
                None => drop(all.shift_remove(name)),
            }
        }
        let written = definition.value()["spec"]["modules"].as_array().cloned().unwrap_or_default();
        let module = |known: &KnownModule| {
            let is_it = |one: &&Value| {
                let channel = one["channel"].as_str().filter(|channel| !channel.is_empty());
                one["name"] == *known.name
                    && channel == known.channel.as_deref()
                    && one["managed"].as_bool().unwrap_or(true) == known.managed
            };
            let known = || serde_json::to_value(known).unwrap_or_default();
            written.iter().find(is_it).cloned().unwrap_or_else(known)
        };
        let modules: Vec<Value> = self.modules.iter().map(module).collect();
        if let Some(spec) = object.map_mut().get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("channel".to_owned(), Value::from(self.channel.as_str()));
            if !modules.is_empty() || !written.is_empty() {
                spec.insert("modules".to_owned(), Value::Array(modules));
            }
        }
        object
    }

    /// The Kyma as it is in KCP, as far as the file knows it.
    pub fn to_kyma(&self) -> Kyma {
        let metadata = ObjectMeta {
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            labels: Some(self.labels.clone()).filter(|labels| !labels.is_empty()),
            annotations: Some(self.annotations.clone()).filter(|annotations| !annotations.is_empty()),
            ..ObjectMeta::default()
        };
        Kyma { metadata, spec: self.spec(), status: Some(self.status()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{
"apiVersion": "tidegate.dev/v1alpha1",
"kind": "Landscape",
"written": "2026-11-20T10:00:00Z",
"kymas": [
{"namespace":"kcp-system","name":"a","labels":{"operator.kyma-project.io/beta":"true"},"channel":"regular","modules":[{"name":"keda"},{"name":"serverless","channel":"fast","managed":false}],"installed":[{"name":"keda","channel":"regular","version":"1.2.0"}]},
{"namespace":"kcp-system","name":"b","channel":"fast"}
]
}
"#;

    #[test]
    fn what_is_written_is_read_again_byte_for_byte() {
        let file = LandscapeFile::parse(FILE).unwrap();
        assert_eq!(file.kymas.len(), 2);
        assert_eq!(file.to_text(), FILE);
    }

    #[test]
    fn modules_that_are_paused_or_behind_are_written_where_there_are_some() {
        let mut file = LandscapeFile::parse(FILE).unwrap();
        file.kymas[1].paused = ["keda", "must"].map(str::to_owned).into();
        file.kymas[1].behind = ["keda".to_owned()].into();
        let text = file.to_text();
        let line =
            r#"{"namespace":"kcp-system","name":"b","channel":"fast","paused":["keda","must"],"behind":["keda"]}"#;
        assert!(text.contains(line), "{text}");
        assert_eq!(LandscapeFile::parse(&text).unwrap(), file);
    }

    #[test]
    fn yaml_is_read_as_well() {
        let yaml = "\
apiVersion: tidegate.dev/v1alpha1
kind: Landscape
written: 2026-11-20T10:00:00Z
kymas:
- {namespace: kcp-system, name: b, channel: fast}
- namespace: kcp-system
  name: a
  labels: {operator.kyma-project.io/beta: 'true'}
  channel: regular
  modules: [{name: keda}, {name: serverless, channel: fast, managed: false}]
  installed: [{name: keda, channel: regular, version: 1.2.0}]
";
        assert_eq!(LandscapeFile::parse(yaml).unwrap(), LandscapeFile::parse(FILE).unwrap());
    }

    #[test]
    fn a_kyma_survives_the_file() {
        let file = LandscapeFile::parse(FILE).unwrap();
        let kyma = file.kymas[0].to_kyma();
        assert_eq!(KnownKyma::from_kyma(&kyma, &kyma.spec), file.kymas[0]);
    }

    /// An object of the catalog in KCP, with what the API server adds.
    fn in_kcp<T: serde::de::DeserializeOwned>(kind: &str, name: &str, source: &str, spec: &str) -> T {
        let text = format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: kcp-system\n  \
             uid: 3f0e\n  labels: {{tidegate.dev/source: kcp-system.{source}, team: secret-project}}\n  annotations: \
             {{tidegate.dev/source: kcp-system/{source}, note: x, tidegate.dev/module-tree: \
             c15cab3d04ec92b416507419d7124ec912699dc9}}\nspec: {spec}\n"
        );
        serde_yaml::from_str(&text).unwrap()
    }

    #[test]
    fn the_catalog_of_others_completes_what_a_source_declares() {
        let template = |name: &str, source: &str| {
            in_kcp("ModuleTemplate", name, source, "{moduleName: keda, version: 1.0.0, descriptor: {}}")
        };
        let release =
            "{moduleName: keda, ocmComponentName: example.org/keda, channels: [{channel: fast, version: 1.0.0}]}";
        let file = LandscapeFile::parse(FILE).unwrap().with_catalog(
            vec![template("keda-1.0.0", "modules"), template("own-1.0.0", "kymas")],
            vec![in_kcp("ModuleReleaseMeta", "keda", "modules", release)],
        );
        let text = file.to_text();
        assert!(!text.contains("secret-project") && !text.contains("3f0e") && !text.contains("note"), "{text}");
        let read = LandscapeFile::parse(&text).unwrap();
        assert_eq!((&read, read.to_text()), (&file, text));
        let key = |name: &str| Key::new("kcp-system", name);
        let source = SourceName::new(key("kymas"));
        let channels = Channels::Known(BTreeSet::from(["fast".to_owned()]));
        let elsewhere = file.elsewhere(&source);
        assert_eq!(elsewhere.templates, BTreeSet::from([key("keda-1.0.0")]), "not what it declares itself");
        assert_eq!(elsewhere.releases, BTreeMap::from([(key("keda"), channels)]));
        let mut landscape = Landscape::default();
        file.complete(&mut landscape, &source);
        let digest = annotation(&landscape.templates[&key("keda-1.0.0")].metadata, names::annotation::MODULE_TREE);
        assert_eq!(digest, Some("c15cab3d04ec92b416507419d7124ec912699dc9"));
        assert_eq!((landscape.templates.len(), landscape.releases.len()), (1, 1));
        let owner = |name: &str| file.owner(Kind::ModuleTemplate, &key(name), &source);
        assert_eq!(owner("keda-1.0.0"), Some(Owner::Source(SourceName::new(key("modules")))));
        assert_eq!((owner("own-1.0.0"), owner("absent")), (None, None));
        // What another source declares as well stays, whatever this one declares.
        let heir = |name: &str| KnownSource {
            namespace: "kcp-system".to_owned(),
            name: name.to_owned(),
            held_back: vec!["ModuleTemplate kcp-system/own-1.0.0".to_owned()],
            ..KnownSource::default()
        };
        for (heir, stays) in [(heir("kymas"), false), (heir("modules"), true)] {
            let file = LandscapeFile { sources: vec![heir], ..file.clone() };
            assert_eq!(file.elsewhere(&source).templates.contains(&key("own-1.0.0")), stays);
            let mut landscape = Landscape::default();
            file.complete(&mut landscape, &source);
            assert_eq!(landscape.templates.contains_key(&key("own-1.0.0")), stays);
        }
    }

    #[test]
    fn a_kyma_without_a_label_is_of_a_user_and_another_label_counts_once_the_name_is_known() {
        let key = |name: &str| Key::new("kcp-system", name);
        let source = SourceName::new(key("kymas"));
        let labelled = |name: &str, source: &str| KnownKyma {
            namespace: "kcp-system".to_owned(),
            name: name.to_owned(),
            labels: [(names::label::SOURCE.to_owned(), format!("kcp-system.{source}"))].into(),
            ..KnownKyma::default()
        };
        let mut file = LandscapeFile::parse(FILE).unwrap();
        file.kymas.push(labelled("c", "other"));
        let owner = |file: &LandscapeFile, name: &str| file.owner(Kind::Kyma, &key(name), &source);
        assert_eq!((owner(&file, "a"), owner(&file, "absent")), (Some(Owner::User), None));
        assert_eq!(owner(&file, "c"), None, "the name of the source may be an assumption");
        let listed =
            KnownSource { namespace: "kcp-system".to_owned(), name: "kymas".to_owned(), ..KnownSource::default() };
        let with_list = LandscapeFile { sources: vec![listed], ..file.clone() };
        let other = Owner::Source(SourceName::new(key("other")));
        assert_eq!(owner(&with_list, "c"), Some(other), "it is the name of a GitSource");
        file.kymas.push(labelled("d", "kymas"));
        assert_eq!((owner(&file, "a"), owner(&file, "d")), (Some(Owner::User), None));
        assert_eq!(owner(&file, "c"), Some(Owner::Source(SourceName::new(key("other")))));
    }

    #[test]
    fn a_repository_without_kymas_is_not_that_of_the_kymas() {
        let named = |name: &str| KnownSource {
            namespace: "kcp-system".to_owned(),
            name: name.to_owned(),
            ..KnownSource::default()
        };
        let mut file = LandscapeFile::parse(FILE).unwrap();
        file.kymas[0].labels.insert(names::label::SOURCE.to_owned(), "kcp-system.kymas".to_owned());
        let declared = |sources: &[&str], declares: &[(Kind, Key)]| {
            let sources = sources.iter().map(|name| named(name)).collect();
            let declares =
                |is_meant: &dyn Fn(Kind, &Key) -> bool| declares.iter().any(|(kind, key)| is_meant(*kind, key));
            LandscapeFile { sources, ..file.clone() }.only_source(declares).map(|source| source.to_string())
        };
        let kyma = |name: &str| (Kind::Kyma, Key::new("kcp-system", name));
        let only = |sources: &[&str], declares_kymas: bool| {
            let kymas = [kyma("new")];
            declared(sources, &kymas[..usize::from(declares_kymas)])
        };
        let is = |name: &str| Some(format!("kcp-system/{name}"));
        assert_eq!((only(&[], true), only(&[], false)), (is("kymas"), is("kymas")), "a file of a former version");
        assert_eq!(only(&["landscape"], false), is("landscape"));
        assert_eq!(only(&["kymas", "modules"], true), is("kymas"));
        assert_eq!(only(&["kymas", "modules"], false), None);
        // The only source has objects: a repository without any of them is another one.
        let known = kyma(&file.kymas[0].name);
        assert_eq!(declared(&["kymas"], &[kyma("new"), known]), is("kymas"));
        assert_eq!((only(&["kymas"], true), only(&["kymas"], false)), (None, None));
        let holds = KnownSource { held_back: vec!["Kyma kcp-system/new".to_owned()], ..named("kymas") };
        let holding = LandscapeFile { sources: vec![holds], ..file.clone() };
        let source = holding.only_source(|is_meant: &dyn Fn(Kind, &Key) -> bool| is_meant(Kind::Kyma, &kyma("new").1));
        assert_eq!(source.map(|source| source.to_string()), is("kymas"));
    }

    #[test]
    fn what_a_source_takes_over_is_known_without_labels_of_customers() {
        let object = json(&serde_json::json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"name": "a", "namespace": "kcp-system", "annotations": {"tidegate.dev/adopt": "true", "note": "secret-note"},
                "labels": {"kyma-project.io/global-account-id": "customer", "tidegate.dev/source": "kcp-system.heir"}},
            "spec": {"channel": "fast", "modules": [{"name": "keda"}]},
        }));
        let source: GitSource = serde_json::from_value(serde_json::json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": "heir", "namespace": "kcp-system"}, "spec": {"url": "https://example.org/a"},
            "status": {
                "withheld": [
                    {"kind": "Kyma", "namespace": "kcp-system", "name": "a", "path": "a.yaml", "line": 1, "message": "m",
                     "adopts": true, "object": object},
                    {"kind": "Kyma", "namespace": "kcp-system", "name": "b", "path": "b.yaml", "line": 1, "message": "m",
                     "adopts": true},
                    {"kind": "Kyma", "namespace": "kcp-system", "name": "c", "path": "c.yaml", "line": 1, "message": "m"},
                ],
                "undeclared": [{"kind": "Kyma", "namespace": "kcp-system", "name": "d"}],
            },
        }))
        .unwrap();
        let text = LandscapeFile::parse(FILE).unwrap().with_sources([&source]).to_text();
        assert!(!text.contains("customer") && !text.contains("secret-note"), "{text}");
        let file = LandscapeFile::parse(&text).unwrap();
        let (heir, id) =
            (SourceName::new(Key::new("kcp-system", "heir")), |name| (Kind::Kyma, Key::new("kcp-system", name)));
        let Takeover::Changes(Some(object)) = file.takeover(&id("a"), &heir) else { panic!("it is known") };
        assert_eq!(object.value()["spec"]["channel"], "fast");
        assert_eq!(file.takeover(&id("b"), &heir), Takeover::Changes(None));
        assert_eq!(file.takeover(&id("c"), &heir), Takeover::Stays);
        assert!(file.is_undeclared(&id("d"), &heir) && !file.is_undeclared(&id("a"), &heir));
        let suspended = LandscapeFile { suspended: vec![heir.to_string()], ..file };
        assert_eq!(suspended.takeover(&id("a"), &heir), Takeover::Stays, "a suspended source takes nothing over");
        let both = LandscapeFile { ending: vec![heir.to_string()], ..suspended.clone() };
        let read = LandscapeFile::parse(&both.to_text()).unwrap();
        let idle = [&suspended, &both, &read].map(|file| file.idle(heir.key()));
        assert_eq!(idle, [Idle::Suspended, Idle::SuspendedEnding, Idle::SuspendedEnding].map(Some));
    }

    #[track_caller]
    fn check_error(text: &str, line: usize, expected: &str) {
        let error = LandscapeFile::parse(text).unwrap_err();
        assert!(error.message.contains(expected), "{error:?}");
        assert_eq!(error.line, line, "{error:?}");
        assert!(!error.message.contains('\n'), "{error:?}");
    }

    #[test]
    fn bad_files_are_refused_in_one_sentence() {
        check_error(&FILE.replace("v1alpha1", "v9"), 2, "`apiVersion` is not `tidegate.dev/v1alpha1`");
        check_error(&FILE.replace("\"Landscape\"", "\"Secret\""), 3, "`kind` is not `Landscape`");
        check_error(&FILE.replace("2026-11-20T10:00:00Z", "yesterday"), 4, "`written` is not an RFC 3339 timestamp");
        check_error(&FILE.replace("\"managed\"", "\"manged\""), 6, "unknown field `manged`");
        check_error(&FILE.replace("\"name\":\"b\"", "\"name\":\"B\""), 7, "`B` is not allowed in a name");
        check_error(&FILE.replace("\"name\":\"b\"", "\"name\":\"a\""), 9, "Kyma kcp-system/a is in the file twice");
        check_error("kind: Landscape\nkymas: [\n", 3, "");
        check_error("", 1, "missing field");
    }

    /// A script, a certificate or a configuration that is named by mistake.
    #[test]
    fn a_wrong_file_is_not_quoted() {
        for text in [
            "import hush, hush\n",
            "export HUSH=\"hush: hush\"\n",
            "- hush\n- hush: 5\n",
            "\"hush\"",
            "{\"hush hush\": 1}",
            "apiVersion: hush\n",
            "kind: hush\n",
            "written: hush\n",
            "kymas: hush\n",
            "kymas: [{namespace: Hush}]\n",
        ] {
            let message = LandscapeFile::parse(text).unwrap_err().message;
            assert!(!message.to_ascii_lowercase().contains("hush"), "{message}");
        }
    }
}
