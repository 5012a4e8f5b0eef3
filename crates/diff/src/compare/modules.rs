//! Compares the modules of runtimes: each distinct pair of an old and a new installation once, with
//! all its runtimes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    Comparison, Hit, Lines, Names, Runtime, Seen, TemplateChanges,
    held::HeldBy,
    overlap::{Clash, Fate, Other},
    places::{self, PLACES_MAX},
    runtime::Half,
};
use tidegate_core::{
    api::{
        Kyma,
        names::{SKR_NAMESPACE, label},
        shared::CustomResourcePolicy,
    },
    changes::{self, Purpose, Verdict},
    content::ContentId,
    definition::Kind,
    diagnostic::FilePosition,
    immutable::{Context, Growth},
    landscape::Landscape,
    name::Key,
    object::{Object, ObjectId},
    plan::{Installation, Offer},
    render::{
        CompleteModule, SharedObject, is_in_every_runtime,
        offline::{Outline, default_resource},
    },
    template::Template,
};

use crate::model::{Effect, Side, Why};

/// Everything that determines an installation on both sides, except the runtime's own names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    old: Option<Wish>,
    new: Option<Wish>,
    effect: Effect,
    /// Objects that other modules of the runtime also contain.
    clashes: Vec<Clash>,
    /// Objects that the runtime rejects.
    refused: BTreeSet<ObjectId>,
    is_unmanaged: bool,
    /// Whether only its Manifest changes, because it is paused.
    is_paused: bool,
    /// Whether the rendered objects may differ between runtimes.
    is_individual: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    class: u32,
    module: String,
    offer: Offer,
    makes_resource: bool,
    is_declared: bool,
}

/// One pair, and its runtimes.
///
/// For thousands of runtimes only their positions are stored. The objects of the first one
/// represent all, see [`Has::for_kyma`].
pub(super) struct Bucket {
    old: Option<Has>,
    new: Option<Has>,
    /// The first one represents all.
    runtimes: Vec<Runtime>,
    /// Lines in Kymas that cause the difference.
    wishes: Vec<FilePosition>,
    /// The Manifests of modules that share objects with this one, in the first runtime.
    manifests: BTreeMap<String, Key>,
}

/// What a module shares with others of its runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared<'a> {
    pub(super) clashes: Vec<Clash>,
    /// Objects that the runtime rejects, because another module defines their kind differently.
    pub(super) refused: BTreeSet<ObjectId>,
    /// The Manifests of modules with common objects.
    pub(super) manifests: Option<&'a BTreeMap<String, Key>>,
    /// Whether the Manifest of the module is paused, so that nothing of it changes in the runtime.
    pub(super) is_paused: bool,
}

/// An installation of a runtime on one side.
pub(super) struct Installed<'a> {
    pub(super) half: &'a Half<'a>,
    pub(super) installation: &'a Installation,
}

/// An owned installation.
pub(super) struct Has {
    kyma: Arc<Kyma>,
    installation: Installation,
    class: u32,
    is_declared: bool,
}

/// Namespaces that every runtime has.
const NAMESPACES: [&str; 6] =
    ["default", "istio-system", "kube-node-lease", "kube-public", "kube-system", SKR_NAMESPACE];
/// An unknown value begins with this if it is a namespace.
pub(super) const NAMESPACE: &str = "namespace";

/// The differing objects of two contents.
type Differing = Arc<Vec<(Option<SharedObject>, Option<SharedObject>)>>;
/// Both contents of a module, and whether the name of its Manifest changes.
type Contents = (Option<ContentId>, Option<ContentId>, bool);

/// Records that a runtime has this pair.
pub(super) fn record(
    comparison: &Comparison<'_>,
    seen: &mut Seen,
    runtime: Runtime,
    (old, new): (Option<Has>, Option<Has>),
    (effect, shared): (Effect, Shared<'_>),
    wish: Option<FilePosition>,
) {
    note(comparison, seen, runtime, (old, new), (effect, false, shared), wish);
}

/// Records that a runtime manages a module itself from now on.
pub(super) fn unmanage(
    comparison: &Comparison<'_>,
    seen: &mut Seen,
    runtime: Runtime,
    old: Option<Has>,
    (shared, wish): (Shared<'_>, Option<FilePosition>),
) {
    note(comparison, seen, runtime, (old, None), (Effect::Applies, true, shared), wish);
}

fn note(
    comparison: &Comparison<'_>,
    seen: &mut Seen,
    runtime: Runtime,
    (old, new): (Option<Has>, Option<Has>),
    (effect, is_unmanaged, shared): (Effect, bool, Shared<'_>),
    wish: Option<FilePosition>,
) {
    let is_individual = [&old, &new].into_iter().flatten().any(|has| has.is_individual(comparison));
    let pair = Pair {
        old: old.as_ref().map(Has::wish),
        new: new.as_ref().map(Has::wish),
        effect,
        clashes: shared.clashes,
        refused: shared.refused,
        is_unmanaged,
        is_paused: shared.is_paused,
        is_individual,
    };
    let manifests = || shared.manifests.cloned().unwrap_or_default();
    let bucket = seen.buckets.entry(pair).or_insert_with(|| Bucket {
        old,
        new,
        runtimes: Vec::new(),
        wishes: Vec::new(),
        manifests: manifests(),
    });
    bucket.runtimes.push(runtime);
    if bucket.wishes.len() < PLACES_MAX {
        bucket.wishes.extend(wish);
    }
}

/// Compares the objects of each pair.
pub(super) fn finish(comparison: &Comparison<'_>, seen: &mut Seen, lines: &mut [Lines<'_>; 2]) {
    let mut known: HashMap<Contents, Differing> = HashMap::new();
    for (pair, bucket) in std::mem::take(&mut seen.buckets) {
        let changes = bucket.template_changes(comparison);
        let causes = bucket.causes(comparison);
        let contents = bucket.contents();
        if !pair.is_paused {
            objects_elsewhere(comparison, seen, &bucket);
        }
        let differing = Arc::clone(known.entry(contents).or_insert_with(|| Arc::new(differing(comparison, contents))));
        let mut work = Work { comparison, seen, lines, pair: &pair, bucket: &bucket };
        let edited = work.edited(&differing);
        let mut of_manifest = if causes.is_empty() { edited.into_iter().collect() } else { causes.clone() };
        of_manifest.extend(changes.and_then(|changes| changes.manifest.clone()).flatten());
        work.rendered(|work, one| work.manifest(one, &of_manifest));
        match (pair.is_paused, pair.is_unmanaged) {
            (true, _) => {}
            (false, true) => work.released(&differing, &causes),
            (false, false) => {
                work.objects(&differing, &causes);
                work.clashes(&differing, &causes);
                work.rendered(|work, one| work.default_resource(one, &causes));
            }
        }
    }
}

/// Records that objects of a module are not known, because another source declares them, and may differ.
fn objects_elsewhere(comparison: &Comparison<'_>, seen: &mut Seen, bucket: &Bucket) {
    let (old, new, renamed) = bucket.contents();
    if (old == new && !renamed) || is_known(comparison, (old, new)) {
        return;
    }
    let installed = bucket.new.as_ref().or(bucket.old.as_ref());
    let module = installed.map_or("", |has| &has.installation.module);
    let what = format!("objects in another source, of module {module}");
    seen.unknown.entry(what).or_default().extend(&bucket.runtimes);
}

/// The objects that leave, by name, of a module that another source declares on one side or on both. None if the names
/// of a side are not known either. What changes and what comes is not known.
fn leaving_by_name(
    comparison: &Comparison<'_>,
    (old, new, _): Contents,
) -> Vec<(Option<SharedObject>, Option<SharedObject>)> {
    let module = |outline: &Outline<'_>, content: ContentId| {
        let named = || comparison.prepared.outlines.get(&content).map(|module| CompleteModule::new(module));
        outline.module(content).or_else(named)
    };
    let Some(before) = old.and_then(|content| module(&comparison.old, content)) else { return Vec::new() };
    let after = match new {
        Some(content) => match module(&comparison.new, content) {
            Some(after) => Some(after),
            None => return Vec::new(),
        },
        None => None,
    };
    let after: BTreeSet<&ObjectId> =
        after.iter().flat_map(|module| &module.objects().objects).map(|object| &object.id).collect();
    let leaving = before.objects().objects.iter().filter(|object| !after.contains(&object.id));
    leaving.map(|object| (Some(object.clone()), None)).collect()
}

/// Whether the objects of both sides are known.
fn is_known(comparison: &Comparison<'_>, (old, new): (Option<ContentId>, Option<ContentId>)) -> bool {
    old.is_none_or(|content| comparison.old.module(content).is_some())
        && new.is_none_or(|content| comparison.new.module(content).is_some())
}

/// The differing objects, by id. If those of a side are not known, the ones that leave by their names: all of them
/// would seem to go or to come.
fn differing(
    comparison: &Comparison<'_>,
    (old, new, renamed): Contents,
) -> Vec<(Option<SharedObject>, Option<SharedObject>)> {
    if old == new && !renamed {
        return Vec::new();
    }
    if !is_known(comparison, (old, new)) {
        return leaving_by_name(comparison, (old, new, renamed));
    }
    let objects = |module: Option<CompleteModule>| -> BTreeMap<ObjectId, SharedObject> {
        let objects = module.iter().flat_map(|module| &module.objects().objects);
        objects.map(|object| (object.id.clone(), object.clone())).collect()
    };
    let before = objects(old.and_then(|content| comparison.old.module(content)));
    let mut after = objects(new.and_then(|content| comparison.new.module(content)));
    let mut differing = Vec::new();
    for (id, old) in before {
        match after.remove(&id) {
            Some(new) if new.digest == old.digest && !renamed => {}
            new => differing.push((Some(old), new)),
        }
    }
    differing.extend(after.into_values().map(|new| (None, Some(new))));
    differing
}

/// The common part of some runtimes of a pair.
struct Part<'b> {
    old: Option<&'b Has>,
    new: Option<&'b Has>,
    runtimes: &'b [Runtime],
    own: Names,
}

/// One pair in progress.
struct Work<'w, 'a, 'l> {
    comparison: &'w Comparison<'a>,
    seen: &'w mut Seen,
    lines: &'w mut [Lines<'l>; 2],
    pair: &'w Pair,
    bucket: &'w Bucket,
}

// === impl Work ===

impl Work<'_, '_, '_> {
    /// Calls a function once for all runtimes, or for each if their objects may differ.
    fn rendered(&mut self, mut act: impl FnMut(&mut Self, &Part<'_>)) {
        let bucket = self.bucket;
        if !self.pair.is_individual {
            let (old, new) = (bucket.old.as_ref(), bucket.new.as_ref());
            act(self, &Part { old, new, runtimes: &bucket.runtimes, own: bucket.own() });
            return;
        }
        let prepared = self.comparison.prepared;
        for runtime in &bucket.runtimes {
            let Some(key) = self.comparison.keys.get(*runtime as usize) else { continue };
            let old = bucket.old.as_ref().and_then(|has| has.for_kyma(&prepared.old, key));
            let new = bucket.new.as_ref().and_then(|has| has.for_kyma(&prepared.new, key));
            let (old, new) = (old.as_ref(), new.as_ref());
            let own = Names::new([old, new].into_iter().flatten().flat_map(Has::texts));
            act(self, &Part { old, new, runtimes: std::slice::from_ref(runtime), own });
        }
    }

    fn hit(
        &mut self,
        part: &Part<'_>,
        side: Side,
        objects: (Option<Object>, Option<Object>),
        places: &[FilePosition],
        maker: Option<Template>,
    ) {
        let hit = Hit { own: part.own.clone(), ..self.one(side, objects, places.to_vec(), maker) };
        self.seen.found.add(hit, part.runtimes);
    }

    fn one(
        &self,
        side: Side,
        (old, new): (Option<Object>, Option<Object>),
        places: Vec<FilePosition>,
        maker: Option<Template>,
    ) -> Hit {
        let is_refused = side == Side::Runtime && new.as_ref().is_some_and(|new| self.pair.refused.contains(&new.id()));
        Hit {
            side,
            effect: if is_refused { Effect::Held } else { self.pair.effect },
            old,
            new,
            places,
            maker: maker.map(Template::name),
            own: self.bucket.own(),
            owner: None,
            moves: false,
            context: Context::default(),
        }
    }

    fn manifest(&mut self, part: &Part<'_>, places: &[FilePosition]) {
        // An object that the old side could not render never existed.
        let before = part.old.and_then(|has| self.comparison.old.manifest(&has.kyma, &has.installation).ok());
        let after = match part.new.map(|has| self.comparison.new.manifest(&has.kyma, &has.installation)).transpose() {
            Ok(after) => after,
            Err(error) => {
                self.seen.diagnostics.push(error.diagnostic());
                return;
            }
        };
        let maker = Some(Template::Manifest);
        match (before, after) {
            // A Manifest with another name is another object.
            (Some(before), Some(after)) if before.id() != after.id() => {
                self.hit(part, Side::ControlPlane, (Some(before), None), places, maker);
                self.hit(part, Side::ControlPlane, (None, Some(after)), places, maker);
            }
            objects => self.hit(part, Side::ControlPlane, objects, places, maker),
        }
    }

    /// The first changed line in the module's own files.
    fn edited(&mut self, differing: &Differing) -> Option<FilePosition> {
        let both = self.bucket.old.is_some() && self.bucket.new.is_some();
        // If a file was only removed, its line on the old side is the place.
        let changed = differing.iter().find(|(_, new)| new.is_some()).or_else(|| differing.first());
        changed.filter(|_| both).and_then(|changed| self.line(changed))
    }

    fn objects(&mut self, differing: &Differing, causes: &[FilePosition]) {
        let gone = self.gone(differing);
        let is_blocked = self.pair.clashes.iter().any(|clash| matches!(clash.fate, Fate::Theirs(_)));
        let mut hits = Vec::new();
        for pair in differing.iter() {
            let (old, new) = pair;
            if self.clash(old, new).is_some() {
                continue;
            }
            if let (Some(old), None) = (old, new)
                && !gone.contains(&old.id)
            {
                continue;
            }
            let object = |shared: &Option<SharedObject>, has: &Option<Has>| {
                Some(shared.as_ref()?.object(&has.as_ref()?.manifest()))
            };
            let objects = (object(old, &self.bucket.old), object(new, &self.bucket.new));
            let mut places = causes.to_vec();
            places.extend(self.line(pair));
            let mut hit = self.one(Side::Runtime, objects, places, None);
            hit.context = self.context(&hit);
            self.namespace(&hit);
            self.assigned(&hit);
            hits.push(hit);
        }
        let refused = hits.iter().find_map(|hit| hit.new.as_ref().filter(|_| hit.is_refused())).map(Object::id);
        // While an object is in conflict or refused, nothing of its module is pruned.
        let is_held = |hit: &Hit| (is_blocked || refused.is_some()) && hit.new.is_none();
        if let (Some(id), Some(has)) = (&refused, &self.bucket.new)
            && let Some(hit) = hits.iter().find(|hit| is_held(hit))
        {
            let place = hit.places.last().cloned();
            self.seen.hold(HeldBy::prunes(&has.installation.module, id), &self.bucket.runtimes, || place);
        }
        for hit in hits {
            let effect = if is_held(&hit) { Effect::Held } else { hit.effect };
            self.add(Hit { effect, ..hit });
        }
    }

    /// Adds a difference of the runtimes of this pair. Those in which the old side is known to be applied are apart, if
    /// that matters.
    fn add(&mut self, hit: Hit) {
        let Some(has) = self.bucket.old.as_ref().filter(|_| hit.overdue().is_some()) else {
            self.seen.found.add(hit, &self.bucket.runtimes);
            return;
        };
        let is_applied = |runtime: &Runtime| {
            let key = self.comparison.keys.get(*runtime as usize);
            key.is_some_and(|key| self.comparison.prepared.has_applied(key, &has.installation))
        };
        let (applied, others): (Vec<Runtime>, Vec<Runtime>) =
            self.bucket.runtimes.iter().partition(|runtime| is_applied(runtime));
        let known = Hit { context: hit.context.clone().applied(), ..hit.clone() };
        if !applied.is_empty() {
            self.seen.found.add(known, &applied);
        }
        if !others.is_empty() {
            self.seen.found.add(hit, &others);
        }
    }

    /// The objects of a module that its runtime manages itself from now on: they stay, without the ownership label. One
    /// that another module takes over is that one's.
    fn released(&mut self, differing: &Differing, causes: &[FilePosition]) {
        let Some(has) = &self.bucket.old else { return };
        let owner = has.manifest();
        let pair = self.pair;
        let goes = |id: &ObjectId| pair.clashes.iter().any(|clash| clash.id == *id && clash.fate == Fate::Goes);
        let is_left = |old: &&SharedObject| !is_in_every_runtime(&old.id) && !goes(&old.id);
        for old in differing.iter().filter_map(|(old, _)| old.as_ref()).filter(is_left) {
            let before = old.object(&owner);
            let mut after = before.clone();
            if let Some(labels) = after.metadata_mut().get_mut("labels").and_then(|labels| labels.as_object_mut()) {
                labels.shift_remove(label::MANAGED_BY);
            }
            let hit = self.one(Side::Runtime, (Some(before), Some(after)), causes.to_vec(), None);
            self.seen.found.add(hit, &self.bucket.runtimes);
        }
    }

    /// What the new side of the module says about an object that changes. Whether a claim may grow is not known if the
    /// module does not contain its StorageClass.
    fn context(&mut self, hit: &Hit) -> Context {
        let (Some(old), Some(new), Some(has)) = (&hit.old, &hit.new, &self.bucket.new) else {
            return Context::default();
        };
        let Some(module) = self.comparison.new.module(has.content()) else { return Context::default() };
        let (gvk, old, id) = (new.gvk(), old.value(), new.id());
        let context = Context::in_module(&gvk, new.value(), &module.objects().objects);
        for growth in context.growth(&gvk, old, new.value()) {
            let module = &has.installation.module;
            let what = match growth {
                Growth::Class => format!("StorageClass that decides whether {id} may grow, of module {module}"),
                Growth::Binding => format!(
                    "whether {id} of module {module} is bound: before that, the API server refuses another size"
                ),
            };
            self.seen.unknown.entry(what).or_default().extend(&self.bucket.runtimes);
        }
        let former = hit.old.as_ref().map_or_else(|| gvk.clone(), Object::gvk);
        if context.converts(&former, &gvk) {
            let module = &has.installation.module;
            let what =
                format!("content of {id} of module {module} in version {}, which a webhook may convert", gvk.version);
            self.seen.unknown.entry(what).or_default().extend(&self.bucket.runtimes);
        }
        context
    }

    /// Reports what a new declaration of a Service omits and the API server keeps.
    fn assigned(&mut self, hit: &Hit) {
        let (Some(old), Some(new), Some(has)) = (&hit.old, &hit.new, &self.bucket.new) else { return };
        let by_table = changes::kept_fields(&new.gvk(), old.value(), new.value());
        for field in by_table {
            let by = HeldBy::assigned(&has.installation.module, &new.id(), &field);
            let place = hit.places.last().cloned();
            self.seen.hold(by, &self.bucket.runtimes, || place);
        }
    }

    /// Whether the namespace of a new object exists is not known, unless its module had objects there before, or
    /// creates it. If it does not, the API server refuses the object.
    fn namespace(&mut self, hit: &Hit) {
        let (None, Some(new), Some(has)) = (&hit.old, &hit.new, &self.bucket.new) else { return };
        let id = new.id();
        if id.namespace.is_empty() || NAMESPACES.contains(&&*id.namespace) {
            return;
        }
        let before = self.bucket.old.as_ref().and_then(|has| self.comparison.old.module(has.content()));
        let had =
            before.iter().flat_map(|module| &module.objects().objects).any(|one| one.id.namespace == id.namespace);
        let after = self.comparison.new.module(has.content());
        let is_created =
            |one: &SharedObject| (&*one.id.group, &*one.id.kind, &one.id.name) == ("", "Namespace", &id.namespace);
        if !had && !after.iter().flat_map(|module| &module.objects().objects).any(is_created) {
            let module = &has.installation.module;
            let what = format!(
                "{NAMESPACE} {} in the runtime, which module {module} does not create: if it does not exist, its objects \
                 are refused, and nothing of the module is pruned",
                id.namespace
            );
            self.seen.unknown.entry(what).or_default().extend(&self.bucket.runtimes);
        }
    }

    fn clash(&self, old: &Option<SharedObject>, new: &Option<SharedObject>) -> Option<&Clash> {
        let id = &new.as_ref().or(old.as_ref())?.id;
        self.pair.clashes.iter().find(|clash| clash.id == *id)
    }

    /// Objects that other modules own or release.
    fn clashes(&mut self, differing: &Differing, causes: &[FilePosition]) {
        let Some(has) = self.bucket.new.as_ref() else { return };
        let Some(mine) = self.comparison.new.module(has.content()) else { return };
        let pair = self.pair;
        for clash in &pair.clashes {
            let (Fate::Theirs(other) | Fate::Comes(other) | Fate::Adopts(other)) = &clash.fate else { continue };
            let is_edited = differing.iter().any(|(old, new)| self.clash(old, new) == Some(clash));
            let Some(wanted) = mine.objects().objects.iter().find(|object| object.id == clash.id) else { continue };
            if !clash.is_news && !is_edited {
                continue;
            }
            let mut places = causes.to_vec();
            places.extend(self.comparison.new.module_source(has.content(), wanted).map(|source| source.place.clone()));
            let objects = (self.of_other(other, &clash.id), Some(wanted.object(&has.manifest())));
            let mut hit = self.one(Side::Runtime, objects, places, None);
            match &clash.fate {
                Fate::Theirs(other) => {
                    hit.owner = Some(format!("module {}", other.module));
                    hit.effect = Effect::Held;
                    let module = &has.installation.module;
                    let by = if other.is_released {
                        HeldBy::left_to_the_user(module, &clash.id, &other.module)
                    } else {
                        HeldBy::conflict(module, &clash.id, &other.module)
                    };
                    let place = hit.places.last().cloned();
                    self.seen.hold(by, &self.bucket.runtimes, || place);
                }
                Fate::Comes(other) => {
                    hit.moves = true;
                    if other.next.is_some_and(|next| self.is_refused(other.content, next)) {
                        hit.effect = Effect::Held;
                        let place = hit.places.last().cloned();
                        self.seen.hold(HeldBy::stays(&other.module, &clash.id), &self.bucket.runtimes, || place);
                    }
                }
                Fate::Adopts(_) => hit.context = self.context(&hit),
                Fate::Goes => continue,
            }
            self.seen.found.add(hit, &self.bucket.runtimes);
        }
    }

    /// Whether the API server refuses a change of another module, so that nothing of that module is pruned.
    fn is_refused(&self, old: ContentId, new: ContentId) -> bool {
        let differing = differing(self.comparison, (Some(old), Some(new), false));
        let Some(module) = self.comparison.new.module(new) else { return false };
        let owner = Key::new("", "");
        differing.iter().any(|(old, new)| {
            let (Some(old), Some(new)) = (old, new) else { return false };
            let (old, new) = (old.object(&owner), new.object(&owner));
            let context = Context::in_module(&new.gvk(), new.value(), &module.objects().objects);
            Hit { context, ..self.one(Side::Runtime, (Some(old), Some(new)), Vec::new(), None) }.is_refused()
        })
    }

    /// An object in another module of the runtime.
    fn of_other(&self, other: &Other, id: &ObjectId) -> Option<Object> {
        let outline = if other.is_new { &self.comparison.new } else { &self.comparison.old };
        let module = outline.module(other.content)?;
        let object = module.objects().objects.iter().find(|object| object.id == *id)?;
        Some(object.object(self.bucket.manifests.get(&other.module)?))
    }

    /// The objects that are deleted, because the new side lacks them. Kept objects are reported.
    fn gone(&mut self, differing: &Differing) -> BTreeSet<ObjectId> {
        let (Some(had), purpose) = (&self.bucket.old, self.purpose()) else { return BTreeSet::new() };
        let owner = had.manifest();
        let is_left = |new: Option<&SharedObject>| new.is_none() || purpose == Purpose::Remove;
        let left = differing.iter().filter(|(_, new)| is_left(new.as_ref())).filter_map(|(old, _)| old.as_ref());
        let mut left: Vec<&SharedObject> = left.collect();
        left.sort_by(|one, other| other.id.apply_order().cmp(&one.id.apply_order()));
        let mut gone = BTreeSet::new();
        for old in left {
            if self.pair.clashes.iter().any(|clash| clash.id == old.id && clash.fate == Fate::Goes) {
                continue;
            }
            let object = old.object(&owner);
            let live =
                changes::Live { marked: true, deleting: false, prune: changes::prune_annotation(object.value()) };
            match changes::forecast(&old.id, purpose, &live) {
                Some(verdict @ (Verdict::Guarded | Verdict::Disabled)) => self.stays(&old.id, verdict),
                Some(Verdict::Delete) => {
                    gone.insert(old.id.clone());
                }
                None | Some(Verdict::Gone | Verdict::Wait | Verdict::Foreign) => {}
            }
        }
        gone
    }

    /// Whether the module stays installed on the new side.
    fn purpose(&self) -> Purpose {
        if self.bucket.new.is_some() { Purpose::Install } else { Purpose::Remove }
    }

    fn stays(&mut self, id: &ObjectId, verdict: Verdict) {
        let Some(old) = &self.bucket.old else { return };
        let version = self.bucket.new.as_ref().map_or("the new side", |new| new.installation.version.as_str());
        let (reason, hint) = match verdict {
            Verdict::Disabled => ("its annotation `tidegate.dev/prune: disabled` protects it", None),
            _ => (
                "user data may depend on it",
                Some(
                    "to delete it, annotate it with `tidegate.dev/prune: enabled` before you remove it from the module",
                ),
            ),
        };
        let by = HeldBy {
            module: old.installation.module.clone(),
            why: Why::Kept,
            message: format!("{id} is no longer in {version}, but stays in the runtime: {reason}"),
            hint: hint.map(str::to_owned),
        };
        let place = self.bucket.causes(self.comparison).into_iter().next();
        self.seen.hold(by, &self.bucket.runtimes, || place);
    }

    /// The first changed line in the file of an object.
    fn line(&mut self, (old, new): &(Option<SharedObject>, Option<SharedObject>)) -> Option<FilePosition> {
        let source = |has: &Option<Has>, shared: &Option<SharedObject>, is_new: bool| {
            let outline = if is_new { &self.comparison.new } else { &self.comparison.old };
            let content = has.as_ref()?.content();
            outline.module_source(content, shared.as_ref()?).map(|source| (source.object(), source.place.clone()))
        };
        match (source(&self.bucket.old, old, false), source(&self.bucket.new, new, true)) {
            (Some((before, _)), Some((after, place))) => Some(self.lines[1].of_object(&place, &before, &after)),
            (old, new) => new.or(old).map(|(_, place)| place),
        }
    }

    /// It is created with the module and deleted with it; no other write happens in between.
    fn default_resource(&mut self, part: &Part<'_>, places: &[FilePosition]) {
        let resource = |has: Option<&Has>| has.and_then(|has| default_resource(&has.installation));
        match (resource(part.old), resource(part.new), part.new) {
            (None, Some(new), _) => self.hit(part, Side::Runtime, (None, Some(new)), places, None),
            (Some(old), None, None) => self.hit(part, Side::Runtime, (Some(old), None), places, None),
            (Some(_) | None, None, _) | (Some(_), Some(_), _) => {}
        }
    }
}

// === impl Bucket ===

impl Bucket {
    /// Adds later runtimes of the same pair.
    pub(super) fn append(&mut self, other: Bucket) {
        self.runtimes.extend(other.runtimes);
        self.wishes.extend(other.wishes);
        self.wishes.truncate(PLACES_MAX);
    }

    fn contents(&self) -> Contents {
        let content = |has: &Option<Has>| has.as_ref().map(Has::content);
        let renamed = match (&self.old, &self.new) {
            (Some(old), Some(new)) => old.installation.manifest_name != new.installation.manifest_name,
            _ => false,
        };
        (content(&self.old), content(&self.new), renamed)
    }

    fn template_changes<'c>(&self, comparison: &'c Comparison<'_>) -> Option<&'c TemplateChanges> {
        self.new.as_ref().map(|has| &comparison.templates[usize::from(has.is_declared)])
    }

    /// Lines in definitions that cause the difference.
    fn causes(&self, comparison: &Comparison<'_>) -> Vec<FilePosition> {
        let mut places = self.wishes.clone();
        let (old, new) = (self.old.as_ref(), self.new.as_ref());
        let Some(shown) = new.or(old).map(|has| &has.installation) else { return places };
        let release = (Kind::ModuleReleaseMeta, Key::new(shown.kyma.namespace(), &shown.module));
        let template = (Kind::ModuleTemplate, shown.template.clone());
        let versions = (old.map(|has| &has.installation.version), new.map(|has| &has.installation.version));
        if versions.0 != versions.1
            && places.is_empty()
            && let Some(changed) = comparison.place_of(&release)
        {
            let definition = new.and_then(|_| comparison.new.definition(release.0, &release.1));
            let channel = definition.and_then(|definition| places::offer(definition, &shown.offer));
            places.push(channel.unwrap_or(changed));
        } else if versions.0 == versions.1 {
            let component = old.map(|has| &has.installation.component) != new.map(|has| &has.installation.component);
            places.extend(comparison.place_of(&release).filter(|_| component));
            places.extend(comparison.changed_text(&template));
        }
        places
    }

    /// The strings that are specific to the representative runtime.
    fn own(&self) -> Names {
        let texts = [&self.old, &self.new].into_iter().flatten().flat_map(Has::texts);
        let others = self.manifests.values();
        let others = others.flat_map(|key| [(key.to_string(), "manifest key"), (key.name().to_owned(), "manifest")]);
        Names::new(texts.chain(others))
    }
}

// === impl Installed ===

impl Installed<'_> {
    /// An owned copy, which outlives the comparison of its runtime.
    pub(super) fn owned(&self) -> Has {
        Has {
            kyma: Arc::clone(self.half.kyma),
            installation: self.installation.clone(),
            class: self.half.class_number,
            is_declared: self.half.is_declared,
        }
    }
}

// === impl Has ===

impl Has {
    fn wish(&self) -> Wish {
        Wish {
            class: self.class,
            module: self.installation.module.clone(),
            offer: self.installation.offer.clone(),
            makes_resource: self.installation.policy == CustomResourcePolicy::CreateAndDelete,
            is_declared: self.is_declared,
        }
    }

    /// Whether its Manifest may differ from that of another runtime with the same plan, except for
    /// names.
    fn is_individual(&self, comparison: &Comparison<'_>) -> bool {
        let named = |resource: &serde_json::Value| {
            resource.pointer("/metadata/name").is_some_and(|name| *name == *self.installation.manifest_name)
        };
        comparison.templates[usize::from(self.is_declared)].individual
            || self.installation.default_resource.as_ref().is_some_and(named)
    }

    /// The objects of another runtime of the same pair.
    fn for_kyma(&self, landscape: &Landscape, key: &Key) -> Option<Has> {
        Some(Has {
            kyma: Arc::clone(landscape.kymas.get(key)?),
            installation: self.installation.of_kyma(landscape, key.clone()),
            class: self.class,
            is_declared: self.is_declared,
        })
    }

    /// Strings that are specific to the runtime.
    fn texts(&self) -> [(String, &'static str); 4] {
        let (kyma, manifest) = (&self.installation.kyma, &self.installation.manifest_name);
        [
            (self.manifest().to_string(), "manifest key"),
            (manifest.clone(), "manifest"),
            (kyma.to_string(), "kyma"),
            (kyma.name().to_owned(), "kyma name"),
        ]
    }

    fn content(&self) -> ContentId {
        self.installation.content()
    }

    fn manifest(&self) -> Key {
        Key::new(self.installation.kyma.namespace(), &self.installation.manifest_name)
    }
}
