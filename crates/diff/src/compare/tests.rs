use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::*;
use tidegate_core::{
    api::names::label,
    component::{BlobDigest, Component, Layer, LayerKind, Module},
    definition, maintenance,
    object::Digest,
    plan::{Answer, ComponentRecord, Published},
    revision::{Oid, Revision},
    snapshot::{Content, File},
    template::{Engine, TemplateFile, Templates},
    yaml,
};

use crate::model::{Action, Difference, Why};

/// A repository for tests: one module `cache` in two versions on two channels, and a runtime.
#[derive(Clone)]
struct World {
    files: BTreeMap<String, String>,
    templates: Vec<(&'static str, &'static str)>,
    known: Option<&'static str>,
    suspended: bool,
    policy: Policy,
    maintenance: Option<PolicyAt>,
    /// What the layer of `mailer` contains, if its objects are in a registry.
    layer: Option<&'static str>,
}

const RELEASE: &str = "modules/cache/release.yaml";
const MODULE: &str = "modules/cache/1.1.0/objects/a.yaml";

fn world() -> World {
    let mut world = World {
        files: BTreeMap::new(),
        templates: Vec::new(),
        known: None,
        suspended: false,
        policy: Policy::default(),
        maintenance: None,
        layer: None,
    };
    for version in ["1.0.0", "1.1.0"] {
        world = world
            .file(
                &format!("modules/cache/{version}/template.yaml"),
                &format!(
                    "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: cache-{version}\n  \
                     namespace: kcp-system\n  annotations: {{tidegate.dev/module-path: modules/cache/{version}/objects}}\n\
                     spec: {{moduleName: cache, version: {version}}}\n"
                ),
            )
            .file(&format!("modules/cache/{version}/objects/a.yaml"), &config("cache", version));
    }
    world.release("1.1.0", "1.0.0").kyma("one", "channel: regular\n  modules: [{name: cache}]")
}

fn config(name: &str, version: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: cache}}\ndata: {{version: {version}}}\n"
    )
}

impl World {
    fn file(mut self, path: &str, text: &str) -> World {
        self.files.insert(path.to_owned(), text.to_owned());
        self
    }

    fn without(mut self, path: &str) -> World {
        assert!(self.files.remove(path).is_some(), "{path}");
        self
    }

    fn release(self, fast: &str, regular: &str) -> World {
        self.file(
            RELEASE,
            &format!(
                "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata: {{name: cache, namespace: kcp-system}}\n\
                 spec:\n  moduleName: cache\n  ocmComponentName: example.org/module/cache\n  channels:\n    \
                 - channel: fast\n      version: {fast}\n    - channel: regular\n      version: {regular}\n"
            ),
        )
    }

    fn kyma(self, name: &str, spec: &str) -> World {
        self.kyma_with(name, "{}", spec)
    }

    fn kyma_with(self, name: &str, marks: &str, spec: &str) -> World {
        self.file(
            &format!("kymas/{name}.yaml"),
            &format!(
                "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: {name}\n  namespace: kcp-system\n  \
                 annotations: {marks}\n  labels: {marks}\nspec:\n  {spec}\n"
            ),
        )
    }

    /// Adds a module `mailer` in one version, with an object of this name.
    fn mailer(self, object: &str) -> World {
        self.file(
            "modules/mailer/template.yaml",
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: mailer-2.0.0\n  \
             namespace: kcp-system\n  annotations: {tidegate.dev/module-path: modules/mailer/objects}\n\
             spec: {moduleName: mailer, version: 2.0.0}\n",
        )
        .file(
            "modules/mailer/release.yaml",
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata: {name: mailer, namespace: kcp-system}\n\
             spec:\n  moduleName: mailer\n  ocmComponentName: example.org/module/mailer\n  channels:\n    \
             - channel: regular\n      version: 2.0.0\n",
        )
        .file("modules/mailer/objects/a.yaml", &config("mailer", "2.0.0"))
        .file("modules/mailer/objects/b.yaml", &config(object, "of mailer"))
        .kyma("one", "channel: regular\n  modules: [{name: cache}, {name: mailer}]")
    }

    /// The same `mailer`, with its objects in a registry.
    fn mailer_in_registry(self, layer: Option<&'static str>) -> World {
        let template = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata: {name: mailer-2.0.0, \
                        namespace: kcp-system}\nspec: {moduleName: mailer, version: 2.0.0, descriptor: {}}\n";
        let world = self.mailer("any").file("modules/mailer/template.yaml", template);
        let world = world.without("modules/mailer/objects/a.yaml").without("modules/mailer/objects/b.yaml");
        World { layer, ..world }
    }

    /// What is known of `mailer`, and its objects.
    fn components(&self) -> (Components, Option<definition::ModuleObjects>) {
        let Some(text) = self.layer else { return (Components::default(), None) };
        let layer = Layer { digest: BlobDigest::of(text.as_bytes()), kind: LayerKind::Yaml };
        let objects = definition::layer_objects(layer, &[], text.as_bytes(), &yaml::Limits::default()).unwrap();
        let found = Published {
            repo: "registry.example.org".to_owned(),
            module: Module { layer, localized_images: Vec::new() },
            record: ComponentRecord::default(),
        };
        let component = Component::new("example.org/module/mailer", "2.0.0").unwrap();
        let known = BTreeMap::from([(component, Answer::Found(Arc::new(found)))]);
        (Components::new(Arc::new(known), Answer::Unknown("no channel offers it".to_owned())), Some(objects))
    }

    fn snapshot(&self) -> Snapshot {
        let id = |text: &str| Oid::new(Digest::of_bytes(text.as_bytes()).as_bytes()[..20].try_into().unwrap());
        let mut snapshot = Snapshot::empty(Revision::WorkTree);
        for (path, text) in &self.files {
            let content = Content::Text(text.as_bytes().into());
            snapshot.files.insert(path.as_str().into(), File { id: id(text), content });
            for (end, _) in path.match_indices('/') {
                // The id of a folder depends on its whole content.
                let folder = &path[..end];
                let below: String = self
                    .files
                    .range(folder.to_owned()..)
                    .take_while(|(path, _)| path.starts_with(folder))
                    .map(|(path, text)| format!("{path}{text}"))
                    .collect();
                snapshot.trees.insert(folder.into(), id(&below));
            }
        }
        snapshot
    }

    fn library(&self) -> Library {
        let mut diagnostics = Diagnostics::default();
        let files = self.templates.iter().map(|(name, text)| TemplateFile {
            name: (*name).to_owned(),
            path: format!("templates/{name}").into(),
            text: Some((*text).to_owned()),
        });
        let mut library = Library::new(Templates::embedded());
        library.set(source(), Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, files));
        assert!(diagnostics.is_empty(), "{diagnostics:?}");
        library
    }
}

fn source() -> SourceName {
    SourceName::new(Key::new("kcp-system", "landscape"))
}

/// Compares twice, the second time with the runtimes divided: the result must be the same.
#[track_caller]
fn report(old: &World, new: &World) -> Report {
    let read = |world: &World| {
        let mut diagnostics = Diagnostics::default();
        let snapshot = world.snapshot();
        let options = definition::Options::default();
        let mut definitions =
            definition::read(&mut diagnostics, &snapshot, &options, &mut definition::Cache::default());
        let objects = world.components().1;
        definitions.modules.extend(objects.map(|objects| (objects.content(), Arc::new(objects))));
        (snapshot, definitions, world.library(), diagnostics)
    };
    let (from, to) = (read(old), read(new));
    let (components, _) = new.components();
    let known = new.known.map(|text| LandscapeFile::parse(text).unwrap());
    let request = Request {
        from: Given { snapshot: &from.0, definitions: &from.1, library: &from.2 },
        to: Given { snapshot: &to.0, definitions: &to.1, library: &to.2 },
        errors: to.3.has_errors(),
        source: &source(),
        policy: &new.policy,
        known: known.as_ref(),
        target: None,
        assumptions: &Assumptions::default(),
        settings: &Settings::default(),
        components: &components,
        maintenance: new.maintenance.as_ref(),
        mask: &MaskKey::new([7; 32]),
        numbers: true,
        idle: new.suspended.then_some(Idle::Suspended),
        resume_by: ResumeBy::Command,
    };
    let report = compare(request, to.3.clone(), Subject::default()).finish();
    let prepared = Prepared::new(&request);
    let comparison = Comparison::new(request, &prepared);
    let mut seen = Seen::default();
    (0..comparison.runtimes()).for_each(|index| seen.append(comparison.look(index..index + 1)));
    let divided = comparison.finish(seen, to.3.clone(), Subject::default()).finish();
    assert_eq!(format!("{report:?}"), format!("{divided:?}"));
    report
}

/// One line per difference: `kcp change Manifest cache ×2 at modules/a.yaml:3`.
fn script(report: &Report) -> Vec<String> {
    let line = |one: &crate::model::Difference| {
        let side = if one.target == Side::ControlPlane { "kcp" } else { "skr" };
        let waits = match one.effect {
            Effect::Applies => "",
            Effect::NeedsConfirmation => "?",
            Effect::Held => "!",
        };
        let place = one.places.first().map(|place| format!("{}:{}", place.path, place.line)).unwrap_or_default();
        format!("{side} {}{waits} {} ×{} {place}", one.action, one.id.kind, one.objects)
    };
    report.differences.iter().map(line).collect()
}

#[track_caller]
fn check(old: &World, new: &World, expected: &[&str]) -> Report {
    let report = report(old, new);
    assert_eq!(script(&report), expected);
    report
}

#[track_caller]
fn check_held(report: &Report, expected: &[(Why, &str, usize)]) {
    let held: Vec<(Why, &str, usize)> =
        report.held.iter().map(|held| (held.why, held.module.as_str(), held.runtimes.len())).collect();
    assert_eq!(held, expected, "{:?}", report.held);
}

#[test]
fn equal_sides_have_no_difference() {
    let report = check(&world(), &world(), &[]);
    assert_eq!((report.runtimes.total, report.runtimes.touched, report.runtimes.variants), (1, 0, 0));
    assert!(report.moves.is_empty() && report.held.is_empty());
}

#[test]
fn a_bump_hits_every_runtime_of_the_channel_once() {
    let old = world()
        .kyma("two", "channel: regular\n  modules: [{name: cache}]")
        .kyma("three", "channel: regular\n  modules: [{name: cache, channel: fast}]");
    let report = check(
        &old,
        &old.clone().release("1.1.0", "1.1.0"),
        &[
            "kcp change Manifest ×2 modules/cache/release.yaml:11",
            "kcp change ModuleReleaseMeta ×1 modules/cache/release.yaml:11",
            "skr delete ModuleTemplate ×3 modules/cache/release.yaml:11",
            "skr change ConfigMap ×2 modules/cache/release.yaml:11",
            "skr change ModuleReleaseMeta ×3 modules/cache/release.yaml:11",
        ],
    );
    let moved = &report.moves[0];
    assert_eq!(
        (moved.channel.as_str(), moved.from.as_deref(), moved.to.as_deref()),
        ("regular", Some("1.0.0"), Some("1.1.0"))
    );
    assert_eq!(moved.runtimes, 2);
    assert_eq!(moved.place.as_ref().unwrap().line, 11);
    assert_eq!((report.runtimes.touched, report.runtimes.variants), (2, 1), "copies of the catalog do not count");
    let bookkeeping = report.bookkeeping();
    let kinds: Vec<&str> = bookkeeping.iter().map(|index| &*report.differences[*index].id.kind).collect();
    assert_eq!(kinds, ["Manifest", "ModuleTemplate", "ModuleReleaseMeta"]);
}

#[test]
fn channels_come_and_go() {
    let channel = |text: &str| world().file(RELEASE, &world().files[RELEASE].replace("channel: fast", text));
    let moves: Vec<(String, Option<String>, Option<String>)> = report(&world(), &channel("channel: slow"))
        .moves
        .into_iter()
        .map(|one| (one.channel, one.from, one.to))
        .collect();
    let version = || Some("1.1.0".to_owned());
    assert_eq!(moves, [("fast".to_owned(), version(), None), ("slow".to_owned(), None, version())]);
}

#[test]
fn an_edited_object_is_found_at_its_line() {
    let old = world().release("1.1.0", "1.1.0");
    let new = old.clone().file(MODULE, &config("cache", "1.1.0-rc1").replace("data: {", "data:\n  {"));
    check(
        &old,
        &new,
        &[
            "kcp change Manifest ×1 modules/cache/1.1.0/objects/a.yaml:6",
            "kcp change ModuleTemplate ×1 modules/cache/1.1.0/template.yaml:6",
            "skr change ConfigMap ×1 modules/cache/1.1.0/objects/a.yaml:6",
        ],
    );
}

#[test]
fn a_downgrade_is_held_and_an_allowed_one_is_not() {
    let old = world().release("1.1.0", "1.1.0");
    let new = old.clone().release("1.1.0", "1.0.0");
    let found = report(&old, &new);
    check_held(&found, &[(Why::Downgrade, "cache", 1)]);
    assert!(!script(&found).iter().any(|line| line.contains("Manifest")), "{:?}", script(&found));
    let allowed = new.kyma_with(
        "one",
        "{tidegate.dev/allow-downgrade: cache-1.0.0}",
        "channel: regular\n  modules: [{name: cache}]",
    );
    check_held(&report(&old, &allowed), &[]);
}

#[test]
fn an_upgrade_that_spreads_step_by_step_is_named_with_its_policy() {
    let old = world().release("1.1.0", "1.0.0");
    let new = old.clone().release("1.1.0", "1.1.0");
    let policy = "{name: cache, namespace: kcp-system, annotations: {tidegate.dev/rollout-waves: stage=canary, \
                  tidegate.dev/rollout-max-unavailable: 10%}}";
    let release = new.files[RELEASE].replace("{name: cache, namespace: kcp-system}", policy);
    let found = report(&old, &new.clone().file(RELEASE, &release));
    check_held(&found, &[(Why::Rollout, "cache", 1)]);
    assert_eq!(
        found.held[0].message,
        "1.0.0 to 1.1.0 spreads step by step: 2 waves, at most 10 % of the runtimes at once"
    );
    // The change itself is shown as it will be.
    assert!(script(&found).iter().any(|line| line.starts_with("skr change ConfigMap ×1")), "{:?}", script(&found));
    check_held(&report(&old, &new), &[]);
}

#[test]
fn an_upgrade_whose_rollout_is_paused_changes_no_runtime() {
    let old = world().release("1.1.0", "1.0.0");
    let new = old.clone().release("1.1.0", "1.1.0");
    let paused = "{name: cache, namespace: kcp-system, annotations: {tidegate.dev/rollout-paused: \"true\"}}";
    let release = new.files[RELEASE].replace("{name: cache, namespace: kcp-system}", paused);
    let found = report(&old, &new.clone().file(RELEASE, &release));
    assert_eq!(found.held.iter().map(|held| held.runtimes.len()).sum::<usize>(), 1, "{:?}", found.held);
    assert!(found.held[0].message.contains("paused"), "{:?}", found.held);
    let applies =
        |line: &&String| line.starts_with("skr change ConfigMap ×") || line.starts_with("kcp change Manifest ×");
    assert_eq!(script(&found).iter().filter(applies).count(), 0, "{:?}", script(&found));
    // Without the annotation, it does.
    assert_eq!(script(&report(&old, &new)).iter().filter(applies).count(), 2);
    // A user has paused it, as the landscape file says.
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [],
        "releases": [{"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta", "metadata": {
            "name": "cache", "namespace": "kcp-system", "labels": {"tidegate.dev/source": "kcp-system.landscape"},
            "annotations": {"tidegate.dev/rollout-paused": "true", "tidegate.dev/suspended": "by anna: it is slow"}},
            "spec": {"moduleName": "cache", "ocmComponentName": "example.org/module/cache", "channels": []}}]}"#;
    let found = report(&World { known: Some(known), ..old }, &World { known: Some(known), ..new });
    assert_eq!(found.held.len(), 1, "{:?}", found.held);
    assert!(found.held[0].message.contains("paused"), "{:?}", found.held);
    assert_eq!(script(&found).iter().filter(applies).count(), 0, "{:?}", script(&found));
}

#[test]
fn a_module_that_is_no_longer_managed_does_not_go() {
    let old = world();
    let new = old.clone().kyma("one", "channel: regular\n  modules: [{name: cache, managed: false}]");
    let found = report(&old, &new);
    let headline = crate::summary::Summary::from_report(&found).headline;
    assert!(headline.contains("cache 1.0.0 is no longer managed in 1 of 1 runtime, its objects stay"), "{headline}");
    assert!(!headline.contains("goes from"), "{headline}");
    let gone = old.clone().kyma("one", "channel: regular\n  modules: []");
    let headline = crate::summary::Summary::from_report(&report(&old, &gone)).headline;
    assert!(headline.contains("cache 1.0.0 goes from 1 of 1 runtime"), "{headline}");
}

#[test]
fn the_headline_says_that_a_kyma_changes_channels_and_that_a_component_is_renamed() {
    let headline = |new: World| crate::summary::Summary::from_report(&report(&world(), &new)).headline;
    let moved = headline(world().kyma("one", "channel: fast\n  modules: [{name: cache}]"));
    assert!(moved.contains("cache 1.0.0 → 1.1.0 in 1 of 1 runtime"), "{moved}");
    let release = world().files[RELEASE].replace("example.org/module/cache", "example.org/depot");
    let renamed = headline(world().file(RELEASE, &release));
    let intent = "module cache is under component name example.org/depot in 1 of 1 runtime, its objects stay";
    assert!(renamed.contains(intent), "{renamed}");
    assert!(!renamed.contains(" go") && !renamed.contains(" come"), "{renamed}");
}

#[test]
fn a_kyma_of_a_user_is_held_until_it_is_adopted() {
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "two", "channel": "regular"}]}"#;
    let old = World { known: Some(known), ..world() };
    let found = report(&old, &old.clone().kyma("two", "channel: regular\n  modules: [{name: cache}]"));
    check_held(&found, &[(Why::Conflict, "", 1)]);
    assert!(found.held[0].hint.as_ref().unwrap().contains("tidegate.dev/adopt"), "{:?}", found.held);
    assert_eq!(script(&found), ["kcp conflict! Kyma ×1 kymas/two.yaml:1"]);
    let adopted = old.clone().kyma_with("two", "{tidegate.dev/adopt: \"true\"}", "channel: regular");
    check_held(&report(&old, &adopted), &[]);
}

#[test]
fn an_upgrade_that_requires_downtime_is_held_until_its_window() {
    let policy = r#"{"rules": [{"match": {"region": "eu"}, "windows": [{"days": ["Sat"], "begin": "20:00:00Z", "end":
        "22:00:00Z"}]}]}"#;
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "one", "labels": {"kyma-project.io/region": "eu-1"}, "channel": "regular",
         "installed": [{"name": "cache", "version": "1.0.0", "channel": "regular"}]}]}"#;
    let template = "modules/cache/1.1.0/template.yaml";
    let downtime = world().files[template].replace("version: 1.1.0}", "version: 1.1.0, requiresDowntime: true}");
    let old = World { known: Some(known), ..world() }.file(template, &downtime);
    let at = |now: &str| {
        let (policy, size_min) = (maintenance::Policy::parse(policy).unwrap(), Duration::from_secs(1200));
        let maintenance = Some(PolicyAt { policy, now: now.parse().unwrap(), size_min });
        World { maintenance, ..old.clone().release("1.1.0", "1.1.0") }
    };
    // 2026-11-22 is a Sunday.
    let found = report(&old, &at("2026-11-22T12:00:00Z"));
    check_held(&found, &[(Why::Window, "cache", 1)]);
    assert_eq!(found.held[0].message, "waiting for next maintenance window to update module version: 1.0.0 to 1.1.0");
    assert_eq!(found.held[0].hint.as_deref(), Some("the next maintenance window begins at 2026-11-28T20:00:00Z"));
    assert_eq!(found.held[0].place.as_ref().map(|place| (&*place.path, place.line)), Some((RELEASE, 11)));
    let lines = script(&found);
    for expected in ["kcp change! Manifest ×1", "skr change! ConfigMap ×1"] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{lines:?}");
    }
    // The catalog does not wait.
    assert!(lines.iter().any(|line| line.starts_with("skr change ModuleReleaseMeta ×1")), "{lines:?}");

    for open in [at("2026-11-28T21:00:00Z"), old.clone().release("1.1.0", "1.1.0")] {
        let found = report(&old, &open);
        check_held(&found, &[]);
        let lines = script(&found);
        assert!(lines.iter().any(|line| line.starts_with("skr change ConfigMap ×1")), "{lines:?}");
    }
}

#[test]
fn what_is_installed_decides_where_a_landscape_file_says_it() {
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "one", "channel": "regular", "installed": [{"name": "cache", "version": "2.0.0", "channel": "fast"}]}]}"#;
    let old = World { known: Some(known), ..world() };
    let new = old.clone().release("1.1.0", "1.1.0");
    // Both sides are below the installed version. Nothing changes, but this is reported although it was rejected
    // before.
    let found = report(&old, &new);
    assert!(!script(&found).iter().any(|line| line.contains("Manifest")), "{:?}", script(&found));
    check_held(&found, &[(Why::Downgrade, "cache", 1)]);
    assert_eq!(found.moves[0].runtimes, 0, "it moves in none");
    // Objects that the change does not affect are not reported.
    check_held(&report(&old, &old.clone().kyma("two", "channel: regular")), &[]);
}

#[test]
fn an_object_that_two_modules_bring_is_in_conflict() {
    let old = world().mailer("other");
    let new = old.clone().mailer("cache");
    let found = report(&old, &new);
    let in_runtime: Vec<String> = script(&found).into_iter().filter(|line| line.starts_with("skr ")).collect();
    // cache keeps its objects, and meanwhile nothing of mailer is pruned.
    assert_eq!(
        in_runtime,
        [
            "skr conflict! ConfigMap ×1 modules/mailer/objects/b.yaml:1",
            "skr delete! ConfigMap ×1 modules/mailer/objects/b.yaml:1"
        ]
    );
    let conflict = &found.differences.iter().find(|one| one.action == Action::Conflict).unwrap();
    assert_eq!(conflict.conflicts[0].manager, "module cache");
    assert_eq!(conflict.old.as_ref().unwrap()["data"]["version"], "1.0.0");
    assert_eq!(conflict.new.as_ref().unwrap()["data"]["version"], "of mailer");
    check_held(&found, &[(Why::Conflict, "mailer", 1)]);
    // The old side is equal, so there is nothing new.
    assert!(report(&new, &new).held.is_empty());
    // A runtime without cache has no conflict.
    let alone = |world: World| world.kyma("one", "channel: regular\n  modules: [{name: mailer}]");
    let found = report(&alone(old), &alone(new));
    assert!(!script(&found).iter().any(|line| line.contains("conflict")), "{:?}", script(&found));
}

#[test]
fn an_object_that_moves_to_another_module_is_one_that_goes_and_comes_again() {
    let path = "modules/cache/1.0.0/objects/moved.yaml";
    let old = world().mailer("other").file(path, &config("moved", "of cache"));
    let new = old.clone().without(path).file("modules/mailer/objects/c.yaml", &config("moved", "of mailer"));
    let found = report(&old, &new);
    let in_runtime: Vec<String> = script(&found).into_iter().filter(|line| line.starts_with("skr ")).collect();
    assert_eq!(in_runtime, ["skr recreate ConfigMap ×1 modules/mailer/objects/c.yaml:1"]);
    check_held(&found, &[]);
    // The object stays with its owner if that must not prune it.
    let kept = "metadata: {annotations: {tidegate.dev/prune: disabled}, ";
    let old = old.file(path, &config("moved", "of cache").replace("metadata: {", kept));
    let found =
        report(&old, &old.clone().without(path).file("modules/mailer/objects/c.yaml", &config("moved", "of mailer")));
    let in_runtime: Vec<String> = script(&found).into_iter().filter(|line| line.starts_with("skr ")).collect();
    assert_eq!(in_runtime, ["skr conflict! ConfigMap ×1 modules/mailer/objects/c.yaml:1"]);
    check_held(&found, &[(Why::Kept, "cache", 1), (Why::Conflict, "mailer", 1)]);
    // If its owner leaves the runtime, it stays there, and the other module takes it over as it is.
    let new = old.clone().without(path).file("modules/mailer/objects/c.yaml", &config("moved", "of mailer"));
    let found = report(&old, &new.kyma("one", "channel: regular\n  modules: [{name: mailer}]"));
    let moved = found.differences.iter().find(|one| &*one.id.name == "moved").expect("it is taken over");
    assert_eq!((moved.action, moved.effect), (Action::Change, Effect::Applies), "{:?}", script(&found));
    assert_eq!(moved.new.as_ref().unwrap()["data"]["version"], "of mailer");
    check_held(&found, &[]);
}

#[test]
fn what_a_module_that_becomes_unmanaged_has_stays_with_the_user_unless_another_one_may_take_it_over() {
    let path = "modules/cache/1.0.0/objects/moved.yaml";
    let old = world().mailer("other").file(path, &config("moved", "of cache"));
    let unmanaged = "channel: regular\n  modules: [{name: cache, managed: false}, {name: mailer}]";
    let moves = |text: &str| {
        let world = old.clone().without(path).without("modules/mailer/objects/b.yaml").kyma("one", unmanaged);
        world.file("modules/mailer/objects/c.yaml", text)
    };
    let in_runtime = |found: &Report| -> Vec<String> {
        let lines = script(found).into_iter().filter(|line| line.starts_with("skr ") && !line.contains("Kyma"));
        let mut lines: Vec<String> =
            lines.map(|line| line.rsplit_once(' ').map(|(line, _)| line.to_owned()).unwrap_or_default()).collect();
        lines.sort();
        lines
    };
    let found = report(&old, &moves(&config("moved", "of mailer")));
    // Both objects of the one module lose the ownership label, and nothing of the module in conflict is pruned.
    let change = "skr change ConfigMap ×1";
    assert_eq!(in_runtime(&found), [change, change, "skr conflict! ConfigMap ×1", "skr delete! ConfigMap ×1"]);
    check_held(&found, &[(Why::Conflict, "mailer", 1)]);
    assert!(found.held[0].message.contains("belongs to module cache, which becomes unmanaged"), "{:?}", found.held);
    let may = "metadata: {annotations: {tidegate.dev/adopt: \"true\"}, ";
    let found = report(&old, &moves(&config("moved", "of mailer").replace("metadata: {", may)));
    assert_eq!(in_runtime(&found), [change, change, "skr delete ConfigMap ×1"], "what is taken over is not released");
    check_held(&found, &[]);
}

#[test]
fn a_module_whose_manifest_is_paused_keeps_what_it_has_and_gets_nothing() {
    let paused = |module: &str| if module == "cache" { PAUSED_CACHE } else { PAUSED_MAILER };
    let of_modules = |found: &Report| -> Vec<String> {
        let lines = script(found).into_iter().filter(|line| !line.contains("Module") && !line.contains("Kyma"));
        lines.map(|line| line.rsplit_once(' ').map(|(line, _)| line.to_owned()).unwrap_or_default()).collect()
    };
    let path = "modules/cache/1.0.0/objects/moved.yaml";
    let moved = |text: &str| config("moved", text);
    let old = world().mailer("other").file(path, &moved("of cache"));
    let moves = || old.clone().without(path).file("modules/mailer/objects/c.yaml", &moved("of mailer"));
    let manifest = "kcp change Manifest ×1";
    for (module, new, expected, held) in [
        // Its Manifest follows git.
        ("cache", old.clone().release("1.1.0", "1.1.0"), &[manifest][..], &[(Why::Suspended, "", 1)][..]),
        (
            "cache",
            old.clone().kyma("one", "channel: regular\n  modules: [{name: mailer}]"),
            &["kcp delete Manifest ×1"],
            &[(Why::Suspended, "", 1)],
        ),
        (
            "cache",
            old.clone().kyma("one", "channel: regular\n  modules: [{name: cache, managed: false}, {name: mailer}]"),
            &["kcp delete Manifest ×1"],
            &[(Why::Suspended, "", 1)],
        ),
        // It keeps the object, and the other module is in conflict.
        (
            "cache",
            moves(),
            &[manifest, manifest, "skr conflict! ConfigMap ×1"],
            &[(Why::Suspended, "", 1), (Why::Conflict, "mailer", 1)],
        ),
        // It gets nothing: the other module loses the object.
        ("mailer", moves(), &[manifest, manifest, "skr delete ConfigMap ×1"], &[(Why::Suspended, "", 1)]),
        // Of two modules that get an object, the other one has it.
        (
            "cache",
            old.clone()
                .file("modules/cache/1.0.0/objects/new.yaml", &config("new", "both"))
                .file("modules/mailer/objects/new.yaml", &config("new", "both")),
            &[manifest, manifest, "skr create ConfigMap ×1"],
            &[(Why::Suspended, "", 1)],
        ),
    ] {
        let new = World { known: Some(paused(module)), ..new };
        let found = report(&old, &new);
        let mut lines = of_modules(&found);
        lines.sort();
        assert_eq!(lines, expected, "{module}: {:?}", script(&found));
        check_held(&found, held);
    }
}

const PAUSED_CACHE: &str = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
    {"namespace": "kcp-system", "name": "one", "channel": "regular", "paused": ["cache"], "labels": {"tidegate.dev/source": "kcp-system.landscape"},
     "installed": [{"name": "cache", "channel": "regular", "version": "1.0.0"}, {"name": "mailer", "channel": "regular", "version": "2.0.0"}]}]}"#;
const PAUSED_MAILER: &str = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
    {"namespace": "kcp-system", "name": "one", "channel": "regular", "paused": ["mailer"], "labels": {"tidegate.dev/source": "kcp-system.landscape"},
     "installed": [{"name": "cache", "channel": "regular", "version": "1.0.0"}, {"name": "mailer", "channel": "regular", "version": "2.0.0"}]}]}"#;

#[test]
fn what_waited_for_an_object_gets_it() {
    let old = world().mailer("cache");
    let new = old
        .clone()
        .without("modules/cache/1.0.0/objects/a.yaml")
        .file("modules/cache/1.0.0/objects/z.yaml", &config("other", "1.0.0"));
    let found = report(&old, &new);
    let in_runtime: Vec<String> = script(&found).into_iter().filter(|line| line.starts_with("skr ")).collect();
    assert_eq!(
        in_runtime,
        [
            "skr recreate ConfigMap ×1 modules/mailer/objects/b.yaml:1",
            "skr create ConfigMap ×1 modules/cache/1.0.0/objects/z.yaml:1"
        ]
    );
}

#[test]
fn while_the_source_is_suspended_nothing_comes_about() {
    let new = World { suspended: true, ..world().release("1.1.0", "1.1.0") };
    let found = report(&world(), &new);
    assert!(found.differences.iter().all(|one| one.effect == Effect::Held), "{:?}", script(&found));
    check_held(&found, &[(Why::Suspended, "", 0)]);
}

#[test]
fn a_source_that_its_file_suspends_is_resumed_in_git() {
    let hint = |idle, by| Held::source_idle(&source(), idle, by).hint;
    let command = Some("run `tidegate resume` to resume it".to_owned());
    let file = Some("remove `spec.suspend` from the GitSource in git to resume it".to_owned());
    for (idle, by, expected) in [
        (Idle::Suspended, ResumeBy::Command, &command),
        (Idle::SuspendedEnding, ResumeBy::Command, &command),
        (Idle::Ending, ResumeBy::Command, &None),
        (Idle::Suspended, ResumeBy::File, &file),
        (Idle::SuspendedEnding, ResumeBy::File, &file),
        (Idle::Ending, ResumeBy::File, &None),
    ] {
        assert_eq!(hint(idle, by), *expected, "{idle:?} {by:?}");
    }
}

#[test]
fn guarded_kinds_stay_when_a_version_drops_them() {
    let crd = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.org}\n\
        spec: {group: example.org, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: cache}\n";
    let path = "modules/cache/1.0.0/objects/a.yaml";
    let old = world().file(path, &format!("{}{crd}", config("cache", "1.0.0")));
    let found = report(&old, &old.clone().release("1.1.0", "1.1.0"));
    let deleted = |kind: &str| script(&found).iter().any(|line| line.starts_with(&format!("skr delete {kind} ")));
    assert!(deleted("Service") && !deleted("CustomResourceDefinition"), "{:?}", script(&found));
    check_held(&found, &[(Why::Kept, "cache", 1)]);
    let message = &found.held[0].message;
    assert!(
        message.contains("CustomResourceDefinition.apiextensions.k8s.io things.example.org is no longer in 1.1.0"),
        "{message}"
    );
    // The object is deleted together with the module.
    let git = "{tidegate.dev/modules-from: git}";
    let gone = report(&old, &old.clone().kyma_with("one", git, "channel: regular"));
    assert!(
        script(&gone).iter().any(|line| line.starts_with("skr delete CustomResourceDefinition ")),
        "{:?}",
        script(&gone)
    );
}

#[test]
fn a_field_that_cannot_change_is_refused_unless_the_object_may_be_made_anew() {
    let deployment = |version: &str, annotations: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: cache, annotations: {annotations}}}\n\
             spec: {{selector: {{matchLabels: {{v: '{version}'}}}}}}\n"
        )
    };
    for (annotations, expected, is_told) in
        [("{}", Action::Refuse, true), ("{tidegate.dev/recreate: enabled}", Action::Recreate, false)]
    {
        let old = world()
            .file("modules/cache/1.0.0/objects/a.yaml", &deployment("1", "{}"))
            .file("modules/cache/1.1.0/objects/a.yaml", &deployment("2", annotations));
        let found = report(&old, &old.clone().release("1.1.0", "1.1.0"));
        let [one] = &found.differences.iter().filter(|one| &*one.id.kind == "Deployment").collect::<Vec<_>>()[..]
        else {
            panic!("{:?}", script(&found));
        };
        assert_eq!((one.action, one.refusal.is_some()), (expected, is_told));
        let refused = found.count(Side::Runtime).refuse;
        assert_eq!(refused, usize::from(is_told));
    }
}

#[test]
fn an_object_that_may_be_made_anew_from_now_on_is_recreated_where_an_earlier_change_was_refused() {
    let deployment = |annotations: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: cache, annotations: {annotations}}}\n\
             spec: {{selector: {{matchLabels: {{v: '1'}}}}}}\n"
        )
    };
    // What the control plane has of the module, whenever the old side was committed.
    let following = |failed: &str, version: &str, control_plane: &World, behind: &str| -> &'static str {
        let tree = control_plane.snapshot().trees["modules/cache/1.0.0/objects"];
        let text = format!(
            "apiVersion: tidegate.dev/v1alpha1\nkind: Landscape\nwritten: '2026-01-01T00:00:00Z'\nkymas:\n- namespace: kcp-system\n  \
             name: one\n  channel: regular\n  modules: [{{name: cache}}]\n  installed: [{{name: cache, channel: regular, \
             version: {version}{failed}}}]\n{behind}templates:\n- apiVersion: operator.kyma-project.io/v1beta2\n  kind: ModuleTemplate\n  \
             metadata: {{name: cache-1.0.0, namespace: kcp-system, labels: {{tidegate.dev/source: kcp-system.landscape}}, \
             annotations: {{tidegate.dev/module-tree: {tree}}}}}\n  spec: {{moduleName: cache, version: 1.0.0, descriptor: {{}}}}\n"
        );
        Box::leak(text.into_boxed_str())
    };
    let file = |failed: &str, version: &str, control_plane: &World| following(failed, version, control_plane, "");
    let path = "modules/cache/1.0.0/objects/a.yaml";
    let (without, with) = (deployment("{}"), deployment("{tidegate.dev/recreate: enabled}"));
    let (now, earlier) = (world().file(path, &without), world());
    for (known, expected) in [
        (None, true),
        (Some(file("", "1.0.0", &now)), false),
        (Some(file(", failed: true", "1.0.0", &now)), true),
        (Some(file("", "0.9.0", &now)), true),
        // The old side was not applied yet when the file was written.
        (Some(file("", "1.0.0", &earlier)), true),
        // The control plane had it, and the runtime had not followed.
        (Some(following("", "1.0.0", &now, "  behind: [cache]\n")), true),
        (Some(following("", "1.0.0", &now, "  behind: [mailer]\n")), false),
    ] {
        let old = World { known, ..world().file(path, &without) };
        let found = report(&old, &old.clone().file(path, &with));
        let deployments: Vec<&Difference> =
            found.differences.iter().filter(|one| &*one.id.kind == "Deployment").collect();
        let [one] = deployments[..] else { panic!("{:?}", script(&found)) };
        assert_eq!((one.action, one.may_be(Action::Recreate)), (Action::Change, expected), "{known:?}");
        let headline = crate::text::plain(&crate::text::summary(&found, crate::text::Options::default()));
        let said = "1 Deployment is recreated where an earlier change was refused";
        assert_eq!(headline.contains(said), expected, "{headline}");
        let back = report(&old.clone().file(path, &with), &old);
        assert!(back.differences.iter().all(|one| !one.may_be(Action::Recreate)), "the annotation goes");
    }
}

/// The actions, what is held and what is unknown, if the objects of module `cache` change.
#[track_caller]
fn check_objects(old: &str, new: &str, actions: &[&str], held: &[&str], unknown: &[&str]) {
    let path = "modules/cache/1.0.0/objects/b.yaml";
    let world = world().file(path, old);
    let found = report(&world, &world.clone().file(path, new));
    let in_runtimes = found.differences.iter().filter(|one| one.target == Side::Runtime && !one.is_catalog_copy());
    let said: Vec<String> = in_runtimes.map(|one| format!("{} {}", one.action, one.id.kind)).collect();
    assert_eq!(said, actions, "{new}");
    let held_now: Vec<&str> = found.held.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(held_now, held);
    let values: Vec<&str> = found.unknown.iter().map(|one| one.value.as_str()).collect();
    let all = unknown.iter().all(|part| values.iter().any(|value| value.contains(part)));
    let concerned = values.iter().filter(|value| value.contains("of module cache")).count();
    assert!(all && concerned == unknown.len(), "{values:?}");
}

#[test]
fn what_an_api_server_stores_alike_is_no_change() {
    let job = |more: &str, cpu: &str| {
        format!(
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: j, namespace: cache}}\nspec: {{schedule: '* * * * *', {more}\
             jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: a, resources: {{limits: \
             {{cpu: {cpu}}}}}}}]}}}}}}}}}}\n"
        )
    };
    check_objects(&job("", "1000m"), &job("concurrencyPolicy: Allow, ", "'1'"), &[], &[], &[]);
    check_objects(&job("", "1000m"), &job("concurrencyPolicy: Forbid, ", "'1'"), &["change CronJob"], &[], &[]);
}

#[test]
fn a_service_keeps_its_address_and_gets_no_other() {
    let service = |spec: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: s, namespace: cache}}\nspec: {{{spec}ports: [{{port: 80}}]}}\n"
        )
    };
    let (without, headless) = (service(""), service("clusterIP: None, "));
    let kept = "Service cache/s no longer sets spec.clusterIP: this has no effect, the API server keeps it";
    check_objects(&headless, &without, &[], &[kept], &[]);
    check_objects(&without, &headless, &["refuse Service"], &[], &[]);
    check_objects(&without, &service("clusterIP: 10.0.0.1, "), &["refuse Service"], &[], &[]);
}

#[test]
fn whether_a_claim_is_bound_and_what_a_webhook_converts_is_not_known() {
    let claim = |size: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: c, namespace: cache}}\nspec: {{storageClassName: s, \
             accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}\n---\napiVersion: storage.k8s.io/v1\n\
             kind: StorageClass\nmetadata: {{name: s}}\nprovisioner: a\nallowVolumeExpansion: true\n"
        )
    };
    check_objects(&claim("1Gi"), &claim("2Gi"), &["change PersistentVolumeClaim"], &[], &["is bound"]);
    check_objects(&claim("1Gi"), &claim("1024Mi"), &[], &[], &[]);
    let thing = |version: &str, conversion: &str| {
        let versions: Vec<String> = ["v1", "v2"]
            .map(|name| {
                format!(
                    "{{name: {name}, served: true, storage: {}, schema: {{openAPIV3Schema: {{type: object, \
                     x-kubernetes-preserve-unknown-fields: true}}}}}}",
                    name == "v1"
                )
            })
            .into();
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: things.example.org}}\nspec: \
             {{group: example.org, scope: Namespaced, names: {{kind: Thing, plural: things}}, {conversion}versions: [{}]}}\n---\n\
             apiVersion: example.org/{version}\nkind: Thing\nmetadata: {{name: t, namespace: cache}}\nspec: {{a: 1}}\n",
            versions.join(", ")
        )
    };
    check_objects(&thing("v1", ""), &thing("v2", ""), &[], &[], &[]);
    let webhook = "conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: a}}}}, ";
    check_objects(&thing("v1", webhook), &thing("v2", webhook), &[], &[], &["in version v2"]);
}

#[test]
fn what_is_withheld_stays_as_it_was() {
    let broken = world().kyma("one", "chanel: fast");
    let found = check(&world(), &broken, &[]);
    check_held(&found, &[(Why::Withheld, "", 1)]);
}

#[test]
fn nothing_goes_while_errors_stand() {
    let found = check(&world(), &world().without("kymas/one.yaml").file("bad.yaml", "a: ["), &[]);
    check_held(&found, &[(Why::Kept, "", 1)]);
}

#[test]
fn deleting_a_runtime_waits_with_all_that_follows() {
    let found = report(&world(), &world().without("kymas/one.yaml"));
    assert!(found.differences.iter().all(|one| one.action == Action::Delete), "{:?}", script(&found));
    assert!(found.differences.iter().all(|one| one.effect == Effect::NeedsConfirmation));
    let kinds: Vec<&str> = found.differences.iter().map(|one| &*one.id.kind).collect();
    assert!(kinds.contains(&"Manifest") && kinds.contains(&"ConfigMap") && !kinds.contains(&"Namespace"), "{kinds:?}");
}

/// A landscape with `cache` and `mailer` in six runtimes, more than the removal limit.
fn six() -> World {
    let names = ["one", "two", "three", "four", "five", "six"];
    let both = "channel: regular\n  modules: [{name: cache}, {name: mailer}]";
    names.iter().fold(world().mailer("more"), |world, name| world.kyma(name, both))
}

#[test]
fn a_module_that_leaves_more_runtimes_than_the_limit_waits_with_the_command() {
    let dropped = |count: usize| {
        let names = ["one", "two", "three", "four", "five", "six"];
        let cache = "channel: regular\n  modules: [{name: cache}]";
        names.iter().take(count).fold(six(), |world, name| world.kyma(name, cache))
    };
    let within = report(&six(), &dropped(5));
    assert!(within.held.is_empty());
    assert!(within.differences.iter().all(|one| one.effect == Effect::Applies), "{:?}", script(&within));
    let found = report(&six(), &dropped(6));
    check_held(&found, &[(Why::Unconfirmed, "mailer", 6)]);
    let held = &found.held[0];
    assert!(held.message.starts_with("module mailer is removed from 6 runtimes, more than the removal limit of 5: "));
    assert!(held.hint.as_ref().unwrap().contains("tidegate.dev/confirm-prune=$(git rev-parse HEAD)"), "{held:?}");
    let of_runtimes = found.differences.iter().filter(|one| &*one.id.kind == "ConfigMap").collect::<Vec<_>>();
    assert_eq!(of_runtimes.len(), 2);
    assert!(of_runtimes.iter().all(|one| (one.action, one.effect) == (Action::Delete, Effect::NeedsConfirmation)));
    // A suspended runtime counts for the limit, and loses the module later.
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "six", "channel": "regular",
         "labels": {"operator.kyma-project.io/skip-reconciliation": "true"}}]}"#;
    let found = report(&six(), &World { known: Some(known), ..dropped(6) });
    let headline = crate::summary::Summary::from_report(&found).headline;
    let expected = "mailer 2.0.0 goes from 5 of 6 runtimes, and from 1 suspended runtime once it resumes; ";
    assert!(headline.contains(expected), "{headline}");
}

#[test]
fn objects_that_leave_a_version_wait_and_with_a_new_version_they_do_not() {
    let found = report(&six(), &six().without("modules/mailer/objects/b.yaml"));
    check_held(&found, &[(Why::Unconfirmed, "mailer", 6)]);
    assert!(
        found.held[0].message.starts_with("ConfigMap cache/more of module mailer 2.0.0 is removed from 6 runtimes"),
        "{}",
        found.held[0].message
    );
    let gone = found.differences.iter().find(|one| one.action == Action::Delete).unwrap();
    assert_eq!((&*gone.id.name, gone.effect), ("more", Effect::NeedsConfirmation));
    let old = six().file("modules/cache/1.0.0/objects/b.yaml", &config("old", "1.0.0"));
    let bumped = report(&old, &old.clone().release("1.1.0", "1.1.0"));
    assert!(bumped.held.iter().all(|held| held.why != Why::Unconfirmed));
}

/// The downgrade guard keeps a higher version in one of six runtimes, so the removal from the others is within the
/// limit.
#[test]
fn a_runtime_that_the_guard_keeps_at_another_version_loses_nothing_of_this_one() {
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "six", "channel": "regular", "modules": [{"name": "mailer"}],
         "installed": [{"name": "mailer", "channel": "regular", "version": "3.0.0"}]}]}"#;
    let new = six().without("modules/mailer/objects/b.yaml");
    check_held(&report(&six(), &new), &[(Why::Unconfirmed, "mailer", 6)]);
    check_held(&report(&six(), &World { known: Some(known), ..new }), &[(Why::Downgrade, "mailer", 1)]);
}

#[test]
fn the_headline_counts_objects_of_the_control_plane() {
    let manifest = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Manifest\nmetadata: {annotations: {a: b}}\n\
        spec: {install: {{ install|tojson }}, version: {{ module.version|tojson }}}\n";
    let found = report(&six(), &World { templates: vec![("kcp/manifest.yaml", manifest)], ..six() });
    let headline = crate::summary::Summary::from_report(&found).headline;
    assert_eq!(headline, "12 Manifests change");
}

#[test]
fn an_unused_template_goes_at_once() {
    let old = world().release("1.1.0", "1.1.0");
    let new = old.clone().without("modules/cache/1.0.0/template.yaml").without("modules/cache/1.0.0/objects/a.yaml");
    check(&old, &new, &["kcp delete ModuleTemplate ×1 modules/cache/1.0.0/template.yaml:1"]);
}

#[test]
fn the_runtime_decides_on_its_list() {
    let runtime = "{tidegate.dev/modules-from: runtime}";
    let old = world().kyma_with("one", runtime, "channel: regular\n  modules: [{name: cache}]");
    let new = world().kyma_with("one", runtime, "channel: fast");
    let found = check(&old, &new, &["kcp change Kyma ×1 kymas/one.yaml:9"]);
    check_held(&found, &[(Why::DecidedByRuntime, "", 1)]);
    let lists = found.unknown.iter().find(|one| one.value.starts_with("module lists")).unwrap();
    assert!(!lists.may_hide, "no module changed");
    let bumped = report(&old, &old.clone().release("1.1.0", "1.1.0"));
    assert!(bumped.unknown.iter().find(|one| one.value.starts_with("module lists")).unwrap().may_hide);
}

/// The modules that a runtime had selected are removed when git takes over. Only a landscape file
/// names them.
#[test]
fn a_list_that_git_takes_over_from_the_runtime_is_not_known() {
    let spec = "channel: regular\n  modules: [{name: cache}]";
    let old = world().kyma_with("one", "{tidegate.dev/modules-from: runtime}", spec);
    let new = old.clone().kyma("one", spec);
    let found = report(&old, &new);
    let list = found.unknown.iter().find(|one| one.value.starts_with("module lists")).unwrap();
    assert!(list.may_hide);
    assert_eq!((found.runtimes.total, found.runtimes.compared), (1, 0), "nothing says that it stays unchanged");
    let gone = report(&old, &old.clone().without("kymas/one.yaml"));
    assert!(gone.unknown.iter().any(|one| one.value.starts_with("module lists") && one.may_hide));
}

/// A landscape file names them, so the list in git waits as any removal of modules.
#[test]
fn modules_that_only_the_runtime_selects_wait_for_a_confirmation_when_git_takes_over() {
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "one", "channel": "regular", "modules": [{"name": "cache"}, {"name": "mailer"}]}]}"#;
    let old = World {
        known: Some(known),
        policy: Policy { removal_limit: Some(0), ..Policy::default() },
        ..world().mailer("other")
    }
    .kyma_with("one", "{tidegate.dev/modules-from: runtime}", "channel: regular\n  modules: [{name: cache}]");
    let new = old.clone().kyma("one", "channel: regular\n  modules: [{name: cache}]");
    let found = report(&old, &new);
    check_held(&found, &[(Why::Unconfirmed, "mailer", 1)]);
    let of_mailer = found.differences.iter().filter(|one| one.is_manifest()).collect::<Vec<_>>();
    let of_mailer: Vec<_> = of_mailer.iter().map(|one| (one.action, one.effect)).collect();
    assert_eq!(of_mailer, [(Action::Delete, Effect::NeedsConfirmation)]);
}

/// A Secret whose values are words of another object removes no entry of that object, and hidden
/// content is reported.
#[test]
fn copies_of_a_secrets_values_do_not_hide_that_something_differs() {
    let data = |text: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cache, namespace: cache}}\ndata: {text}\n---\n\
             apiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: cache}}\nstringData: {{a: 'privvalue>>>???'}}\n"
        )
    };
    let at = "modules/cache/1.0.0/objects/a.yaml";
    let between = |old: &str, new: &str| -> Difference {
        let found = report(&world().file(at, &data(old)), &world().file(at, &data(new)));
        assert!(!format!("{found:?}").to_lowercase().contains("privvalue"));
        found.differences.into_iter().find(|one| &*one.id.kind == "ConfigMap").unwrap()
    };
    let keys =
        between("{'privvalue>>>???': one, 'PRIVVALUE>>>???': two}", "{'privvalue>>>???': two, 'PRIVVALUE>>>???': two}");
    assert_eq!(keys.new.unwrap()["data"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(keys.hunks.len(), 1);
    // Both alphabets of base64 look alike after masking.
    let hidden = between("{x: cHJpdnZhbHVlPj4+Pz8/}", "{x: cHJpdnZhbHVlPj4-Pz8_}");
    assert_eq!((hidden.hunks.len(), hidden.hunks[0].path.as_str()), (1, "data.x"), "{:?}", hidden.hunks);
    assert!(format!("{:?}", hidden.hunks).contains("differs only in copies of Secrets' values"));
}

#[test]
fn a_runtime_that_is_left_alone_changes_in_nothing() {
    let marks = "{operator.kyma-project.io/skip-reconciliation: 'true'}";
    let old = world().kyma_with("one", marks, "channel: regular\n  modules: [{name: cache}]");
    let found = report(&old, &old.clone().release("1.1.0", "1.1.0"));
    assert!(found.differences.iter().all(|one| one.target == Side::ControlPlane), "{:?}", script(&found));
    check_held(&found, &[(Why::Suspended, "", 1)]);
    assert_eq!(found.held[0].hint.as_deref(), Some("remove the label from the Kyma in git to resume it"));
    assert_eq!((found.runtimes.total, found.runtimes.compared), (1, 0), "it is not compared anywhere");
    assert_eq!(found.moves[0].runtimes, 0);
    // The same applies to a runtime that a user suspended in the cluster, until git removes the label.
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "one", "channel": "regular", "labels": {"operator.kyma-project.io/skip-reconciliation": "true"}}]}"#;
    let suspended = World { known: Some(known), ..world().release("1.1.0", "1.1.0") };
    let found = report(&world(), &suspended);
    check_held(&found, &[(Why::Suspended, "", 1)]);
    assert_eq!(found.held[0].hint.as_deref(), Some("run `tidegate resume` to resume it"));
    check_held(&report(&old, &suspended), &[]);
    // A runtime that is removed is removed even if it is suspended.
    let gone = report(&old, &old.clone().without("kymas/one.yaml"));
    assert!(script(&gone).iter().any(|line| line.starts_with("skr delete? ConfigMap")), "{:?}", script(&gone));
}

#[test]
fn a_module_that_a_suspended_kyma_has_dropped_goes_when_the_label_goes() {
    let marks = "{operator.kyma-project.io/skip-reconciliation: 'true'}";
    let known = r#"{"apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2026-01-01T00:00:00Z", "kymas": [
        {"namespace": "kcp-system", "name": "one", "channel": "regular", "labels": {"operator.kyma-project.io/skip-reconciliation": "true"},
         "installed": [{"name": "cache", "channel": "regular", "version": "1.0.0"}]}]}"#;
    let dropped = "channel: regular\n  modules: []";
    let old = world().kyma_with("one", marks, dropped);
    let resumed = World { known: Some(known), ..world().kyma("one", dropped) };
    let deletes =
        |found: &Report| -> Vec<String> { script(found).into_iter().filter(|line| line.contains(" delete")).collect() };
    let found = report(&old, &resumed);
    assert_eq!(deletes(&found).len(), 2, "{:?}", script(&found));
    assert!(deletes(&found)[0].starts_with("kcp delete Manifest ×1"), "{:?}", script(&found));
    assert!(deletes(&found)[1].starts_with("skr delete ConfigMap ×1"), "{:?}", script(&found));
    // Nothing goes while the label stays, nor if the module is selected again.
    let stays = World { known: Some(known), ..old.clone() };
    assert_eq!(deletes(&report(&old, &stays)), [""; 0]);
    let again = World { known: Some(known), ..world().kyma("one", "channel: regular\n  modules: [{name: cache}]") };
    assert_eq!(deletes(&report(&old, &again)), [""; 0]);
}

#[test]
fn a_module_that_a_user_takes_over_stays_in_the_runtime() {
    let new = world().kyma("one", "channel: regular\n  modules: [{name: cache, managed: false}]");
    let found = report(&world(), &new);
    let expected = [
        "kcp delete Manifest ×1 kymas/one.yaml:10",
        "kcp change Kyma ×1 kymas/one.yaml:10",
        "skr change ConfigMap ×1 kymas/one.yaml:10",
        "skr change Kyma ×1 kymas/one.yaml:10",
    ];
    assert_eq!(script(&found), expected, "its objects stay, and lose the ownership label");
    let object = found.differences.iter().find(|one| &*one.id.kind == "ConfigMap").unwrap();
    let has_label = |object: &Option<Arc<Value>>| {
        object.as_ref().unwrap().pointer("/metadata/labels").unwrap().get(label::MANAGED_BY).is_some()
    };
    assert_eq!((has_label(&object.old), has_label(&object.new)), (true, false));
}

#[test]
fn runtimes_that_differ_alike_are_one_difference() {
    let spec = |channel: &str| format!("channel: {channel}\n  modules: [{{name: cache}}]");
    let all =
        |channel: &str| ["one", "two", "three"].iter().fold(world(), |world, name| world.kyma(name, &spec(channel)));
    let found = report(&all("regular"), &all("fast"));
    let counted: Vec<(&str, usize, usize)> =
        found.differences.iter().map(|one| (&*one.id.kind, one.objects, one.runtimes.len())).collect();
    assert_eq!(counted, [("Kyma", 3, 3), ("Manifest", 3, 3), ("ConfigMap", 3, 3), ("Kyma", 3, 3)]);
    assert_eq!((found.runtimes.touched, found.runtimes.variants), (3, 1));
    assert_eq!(found.differences[1].places[0].to_string(), "kymas/one.yaml:9:12");
}

#[test]
fn a_template_that_looks_at_names_is_asked_for_each_runtime() {
    let manifest = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Manifest\n\
        {% if name is startingwith('two') %}metadata: {labels: {canary: \"yes\"}}\n{% endif %}\
        spec: {install: {{ install|tojson }}, version: {{ module.version|tojson }}}\n";
    let old = world().kyma("two", "channel: regular\n  modules: [{name: cache}]");
    let new = World { templates: vec![("kcp/manifest.yaml", manifest)], ..old.clone() };
    let found = report(&old, &new);
    let manifests: Vec<usize> =
        found.differences.iter().filter(|one| &*one.id.kind == "Manifest").map(|one| one.objects).collect();
    assert_eq!(manifests, [1, 1], "{:?}", script(&found));
    assert!(found.differences.iter().all(|one| one.places[0].to_string().starts_with("templates/kcp/manifest.yaml:")));
}

/// One of thousands of runtimes represents all, and yet each result contains its own names.
#[test]
fn what_a_template_makes_of_names_is_each_runtimes_own() {
    let template = "modules/cache/1.0.0/template.yaml";
    let resource = "\n  data: {apiVersion: example.org/v1, kind: Thing}\n";
    let mut old =
        world().kyma("one", "channel: regular").kyma("two", "channel: regular").kyma("six", "channel: regular");
    let text = old.files[template]
        .trim_end()
        .replace("spec: {moduleName: cache, version: 1.0.0}", "spec:\n  moduleName: cache\n  version: 1.0.0");
    old = old.file(template, &format!("{text}{resource}"));
    let wish = "channel: regular\n  modules: [{name: cache, customResourcePolicy: CreateAndDelete}]";
    let asked = old.clone().kyma("one", wish).kyma("two", wish).kyma("six", wish);
    let with = |text: &'static str| World { templates: vec![("kcp/manifest.yaml", text)], ..asked.clone() };
    let find = |report: &Report, kind: &str| -> Vec<Difference> {
        report.differences.iter().filter(|one| &*one.id.kind == kind).cloned().collect()
    };
    let names = |found: &[Difference]| -> Vec<String> { found.iter().map(|one| one.id.name.to_string()).collect() };
    // The name itself does not distinguish runtimes.
    let found = report(&old, &asked);
    assert_eq!(find(&found, "Manifest").iter().map(|one| one.objects).collect::<Vec<_>>(), [3], "{:?}", script(&found));
    let things = find(&found, "Thing");
    assert_eq!(names(&things).len(), 3);
    for (thing, runtime) in things.iter().zip(["one", "six", "two"]) {
        assert_eq!((thing.runtimes[0].name(), thing.objects), (runtime, 1));
        assert!(thing.id.name.starts_with(&format!("{runtime}-cache-")), "{}", thing.id.name);
    }
    // Values that are derived from it do, and each is shown separately.
    let manifest = "apiVersion: operator.kyma-project.io/v1beta2\nkind: Manifest\nmetadata: {annotations: {a: {{ kyma.name|upper }}}}\n\
        spec: {install: {{ install|tojson }}, version: {{ module.version|tojson }}, resource: {{ resource|tojson }}}\n";
    let manifests = find(&report(&asked, &with(manifest)), "Manifest");
    let shown: Vec<(&str, &str)> = manifests
        .iter()
        .map(|one| {
            let new = one.new.as_ref().unwrap();
            let own = new["metadata"]["name"] == new["spec"]["resource"]["metadata"]["name"];
            assert!(own && one.id.name.starts_with(one.runtimes[0].name()), "{new:#}");
            (one.runtimes[0].name(), new["metadata"]["annotations"]["a"].as_str().unwrap())
        })
        .collect();
    assert_eq!(shown, [("one", "ONE"), ("six", "SIX"), ("two", "TWO")]);
}

#[test]
fn a_template_that_fails_is_no_delete() {
    let new = World { templates: vec![("skr/module-template.yaml", "{{ fail(\"no\") }}")], ..world() };
    let found = check(&world(), &new, &[]);
    assert!(
        found.diagnostics.iter().any(|diagnostic| diagnostic.message.contains("skr/module-template.yaml")),
        "{:?}",
        found.diagnostics
    );
}

#[test]
fn a_module_that_is_not_in_git_is_not_known() {
    let oci = |version: &str| {
        format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata: {{name: cache-{version}, namespace: kcp-system}}\n\
             spec: {{moduleName: cache, version: {version}, descriptor: {{component: {{name: a}}}}}}\n"
        )
    };
    let old = world()
        .without("modules/cache/1.0.0/objects/a.yaml")
        .without(MODULE)
        .file("modules/cache/1.0.0/template.yaml", &oci("1.0.0"))
        .file("modules/cache/1.1.0/template.yaml", &oci("1.1.0"));
    let found = report(&old, &old.clone().release("1.1.0", "1.1.0"));
    let unknown = found.unknown.iter().find(|one| one.value == "objects that are not in git, of module cache").unwrap();
    assert!(unknown.may_hide);
}

#[test]
fn an_object_of_a_module_in_a_registry_is_in_conflict_with_that_of_another() {
    let layer =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared, namespace: cache}\ndata: {version: of mailer}\n";
    let old = world().mailer_in_registry(Some(layer));
    let new = old.clone().file("modules/cache/1.0.0/objects/z.yaml", &config("shared", "of cache"));
    let of_runtime =
        |found: &Report| -> Vec<String> { script(found).into_iter().filter(|line| line.starts_with("skr ")).collect() };
    let found = report(&old, &new);
    assert_eq!(of_runtime(&found), ["skr conflict! ConfigMap ×1 modules/cache/1.0.0/objects/z.yaml:1"]);
    check_held(&found, &[(Why::Conflict, "cache", 1)]);
    assert_eq!(found.held[0].message.split(':').next(), Some("ConfigMap cache/shared belongs to module mailer"));
    assert!(!found.unknown.iter().any(|one| one.value.contains("mailer")), "{:?}", found.unknown);
    // The module in the registry comes second.
    let cache = |world: World| world.kyma("one", "channel: regular\n  modules: [{name: cache}]");
    let found = report(&cache(new.clone()), &new);
    check_held(&found, &[(Why::Conflict, "mailer", 1)]);
}

/// If the objects of a module are not known, neither is whether an object that is new in the runtime is one of them.
#[test]
fn conflicts_with_a_module_that_is_not_known_are_not_known() {
    let old = world().mailer_in_registry(None);
    let new = old.clone().file("modules/cache/1.0.0/objects/z.yaml", &config("shared", "of cache"));
    let said = |found: &Report| -> Vec<(String, usize, bool)> {
        let of_mailer = found.unknown.iter().filter(|one| one.value.contains("mailer"));
        of_mailer.map(|one| (one.value.clone(), one.occurrences, one.may_hide)).collect()
    };
    let what = "conflicts with objects that are not in git, of module mailer".to_owned();
    assert_eq!(said(&report(&old, &new)), [(what, 1, true)]);
    // No module of the runtime gets other objects.
    assert!(said(&report(&old, &old)).is_empty());
    assert!(said(&report(&old, &old.clone().release("1.0.0", "1.0.0"))).is_empty());
    // A runtime without the module.
    let alone = |world: World| world.kyma("one", "channel: regular\n  modules: [{name: cache}]");
    assert!(said(&report(&alone(old.clone()), &alone(new))).is_empty());
    // The module itself changes: nothing of it is known.
    let found = said(&report(&alone(old.clone()), &old));
    assert_eq!(found, [("objects that are not in git, of module mailer".to_owned(), 1, true)]);
}

const KCP: &str = include_str!("../../../../examples/kcp/landscape.yaml");

/// A world with a kcp landscape, in which `from` is replaced.
fn kcp(from: &str, to: &str) -> World {
    assert!(KCP.contains(from), "{from}");
    world().file("kcp.yaml", &KCP.replace(from, to))
}

#[test]
fn a_kcp_landscape_differs_in_its_definition_and_in_what_follows_from_it() {
    let old = kcp("", "");
    check(&old, &old, &[]);
    let expected = ["kcp change Deployment ×1 kcp.yaml:47", "kcp change Shard ×1 kcp.yaml:47"];
    check(&old, &kcp("replicas: 3", "replicas: 4"), &expected);
    let roles = kcp("clusterRoles: [cluster-admin]", "clusterRoles: [cluster-admin, viewer]");
    check(&old, &roles, &["kcp change Kubeconfig ×1 kcp.yaml:107"]);
}

#[test]
fn a_kcp_landscape_that_goes_waits_for_a_confirmation_where_it_holds_workspaces() {
    let (_, shard) = KCP.split_once("---\napiVersion: operator.kcp.io/v1alpha1\nkind: Shard\n").unwrap();
    let (shard, _) = shard.split_once("---\n").unwrap();
    let without = KCP.replace(shard, "").replace("---\napiVersion: operator.kcp.io/v1alpha1\nkind: Shard\n", "");
    assert!(!without.contains("kind: Shard"));
    let new = world().file("kcp.yaml", &without.replace("shardRef: {name: eu}", "rootShardRef: {name: main}"));
    let found = script(&report(&kcp("", ""), &new));
    let found = found.iter().map(String::as_str);
    let (gone, changed): (Vec<&str>, Vec<&str>) = found.partition(|line| line.contains("delete"));
    // The pods of the root shard and of the proxy trust the keys of the shard's service accounts, so they change when
    // it is deleted. The virtual workspaces serve another shard.
    assert_eq!(
        changed,
        [
            "kcp change Deployment ×1 kcp.yaml:45",
            "kcp change? Deployment ×1 kcp.yaml:17",
            "kcp change? Deployment ×1 kcp.yaml:49",
            "kcp change VirtualWorkspace ×1 kcp.yaml:45",
        ]
    );
    assert!(gone.contains(&"kcp delete? Shard ×1 kcp.yaml:39"), "{gone:?}");
    assert!(gone.contains(&"kcp delete? Deployment ×1 kcp.yaml:39"), "{gone:?}");
    assert!(gone.len() > 10 && gone.iter().all(|line| line.starts_with("kcp delete? ")), "{gone:?}");
}

#[test]
fn a_resource_of_a_kcp_landscape_that_is_held_back_keeps_its_objects() {
    let old = kcp("", "");
    let report = report(&old, &kcp("port: 443}\n  cache", "port: 0}\n  cache"));
    assert_eq!(script(&report), [""; 0]);
    check_held(&report, &[(Why::Withheld, "main", 0)]);
}

#[test]
fn a_template_of_kcp_landscapes_that_fails_is_no_delete() {
    let mut new = kcp("", "");
    new.templates.push(("setup/service.yaml", "apiVersion: v1\nkind: Service\nspec: {type: {{ nothing }}}\n"));
    let report = report(&kcp("", ""), &new);
    assert_eq!(script(&report), [""; 0]);
}

#[test]
fn a_default_resource_or_a_manager_that_changes_affects_no_runtime() {
    let with = |memory: &str, manager: &str| {
        let template = format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: cache-1.0.0\n  \
             namespace: kcp-system\n  annotations: {{tidegate.dev/module-path: modules/cache/1.0.0/objects}}\nspec:\n  \
             moduleName: cache\n  version: 1.0.0\n  data: {{apiVersion: example.org/v1, kind: Cache, metadata: \
             {{name: a, namespace: b}}, spec: {{memory: {memory}}}}}\n  \
             manager: {{group: apps, version: v1, kind: Deployment, namespace: cache, name: {manager}}}\n"
        );
        world().file("modules/cache/1.0.0/template.yaml", &template)
    };
    for new in [with("2Gi", "one"), with("1Gi", "two")] {
        let report = report(&with("1Gi", "one"), &new);
        let bookkeeping = report.bookkeeping();
        let of_manifests = |(index, one): (usize, &Difference)| one.is_manifest().then(|| bookkeeping.contains(&index));
        let of_manifests: Vec<bool> = report.differences.iter().enumerate().filter_map(of_manifests).collect();
        assert_eq!((of_manifests, report.runtimes.touched), (vec![true], 0), "{:?}", script(&report));
    }
}
