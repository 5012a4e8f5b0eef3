//! What `tidegate diff` predicts, offline and live, is what the daemon then does: over generated changes, on
//! simulated servers and on real ones, and over a script on real servers.
//!
//! A trial changes the work tree of a landscape that is at rest, asks `diff` about it, commits, and compares what
//! happened to each object. A prediction says of each object that it is created, changed, deleted, or deleted and
//! created again, either now or after a confirmation. Everything else (refused, held, waiting, or not mentioned) must
//! stay as it is, and the statuses must say why. If something waits for a confirmation, the trial confirms it and
//! compares again.

mod changes;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::{
    api::{Manifest, names::annotation},
    plan,
};
use tidegate_process::ambient;
use tidegate_testbed::{Extent, Folder};

use self::changes::{Change, Repo};
use crate::{
    harness::{self, SOON},
    stage::{self, KYMAS, Stage, read, scenarios},
};

scenarios! {
    generated_changes_do_what_was_predicted,
    generated_changes_do_what_was_predicted_while_a_manifest_is_paused,
    generated_changes_do_what_was_predicted_while_a_manifest_of_a_kyma_that_goes_is_paused,
    a_module_that_was_dropped_from_a_suspended_runtime_goes_as_predicted_when_it_resumes,
    a_component_of_another_name_and_a_release_that_is_mended_do_what_was_predicted,
    what_is_refused_and_a_version_that_waits_do_what_was_predicted,
    an_object_of_a_user_and_one_that_moves_do_what_was_predicted,
    an_object_of_a_user_and_two_that_change_places_do_what_was_predicted,
    a_module_that_becomes_unmanaged_keeps_what_another_one_gets_as_predicted,
    a_paused_manifest_keeps_what_its_module_loses_as_predicted,
    a_paused_manifest_gets_nothing_as_predicted,
    a_paused_manifest_of_a_former_name_stays_as_predicted,
    a_paused_manifest_of_a_kyma_that_goes_keeps_all_as_predicted,
    a_component_of_another_name_with_a_dropped_object_does_what_was_predicted,
    a_version_that_its_only_runtime_leaves_loses_objects_as_predicted,
    a_module_of_another_name_waits_for_what_users_custom_resources_keep_as_predicted,
    a_module_of_another_name_takes_over_what_an_annotation_protects_as_predicted;
    on real servers:
    every_action_is_done_as_predicted,
    changes_that_the_script_does_not_make_do_what_was_predicted,
}

/// What happens to objects, by cluster, kind and name.
type Actions = BTreeMap<String, String>;
/// The objects of all clusters: identity and content.
type World = BTreeMap<String, (String, Value)>;

/// Kinds that are compared in runtimes, with their namespace.
const IN_RUNTIMES: [(&str, &str, &str); 14] = [
    ("v1", "ConfigMap", "kyma-system"),
    ("v1", "Namespace", ""),
    ("v1", "PersistentVolume", ""),
    ("v1", "PersistentVolumeClaim", "kyma-system"),
    ("v1", "Pod", "kyma-system"),
    ("batch/v1", "Job", "kyma-system"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
    (KYMA, "ModuleTemplate", "kyma-system"),
    (KYMA, "ModuleReleaseMeta", "kyma-system"),
    (KYMA, "Kyma", "kyma-system"),
    ("example.org/v1", "Alpha", "kyma-system"),
    ("example.org/v1", "Rule", "kyma-system"),
    ("example.org/v1", "Store", "kyma-system"),
];
/// Kinds that are compared in KCP.
const IN_KCP: [&str; 4] = ["ModuleTemplate", "ModuleReleaseMeta", "Kyma", "Manifest"];
const KYMA: &str = "operator.kyma-project.io/v1beta2";
/// Seeds of generated changes, unless the environment names others. Together they make every change.
const SEEDS: [u64; 9] = [0, 3, 7, 154, 170, 339, 420, 436, 2251];
/// Seeds that make what the script does not make.
const SEEDS_BESIDE_SCRIPT: [u64; 4] = [873, 1604, 3977, 4117];
/// Seeds of changes while a Manifest is paused: of each module, and so that each of them changes.
const SEEDS_PAUSED: [u64; 8] = [7100, 7101, 7102, 7103, 7104, 7105, 7106, 7107];
/// Seeds of changes in the same commit as the end of a Kyma with a paused Manifest: of each of its modules.
const SEEDS_PAUSED_AT_END: [u64; 8] = [7200, 7201, 7202, 7203, 7204, 7205, 7206, 7207];
/// A daemon that has sent nothing for this long has nothing to do.
const QUIET: Duration = Duration::from_millis(1_200);

/// An action that `diff` predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Create,
    Change,
    Delete,
    Recreate,
    Refuse,
    Hold,
    Wait,
    Adopt,
}

/// The objects or modules of which an action was predicted and then done, offline and live.
#[derive(Debug, Default)]
struct Tally(BTreeMap<(Act, bool), usize>);

/// Several changes at a time, as many as a seed asks for.
async fn generated_changes_do_what_was_predicted() {
    changes_of(&asked_for(&SEEDS)).await;
}

/// The same while the Manifest of a module is paused.
async fn generated_changes_do_what_was_predicted_while_a_manifest_is_paused() {
    for seed in asked_for(&SEEDS_PAUSED) {
        let (repo, changes) = Change::some(seed);
        let module = ["alpha", "beta", "omega", "must"][usize::try_from(seed % 4).expect("a position")];
        paused("one", module, repo, &changes).await;
    }
}

/// The same, and the Kyma of this Manifest goes in the same commit.
async fn generated_changes_do_what_was_predicted_while_a_manifest_of_a_kyma_that_goes_is_paused() {
    for seed in asked_for(&SEEDS_PAUSED_AT_END) {
        let (repo, mut changes) = Change::some(seed);
        changes.retain(|change| !matches!(change, Change::Suspend | Change::RemoveKyma | Change::Break));
        changes.push(Change::RemoveKyma);
        let module = ["alpha", "gamma", "omega", "must"][usize::try_from(seed % 4).expect("a position")];
        paused("two", module, repo, &changes).await;
    }
}

/// The seeds that the environment names, or else these.
fn asked_for(seeds: &[u64]) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("TIDEGATE_SEED"), number("TIDEGATE_TRUTH_SEEDS")) {
        (None, None) => seeds.to_vec(),
        (Some(seed), None) => vec![seed],
        (first, Some(count)) => (first.unwrap_or_default()..).take(usize::try_from(count).expect("a number")).collect(),
    }
}

/// The same on real servers.
async fn changes_that_the_script_does_not_make_do_what_was_predicted() {
    changes_of(&SEEDS_BESIDE_SCRIPT).await;
}

async fn changes_of(seeds: &[u64]) {
    for seed in seeds {
        let (repo, changes) = Change::some(*seed);
        let mut trial = Trial::begin(repo).await;
        trial.change(&changes, &format!("seed {seed}, {changes:?}")).await;
    }
}

#[test]
fn every_change_is_made_on_simulated_servers_and_on_real_ones() {
    let of_seeds = |seeds: &[u64]| seeds.iter().flat_map(|seed| Change::some(*seed).1).collect::<Vec<Change>>();
    let simulated = of_seeds(&SEEDS);
    let real: Vec<Change> = Change::script(0).into_iter().flatten().chain(of_seeds(&SEEDS_BESIDE_SCRIPT)).collect();
    for change in Change::of_all_subjects() {
        assert!(simulated.contains(&change), "{change:?} on simulated servers");
        assert!(real.contains(&change), "{change:?} on real servers");
    }
}

/// Two commits: what the first one drops, the runtime keeps until the second one.
async fn a_module_that_was_dropped_from_a_suspended_runtime_goes_as_predicted_when_it_resumes() {
    let mut trial = Trial::begin(Repo::new(Some(1), false)).await;
    let there =
        async |trial: &Trial| read(&trial.stage.skrs[1], "ConfigMap", "kyma-system", "truth-gamma-config").await;
    trial.change(&[Change::SuspendAndDrop], "it is suspended").await;
    assert!(there(&trial).await.is_some());
    trial.change(&[Change::Resume], "it resumes").await;
    assert!(there(&trial).await.is_none());
}

/// Combinations that the seeds do not make.
async fn what_is_refused_and_a_version_that_waits_do_what_was_predicted() {
    for version in [Change::Downtime, Change::Bump] {
        let mut trial = Trial::begin(Repo::new(Some(1), false)).await;
        trial.change(&[Change::Refuse, version], &format!("refused, and {version:?}")).await;
    }
}

/// An object of a user where the module gets one, and an object that moves to the same module.
async fn an_object_of_a_user_and_one_that_moves_do_what_was_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(1), false)).await;
    trial.change(&[Change::Clash, Change::Move], "a clash, and an object that moves").await;
}

/// The module in conflict prunes nothing, so the other one waits for what it gives up, and gives up its own.
async fn an_object_of_a_user_and_two_that_change_places_do_what_was_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(1), false)).await;
    trial.change(&[Change::Clash, Change::Swap], "a clash, and two objects that change places").await;
}

/// Without the mark of another module, an object is the user's: the module that gets it is in conflict, unless its
/// definition allows it to take the object over.
async fn a_module_that_becomes_unmanaged_keeps_what_another_one_gets_as_predicted() {
    for gets in [Change::Swap, Change::Move, Change::MoveAdopting] {
        let mut trial = Trial::begin(Repo::new(Some(1), false)).await;
        trial.change(&[Change::Unmanage, gets], &format!("unmanaged, and {gets:?}")).await;
    }
}

/// A label on a Manifest stops the passes over it, but git still decides about the Manifest itself.
async fn a_paused_manifest_keeps_what_its_module_loses_as_predicted() {
    for change in [Change::Swap, Change::Move, Change::Drop, Change::Unmanage] {
        paused("one", "beta", Repo::new(Some(1), false), &[change]).await;
    }
}

/// It gets nothing either, also if another module loses the object in the same commit, or gets it as well.
async fn a_paused_manifest_gets_nothing_as_predicted() {
    for changes in [
        &[Change::Move][..],
        &[Change::MoveAdopting],
        &[Change::Swap],
        &[Change::Edit, Change::Unmanage],
        &[Change::Add, Change::Drop],
        &[Change::Refuse, Change::Move],
        &[Change::Remove],
        &[Change::Bump],
        &[Change::Clash],
        &[Change::MoveToBoth],
        &[Change::AddToBoth],
    ] {
        paused("one", "alpha", Repo::new(Some(1), false), changes).await;
    }
}

/// It keeps its former name, and all that it has.
async fn a_paused_manifest_of_a_former_name_stays_as_predicted() {
    for (module, changes) in [
        ("must", &[Change::Component][..]),
        ("must", &[Change::Component, Change::RemoveFromMandatory]),
        ("must", &[Change::BumpMandatory]),
        ("omega", &[Change::ComponentOfBoth]),
        ("omega", &[Change::ComponentOfBoth, Change::RemoveFromBoth]),
        ("omega", &[Change::ComponentOfBoth, Change::TakeFromOmega]),
    ] {
        paused("one", module, Repo::new(Some(1), false), changes).await;
    }
}

/// Its objects stay, and so does the Kyma, until the label is gone. Everything else of the runtime goes. Afterwards,
/// nothing more is predicted.
async fn a_paused_manifest_of_a_kyma_that_goes_keeps_all_as_predicted() {
    for (module, more) in [
        ("alpha", &[][..]),
        ("gamma", &[]),
        ("omega", &[]),
        ("must", &[]),
        ("gamma", &[Change::DropModule]),
        ("omega", &[Change::RemoveFromBoth]),
        ("omega", &[Change::ComponentOfBoth]),
        ("must", &[Change::BumpMandatory]),
        ("must", &[Change::DropMandatory]),
    ] {
        let trial = paused("two", module, Repo::new(Some(1), false), &[&[Change::RemoveKyma][..], more].concat()).await;
        let path = trial.stage.repository.path().to_str().expect("UTF-8").to_owned();
        let again = trial.predicted(&["diff", &path, "--live"], "it is paused").await;
        assert!(
            again.now.is_empty() && again.confirmed.is_empty(),
            "{module} {more:?}: {:?} {:?}",
            again.now,
            again.confirmed
        );
        assert!(read(&trial.stage.kcp, "Kyma", "kcp-system", "two").await.is_some(), "{module} {more:?}");
    }
}

/// Changes while the Manifest of a module of a Kyma is paused.
async fn paused(kyma: &str, module: &str, repo: Repo, changes: &[Change]) -> Trial {
    let mut trial = Trial::begin(repo).await;
    let name = plan::manifest_name(kyma, &format!("example.org/module/{module}"), module);
    let api: kube::Api<Manifest> = kube::Api::namespaced(trial.stage.kcp.clone(), "kcp-system");
    let label = json!({"metadata": {"labels": {"operator.kyma-project.io/skip-reconciliation": "true"}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(label)).await.expect("a patch");
    trial.stage.rests().await;
    trial.change(changes, &format!("the Manifest of {module} of {kyma} is paused, and {changes:?}")).await;
    trial
}

/// The Manifest of the new name takes over what the one of the former name has, and then prunes what the module lost.
async fn a_component_of_another_name_with_a_dropped_object_does_what_was_predicted() {
    for limit in [0, 1] {
        for (component, loses) in
            [(Change::Component, Change::RemoveFromMandatory), (Change::ComponentOfBoth, Change::RemoveFromBoth)]
        {
            let mut trial = Trial::begin(Repo::new(Some(limit), false)).await;
            trial.change(&[component, loses], &format!("limit {limit}, {component:?} and {loses:?}")).await;
        }
    }
}

/// A runtime leaves a version that loses an object in the same commit, so no user must confirm that.
async fn a_version_that_its_only_runtime_leaves_loses_objects_as_predicted() {
    for leaves in [Change::Channel, Change::Bump] {
        let mut trial = Trial::begin(Repo::new(Some(0), false)).await;
        trial.change(&[leaves, Change::Remove], &format!("{leaves:?}, and a version loses an object")).await;
    }
}

async fn a_component_of_another_name_and_a_release_that_is_mended_do_what_was_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(1), false)).await;
    trial.change(&[Change::BreakRelease], "a release is invalid").await;
    trial.change(&[Change::MendRelease], "it is mended").await;
    trial.change(&[Change::Component], "a component has another name").await;
}

/// A user has a custom resource of the module in one runtime: there the former module stays as a whole, and so does its
/// version in the control plane. Afterwards, nothing more is predicted.
async fn a_module_of_another_name_waits_for_what_users_custom_resources_keep_as_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(5), false).without_protected()).await;
    let mine = json!({"apiVersion": "example.org/v1", "kind": "Alpha", "metadata": {"name": "mine", "namespace": "kyma-system"}});
    harness::apply(&trial.stage.skrs[0], &mine).await;
    trial.is_known_offline = false;
    trial.change(&[Change::Rename], "a module of another name").await;
    let path = trial.stage.repository.path().to_str().expect("UTF-8").to_owned();
    let again = trial.predicted(&["diff", &path, "--live"], "it waits").await;
    let predicted: Actions =
        again.now.iter().chain(&again.confirmed).map(|(key, act)| (key.clone(), act.clone())).collect();
    assert!(predicted.is_empty(), "{predicted:?}");
    assert!(again.held.iter().any(|key| key.contains("truth-alpha-config")), "it would move: {:?}", again.held);
}

/// An object that an annotation protects stays when the former module leaves, and the new one has it then.
async fn a_module_of_another_name_takes_over_what_an_annotation_protects_as_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(5), false)).await;
    let protected =
        async |trial: &Trial| read(&trial.stage.skrs[0], "ConfigMap", "kyma-system", "truth-alpha-protected").await;
    let before = protected(&trial).await.expect("it is there");
    trial.change(&[Change::Rename], "a module of another name").await;
    let after = protected(&trial).await.expect("it is still there");
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"], "it is not deleted");
    let owner = |object: &Value| object["metadata"]["annotations"][annotation::OWNED_BY].clone();
    assert_ne!(owner(&before), owner(&after), "the new module has it");
}

/// A script of changes, in commits that follow each other, so that each action is done at least once.
async fn every_action_is_done_as_predicted() {
    let mut trial = Trial::begin(Repo::new(Some(1), true)).await;
    let seed = std::env::var("TIDEGATE_SEED").ok().map_or(0, |text| text.parse().expect("a number"));
    for changes in Change::script(seed) {
        trial.change(&changes, &format!("script of seed {seed}, {changes:?}")).await;
    }
    trial.tally.is_complete();
}

/// A landscape whose definitions change.
struct Trial {
    stage: Stage,
    /// The committed definitions.
    repo: Repo,
    folder: Folder,
    tally: Tally,
    /// Whether an offline comparison knows all that decides.
    is_known_offline: bool,
}

impl Trial {
    /// Applies a repository.
    async fn begin(repo: Repo) -> Trial {
        let folder = harness::folder();
        let policy = folder.path().join("policy.json");
        // No window ever opens.
        std::fs::write(&policy, "{}").expect("a file");
        let files = repo.files();
        let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        let option = format!("--maintenance-policy={}", policy.display());
        let stage = Stage::with(2, Extent::Controllers, &files, &[&option]).await;
        if let Some(limit) = repo.removal_limit {
            patch(&stage, json!({"spec": {"removalLimit": limit}})).await;
        }
        harness::apply(&stage.kcp, &changes::by_hand_in_kcp()).await;
        for skr in &stage.skrs {
            // Whose namespace is not Tidegate's own looks objects up.
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}});
            harness::apply(skr, &namespace).await;
            for object in changes::by_hand_in_runtimes() {
                harness::apply(skr, &object).await;
            }
        }
        // While a command runs, time is real, and the daemon shares this thread with much work.
        stage.start_with(&["--lease-duration=90s", "--lease-renew-deadline=60s"]);
        for name in KYMAS {
            stage.kyma_in(name, "Ready").await;
        }
        stage.rests().await;
        Trial { stage, repo, folder, tally: Tally::default(), is_known_offline: true }
    }

    /// Makes changes, and compares predictions with what happens. `what` is for the message of a failure.
    async fn change(&mut self, changes: &[Change], what: &str) {
        let mut repo = self.repo.clone();
        changes.iter().for_each(|change| change.make(&mut repo));
        let before = world(&self.stage).await;
        let landscape = self.file("landscape.json");
        let exported = self.stage.command(&["export", "--landscape", &landscape]).await;
        assert!(exported.status.success(), "{what}: {exported:?}");
        repo.write(&self.repo, &self.stage.repository);
        self.repo = repo;
        let policy = self.file("policy.json");
        let path = self.stage.repository.path().to_str().expect("UTF-8").to_owned();
        let live = self.predicted(&["diff", &path, "--live", "--maintenance-policy", &policy], what).await;
        let given = ["diff", &path, "--landscape", &landscape, "--maintenance-policy", &policy];
        let offline = self.predicted(&given, what).await;
        // An object of a user in the runtime is not known offline, nor what its module does not prune because of it.
        let is_unknown = !self.is_known_offline || changes.contains(&Change::Clash) && changes.contains(&Change::Swap);
        let predictions: Vec<Prediction> = std::iter::once(live).chain((!is_unknown).then_some(offline)).collect();
        let commit = self.stage.repository.commit(what).expect("a commit");
        let now = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": commit}}});
        patch(&self.stage, now).await;
        let is_read = |source: &Value| {
            source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&commit))
        };
        let kcp = &self.stage.kcp;
        self.stage.until("the commit is read", kcp, "GitSource", "kcp-system", "landscape", is_read).await;
        let after = self.compare(&before, &predictions, |prediction| prediction.now.clone(), what).await;
        let mut said = said(&self.stage).await;
        for prediction in &predictions {
            self.tally.add(prediction, &before, &after);
        }
        if predictions.iter().any(|prediction| !prediction.confirmed.is_empty()) {
            let source = &said["source"];
            let is_said = ["tidegate.dev/confirm-prune=", "held back: "].iter().any(|part| source.contains(part));
            assert!(is_said, "{what}: {source}");
            let confirm = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}});
            patch(&self.stage, confirm).await;
            let after = self.compare(&before, &predictions, Prediction::all, &format!("{what}, confirmed")).await;
            for prediction in &predictions {
                self.tally.add_done(prediction, &prediction.confirmed, &before, &after);
            }
            // What is held because of what was confirmed is said now.
            for (of, texts) in self::said(&self.stage).await {
                said.entry(of).or_default().push_str(&texts);
            }
        }
        for prediction in &predictions {
            prediction.is_said(&said, what);
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Waits until what a part of the predictions says has happened, and checks that nothing else happens then. Returns
    /// what there is then.
    async fn compare(
        &self,
        before: &World,
        predictions: &[Prediction],
        of: fn(&Prediction) -> Actions,
        what: &str,
    ) -> World {
        for prediction in predictions {
            self.as_predicted(before, prediction, &of(prediction), what).await;
        }
        self.is_quiet().await;
        let after = world(&self.stage).await;
        for prediction in predictions {
            let found = prediction.differs(&of(prediction), &happened(before, &after));
            found.unwrap_or_else(|found| panic!("{what}: not as `{}` predicts\n{found}", prediction.command));
            prediction.agrees(&after, what);
        }
        after
    }

    /// Waits until the daemon has nothing to do. What is refused is tried again, at growing intervals.
    async fn is_quiet(&self) {
        let mut marks = self.stage.marks();
        harness::eventually("the daemon has nothing to do", SOON, async || {
            let before = std::mem::replace(&mut marks, self.stage.marks());
            tokio::time::sleep(QUIET).await;
            match self.stage.requests_since(&before) {
                requests if requests.is_empty() => Ok(()),
                requests => Err(format!("{requests:?}")),
            }
        })
        .await;
        if ambient::is_simulated() {
            // There it costs nothing to wait for the next look at the repository as well.
            tokio::time::sleep(stage::QUIET).await;
        }
    }

    /// Waits until all that is predicted has happened.
    async fn as_predicted(&self, before: &World, prediction: &Prediction, actions: &Actions, what: &str) {
        let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(200));
        while let Err(found) = prediction.differs(actions, &happened(before, &world(&self.stage).await)) {
            let log = || self.stage.log_tail();
            assert!(waited < SOON, "{what}: not as `{}` predicts\n{found}\n{}", prediction.command, log());
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(QUIET);
        }
    }

    async fn predicted(&self, arguments: &[&str], what: &str) -> Prediction {
        // An administrator's kubeconfig is an option of the live comparison only.
        let is_live = arguments.contains(&"--live");
        let all = [arguments, &["-o", "json"]].concat();
        let output = if is_live { self.stage.command(&all).await } else { self.stage.command_offline(&all).await };
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{what}: {output:?}"));
        Prediction::read(&report, arguments.join(" "))
    }
}

async fn patch(stage: &Stage, value: Value) {
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &sample).await.expect("a kind that is served");
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(value)).await.expect("a patch");
}

/// What a command predicts.
struct Prediction {
    command: String,
    /// What happens without an act of a user.
    now: Actions,
    /// What happens after a confirmation.
    confirmed: Actions,
    /// The objects that are created or changed, as they will be.
    objects: BTreeMap<String, Value>,
    /// The objects that stay as they are, because the API server refuses a change.
    refused: BTreeSet<String>,
    /// The objects that stay as they are for another reason.
    held: BTreeSet<String>,
    /// Why something is held: the word for the reason, and the sentence.
    why: Vec<(String, String)>,
    /// The Kymas of which it says that it does not know them.
    unknown: Vec<String>,
    /// The runtimes of which Manifests of several modules change in the same way: the report has one for all of them.
    together: BTreeSet<String>,
}

fn key(runtime: &str, kind: &str, name: &str) -> String {
    format!("{} {kind} {name}", runtime.trim_start_matches("kcp-system/"))
}

/// A Manifest is known by its runtime and module: its name is a hash of them.
fn manifest_key(runtime: &str, manifest: &Value) -> String {
    let module = manifest["metadata"]["labels"]["operator.kyma-project.io/module-name"].as_str().unwrap_or("?");
    format!("kcp {} {module}", key(runtime, "Manifest", "of"))
}

fn is_compared(key: &str) -> bool {
    let kind = key.split(' ').nth(1).unwrap_or_default();
    IN_KCP.contains(&kind) || key.contains(" Manifest of ") || IN_RUNTIMES.iter().any(|(_, known, _)| *known == kind)
}

/// The objects that Tidegate may touch.
async fn world(stage: &Stage) -> World {
    let mut world = World::new();
    for kind in IN_KCP {
        for object in list(&stage.kcp, KYMA, kind, "kcp-system").await {
            let key = match kind {
                "Manifest" => {
                    let kyma =
                        object["metadata"]["labels"]["operator.kyma-project.io/kyma-name"].as_str().unwrap_or("?");
                    manifest_key(kyma, &object)
                }
                _ => format!("kcp {kind} {}", object["metadata"]["name"].as_str().unwrap_or_default()),
            };
            world.insert(key, seen(object));
        }
    }
    for (name, skr) in KYMAS.iter().zip(&stage.skrs) {
        for (api_version, kind, namespace) in IN_RUNTIMES {
            for object in list(skr, api_version, kind, namespace).await {
                world.insert(key(name, kind, object["metadata"]["name"].as_str().unwrap_or_default()), seen(object));
            }
        }
    }
    world
}

async fn list(client: &kube::Client, api_version: &str, kind: &str, namespace: &str) -> Vec<Value> {
    let sample = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    // A kind that no CustomResourceDefinition defines has no objects.
    let Ok(api) = harness::api_of(client, &sample).await else { return Vec::new() };
    let found: Vec<DynamicObject> = api.list(&ListParams::default()).await.map(|all| all.items).unwrap_or_default();
    found.into_iter().map(|object| serde_json::to_value(object).expect("JSON")).collect()
}

/// Stands for the identity of an object that is being deleted.
const TERMINATING: &str = "terminating";

/// The identity of an object, and its content without what servers and controllers write.
fn seen(mut object: Value) -> (String, Value) {
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let terminating = object["metadata"]["deletionTimestamp"].is_string();
    let metadata = &object["metadata"];
    let mut annotations = metadata["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("tidegate.dev/digest");
    }
    let kept = json!({"labels": metadata["labels"], "annotations": annotations});
    if let Some(fields) = object.as_object_mut() {
        fields.insert("metadata".to_owned(), kept);
        // The items of a list do not say what they are.
        for field in ["status", "apiVersion", "kind"] {
            fields.remove(field);
        }
    }
    (if terminating { TERMINATING.to_owned() } else { uid }, object)
}

/// What happened to each object.
fn happened(before: &World, after: &World) -> Actions {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let action = |key: &String| match (before.get(key), after.get(key)) {
        (None, Some(_)) => Some("create"),
        (Some(_), None) => Some("delete"),
        (Some(_), Some(new)) if new.0 == TERMINATING => Some("delete"),
        (Some(old), Some(new)) if old.0 != new.0 => Some("recreate"),
        (Some(old), Some(new)) if old.1 != new.1 => Some("change"),
        (Some(_), Some(_)) | (None, None) => None,
    };
    keys.into_iter().filter_map(|key| Some((key.clone(), action(key)?.to_owned()))).collect()
}

/// What the statuses of the GitSource, the Kymas and the Manifests say.
async fn said(stage: &Stage) -> BTreeMap<&'static str, String> {
    let source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.unwrap_or_default();
    let statuses = async |kind| {
        let all = list(&stage.kcp, KYMA, kind, "kcp-system").await;
        all.iter().map(|one| texts(&one["status"])).collect::<String>()
    };
    let (kymas, manifests) = (statuses("Kyma").await, statuses("Manifest").await);
    [("source", texts(&source["status"])), ("kymas", kymas), ("manifests", manifests)].into()
}

/// All texts in a value, one a line.
fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Array(items) => items.iter().map(texts).collect(),
        Value::Object(fields) => fields.values().map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// Whether an object has Tidegate's ownership label.
fn is_ours((_, object): &(String, Value)) -> bool {
    let labels = &object["metadata"]["labels"];
    labels["tidegate.dev/source"].is_string() || labels["operator.kyma-project.io/managed-by"] == "kyma"
}

// === impl Tally ===

impl Tally {
    /// Adds what was predicted, and done as it was: what waits was not done before the confirmation, and is checked
    /// after it.
    fn add(&mut self, prediction: &Prediction, before: &World, after: &World) {
        self.add_done(prediction, &prediction.now, before, after);
        let waits = |why: &str| matches!(why, "maintenance-window" | "rollout");
        let holds = |why: &str| !waits(why) && why != "unconfirmed";
        let count = |is: &dyn Fn(&str) -> bool| prediction.why.iter().filter(|(why, _)| is(why)).count();
        self.count(prediction, Act::Refuse, prediction.refused.len());
        self.count(prediction, Act::Hold, prediction.held.len() + count(&holds));
        self.count(prediction, Act::Wait, prediction.confirmed.len() + count(&waits));
    }

    /// Adds what was predicted and has happened.
    fn add_done(&mut self, prediction: &Prediction, done: &Actions, before: &World, after: &World) {
        let is_adopted = |key: &String| {
            before.get(key).is_some_and(|object| !is_ours(object)) && after.get(key).is_some_and(is_ours)
        };
        for (key, action) in done.iter().filter(|(key, _)| prediction.knows(key)) {
            let act = match action.as_str() {
                "create" => Act::Create,
                "change" if is_adopted(key) => Act::Adopt,
                "change" => Act::Change,
                "delete" => Act::Delete,
                "recreate" => Act::Recreate,
                other => panic!("{other}"),
            };
            self.count(prediction, act, 1);
        }
    }

    fn count(&mut self, prediction: &Prediction, act: Act, more: usize) {
        *self.0.entry((act, prediction.is_live())).or_default() += more;
    }

    /// Checks that each action was predicted and done, offline and live.
    fn is_complete(&self) {
        use Act::{Adopt, Change, Create, Delete, Hold, Recreate, Refuse, Wait};
        eprintln!("{self:?}");
        for act in [Create, Change, Delete, Recreate, Refuse, Hold, Wait, Adopt] {
            for is_live in [false, true] {
                let found = self.0.get(&(act, is_live)).copied().unwrap_or_default();
                assert!(found > 0, "no {act:?} was predicted (live: {is_live}) and done: {self:?}");
            }
        }
    }
}

// === impl Prediction ===

impl Prediction {
    fn read(report: &Value, command: String) -> Prediction {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let held = report["held"].as_array().expect("what is held").iter();
        let mut prediction = Prediction {
            command,
            now: Actions::new(),
            confirmed: Actions::new(),
            objects: BTreeMap::new(),
            refused: BTreeSet::new(),
            held: BTreeSet::new(),
            why: held.map(|one| (text(one, "why"), text(one, "message"))).collect(),
            unknown: report["unknown"].as_array().expect("what is unknown").iter().filter_map(unknown_kyma).collect(),
            together: BTreeSet::new(),
        };
        for one in report["differences"].as_array().expect("differences") {
            let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let runtimes: Vec<&str> =
                one["runtimes"].as_array().expect("runtimes").iter().filter_map(Value::as_str).collect();
            if text("/object/kind") == "Manifest" && one["objects"].as_u64() > Some(runtimes.len() as u64) {
                prediction.together.extend(runtimes.iter().map(|runtime| key(runtime, "Manifest", "of")));
            }
            for (index, key) in keys(one, &runtimes).into_iter().enumerate().filter(|(_, key)| is_compared(key)) {
                let actions = match (text("/action"), text("/effect")) {
                    ("refuse", effect) => {
                        assert!(matches!(effect, "refused" | "held"), "{effect}");
                        prediction.refused.insert(key);
                        continue;
                    }
                    ("create" | "change" | "delete" | "recreate", "applies") => &mut prediction.now,
                    ("create" | "change" | "delete" | "recreate", "needs-confirmation") => &mut prediction.confirmed,
                    ("conflict", _) | (_, "held") => {
                        prediction.held.insert(key);
                        continue;
                    }
                    (action, effect) => panic!("{action} {effect}"),
                };
                // The object of the first runtime stands for those of the others.
                if index == 0 && !one["new"].is_null() {
                    prediction.objects.insert(key.clone(), one["new"].clone());
                }
                // A Manifest with another name replaces the one of its module, and so does a default custom resource.
                let is_replaced = |before: &String| {
                    (key.contains(" Manifest of ") || key.ends_with(" Alpha default"))
                        && [&**before, text("/action")].contains(&"create")
                };
                let action = if actions.get(&key).is_some_and(is_replaced) { "recreate" } else { text("/action") };
                actions.insert(key, action.to_owned());
            }
        }
        prediction
    }

    /// How what was predicted differs from what happened.
    fn differs(&self, predicted: &Actions, happened: &Actions) -> Result<(), String> {
        let only = |one: &Actions, other: &Actions| -> Vec<String> {
            // Users' custom resources hold a Manifest that is being deleted.
            let is_held = |key: &String, action: &str| {
                key.contains(" Manifest of ") && action == "delete" && self.held.contains(key)
            };
            let of = one
                .iter()
                .filter(|(key, action)| self.knows(key) && other.get(*key) != Some(action) && !is_held(key, action));
            of.map(|(key, action)| format!("{action} {key}")).collect()
        };
        let (wrong, missed) = (only(predicted, happened), only(happened, predicted));
        if wrong.is_empty() && missed.is_empty() {
            return Ok(());
        }
        Err(format!("predicted: {wrong:#?}\nhappened: {missed:#?}"))
    }

    fn is_live(&self) -> bool {
        self.command.contains("--live")
    }

    /// Checks that the statuses say what is refused and held.
    fn is_said(&self, said: &BTreeMap<&'static str, String>, what: &str) {
        let says = |of: &str, part: &str| {
            // Of several reasons, a status names the first one in full.
            let first = if of == "source" { "held back: " } else { " exists and is not ours: " };
            let waits = of == "manifests" && said[of].contains("waiting until Manifest ");
            let is_other = waits || said[of].contains(first);
            assert!(
                is_other || said[of].contains(part),
                "{what}: `{}` and no status says: {part}\n{}",
                self.command,
                said[of]
            );
        };
        if !self.refused.is_empty() {
            says("manifests", " is refused: ");
        }
        for (why, message) in &self.why {
            match why.as_str() {
                "downgrade" => says("kymas", message),
                // `waiting for …: <from> to <to>`.
                "maintenance-window" => says("kymas", message.rsplit(": ").next().unwrap_or_default()),
                // `<kind> <name> exists and …`, or `… belongs to …`.
                "conflict" => {
                    let object: Vec<&str> = message.split(' ').take(2).collect();
                    let of = if message.contains(" in KCP ") { "source" } else { "manifests" };
                    says(of, &object.join(" "));
                }
                "withheld" => says("source", message.split(' ').nth(1).unwrap_or_default()),
                "unconfirmed" => says("source", message),
                "kept" | "kept-before" | "refused" | "rollout" | "suspended" => {}
                other => panic!("{what}: {other}: {message}"),
            }
        }
    }

    /// Whether an object is known. Offline, objects that a user has created in runtimes are not.
    fn knows(&self, key: &str) -> bool {
        let of_kyma = key.trim_start_matches("kcp ").trim_start_matches("Kyma ").split(' ').next().unwrap_or_default();
        if self.unknown.iter().any(|unknown| unknown == of_kyma) {
            return false;
        }
        if self.together.iter().any(|of_runtime| key.trim_start_matches("kcp ").starts_with(of_runtime)) {
            return false;
        }
        let theirs = changes::by_hand_in_runtimes().map(|object| object["metadata"]["name"].clone());
        self.is_live() || theirs.iter().all(|name| key.rsplit(' ').next() != name.as_str())
    }

    /// What has happened after a confirmation.
    fn all(&self) -> Actions {
        // What is created in a runtime meanwhile goes with its Kyma.
        let is_gone = |key: &str| {
            let runtime = KYMAS.iter().find(|name| key.trim_start_matches("kcp ").split(' ').next() == Some(name));
            runtime
                .and_then(|name| self.confirmed.get(&format!("kcp Kyma {name}")))
                .is_some_and(|action| action == "delete")
        };
        let stays = |(key, action): &(&String, &String)| *action != "create" || !is_gone(key);
        // What is created at once may have other content after the confirmation.
        let is_there = |key: &String| self.now.get(key).is_some_and(|action| action != "delete");
        let is_new = |(key, action): &(&String, &String)| *action != "create" || !is_there(key);
        self.now
            .iter()
            .filter(stays)
            .chain(self.confirmed.iter().filter(is_new))
            .map(|(key, action)| (key.clone(), action.clone()))
            .collect()
    }

    /// What is created or changed holds what was shown, unless that waits.
    fn agrees(&self, after: &World, what: &str) {
        for (key, shown) in self.objects.iter().filter(|(key, _)| self.knows(key) && !self.confirmed.contains_key(*key))
        {
            let Some((_, live)) = after.get(key) else { continue };
            let shown = seen(shown.clone()).1;
            assert!(
                tidegate_core::changes::covers(&without_nulls(&shown), live),
                "{what}: {key} by `{}`\nshown: {shown:#}\nlive: {live:#}",
                self.command
            );
        }
    }
}

/// The Kyma whose last good version is not known, because it was invalid before.
fn unknown_kyma(unknown: &Value) -> Option<String> {
    let name = unknown["value"].as_str()?.strip_prefix("last good version of Kyma kcp-system/")?;
    Some(name.split(',').next().unwrap_or(name).to_owned())
}

/// The objects that a difference concerns.
fn keys(difference: &Value, runtimes: &[&str]) -> Vec<String> {
    let text = |pointer: &str| difference.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let shown = if difference["new"].is_null() { &difference["old"] } else { &difference["new"] };
    let (kind, name) = (text("/object/kind"), text("/object/name"));
    match (text("/target"), kind) {
        ("kcp", "Manifest") => runtimes.iter().map(|runtime| manifest_key(runtime, shown)).collect(),
        ("kcp", "Kyma") if !runtimes.is_empty() => {
            let name = |runtime: &&str| runtime.trim_start_matches("kcp-system/").to_owned();
            runtimes.iter().map(|runtime| format!("kcp {kind} {}", name(runtime))).collect()
        }
        ("kcp", _) => vec![format!("kcp {kind} {name}")],
        _ => runtimes.iter().map(|runtime| key(runtime, kind, name)).collect(),
    }
}

/// Without fields that the live object need not have.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}
