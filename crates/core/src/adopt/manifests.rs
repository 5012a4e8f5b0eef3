//! Manifests before a take-over: those without a Kyma, and the modules that Tidegate could not render.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Finding, Level, Topic};
use crate::{
    api::{
        Kyma, Manifest,
        names::{annotation, label},
        shared::State,
    },
    component::{Component, Source},
    landscape::{self, Landscape},
    name::Key,
    plan::{
        self, Answer, Components, InstallSource, InstalledModules, ModuleOutcome, Published, Refusal, Settings,
        Windows, reason,
    },
    revision::Oid,
    words::{agreeing, counted, few},
};

/// What the registries say of a component that no Manifest records.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// One of them has it.
    Found(Arc<Published>),
    /// None of them has it in a form that can be used. Contains the reason, in one sentence.
    Refused(String),
    /// One of them did not answer, and the others do not have it. Contains the reason, in one sentence.
    Unanswered(String),
}

/// The registries that the daemon will read, by their address as Manifests have it, each with the option that names it.
pub type NamedRegistries = BTreeMap<String, String>;

/// What registries say of a module that is installed from them, by their address: nothing if they have it, otherwise
/// the reason in one sentence.
pub type Answers = BTreeMap<String, Result<(), String>>;

/// The modules that some runtimes have or want, and that Tidegate does not render.
#[derive(Default)]
struct Refused {
    /// Runtimes that would lose an installed module, by module and reason.
    removed: BTreeMap<(String, String), Vec<String>>,
    /// Runtimes in which an installed module stays as it is, or is not installed.
    kept: BTreeMap<(String, String), Vec<String>>,
    /// Components of which no Manifest says where they are, and that no registry is known to have, with the runtimes
    /// that are to get them.
    unknown: BTreeMap<Component, Vec<String>>,
}

/// What becomes of a module that a Kyma has and that Tidegate does not refuse.
enum Rendered {
    /// It is rendered from this component; `None` if its objects are in git, or if nothing is rendered.
    From(Option<Component>),
    /// What is installed stays for now, and is rendered from where it is.
    Installed,
}

/// The modules that are installed from a registry that no option names.
#[derive(Default)]
struct Unnamed {
    /// Those that no named registry is known to have, each with the number of its Manifests.
    missing: BTreeMap<String, usize>,
    /// Why not, in one sentence: of the first.
    why: Option<String>,
}

/// What [`Answer::Unknown`] says of a component. It is no part of a finding.
const UNKNOWN: &str = "no Manifest records it";

/// What to do if a registry does not answer.
const LET_ANSWER: &str = "let the registry answer, with `--oci-registry-cred-secret` if it needs credentials; if it \
                          cannot be reached from here, add `--no-registries`";

/// What to do if no registry is named.
const NAME_REGISTRY: &str = "name each registry that the daemon will read";

/// Components that a registry has, while another one did not answer, with the reason in one sentence.
pub fn silent(components: &BTreeMap<Component, String>) -> Option<Finding> {
    let (_, why) = components.first_key_value()?;
    let names: Vec<String> = components.keys().map(ToString::to_string).collect();
    let what = counted(names.len(), "component");
    let message = format!("a registry did not answer for {what} that another one has: {}; {why}", few(&names));
    Some(
        Finding::new(Level::Note, Topic::Rendering, message)
            .next("check that the daemon can reach the registry, or leave it out"),
    )
}

/// Manifests whose Kyma does not exist.
pub fn orphans(manifests: &[Manifest], kymas: &BTreeSet<Key>) -> Vec<Finding> {
    let (mut staying, mut leaving) = (Vec::new(), Vec::new());
    for manifest in manifests {
        let key = landscape::key(&manifest.metadata);
        let kyma = landscape::label(&manifest.metadata, label::KYMA_NAME);
        let has_kyma = kyma.is_some_and(|name| kymas.contains(&Key::new(key.namespace(), name)));
        match (has_kyma, manifest.metadata.deletion_timestamp.is_some()) {
            (true, _) => {}
            (false, false) => staying.push(key.to_string()),
            (false, true) => leaving.push(key.to_string()),
        }
    }
    let mut findings = Vec::new();
    if !staying.is_empty() {
        let message = format!(
            "{}, and {} with the objects: {}",
            agreed(staying.len(), "Manifest", "has no Kyma", "have no Kyma"),
            agreeing(staying.len(), "stays", "stay"),
            few(&staying)
        );
        let next = "delete those whose objects are to be removed";
        findings.push(Finding::new(Level::Note, Topic::Manifests, message).next(next));
    }
    if !leaving.is_empty() {
        let what = agreed(leaving.len(), "Manifest", "has no Kyma and is", "have no Kyma and are");
        let message = format!("{what} being deleted; Tidegate removes the objects: {}", few(&leaving));
        findings.push(Finding::new(Level::Note, Topic::Manifests, message));
    }
    if findings.is_empty() {
        findings.push(Finding::new(Level::Ready, Topic::Manifests, "every Manifest has a Kyma"));
    }
    findings
}

/// Whether a Kyma has the module of a Manifest. If one that nothing references became Tidegate's, the daemon would
/// delete it, and so its objects.
pub fn is_referenced(manifest: &Manifest, kyma: &Kyma) -> bool {
    let modules = kyma.status.iter().flat_map(|status| &status.modules);
    manifest.metadata.deletion_timestamp.is_none()
        && (plan::is_mandatory(&manifest.metadata)
            || modules.into_iter().any(|module| !module.name.is_empty() && module.name == module_of(manifest)))
}

/// The trees of git that runtimes have of each ModuleTemplate; among them `None` if some have objects of another place.
pub fn trees_installed(manifests: &[Manifest]) -> BTreeMap<Key, BTreeSet<Option<Oid>>> {
    let mut trees: BTreeMap<Key, BTreeSet<Option<Oid>>> = BTreeMap::new();
    for manifest in manifests {
        let version = manifest.spec.version.as_deref().unwrap_or_default();
        let name = format!("{}-{version}", module_of(manifest));
        let template = Key::new(landscape::key(&manifest.metadata).namespace(), &name);
        let tree = match InstallSource::try_from(&manifest.spec.install.source) {
            Ok(InstallSource::Git { tree, .. }) => Some(tree),
            Ok(InstallSource::Oci(_)) | Err(_) => None,
        };
        trees.entry(template).or_default().insert(tree);
    }
    trees
}

/// The Manifests that Lifecycle Manager applied, and that become Tidegate's.
pub fn claims(manifests: &[Key]) -> Option<Finding> {
    let names: Vec<String> = manifests.iter().map(Key::to_string).collect();
    let what = agreed(names.len(), "Manifest", "gets", "get");
    let message = format!("{what} Tidegate as field manager in place of Lifecycle Manager: {}", few(&names));
    (!names.is_empty()).then(|| Finding::new(Level::Todo, Topic::Manifests, message))
}

/// The components that runtimes are to get and that no Manifest records: only a registry knows whether they exist.
/// `landscape` is as in [`rendering`].
pub fn unrecorded(landscape: &Landscape, manifests: &[Manifest], settings: &Settings) -> BTreeSet<Component> {
    let mut of_kyma = by_kyma(manifests);
    let (components, mut refused) = (components(&BTreeMap::new()), Refused::default());
    for (key, kyma) in staying(landscape) {
        let own = of_kyma.remove(key).unwrap_or_default();
        refused.add(landscape, &components, key, kyma, &own, settings);
    }
    refused.unknown.into_keys().collect()
}

/// The installed components whose Manifests name a registry that is not among `named`. The daemon reads them from those
/// that are, as from a mirror, so they must have them. None if no registry is named. `landscape` is as in
/// [`rendering`].
pub fn elsewhere(
    landscape: &Landscape,
    manifests: &[Manifest],
    settings: &Settings,
    named: &NamedRegistries,
) -> BTreeSet<Component> {
    let sources = installed(landscape, manifests, settings).into_iter();
    let elsewhere = sources.filter(|(place, ..)| !named.is_empty() && !named.contains_key(place));
    elsewhere.filter_map(|(_, component, _)| component).collect()
}

/// One installed blob of each registry that is among `named`, by its address: the daemon reads it from there.
/// `landscape` is as in [`rendering`].
pub fn samples(
    landscape: &Landscape,
    manifests: &[Manifest],
    settings: &Settings,
    named: &NamedRegistries,
) -> BTreeMap<String, Source> {
    let mut samples = BTreeMap::new();
    for (place, _, source) in installed(landscape, manifests, settings) {
        if named.contains_key(&place) {
            samples.entry(place).or_insert(source);
        }
    }
    samples
}

/// What the daemon reads of what is installed: the registry that the Manifest names, the component and the blob.
fn installed(
    landscape: &Landscape,
    manifests: &[Manifest],
    settings: &Settings,
) -> Vec<(String, Option<Component>, Source)> {
    let mut of_kyma = by_kyma(manifests);
    let (components, mut refused, mut all) = (components(&BTreeMap::new()), Refused::default(), Vec::new());
    for (key, kyma) in staying(landscape) {
        let own = of_kyma.remove(key).unwrap_or_default();
        let rendered = refused.add(landscape, &components, key, kyma, &own, settings);
        for manifest in own {
            let Ok(InstallSource::Oci(source)) = InstallSource::try_from(&manifest.spec.install.source) else {
                continue;
            };
            let component = component_of(manifest, &source);
            if is_read(manifest, &rendered, component.as_ref()) {
                all.push((place_of(&source), component, source));
            }
        }
    }
    all
}

/// Whether Tidegate can render the modules of all runtimes: `landscape` is as it will be after the take-over, with the
/// status of each Kyma as it is now. `manifests` are all that there are.
///
/// `named` are the registries that the daemon will read; without one, it renders nothing that is in a registry. `asked`
/// is what they say of the components that [`unrecorded`] and [`elsewhere`] name, and `answers` what they say of the
/// [`samples`]; both are empty if they were not asked.
pub fn rendering(
    landscape: &Landscape,
    manifests: &[Manifest],
    settings: &Settings,
    named: &NamedRegistries,
    asked: &BTreeMap<Component, Lookup>,
    answers: &Answers,
) -> Vec<Finding> {
    let mut of_kyma = by_kyma(manifests);
    let components = components(asked);
    let (mut refused, mut unreadable) = (Refused::default(), Vec::new());
    let mut registries: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let mut elsewhere: BTreeMap<String, Unnamed> = BTreeMap::new();
    for (key, kyma) in staying(landscape) {
        let own = of_kyma.remove(key).unwrap_or_default();
        let rendered = refused.add(landscape, &components, key, kyma, &own, settings);
        for manifest in own {
            match InstallSource::try_from(&manifest.spec.install.source) {
                Ok(InstallSource::Oci(source)) => {
                    let version = manifest.spec.version.as_deref().unwrap_or_default();
                    let module = format!("{} {version}", module_of(manifest)).trim().to_owned();
                    let (place, component) = (place_of(&source), component_of(manifest, &source));
                    if named.is_empty() || named.contains_key(&place) {
                        *registries.entry(place).or_default().entry(module).or_default() += 1;
                    } else if is_read(manifest, &rendered, component.as_ref()) {
                        let found = in_named(component.as_ref(), &source, asked);
                        elsewhere.entry(place).or_default().add(module, found);
                    }
                }
                Ok(InstallSource::Git { .. }) => {}
                Err(error) if !rendered.contains_key(module_of(manifest)) => {
                    unreadable.push(format!("{} ({error})", landscape::key(&manifest.metadata)));
                }
                // Tidegate replaces the source.
                Err(_) => {}
            }
        }
    }
    let mut findings = refused.findings(named, asked);
    if !unreadable.is_empty() {
        let what = agreed(unreadable.len(), "Manifest", "has", "have");
        let message = format!("{what} a source that Tidegate does not read: {}", few(&unreadable));
        let next = "publish the module to an OCI registry, or remove it from the runtime";
        findings.push(Finding::new(Level::Blocks, Topic::Rendering, message).next(next));
    }
    let of_registry = |(registry, modules): (&String, &BTreeMap<String, usize>)| match named.get(registry) {
        Some(option) => in_named_registry(registry, modules, option, answers.get(registry)),
        None => in_unnamed_registry(registry, modules),
    };
    findings.extend(registries.iter().map(of_registry));
    findings.extend(elsewhere.iter().map(|(registry, unnamed)| unnamed.finding(registry)));
    if findings.iter().all(|finding| finding.level != Level::Blocks) {
        let message = "Tidegate can render every installed module";
        findings.push(Finding::new(Level::Ready, Topic::Rendering, message));
    }
    findings
}

/// The registry of a source, as options name it.
fn place_of(source: &Source) -> String {
    source.registry().map_or_else(|_| source.repo.clone(), |address| address.to_string())
}

/// The component of a Manifest with this source; `None` if the Manifest does not say which version it is.
fn component_of(manifest: &Manifest, source: &Source) -> Option<Component> {
    Component::new(source.name.as_str(), manifest.spec.version.as_deref().unwrap_or_default()).ok()
}

/// Whether the daemon reads the component that a Manifest installs. What is refused stays, and is read as well.
fn is_read(manifest: &Manifest, rendered: &BTreeMap<String, Rendered>, installed: Option<&Component>) -> bool {
    if manifest.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match rendered.get(module_of(manifest)) {
        None | Some(Rendered::Installed) => true,
        Some(Rendered::From(component)) => component.is_some() && component.as_ref() == installed,
    }
}

/// Whether a registry that an option names has what is installed. Fails with the reason, in one sentence.
fn in_named(component: Option<&Component>, source: &Source, asked: &BTreeMap<Component, Lookup>) -> Result<(), String> {
    match component.and_then(|component| asked.get(component)) {
        Some(Lookup::Found(found)) if found.module.layer.digest == source.digest => Ok(()),
        Some(Lookup::Found(found)) => Err(format!("{} has this version with other content", found.repo)),
        Some(Lookup::Refused(why) | Lookup::Unanswered(why)) => Err(why.clone()),
        None => Err("no registry was asked whether it has the same content".to_owned()),
    }
}

/// The Manifests of each Kyma.
fn by_kyma(manifests: &[Manifest]) -> BTreeMap<Key, Vec<&Manifest>> {
    let mut of_kyma: BTreeMap<Key, Vec<&Manifest>> = BTreeMap::new();
    for manifest in manifests {
        let Some(kyma) = landscape::label(&manifest.metadata, label::KYMA_NAME) else { continue };
        let namespace = landscape::key(&manifest.metadata).namespace().to_owned();
        of_kyma.entry(Key::new(&namespace, kyma)).or_default().push(manifest);
    }
    of_kyma
}

/// The Kymas that are not being deleted.
fn staying(landscape: &Landscape) -> impl Iterator<Item = (&Key, &Arc<Kyma>)> {
    landscape.kymas.iter().filter(|(_, kyma)| kyma.metadata.deletion_timestamp.is_none())
}

/// What is known of components without the daemon.
fn components(asked: &BTreeMap<Component, Lookup>) -> Components {
    let found = |(component, lookup): (&Component, &Lookup)| match lookup {
        Lookup::Found(found) => Some((component.clone(), Answer::Found(Arc::clone(found)))),
        Lookup::Refused(_) | Lookup::Unanswered(_) => None,
    };
    let known: BTreeMap<Component, Answer> = asked.iter().filter_map(found).collect();
    Components::new(Arc::new(known), Answer::Unknown(UNKNOWN.to_owned()))
}

/// Modules that are in a registry that an option names, each with the number of its Manifests. `answer` is what it says
/// of one of them; `None` if it was not asked.
fn in_named_registry(
    registry: &str,
    modules: &BTreeMap<String, usize>,
    option: &str,
    answer: Option<&Result<(), String>>,
) -> Finding {
    if let Some(Err(why)) = answer {
        let message = format!(
            "the daemon cannot read what is installed from the registry {registry}, and would set Kymas to Error: {why}; \
             from there {} {}: {}",
            agreeing(modules.len(), "is", "are"),
            counted(modules.len(), "installed module"),
            few(&in_runtimes(modules))
        );
        return Finding::new(Level::Blocks, Topic::Rendering, message).next(LET_ANSWER);
    }
    let not_asked = if answer.is_none() { ", which was not asked" } else { "" };
    let message = format!("installed modules are in the registry {registry}{not_asked}");
    Finding::new(Level::Note, Topic::Rendering, message).next(format!("start the daemon with `{option}`"))
}

/// Modules that are in a registry while no option names one, each with the number of its Manifests.
fn in_unnamed_registry(registry: &str, modules: &BTreeMap<String, usize>) -> Finding {
    let all = in_runtimes(modules);
    let message = format!(
        "Tidegate cannot render {} from the registry {registry} without an option that names it, and leaves {} \
         unchecked: {}",
        counted(modules.len(), "installed module"),
        agreeing(modules.len(), "it", "them"),
        few(&all)
    );
    let next = format!(
        "{NAME_REGISTRY}; for a daemon with `--oci-registry-host={registry}`, add `--oci-registry-host={registry}` here"
    );
    Finding::new(Level::Blocks, Topic::Rendering, message).next(next)
}

/// `keda 1.0.0 in 2 runtimes`, for each module.
fn in_runtimes(modules: &BTreeMap<String, usize>) -> Vec<String> {
    modules.iter().map(|(module, count)| format!("{module} in {}", counted(*count, "runtime"))).collect()
}

/// The modules whose objects are in git, and which Lifecycle Manager therefore cannot read: their way back.
pub fn from_git(landscape: &Landscape, manifests: &[Manifest]) -> Vec<Finding> {
    let is_from_git = |manifest: &&Manifest| {
        matches!(InstallSource::try_from(&manifest.spec.install.source), Ok(InstallSource::Git { .. }))
    };
    let installed = manifests.iter().filter(is_from_git).map(module_of);
    let templates = landscape
        .templates
        .values()
        .filter(|template| landscape::annotation(&template.metadata, annotation::MODULE_PATH).is_some());
    let offered = templates.filter_map(|template| template.spec.module_name.as_deref());
    let names: BTreeSet<&str> = installed.chain(offered).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = names.into_iter().collect();
    let what = agreed(names.len(), "module", "has its objects in git, and has", "have their objects in git, and have");
    let message = format!("{what} no way back to Lifecycle Manager, which reads registries only: {}", few(&names));
    let next = "push these modules to an OCI registry before `tidegate adopt release`";
    vec![Finding::new(Level::Note, Topic::Rendering, message).next(next)]
}

// === impl Unnamed ===

impl Unnamed {
    /// Adds the module of one Manifest.
    fn add(&mut self, module: String, found: Result<(), String>) {
        if let Err(why) = found {
            *self.missing.entry(module).or_default() += 1;
            self.why.get_or_insert(why);
        }
    }

    fn finding(&self, registry: &str) -> Finding {
        let Some(why) = &self.why else {
            let message = format!(
                "installed modules are from the registry {registry}, which no option names; the daemon reads them from a \
                 registry that an option names, and that has the same content"
            );
            return Finding::new(Level::Note, Topic::Rendering, message);
        };
        let message = format!(
            "the daemon cannot read {} from the registry {registry}, because no option names it, and would set their \
             Kymas to Error: {}; {why}",
            counted(self.missing.len(), "installed module"),
            few(&in_runtimes(&self.missing))
        );
        let next = format!(
            "correct the option that names the registry, here and for the daemon, or add \
             `--oci-registry-host={registry}`"
        );
        Finding::new(Level::Blocks, Topic::Rendering, message).next(next)
    }
}

/// `2 Manifests have`.
fn agreed(count: usize, noun: &str, one: &str, several: &str) -> String {
    format!("{} {}", counted(count, noun), agreeing(count, one, several))
}

fn module_of(manifest: &Manifest) -> &str {
    landscape::label(&manifest.metadata, label::MODULE_NAME).unwrap_or_default()
}

// === impl Refused ===

impl Refused {
    /// Adds the modules of one Kyma. Returns those that Tidegate does not refuse.
    fn add(
        &mut self,
        landscape: &Landscape,
        components: &Components,
        key: &Key,
        kyma: &Kyma,
        manifests: &[&Manifest],
        settings: &Settings,
    ) -> BTreeMap<String, Rendered> {
        let seen = components.seen_by(manifests.iter().copied(), &|_| false);
        let installed = InstalledModules::from_manifests(manifests.iter().copied());
        let spec = plan::reported(kyma);
        let plan = plan::runtime(landscape, &seen, kyma, &spec, settings, &installed, Windows::Unknown);
        let mut rendered = BTreeMap::new();
        for module in plan.into_deciding() {
            let refusal = match module.outcome {
                ModuleOutcome::Refuse(refusal) => refusal,
                ModuleOutcome::Wait(_) => {
                    rendered.insert(module.name, Rendered::Installed);
                    continue;
                }
                ModuleOutcome::Install(_) | ModuleOutcome::Unmanage => {
                    rendered.insert(module.name, Rendered::From(module.component));
                    continue;
                }
            };
            let is_installed = manifests.iter().any(|manifest| module_of(manifest) == module.name);
            match (&module.component, refusal.reason) {
                (Some(component), reason::SOURCE_UNAVAILABLE) => {
                    self.unknown.entry(component.clone()).or_default().push(key.to_string());
                }
                _ => self.refuse(key, module.name, &refusal, is_installed),
            }
        }
        rendered
    }

    fn refuse(&mut self, key: &Key, module: String, refusal: &Refusal, is_installed: bool) {
        // Lifecycle Manager removes such a module as well, and both only wait for it.
        let is_leaving = refusal.reason == reason::RELEASE_DELETED || refusal.state == State::Deleting;
        let all = match is_installed && !refusal.keep && !is_leaving {
            true => &mut self.removed,
            false => &mut self.kept,
        };
        all.entry((module, refusal.message.trim().to_owned())).or_default().push(key.to_string());
    }

    fn findings(&self, named: &NamedRegistries, asked: &BTreeMap<Component, Lookup>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for ((module, why), runtimes) in &self.removed {
            let what = counted(runtimes.len(), "runtime");
            let message = format!("{what} would lose module {module}: {}; {why}", few(runtimes));
            let next = "remove the module from these runtimes, or correct its definitions";
            findings.push(Finding::new(Level::Blocks, Topic::Rendering, message).next(next));
        }
        for ((module, why), runtimes) in &self.kept {
            let what = counted(runtimes.len(), "runtime");
            let message =
                format!("module {module} is refused in {what}: {}; {why}; what is installed stays", few(runtimes));
            findings.push(Finding::new(Level::Note, Topic::Rendering, message));
        }
        findings.extend(self.unknown(named, asked));
        findings
    }

    /// The findings about components that no Manifest records.
    fn unknown(&self, named: &NamedRegistries, asked: &BTreeMap<Component, Lookup>) -> Vec<Finding> {
        let (mut findings, mut later, mut unanswered, mut cause) = (Vec::new(), Vec::new(), Vec::new(), None);
        for (component, runtimes) in &self.unknown {
            match asked.get(component) {
                Some(Lookup::Refused(why)) => {
                    let what = counted(runtimes.len(), "Kyma");
                    let message = format!(
                        "{component} cannot be read from a registry that an option names, so {what} would be set to \
                         Error: {}; {why}",
                        few(runtimes)
                    );
                    let next = "push this version of the component, let the channel offer another version, or name the \
                                registry that has it";
                    findings.push(Finding::new(Level::Blocks, Topic::Rendering, message).next(next));
                }
                Some(Lookup::Unanswered(why)) => {
                    unanswered.push(component.to_string());
                    cause = Some(why);
                }
                Some(Lookup::Found(_)) | None => later.push(component.to_string()),
            }
        }
        if let Some(why) = cause {
            let message = format!(
                "no Manifest records {}, and no registry says whether {}: {}; {why}",
                counted(unanswered.len(), "component"),
                agreeing(unanswered.len(), "it exists", "they exist"),
                few(&unanswered)
            );
            findings.push(Finding::new(Level::Blocks, Topic::Rendering, message).next(LET_ANSWER));
        }
        if !later.is_empty() {
            let what = counted(later.len(), "component");
            let its = agreeing(later.len(), "its registry", "their registries");
            findings.push(match named.is_empty() {
                true => {
                    let message = format!("no Manifest records {what}, and no option names {its}: {}", few(&later));
                    let next = format!("{NAME_REGISTRY}, with `--oci-registry-host`");
                    Finding::new(Level::Blocks, Topic::Rendering, message).next(next)
                }
                false => {
                    let message = format!("no Manifest records {what}, and no registry was asked: {}", few(&later));
                    let next = "omit `--no-registries` to learn whether a registry has it, where one can be reached";
                    Finding::new(Level::Note, Topic::Rendering, message).next(next)
                }
            });
        }
        findings
    }
}

#[cfg(test)]
mod tests;
