//! Compares two revisions of a repository without a cluster.
//!
//! Objects are not rendered first and compared later: equal parts are found by their inputs.
//! Runtimes with equal settings, channels, versions and templates on both sides are skipped. For
//! the others, each distinct pair of an old and a new part is compared once, independent of the
//! number of runtimes. [`Comparison::look`] may run on several threads, each for a part of the
//! runtimes; the result does not depend on the partition.
//!
//! Each side is what the control plane would contain: the new side keeps the old version of
//! definitions that are held back, and deletions follow the daemon's prune rules. The old side is
//! assumed to be active, so the downgrade guard of the new side sees its versions.

mod found;
mod held;
mod leaves;
mod modules;
mod overlap;
mod parts;
mod places;
mod runtime;
mod settle;
mod unfit;
mod unknown;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

pub(super) use self::leaves::leaves;
pub use self::places::Lines;
use self::{
    found::{FoundDifferences, Hit, Runtime},
    held::HeldBy,
    modules::{Bucket, Pair},
    overlap::Overlaps,
    settle::{Handed, InUse, Replaced},
};
use super::{
    clean::{self, Draft},
    mask::{MaskKey, Masker},
    model::{Effect, Groups, Held, Move, Report, Runtimes, Side, Subject},
    names::Names,
    policy::Labels,
};
use tidegate_core::{
    api::{Kyma, names::annotation},
    content::ContentId,
    definition::{Definition, Definitions, Kind, ModuleObjects},
    diagnostic::{Diagnostics, FilePosition},
    immutable::Context,
    intake::{self, Id, Installed, Loss, Policy, Standing},
    landscape::{
        self, Idle, Landscape, ResumeBy, SourceName,
        file::{KnownKyma, LandscapeFile, Owner, as_taken_over},
    },
    name::Key,
    object::{Object, ObjectId},
    plan::{
        self, Class, Components, InstallSource, Installation, InstalledModules, ModuleOutcome, Offer, PolicyAt,
        Settings, Windows,
    },
    render::offline::{Assumptions, Inputs, Outline, Rendered, SetupPart, TargetName},
    snapshot::Snapshot,
    template::{Library, Template},
};

/// One of two revisions.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// Its files, for finding lines.
    pub snapshot: &'a Snapshot,
    /// Its definitions.
    pub definitions: &'a Definitions,
    /// Its templates.
    pub library: &'a Library,
}

/// The inputs of a comparison.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The old side.
    pub from: Given<'a>,
    /// The new side.
    pub to: Given<'a>,
    /// Whether the new side has errors, so that nothing is pruned.
    pub errors: bool,
    /// The source of both sides.
    pub source: &'a SourceName,
    /// The prune settings of the GitSource.
    pub policy: &'a Policy,
    /// Kymas that git does not declare, what is installed, and the catalog of other sources.
    pub known: Option<&'a LandscapeFile>,
    /// Only this target; all if `None`.
    pub target: Option<&'a TargetName>,
    /// Values that replace placeholders.
    pub assumptions: &'a Assumptions,
    /// What the plan depends on besides definitions.
    pub settings: &'a Settings,
    /// What is known of components in registries.
    pub components: &'a Components,
    /// The policy of maintenance windows; `None` if none is known. Then upgrades are compared as if a window were open.
    pub maintenance: Option<&'a PolicyAt>,
    /// The masker of Secrets' values.
    pub mask: &'a MaskKey,
    /// Whether digests of secret values are replaced by numbers, because the key differs in every
    /// run.
    pub numbers: bool,
    /// Why nothing of the new side takes effect, because of the GitSource; none if it does.
    pub idle: Option<Idle>,
    /// What ends the suspension of the GitSource.
    pub resume_by: ResumeBy,
}

/// Both landscapes, the inputs of a [`Comparison`].
pub struct Prepared {
    old: Landscape,
    new: Landscape,
    settled: settle::Settled,
    /// Kymas of the landscape file by key.
    known: HashMap<Key, KnownKyma>,
    /// The Kymas that git declares on one of the sides.
    declared: BTreeSet<Key>,
    /// Modules of other repositories, of which only the names of the objects are known.
    outlines: BTreeMap<ContentId, Arc<ModuleObjects>>,
    /// What the control plane has of modules in git according to the landscape file, by ModuleTemplate.
    contents: Arc<BTreeMap<Key, ContentId>>,
    /// What is active until a user confirms what waits; `None` if nothing waits.
    until_confirmed: Option<Box<Prepared>>,
}

/// Two landscapes, ready to be compared runtime by runtime. Several threads may read it at once.
pub struct Comparison<'a> {
    request: Request<'a>,
    prepared: &'a Prepared,
    old: Outline<'a>,
    new: Outline<'a>,
    /// The same for what is active until a user confirms what waits.
    until_confirmed: Option<Box<Comparison<'a>>>,
    old_classes: BTreeMap<Class, u32>,
    new_classes: BTreeMap<Class, u32>,
    /// The compared runtimes of either side.
    keys: Vec<Key>,
    /// The number of all runtimes.
    total: usize,
    /// Modules with a different release or version, by namespace and name.
    touched: BTreeSet<Key>,
    /// By whether the Kyma is from the source.
    templates: [TemplateChanges; 2],
    overlaps: Overlaps,
    diagnostics: Diagnostics,
}

/// Differences in the templates of a Kyma.
#[derive(Clone, Debug, Default)]
struct TemplateChanges {
    manifest: Option<Option<FilePosition>>,
    kyma: Option<Option<FilePosition>>,
    /// A template for Manifests reads names of the runtime, so its output may differ for each.
    individual: bool,
}

/// The findings for some of the runtimes.
#[derive(Default)]
pub struct Seen {
    found: FoundDifferences,
    buckets: BTreeMap<Pair, Bucket>,
    classes: BTreeMap<(Option<u32>, Option<u32>), Vec<Runtime>>,
    held: BTreeMap<HeldBy, (Vec<Runtime>, Option<FilePosition>)>,
    /// Runtimes that reject a custom resource, by its position in the list of rejected ones.
    refused: BTreeMap<usize, Vec<Runtime>>,
    /// Suspended runtimes.
    suspended: usize,
    /// Runtimes with the module installed, by module and offer: on the old side and on the new
    /// one.
    on_offer: BTreeMap<(Key, Offer), (usize, usize)>,
    /// Runtimes that select their own modules, which are unknown.
    deciding: Vec<Runtime>,
    /// Runtimes that selected their own modules before, which are unknown.
    decided: Vec<Runtime>,
    /// What could not be compared: module and reason, with the runtimes.
    unknown: BTreeMap<String, Vec<Runtime>>,
    diagnostics: Diagnostics,
    /// The findings for what is active until a user confirms what waits.
    until_confirmed: Option<Box<Seen>>,
}

/// Compares on one thread.
pub fn compare(request: Request<'_>, diagnostics: Diagnostics, subject: Subject) -> Draft {
    let prepared = Prepared::new(&request);
    let comparison = Comparison::new(request, &prepared);
    let seen = comparison.look(0..comparison.runtimes());
    comparison.finish(seen, diagnostics, subject)
}

// === impl Prepared ===

impl Prepared {
    /// Decides what will be active on the new side, and parses both sides.
    pub fn new(request: &Request<'_>) -> Prepared {
        let prepared = Prepared::keeping(request, &InUse::new(), &Replaced::new());
        let settled = &prepared.settled;
        if settled.in_use.is_empty() && settled.losing.is_empty() {
            return prepared;
        }
        // Whether runtimes replace a version that git no longer has, or that loses objects, is known once their modules
        // are.
        let comparison = Comparison::new(*request, &prepared);
        let (stays_in_use, replaced) = (comparison.stays_in_use(), comparison.replaced());
        if stays_in_use.is_empty() && replaced.is_empty() {
            return prepared;
        }
        Prepared::keeping(request, &stays_in_use, &replaced)
    }

    /// As [`Prepared::new`], where runtimes keep some versions that git no longer has, and get others in place of those
    /// that lose objects.
    fn keeping(request: &Request<'_>, stays_in_use: &InUse, replaced: &Replaced) -> Prepared {
        let Request { from, to, source, .. } = *request;
        let known: HashMap<Key, KnownKyma> =
            request.known.iter().flat_map(|file| &file.kymas).map(|kyma| (kyma.key(), kyma.clone())).collect();
        // Definitions that pass the schema but do not parse as Tidegate's types are among the diagnostics of the new
        // outline's landscape.
        let mut unread = Diagnostics::default();
        let complete = |landscape: &mut Landscape| {
            if let Some(file) = request.known {
                file.complete(landscape, source);
            }
        };
        let mut old = Landscape::from_definitions(&mut unread, from.definitions, source);
        complete(&mut old);
        last_good(&mut old, from.definitions, request);
        let pauses = request.known.map(|file| file.pauses(&old, source)).unwrap_or_default();
        pause(&mut old, &pauses);
        let around = settle::Around {
            errors: request.errors,
            source,
            policy: request.policy,
            known: request.known,
            before: &|| with_known(&old, &known),
            installed: &|landscape: &Landscape| installed(landscape, request, &known),
            settings: request.settings,
            stays_in_use,
            replaced,
        };
        let settled = settle::settle(from.definitions, to.definitions, &around);
        let mut read = |definitions: &Definitions, handed: &BTreeMap<Id, Handed>| {
            let mut new = Landscape::following(&mut unread, definitions, source, Some((from.definitions, &old)));
            handed.iter().for_each(|(id, handed)| handed.insert(id, &mut new));
            complete(&mut new);
            last_good(&mut new, to.definitions, request);
            pause(&mut new, &pauses);
            new
        };
        let mut new = read(&settled.definitions, &settled.handed);
        let handed_at_once = settled.handed_at_once();
        let mut until = settled
            .until_confirmed(from.definitions)
            .map(|definitions| (read(&definitions, &handed_at_once), definitions));
        take_over(&mut old, &new, from.definitions, request);
        let kymas = |side: &Definitions| -> Vec<Key> {
            side.good.keys().filter(|(kind, _)| *kind == Kind::Kyma).map(|(_, key)| key.clone()).collect()
        };
        let of_git = [from.definitions, to.definitions].into_iter().flat_map(kymas).collect::<BTreeSet<Key>>();
        let declared = |key: &Key| old.kymas.contains_key(key) || new.kymas.contains_key(key);
        let elsewhere: Vec<(Key, Arc<Kyma>)> = known
            .iter()
            .filter(|(key, _)| !declared(key))
            .map(|(key, known)| (key.clone(), Arc::new(known.to_kyma())))
            .collect();
        for (key, kyma) in elsewhere {
            for landscape in [&mut old, &mut new].into_iter().chain(until.as_mut().map(|(landscape, _)| landscape)) {
                landscape.kymas.insert(key.clone(), Arc::clone(&kyma));
            }
        }
        let outlines = request.known.map(LandscapeFile::outlines).unwrap_or_default();
        let contents = Arc::new(request.known.map(LandscapeFile::contents).unwrap_or_default());
        let until_confirmed = until.map(|(landscape, definitions)| {
            let settled = settle::Settled {
                definitions,
                unconfirmed: BTreeSet::new(),
                held: Vec::new(),
                in_use: BTreeMap::new(),
                losing: Vec::new(),
                handed: handed_at_once,
                conflicts: BTreeMap::new(),
            };
            let (old, known, outlines) = (old.clone(), known.clone(), outlines.clone());
            let contents = Arc::clone(&contents);
            let declared = of_git.clone();
            Box::new(Prepared {
                old,
                new: landscape,
                settled,
                known,
                declared,
                outlines,
                contents,
                until_confirmed: None,
            })
        });
        Prepared { old, new, settled, known, declared: of_git, outlines, contents, until_confirmed }
    }
}

impl Prepared {
    /// The modules with another release, version or content on the new side that are in state `Error` in runtimes
    /// according to the landscape file, with these runtimes.
    pub fn failed_modules(&self) -> BTreeMap<Key, BTreeSet<Key>> {
        let touched = touched(&self.old, &self.new);
        let mut failed: BTreeMap<Key, BTreeSet<Key>> = BTreeMap::new();
        for (key, kyma) in &self.known {
            for module in kyma.installed.iter().filter(|module| module.failed) {
                let module = Key::new(key.namespace(), &module.name);
                if touched.contains(&module) {
                    failed.entry(module).or_default().insert(key.clone());
                }
            }
        }
        failed
    }

    /// Whether a runtime has a module as the old side declares it, according to the landscape file: in this version,
    /// and not in state `Error`. The file may be older than the application of the old side, whenever that was
    /// committed. So what the control plane has of a module in git must be what the old side declares. In a registry, a
    /// version has one content.
    fn has_applied(&self, runtime: &Key, installation: &Installation) -> bool {
        let is_in_control_plane = match &installation.source {
            InstallSource::Git { .. } => self.contents.get(&installation.template) == Some(&installation.content()),
            InstallSource::Oci(_) => true,
        };
        let known = is_in_control_plane.then(|| self.known.get(runtime)).flatten();
        // The control plane may have had it before the runtime.
        let known = known.filter(|known| !known.behind.contains(&installation.module));
        let installed = known.and_then(|known| known.installed.iter().find(|one| one.name == installation.module));
        installed.is_some_and(|one| !one.failed && one.version.as_deref() == Some(installation.version.as_str()))
    }

    /// Whether something waits for a confirmation by a user.
    pub fn waits(&self) -> bool {
        !self.settled.unconfirmed.is_empty()
    }

    /// The labels of all runtimes; the new ones if a runtime is on both sides.
    pub fn labels(&self) -> Labels {
        let kymas = self.old.kymas.iter().chain(&self.new.kymas);
        let labels: Labels =
            kymas.map(|(key, kyma)| (key.clone(), kyma.metadata.labels.clone().unwrap_or_default())).collect();
        let is_written = |key: &&Key| !self.declared.contains(*key);
        let partly = self.known.keys().filter(is_written).cloned().collect();
        let exported = self.known.values().flat_map(|known| known.labels.keys()).cloned().collect();
        labels.with_partly(partly, exported)
    }
}

/// Adds the annotations with which users have paused rollouts: no apply removes them.
fn pause(landscape: &mut Landscape, pauses: &[(Key, BTreeMap<String, String>)]) {
    for (key, annotations) in pauses {
        let Some(release) = landscape.releases.get_mut(key) else { continue };
        let all = Arc::make_mut(release).metadata.annotations.get_or_insert_default();
        for (name, value) in annotations {
            all.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Adds what a side holds back as the control plane has it.
fn last_good(landscape: &mut Landscape, definitions: &Definitions, request: &Request<'_>) {
    for withheld in &definitions.withheld {
        let known = request.known.and_then(|file| file.last_good(withheld.kind, &withheld.key, request.source));
        let release = known.and_then(|object| serde_json::from_value(object.into_value()).ok());
        if let Some(release) = release {
            landscape.releases.entry(withheld.key.clone()).or_insert_with(|| Arc::new(release));
        }
    }
}

/// Adds to the old side the Kymas of other sources and of users that the new side takes over.
fn take_over(old: &mut Landscape, new: &Landscape, from: &Definitions, request: &Request<'_>) {
    let Some(file) = request.known else { return };
    for known in &file.kymas {
        let id = (Kind::Kyma, known.key());
        let is_new = !from.good.contains_key(&id) && request.to.definitions.good.contains_key(&id);
        if is_new && new.kymas.contains_key(&id.1) && file.owner(id.0, &id.1, request.source).is_some() {
            old.kymas.insert(id.1, Arc::new(known.to_kyma()));
        }
    }
}

/// A landscape with the Kymas that git does not declare.
fn with_known(landscape: &Landscape, known: &HashMap<Key, KnownKyma>) -> Landscape {
    let mut all = landscape.clone();
    for (key, known) in known {
        all.kymas.entry(key.clone()).or_insert_with(|| Arc::new(known.to_kyma()));
    }
    all
}

/// The modules of runtimes according to a landscape. What runtimes themselves select is among `known`, and the versions
/// that the downgrade guard keeps.
fn installed(landscape: &Landscape, request: &Request<'_>, known: &HashMap<Key, KnownKyma>) -> Vec<Installed> {
    let mut all = Vec::new();
    for (key, kyma) in &landscape.kymas {
        let (before, windows) = (InstalledModules::default(), Windows::Unknown);
        let (components, settings) = (request.components, request.settings);
        let known = known.get(key);
        let spec = plan::effective(kyma, known.map(KnownKyma::spec).as_ref());
        let kyma = match known {
            Some(known) => Cow::Owned(Kyma { status: Some(known.status()), ..Kyma::clone(kyma) }),
            None => Cow::Borrowed(&**kyma),
        };
        let kept = |module: &str| {
            let kept = known?.installed.iter().find(|kept| kept.name == module)?;
            kept.version.clone().filter(|version| !version.is_empty())
        };
        let plan = plan::runtime(landscape, components, &kyma, &spec, settings, &before, windows);
        for module in plan.into_deciding() {
            let version = match module.outcome {
                ModuleOutcome::Install(installation) => Some(installation.version),
                ModuleOutcome::Refuse(refusal) if refusal.keep => kept(&module.name),
                ModuleOutcome::Refuse(_) | ModuleOutcome::Wait(_) | ModuleOutcome::Unmanage => None,
            };
            let standing = match module.offer {
                Offer::Channel(_) => Standing::Selected,
                Offer::Mandatory => Standing::Mandatory,
            };
            let installed =
                version.map(|version| Installed { runtime: key.clone(), module: module.name, version, standing });
            all.extend(installed);
        }
    }
    all
}

// === impl Comparison ===

impl<'a> Comparison<'a> {
    /// Renders what runtimes share on both sides.
    pub fn new(request: Request<'a>, prepared: &'a Prepared) -> Comparison<'a> {
        let Request { from, to, source, assumptions, settings, components, .. } = request;
        let mut diagnostics = Diagnostics::default();
        let inputs = |definitions, landscape, library| Inputs {
            definitions,
            landscape,
            components,
            source,
            library,
            assumptions,
            settings,
        };
        let old = Outline::new(&mut Diagnostics::default(), inputs(from.definitions, &prepared.old, from.library));
        let new = Outline::new(&mut diagnostics, inputs(&prepared.settled.definitions, &prepared.new, to.library));
        let keys: BTreeSet<&Key> = prepared.old.kymas.keys().chain(prepared.new.kymas.keys()).collect();
        let total = keys.len();
        let wanted = |key: &&&Key| match request.target {
            Some(TargetName::Runtime(wanted)) => wanted == **key,
            Some(TargetName::Kcp) | None => true,
        };
        let number = |classes: &Outline<'_>| classes.classes().cloned().zip(0..).collect();
        let changes = |source: Option<&SourceName>| TemplateChanges::from_request(request, source);
        Comparison {
            old_classes: number(&old),
            new_classes: number(&new),
            keys: keys.iter().filter(wanted).map(|key| Key::clone(key)).collect(),
            total,
            touched: touched(&prepared.old, &prepared.new),
            templates: [changes(None), changes(Some(source))],
            overlaps: Overlaps::between(
                [from.definitions, &prepared.settled.definitions],
                [&prepared.old, &prepared.new],
                components,
            ),
            until_confirmed: prepared.until_confirmed.as_deref().map(|until| Box::new(Comparison::new(request, until))),
            request,
            prepared,
            old,
            new,
            diagnostics,
        }
    }

    /// The versions that git no longer has and that runtimes do not replace now, because they are suspended or wait.
    fn stays_in_use(&self) -> InUse {
        let kept = |losses: &Vec<Loss>| -> BTreeSet<Key> {
            let keeping = losses.iter().filter(|loss| runtime::keeps_version(self, loss));
            keeping.map(|loss| loss.runtime.clone()).collect()
        };
        let all = self.prepared.settled.in_use.iter().map(|(id, losses)| (id.clone(), kept(losses)));
        all.filter(|(_, runtimes)| !runtimes.is_empty()).collect()
    }

    /// The versions that runtimes get in place of those that lose objects, without a confirmation.
    fn replaced(&self) -> Replaced {
        let at_once = self.until_confirmed.as_deref().unwrap_or(self);
        let replaced = |loss: &Loss| {
            let (module, before) = loss.module.split_once(' ')?;
            let version = runtime::version_after(at_once, &loss.runtime, module)?;
            (version != before).then(|| ((loss.runtime.clone(), module.to_owned()), version))
        };
        self.prepared.settled.losing.iter().filter_map(replaced).collect()
    }

    /// The number of runtimes.
    pub fn runtimes(&self) -> usize {
        self.keys.len()
    }

    /// Compares some runtimes, by their positions.
    pub fn look(&self, runtimes: std::ops::Range<usize>) -> Seen {
        let mut seen = Seen::default();
        for index in runtimes {
            if let (Some(key), Ok(runtime)) = (self.keys.get(index), Runtime::try_from(index)) {
                runtime::look(self, key, runtime, &mut seen);
            }
        }
        seen
    }

    /// The report from all findings. `diagnostics` are those of the new side.
    pub fn finish(mut self, mut seen: Seen, mut diagnostics: Diagnostics, subject: Subject) -> Draft {
        let mut lines = [Lines::new(self.request.from.snapshot), Lines::new(self.request.to.snapshot)];
        let mut outlined = std::mem::take(&mut self.diagnostics);
        let shown = self.complete(&mut seen, &mut lines, &mut outlined);
        if let Some(until) = &self.until_confirmed {
            let mut earlier = seen.until_confirmed.take().map(|earlier| *earlier).unwrap_or_default();
            // What is wrong with it is wrong with the new side as well.
            until.complete(&mut earlier, &mut lines, &mut Diagnostics::default());
            seen.follow(earlier);
        }
        diagnostics.append(outlined);
        diagnostics.append(std::mem::take(&mut seen.diagnostics));
        let side = match self.request.target {
            Some(TargetName::Kcp) => Some(Side::ControlPlane),
            Some(TargetName::Runtime(_)) | None => None,
        };
        let mut masker = Masker::new(self.request.mask.clone());
        clean::meet(&mut masker, &[self.request.from.definitions, self.request.to.definitions]);
        self.keys.iter().for_each(|key| masker.is_name(key.name()));
        let found = std::mem::take(&mut seen.found).into_differences(&self.keys, side, &mut masker, self.request);
        let (total, compared) = (self.total, self.keys.len() - seen.suspended - seen.decided.len());
        let moves = self.moves(&seen);
        let differences: Vec<_> = found.into_iter().map(|(difference, _)| difference).collect();
        let unknown = unknown::all(&self, &seen, &differences, &shown);
        let mut report = Report {
            subject,
            runtimes: Runtimes { total, compared, ..Runtimes::default() },
            moves,
            held: self.held(seen.held),
            unknown,
            diagnostics: diagnostics.sorted(),
            unreached: Vec::new(),
            checked: Vec::new(),
            findings: Vec::new(),
            groups: Groups::default(),
            differences,
        };
        report.count_runtimes();
        Draft::new(report, masker, self.request.numbers)
    }

    /// Adds what does not depend on single runtimes. Returns the generated objects of the control plane.
    fn complete(&self, seen: &mut Seen, lines: &mut [Lines<'_>; 2], diagnostics: &mut Diagnostics) -> Vec<Object> {
        let shown = self.control_plane(seen, diagnostics);
        modules::finish(self, seen, lines);
        parts::finish(self, seen);
        self.tell_refused(seen);
        shown
    }

    /// Compares the objects of the control plane that do not depend on runtimes: definitions, VirtualServices, and
    /// what kcp landscapes consist of. Returns those that are generated.
    fn control_plane(&self, seen: &mut Seen, diagnostics: &mut Diagnostics) -> Vec<Object> {
        let (from, to) = (&self.request.from.definitions.good, &self.prepared.settled.definitions.good);
        let ids: BTreeSet<&Id> = from.keys().chain(to.keys()).collect();
        for id in ids {
            let (old, new) = (from.get(id), to.get(id));
            let same = old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
            if same || !self.is_wanted(id) || self.prepared.settled.handed.contains_key(id) {
                continue;
            }
            let runtime = if id.0 == Kind::Kyma { self.position(&id.1) } else { None };
            seen.found.add(self.definition(id, old, new), runtime.as_slice());
        }
        for (id, handed) in self.prepared.settled.handed.iter().filter(|(id, _)| self.is_wanted(id)) {
            let runtime = if id.0 == Kind::Kyma { self.position(&id.1) } else { None };
            match &handed.after {
                Some(after) => seen.found.add(self.handed(id, &handed.before, after), runtime.as_slice()),
                None => {
                    let what = format!("content that another GitSource gives {}", intake::text(id));
                    seen.unknown.entry(what).or_default().extend(runtime);
                }
            }
        }
        for (id, owner) in self.prepared.settled.conflicts.iter().filter(|(id, _)| self.is_wanted(id)) {
            let runtime = if id.0 == Kind::Kyma { self.position(&id.1) } else { None };
            let Some(definition) = self.request.to.definitions.good.get(id) else { continue };
            let is_left = || self.request.known.is_some_and(|known| known.is_left(id, self.request.source));
            let owner = match owner {
                Owner::Source(source) => format!("GitSource {source}"),
                Owner::User if is_left() => format!("a former GitSource with the same name ({})", self.request.source),
                Owner::User => "another client".to_owned(),
            };
            let hit = Hit {
                effect: Effect::Held,
                places: vec![definition.place.clone()],
                owner: Some(owner),
                ..self.definition(id, None, Some(definition))
            };
            seen.found.add(hit, runtime.as_slice());
        }
        match self.request.target {
            Some(TargetName::Runtime(_)) => Vec::new(),
            Some(TargetName::Kcp) | None => {
                let mut shown = self.virtual_services(seen, diagnostics);
                shown.extend(self.setup(seen, diagnostics));
                shown
            }
        }
    }

    /// Whether a definition is part of the comparison.
    fn is_wanted(&self, id: &Id) -> bool {
        match self.request.target {
            Some(TargetName::Runtime(key)) => *id == (Kind::Kyma, key.clone()),
            Some(TargetName::Kcp) | None => true,
        }
    }

    fn definition(&self, id: &Id, old: Option<&Arc<Definition>>, new: Option<&Arc<Definition>>) -> Hit {
        let object = |definition: &Arc<Definition>| shown(landscape::stamp(definition, self.request.source));
        let place = match (old, new) {
            (Some(old), Some(new)) => Some(places::of_definition(old, new)),
            (old, new) => new.or(old).map(|definition| definition.place.clone()),
        };
        Hit {
            side: Side::ControlPlane,
            effect: self.effect(id),
            old: old.map(object).or_else(|| self.taken_over(id, &object(new?))),
            new: new.map(object),
            places: place.into_iter().collect(),
            maker: None,
            own: Names::new([(id.1.to_string(), "key"), (id.1.name().to_owned(), "name")]),
            owner: None,
            moves: false,
            context: Context::default(),
        }
    }

    /// An object that another source takes over with other content.
    fn handed(&self, id: &Id, before: &Object, after: &Object) -> Hit {
        Hit {
            side: Side::ControlPlane,
            effect: self.effect(id),
            old: Some(shown(before.clone())),
            new: Some(shown(after.clone())),
            places: self.place_of(id).into_iter().collect(),
            maker: None,
            own: Names::new([(id.1.to_string(), "key"), (id.1.name().to_owned(), "name")]),
            owner: None,
            moves: false,
            context: Context::default(),
        }
    }

    /// The object of a user or of another source that a new definition takes over: of a Kyma, as far as the file knows
    /// it.
    fn taken_over(&self, id: &Id, new: &Object) -> Option<Object> {
        let known = self.request.known?;
        if self.request.from.definitions.withheld.iter().any(|withheld| (withheld.kind, &withheld.key) == (id.0, &id.1))
        {
            // What the old side held back is there as it was before.
            let before = known.last_good(id.0, &id.1, self.request.source);
            return before.map(|before| shown(as_taken_over(new, &before)));
        }
        known.owner(id.0, &id.1, self.request.source)?;
        if id.0 == Kind::Kyma {
            return known.kyma(&id.1).map(|kyma| shown(kyma.before(new)));
        }
        known.object(id.0, &id.1).map(shown)
    }

    fn virtual_services(&self, seen: &mut Seen, diagnostics: &mut Diagnostics) -> Vec<Object> {
        let old: BTreeMap<_, _> = self.old.virtual_services(&mut Diagnostics::default()).into_iter().collect();
        let new: BTreeMap<_, _> = self.new.virtual_services(diagnostics).into_iter().collect();
        let keys: BTreeSet<&Key> = old.keys().chain(new.keys()).collect();
        for key in keys {
            let (old, new) = (old.get(key), new.get(key));
            let id = (Kind::Watcher, key.clone());
            // A declared object that cannot be rendered stays as it is.
            if new.is_none() && self.prepared.settled.definitions.good.contains_key(&id) {
                continue;
            }
            let template = Template::VirtualService;
            let place = self.place_of(&id).or_else(|| self.template_place(template));
            seen.found.add(
                Hit {
                    side: Side::ControlPlane,
                    effect: self.effect(&id),
                    old: old.map(|rendered| rendered.object.clone()),
                    new: new.map(|rendered| rendered.object.clone()),
                    places: place.into_iter().collect(),
                    maker: Some(template.name()),
                    own: Names::default(),
                    owner: None,
                    moves: false,
                    context: Context::default(),
                },
                &[],
            );
        }
        new.into_values().map(|rendered| rendered.object).collect()
    }

    /// Compares what kcp landscapes consist of.
    fn setup(&self, seen: &mut Seen, diagnostics: &mut Diagnostics) -> Vec<Object> {
        let (old, new) = (self.old.setup(&mut Diagnostics::default()), self.new.setup(diagnostics));
        let complete: BTreeSet<&Id> = new.iter().filter(|part| part.is_complete).map(|part| &part.id).collect();
        let (before, after) = (by_id(&old), by_id(&new));
        let ids: BTreeSet<&ObjectId> = before.keys().chain(after.keys()).collect();
        for object in ids {
            let (old, new) = (before.get(object), after.get(object));
            let Some((id, rendered)) = new.or(old) else { continue };
            // An object of a declared resource that cannot be rendered stays as it is.
            let is_declared = self.prepared.settled.definitions.good.contains_key(id);
            if new.is_none() && is_declared && !complete.contains(id) {
                continue;
            }
            let maker = rendered.maker;
            let place = self.place_of(id).or_else(|| self.template_place(Template::named(maker?)?));
            seen.found.add(
                Hit {
                    side: Side::ControlPlane,
                    effect: self.effect(id),
                    old: old.map(|(_, rendered)| rendered.object.clone()),
                    new: new.map(|(_, rendered)| rendered.object.clone()),
                    // Another resource of the landscape may be the cause.
                    places: place.map_or_else(|| rendered.places.clone(), |place| vec![place]),
                    maker,
                    own: Names::default(),
                    owner: None,
                    moves: false,
                    context: Context::default(),
                },
                &[],
            );
        }
        new.into_iter().flat_map(|part| part.objects).map(|rendered| rendered.object).collect()
    }

    /// The place where a definition differs; `None` if it does not.
    fn place_of(&self, id: &Id) -> Option<FilePosition> {
        let (from, to) = (&self.request.from.definitions.good, &self.prepared.settled.definitions.good);
        match (from.get(id), to.get(id)) {
            (Some(old), Some(new))
                if Arc::ptr_eq(old, new) || (old.digest == new.digest && old.module == new.module) =>
            {
                None
            }
            (Some(old), Some(new)) => Some(places::of_definition(old, new)),
            (old, new) => new.or(old).map(|definition| definition.place.clone()),
        }
    }

    /// The place where the text of a definition differs; `None` if it does not, regardless of its
    /// references.
    fn changed_text(&self, id: &Id) -> Option<FilePosition> {
        let (from, to) = (&self.request.from.definitions.good, &self.prepared.settled.definitions.good);
        let (old, new) = (from.get(id)?, to.get(id)?);
        (old.digest != new.digest).then(|| places::of_definition(old, new))
    }

    /// The module of a ModuleTemplate on either side.
    fn module_of(&self, template: &Key) -> Option<String> {
        let (old, new) = (&self.prepared.old.templates, &self.prepared.new.templates);
        new.get(template).or_else(|| old.get(template))?.spec.module_name.clone()
    }

    /// The place where a template of the source differs.
    fn template_place(&self, template: Template) -> Option<FilePosition> {
        let source = Some(self.request.source);
        let (before, after) = (self.request.from.library.of_source(source), self.request.to.library.of_source(source));
        after.differs(before, template).flatten()
    }

    /// Whether a user must confirm the change of a definition.
    fn effect(&self, id: &Id) -> Effect {
        if self.prepared.settled.unconfirmed.contains(id) { Effect::NeedsConfirmation } else { Effect::Applies }
    }

    fn position(&self, key: &Key) -> Option<Runtime> {
        self.keys.binary_search(key).ok().and_then(|index| Runtime::try_from(index).ok())
    }

    fn moves(&self, seen: &Seen) -> Vec<Move> {
        let (old, new) = (&self.prepared.old.releases, &self.prepared.new.releases);
        let releases: BTreeSet<&Key> = old.keys().chain(new.keys()).collect();
        let mut moves = Vec::new();
        for key in releases {
            let versions =
                |landscape: &BTreeMap<Key, Arc<tidegate_core::api::ModuleReleaseMeta>>| -> BTreeMap<Offer, String> {
                    let offers = landscape.get(key).into_iter().flat_map(|release| plan::offers(release));
                    offers.map(|(offer, version)| (offer, version.to_owned())).collect()
                };
            let (before, after) = (versions(old), versions(new));
            let offers: BTreeSet<&Offer> = before.keys().chain(after.keys()).collect();
            for offer in offers {
                let (from, to) = (before.get(offer), after.get(offer));
                if from == to {
                    continue;
                }
                let side = if to.is_some() { &self.new } else { &self.old };
                let release = side.definition(Kind::ModuleReleaseMeta, key);
                let (before, after) = seen.on_offer.get(&(key.clone(), offer.clone())).copied().unwrap_or_default();
                moves.push(Move {
                    module: key.clone(),
                    channel: offer.to_string(),
                    from: from.cloned(),
                    to: to.cloned(),
                    runtimes: if to.is_some() { after } else { before },
                    place: release.and_then(|release| places::offer(release, offer)),
                });
            }
        }
        moves
    }

    fn held(&self, by: BTreeMap<HeldBy, (Vec<Runtime>, Option<FilePosition>)>) -> Vec<Held> {
        let runtimes = |indices: Vec<Runtime>| -> Arc<[Key]> {
            let mut indices = indices;
            indices.sort_unstable();
            indices.dedup();
            indices.iter().filter_map(|index| self.keys.get(*index as usize).cloned()).collect()
        };
        let mut held: Vec<Held> = by
            .into_iter()
            .map(|(by, (indices, place))| Held {
                why: by.why,
                module: by.module,
                runtimes: runtimes(indices),
                message: by.message,
                hint: by.hint,
                place,
            })
            .collect();
        held.extend(self.prepared.settled.held.iter().cloned());
        let Request { source, idle, resume_by, .. } = self.request;
        held.extend(idle.map(|idle| Held::source_idle(source, idle, resume_by)));
        held.sort_by(|a, b| {
            (&*a.runtimes, &a.module, a.why, &a.message).cmp(&(&*b.runtimes, &b.module, b.why, &b.message))
        });
        held
    }
}

/// An object of the control plane without what repeats the differences of its other fields, and without the path of its
/// file: a file that moves causes no write.
fn shown(mut object: Object) -> Object {
    if let Some(annotations) = object.metadata_mut().get_mut("annotations").and_then(|all| all.as_object_mut()) {
        annotations.shift_remove(annotation::DIGEST);
        annotations.shift_remove(annotation::PATH);
    }
    object
}

/// Objects of kcp landscapes by id, with the resource that each belongs to.
fn by_id(parts: &[SetupPart]) -> BTreeMap<ObjectId, (&Id, &Rendered)> {
    let all = parts.iter().flat_map(|part| part.objects.iter().map(move |rendered| (&part.id, rendered)));
    all.map(|(id, rendered)| (rendered.object.id(), (id, rendered))).collect()
}

/// Modules with a different release or version.
pub fn touched(old: &Landscape, new: &Landscape) -> BTreeSet<Key> {
    let mut touched = BTreeSet::new();
    differing(&old.releases, &new.releases, |key, _| {
        touched.insert(key.clone());
    });
    differing(&old.templates, &new.templates, |key, template| {
        if let Some(module) = &template.spec.module_name {
            touched.insert(Key::new(key.namespace(), module));
        }
    });
    touched
}

fn differing<T: PartialEq>(old: &BTreeMap<Key, Arc<T>>, new: &BTreeMap<Key, Arc<T>>, mut take: impl FnMut(&Key, &T)) {
    for (key, before) in old {
        if new.get(key).is_none_or(|after| !Arc::ptr_eq(before, after) && before != after) {
            take(key, before);
        }
    }
    for (key, after) in new {
        if old.get(key).is_none_or(|before| !Arc::ptr_eq(before, after) && before != after) {
            take(key, after);
        }
    }
}

// === impl TemplateChanges ===

impl TemplateChanges {
    fn from_request(request: Request<'_>, source: Option<&SourceName>) -> TemplateChanges {
        let (old, new) = (request.from.library.of_source(source), request.to.library.of_source(source));
        let names = ["kyma", "name"];
        let individual = |templates: &tidegate_core::template::Templates| {
            names.iter().any(|name| templates.may_use(Template::Manifest, name))
        };
        TemplateChanges {
            manifest: new.differs(old, Template::Manifest),
            kyma: new.differs(old, Template::Kyma),
            individual: individual(old) || individual(new),
        }
    }
}

// === impl Seen ===

impl Seen {
    /// Adds the findings for later runtimes.
    pub fn append(&mut self, other: Seen) {
        self.found.append(other.found);
        for (pair, bucket) in other.buckets {
            match self.buckets.get_mut(&pair) {
                Some(known) => known.append(bucket),
                None => {
                    self.buckets.insert(pair, bucket);
                }
            }
        }
        for (classes, runtimes) in other.classes {
            self.classes.entry(classes).or_default().extend(runtimes);
        }
        for (by, (runtimes, place)) in other.held {
            let known = self.held.entry(by).or_insert_with(|| (Vec::new(), place));
            known.0.extend(runtimes);
        }
        for (key, (before, after)) in other.on_offer {
            let count = self.on_offer.entry(key).or_default();
            *count = (count.0 + before, count.1 + after);
        }
        for (index, runtimes) in other.refused {
            self.refused.entry(index).or_default().extend(runtimes);
        }
        self.suspended += other.suspended;
        self.deciding.extend(other.deciding);
        self.decided.extend(other.decided);
        for (what, runtimes) in other.unknown {
            self.unknown.entry(what).or_default().extend(runtimes);
        }
        self.diagnostics.append(other.diagnostics);
        if let Some(until) = other.until_confirmed {
            self.until_confirmed.get_or_insert_default().append(*until);
        }
    }

    /// Adds what takes effect at once to what takes effect after a confirmation.
    fn follow(&mut self, earlier: Seen) {
        self.found = std::mem::take(&mut self.found).after_confirmation(earlier.found);
        for (by, (runtimes, place)) in earlier.held {
            self.held.entry(by).or_insert_with(|| (Vec::new(), place)).0.extend(runtimes);
        }
        for (what, runtimes) in earlier.unknown {
            let known = self.unknown.entry(what).or_default();
            known.extend(runtimes);
            known.sort_unstable();
            known.dedup();
        }
    }
}

#[cfg(test)]
mod tests;
