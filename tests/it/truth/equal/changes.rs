//! A repository, and the changes that are made to it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_testbed::Repository;

/// The state of a repository.
#[derive(Clone, Default)]
pub(super) struct Repo {
    files: BTreeMap<String, String>,
    kymas: BTreeMap<&'static str, Kyma>,
    releases: BTreeMap<&'static str, Release>,
    /// Whether alpha 1.0.0 has objects of kinds that simulated servers do not have.
    is_wide: bool,
    /// `spec.removalLimit` of its GitSource.
    pub(super) removal_limit: Option<usize>,
}

#[derive(Clone, Default)]
struct Kyma {
    channel: &'static str,
    labels: BTreeMap<&'static str, &'static str>,
    /// The entries of the module list.
    modules: BTreeMap<&'static str, String>,
}

#[derive(Clone, Default)]
struct Release {
    annotations: BTreeMap<&'static str, &'static str>,
    /// Versions by channel.
    channels: BTreeMap<&'static str, &'static str>,
    /// The version that every runtime has. Then it has no channels.
    mandatory: Option<&'static str>,
    /// Whether its component has another name.
    is_renamed: bool,
    is_invalid: bool,
}

/// A change of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An object of a module changes.
    Edit,
    /// A module gets an object.
    Add,
    /// A module loses an object.
    Remove,
    /// A module loses an object that is annotated to stay.
    RemoveProtected,
    /// A module loses a Namespace, which stays because of what users may have in it.
    RemoveNamespace,
    /// A field changes that no API server changes.
    Refuse,
    /// The number of completions of a Job.
    RefuseJob,
    /// The command of a Pod.
    RefusePod,
    /// The path of a volume.
    RefuseVolume,
    /// The size of a volume claim, which shrinks.
    RefuseClaim,
    /// A version of a definition goes, in which objects are stored.
    RefuseVersion,
    /// A custom resource breaks a rule that compares it with its old value.
    RefuseRule,
    /// A field of an object with leave to delete it and create it again.
    Recreate,
    /// A module gets an object that a user has created in the runtime.
    Clash,
    /// The same, with leave to take it over.
    Adopt,
    /// An object moves to a module before its own in the order of modules.
    Move,
    /// The same, with leave to take it over from a user.
    MoveAdopting,
    /// An object of beta moves to two modules, of which one is before it in the order of modules.
    MoveToBoth,
    /// Two modules get the same new object.
    AddToBoth,
    /// An object of omega moves to alpha, with leave to take it over.
    TakeFromOmega,
    /// Two modules exchange objects.
    Swap,
    /// A module has another version on a channel.
    Bump,
    /// The same, and the version requires downtime.
    Downtime,
    /// A lower version, which the guard holds.
    Downgrade,
    /// A lower version that is allowed by name.
    AllowedDowngrade,
    /// A version that no Kyma has is added.
    AddVersion,
    /// A Kyma selects one module more.
    Select,
    /// A Kyma selects one module less.
    Drop,
    /// A Kyma manages a module itself.
    Unmanage,
    /// A Kyma selects another channel.
    Channel,
    /// A Kyma is suspended, and a module that it has changes.
    Suspend,
    /// A Kyma is suspended, and selects one module less, which its runtime keeps.
    SuspendAndDrop,
    /// A Kyma is no longer suspended.
    Resume,
    /// A Kyma goes, which waits for a confirmation.
    RemoveKyma,
    /// A file is invalid: what it declares is held, and nothing is pruned.
    Break,
    /// It is valid again.
    Mend,
    /// A ModuleReleaseMeta that a user has created in KCP is declared.
    Foreign,
    /// The same, with leave to take it over.
    AdoptForeign,
    /// A new version spreads over two runtimes in waves.
    Spread,
    /// A new version, and its rollout is paused.
    Paused,
    /// A version of two runtimes loses an object.
    RemoveFromBoth,
    /// A module is new, and every Kyma selects it.
    NewModule,
    /// A module goes, with its release and versions, and no Kyma selects it any more.
    DropModule,
    /// A mandatory module has a new version.
    BumpMandatory,
    /// A mandatory module becomes one that Kymas select, so that it leaves runtimes.
    Turn,
    /// A module gets another version, and the former one goes in the same commit.
    Replace,
    /// Only labelled Kymas may have a module.
    Restrict,
    /// A mandatory module goes, which waits for a confirmation.
    DropMandatory,
    /// The component of a mandatory module has another name, so its Manifests have other names.
    Component,
    /// The component of a module that both Kymas have has another name.
    ComponentOfBoth,
    /// The version of a mandatory module loses an object.
    RemoveFromMandatory,
    /// A ModuleReleaseMeta is invalid: it is held, and so its component keeps its name.
    BreakRelease,
    /// It is valid again.
    MendRelease,
    /// A module has another name, with the same objects.
    Rename,
}

use Change::{
    Add, AddToBoth, AddVersion, Adopt, AdoptForeign, AllowedDowngrade, Break, BreakRelease, Bump, BumpMandatory,
    Channel, Clash, Component, ComponentOfBoth, Downgrade, Downtime, Drop, DropMandatory, DropModule, Edit, Foreign,
    Mend, MendRelease, Move, MoveAdopting, MoveToBoth, NewModule, Paused, Recreate, Refuse, RefuseClaim, RefuseJob,
    RefusePod, RefuseRule, RefuseVersion, RefuseVolume, Remove, RemoveFromBoth, RemoveFromMandatory, RemoveKyma,
    RemoveNamespace, RemoveProtected, Rename, Replace, Restrict, Resume, Select, Spread, Suspend, SuspendAndDrop, Swap,
    TakeFromOmega, Turn, Unmanage,
};

/// Changes of different subjects can be made together; of one subject, at most one is.
const SUBJECTS: [&[Change]; 10] = [
    // Objects of module alpha 1.0.0, which Kyma one has.
    &[Edit, Add, Remove, RemoveProtected, RemoveNamespace, Refuse, Recreate, Clash, Adopt],
    // The channels of alpha.
    &[Bump, Downtime, Downgrade, AllowedDowngrade, AddVersion],
    // The modules of Kyma one.
    &[Select, Drop, Unmanage, Channel],
    // Objects of alpha 1.0.0 and beta.
    &[Move, Swap],
    // Kyma two.
    &[Suspend, RemoveKyma, Break],
    // What a user has created in KCP.
    &[Foreign, AdoptForeign],
    // Module omega, which both have.
    &[Spread, Paused, RemoveFromBoth, Restrict],
    // Modules as a whole.
    &[NewModule, DropModule, Replace],
    // The mandatory module.
    &[BumpMandatory, Turn, DropMandatory],
    // The release of beta.
    &[BreakRelease],
];

/// Objects in KCP that a user has created before.
pub(super) fn by_hand_in_kcp() -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": "delta", "namespace": "kcp-system"},
        "spec": {"moduleName": "delta", "ocmComponentName": "example.org/module/delta",
            "channels": [{"channel": "regular", "version": "3.0.0"}]},
    })
}

/// Objects in runtimes that a user has created before.
pub(super) fn by_hand_in_runtimes() -> [Value; 2] {
    ["clash", "adopt"].map(|name| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("truth-alpha-{name}"), "namespace": "kyma-system"},
            "data": {"value": "theirs"},
        })
    })
}

// === impl Repo ===

impl Repo {
    /// Kyma `one` has alpha 1.0.0 and beta, Kyma `two` has alpha 1.1.0 and gamma; both have omega and the mandatory
    /// must.
    pub(super) fn new(removal_limit: Option<usize>, is_wide: bool) -> Repo {
        let mut repo = Repo { removal_limit, is_wide, ..Repo::default() };
        for (module, version) in [
            ("alpha", "1.0.0"),
            ("alpha", "1.1.0"),
            ("alpha", "1.2.0"),
            ("beta", "2.0.0"),
            ("gamma", "3.0.0"),
            ("omega", "5.0.0"),
            ("omega", "5.1.0"),
            ("must", "6.0.0"),
            ("must", "6.1.0"),
        ] {
            repo.module(module, version);
        }
        repo.release("alpha", "1.0.0", "1.1.0");
        repo.release("beta", "2.0.0", "2.0.0");
        repo.release("gamma", "3.0.0", "3.0.0");
        repo.release("omega", "5.0.0", "5.0.0");
        repo.releases.insert("must", Release { mandatory: Some("6.0.0"), ..Release::default() });
        let entry = |name: &'static str| (name, format!("{{name: {name}, managed: true}}"));
        let omega = ("omega", "{name: omega, channel: regular, managed: true}".to_owned());
        let one = [entry("alpha"), entry("beta"), omega.clone()].into();
        let two = [entry("alpha"), entry("gamma"), omega].into();
        repo.kymas.insert("one", Kyma { channel: "regular", labels: [("stage", "canary")].into(), modules: one });
        repo.kymas.insert("two", Kyma { channel: "fast", labels: BTreeMap::new(), modules: two });
        repo
    }

    /// The same without objects that an annotation protects.
    pub(super) fn without_protected(mut self) -> Repo {
        self.files.retain(|path, _| !path.ends_with("/protected.yaml"));
        self
    }

    pub(super) fn files(&self) -> BTreeMap<String, String> {
        let mut files = self.files.clone();
        for (name, kyma) in &self.kymas {
            files.insert(format!("kymas/{name}.yaml"), kyma.text(name));
        }
        for (name, release) in &self.releases {
            files.insert(format!("modules/{name}/release.yaml"), release.text(name));
        }
        if let Some(limit) = self.removal_limit {
            let text = format!(
                "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: landscape, namespace: kcp-system}}\n\
                 spec: {{removalLimit: {limit}}}\n"
            );
            files.insert(".tidegate/source.yaml".to_owned(), text);
        }
        files
    }

    /// Makes the work tree of a repository, which has the files of `before`, these files.
    pub(super) fn write(&self, before: &Repo, repository: &Repository) {
        let files = self.files();
        for path in before.files().keys().filter(|path| !files.contains_key(*path)) {
            repository.remove(path).expect("a file that was there");
        }
        for (path, text) in &files {
            repository.write(path, text).expect("a file");
        }
    }

    fn set(&mut self, path: &str, text: String) {
        self.files.insert(path.to_owned(), text);
    }

    fn remove(&mut self, path: &str) -> String {
        self.files.remove(path).expect("it is there")
    }

    fn module(&mut self, module: &str, version: &str) {
        let folder = format!("modules/{module}/{version}");
        let mut spec = String::new();
        if module == "alpha" {
            spec.push_str("  data: {apiVersion: example.org/v1, kind: Alpha, metadata: {name: default, namespace: kyma-system}, spec: {size: 1}}\n");
        }
        if version == "1.2.0" {
            spec.push_str("  requiresDowntime: true\n");
        }
        let template = format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: {module}-{version}\n  \
             namespace: kcp-system\n  annotations: {{tidegate.dev/module-path: {folder}/objects}}\n\
             spec:\n  moduleName: {module}\n  version: {version}\n{spec}"
        );
        self.set(&format!("{folder}/module-template.yaml"), template);
        let mut object = |name: &str, text: String| self.set(&format!("{folder}/objects/{name}.yaml"), text);
        object("config", config(module, "config", version, ""));
        object("shared", config(module, "shared", "same", ""));
        if module != "alpha" {
            return;
        }
        object("protected", config(module, "protected", "same", "annotations: {tidegate.dev/prune: disabled}"));
        object("fixed", config(module, "fixed", "same", "") + "immutable: true\n");
        let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: truth-alpha}\n\
                    rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]\n";
        object("role", role.to_owned());
        object("namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: truth-alpha}\n".to_owned());
        object("crd", ALPHA.to_owned());
        if version == "1.0.0" && self.is_wide {
            for (name, text) in refusing(false) {
                self.set(&format!("{folder}/objects/{name}.yaml"), text);
            }
        }
    }

    fn release(&mut self, module: &'static str, regular: &'static str, fast: &'static str) {
        let channels = [("regular", regular), ("fast", fast)].into();
        self.releases.insert(module, Release { channels, ..Release::default() });
    }

    /// Gives a module another name. Its objects keep theirs.
    fn rename(&mut self, before: &'static str, after: &'static str) {
        let names = [("modules/", "/"), ("name: ", "-"), ("moduleName: ", "\n")];
        let files = std::mem::take(&mut self.files).into_iter().map(|(path, text)| {
            let renamed = |text: &str, (start, end): (&str, &str)| {
                text.replace(&format!("{start}{before}{end}"), &format!("{start}{after}{end}"))
            };
            let text = if path.ends_with("module-template.yaml") {
                names.into_iter().fold(text, |text, name| renamed(&text, name))
            } else {
                text
            };
            (renamed(&path, names[0]), text)
        });
        self.files = files.collect();
        let release = self.releases.remove(before).expect("it has a release");
        self.releases.insert(after, release);
        for kyma in self.kymas.values_mut() {
            let entry = kyma.modules.remove(before).expect("every Kyma selects it");
            kyma.modules.insert(after, entry.replace(before, after));
        }
    }

    fn kyma(&mut self, name: &str) -> Option<&mut Kyma> {
        self.kymas.get_mut(name)
    }
}

/// Numbers below an end, decided by a seed.
fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |end| {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).expect("a position")
    }
}

/// Objects by file, and the same with a change that an API server refuses.
fn refusing(changed: bool) -> [(&'static str, String); 7] {
    let pick = |before: &'static str, after: &'static str| if changed { after } else { before };
    let of = |kind: &str, name: &str| {
        format!("kind: {kind}\nmetadata: {{name: truth-alpha-{name}, namespace: kyma-system}}\n")
    };
    let definition = |kind: &str, versions: String| {
        let plural = format!("{}s", kind.to_lowercase());
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.example.org}}\n\
             spec:\n  group: example.org\n  scope: Namespaced\n  names: {{kind: {kind}, plural: {plural}, singular: {}, listKind: {kind}List}}\n  \
             versions: [{versions}]\n",
            kind.to_lowercase()
        )
    };
    let version = |name: &str, storage: bool, spec: &str| {
        format!(
            "{{name: {name}, served: true, storage: {storage}, schema: {{openAPIV3Schema: {{type: object, properties: {{spec: {spec}}}}}}}}}"
        )
    };
    let size = "{type: object, properties: {size: {type: integer, x-kubernetes-validations: [{rule: self >= oldSelf, message: must not shrink}]}}}";
    let any = "{type: object, x-kubernetes-preserve-unknown-fields: true}";
    let versions = if changed {
        version("v2", true, any)
    } else {
        format!("{}, {}", version("v1", true, any), version("v2", false, any))
    };
    let job = format!(
        "apiVersion: batch/v1\n{}spec:\n  suspend: true\n  completions: {}\n  template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: a}}]}}}}\n",
        of("Job", "job"),
        pick("1", "2")
    );
    let pod = format!(
        "apiVersion: v1\n{}spec: {{containers: [{{name: main, image: a, command: [{}]}}]}}\n",
        of("Pod", "pod"),
        pick("one", "two")
    );
    let volume = format!(
        "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: truth-alpha-volume}}\nspec: {{storageClassName: of-volume, accessModes: [ReadWriteOnce], capacity: {{storage: 1Gi}}, hostPath: {{path: /tmp/{}}}}}\n",
        pick("one", "two")
    );
    let claim = format!(
        "apiVersion: v1\n{}spec: {{storageClassName: of-claim, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {}}}}}}}\n",
        of("PersistentVolumeClaim", "claim"),
        pick("2Gi", "1Gi")
    );
    let rule = format!("apiVersion: example.org/v1\n{}spec: {{size: {}}}\n", of("Rule", "rule"), pick("2", "1"));
    [
        ("job", job),
        ("pod", pod),
        ("volume", volume),
        ("claim", claim),
        ("rules", definition("Rule", version("v1", true, size))),
        ("rule", rule),
        ("stores", definition("Store", versions)),
    ]
}

const ALPHA: &str = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: alphas.example.org}\n\
                     spec:\n  group: example.org\n  scope: Namespaced\n  names: {kind: Alpha, plural: alphas, singular: alpha, listKind: AlphaList}\n  \
                     versions:\n    - name: v1\n      served: true\n      storage: true\n      schema: {openAPIV3Schema: {type: object, \
                     properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}\n";

fn config(module: &str, name: &str, value: &str, metadata: &str) -> String {
    let metadata = if metadata.is_empty() { String::new() } else { format!(", {metadata}") };
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: truth-{module}-{name}, namespace: kyma-system{metadata}}}\n\
         data: {{value: \"{value}\"}}\n"
    )
}

fn map(entries: &BTreeMap<&'static str, &'static str>) -> String {
    let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}: \"{value}\"")).collect();
    format!("{{{}}}", entries.join(", "))
}

// === impl Kyma ===

impl Kyma {
    fn text(&self, name: &str) -> String {
        let modules: Vec<&str> = self.modules.values().map(String::as_str).collect();
        format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: {name}\n  namespace: kcp-system\n  \
             labels: {}\nspec:\n  channel: {}\n  modules: [{}]\n",
            map(&self.labels),
            self.channel,
            modules.join(", ")
        )
    }
}

// === impl Release ===

impl Release {
    fn text(&self, module: &str) -> String {
        let channels: Vec<String> = self
            .channels
            .iter()
            .map(|(channel, version)| format!("{{channel: {channel}, version: {version}}}"))
            .collect();
        let offers = match self.mandatory {
            Some(version) => format!("mandatory: {{version: {version}}}"),
            None => format!("channels: [{}]", channels.join(", ")),
        };
        let component = if self.is_renamed { "other" } else { "module" };
        let name = if self.is_invalid { "other" } else { module };
        format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata:\n  name: {module}\n  \
             namespace: kcp-system\n  annotations: {}\nspec:\n  moduleName: {name}\n  \
             ocmComponentName: example.org/{component}/{module}\n  {offers}\n",
            map(&self.annotations),
        )
    }
}

// === impl Change ===

impl Change {
    /// The repository of a seed, and some changes of different subjects that are made to it.
    pub(super) fn some(seed: u64) -> (Repo, Vec<Change>) {
        let mut below = dice(seed);
        let limit = [None, None, Some(0), Some(1)][below(4)];
        let mut changes = Vec::new();
        for subject in SUBJECTS {
            if below(3) == 0 {
                changes.push(subject[below(subject.len())]);
            }
        }
        if changes.is_empty() {
            changes.push(SUBJECTS[0][below(SUBJECTS[0].len())]);
        }
        (Repo::new(limit, false), changes)
    }

    /// Each change that a seed can ask for.
    pub(super) fn of_all_subjects() -> impl Iterator<Item = Change> {
        SUBJECTS.into_iter().flatten().copied()
    }

    /// Changes in commits that follow each other, divided among them by a seed. What is refused or held comes last: the
    /// old side of an offline comparison counts as active, so it does not know that this is not.
    pub(super) fn script(seed: u64) -> [Vec<Change>; 3] {
        let mut below = dice(seed);
        let mut commits = <[Vec<Change>; 3]>::default();
        // Pairs come one after the other.
        for (first, second) in [(Break, Mend), (Foreign, AdoptForeign), (BumpMandatory, Turn)] {
            commits[0].push(first);
            commits[1].push(second);
        }
        let any = [
            Edit,
            Add,
            Remove,
            RemoveProtected,
            RemoveNamespace,
            Recreate,
            Adopt,
            Spread,
            NewModule,
            Swap,
            Select,
            AddVersion,
            RemoveFromBoth,
            Replace,
        ];
        any.into_iter().for_each(|change| commits[below(2)].push(change));
        let leaves = [Drop, Unmanage][below(2)];
        let refused = [Refuse, RefuseJob, RefusePod, RefuseVolume, RefuseClaim, RefuseVersion, RefuseRule];
        commits[2].extend([leaves, Downgrade, Paused, DropModule]);
        commits[2].extend(refused);
        commits
    }

    /// Makes the change.
    pub(super) fn make(self, repo: &mut Repo) {
        let object = |name: &str| format!("modules/alpha/1.0.0/objects/{name}.yaml");
        let recreate = "annotations: {tidegate.dev/recreate: enabled}";
        match self {
            Rename => repo.rename("alpha", "aleph"),
            Edit => repo.set(&object("config"), config("alpha", "config", "edited", "")),
            Add => repo.set(&object("extra"), config("alpha", "extra", "new", "")),
            Remove => drop(repo.remove(&object("role"))),
            RemoveProtected => drop(repo.remove(&object("protected"))),
            RemoveNamespace => drop(repo.remove(&object("namespace"))),
            Refuse => repo.set(&object("fixed"), config("alpha", "fixed", "refused", "") + "immutable: true\n"),
            RefuseJob | RefusePod | RefuseVolume | RefuseClaim | RefuseVersion | RefuseRule => {
                let wanted = match self {
                    RefuseJob => "job",
                    RefusePod => "pod",
                    RefuseVolume => "volume",
                    RefuseClaim => "claim",
                    RefuseVersion => "stores",
                    _ => "rule",
                };
                let changed = refusing(true).into_iter().find(|(name, _)| *name == wanted).expect("one of them");
                repo.set(&object(changed.0), changed.1);
            }
            Recreate => {
                repo.set(&object("fixed"), config("alpha", "fixed", "recreated", recreate) + "immutable: true\n");
            }
            Clash => repo.set(&object("clash"), config("alpha", "clash", "ours", "")),
            Adopt => {
                let adopt = "annotations: {tidegate.dev/adopt: \"true\"}";
                repo.set(&object("adopt"), config("alpha", "adopt", "ours", adopt));
            }
            Move => {
                let moved = repo.remove("modules/beta/2.0.0/objects/config.yaml");
                repo.set(&object("moved"), moved);
            }
            MoveAdopting => {
                drop(repo.remove("modules/beta/2.0.0/objects/config.yaml"));
                let adopt = "annotations: {tidegate.dev/adopt: \"true\"}";
                repo.set(&object("moved"), config("beta", "config", "2.0.0", adopt));
            }
            MoveToBoth => {
                let moved = repo.remove("modules/beta/2.0.0/objects/config.yaml");
                repo.set(&object("moved"), moved.clone());
                repo.set("modules/omega/5.0.0/objects/moved.yaml", moved);
            }
            AddToBoth => {
                for path in [&object("both"), "modules/beta/2.0.0/objects/both.yaml"] {
                    repo.set(path, config("both", "config", "new", ""));
                }
            }
            TakeFromOmega => {
                drop(repo.remove("modules/omega/5.0.0/objects/config.yaml"));
                let adopt = "annotations: {tidegate.dev/adopt: \"true\"}";
                repo.set(&object("taken"), config("omega", "config", "5.0.0", adopt));
            }
            Swap => {
                let (one, other) = (object("shared"), "modules/beta/2.0.0/objects/shared.yaml");
                let (of_alpha, of_beta) = (repo.remove(&one), repo.remove(other));
                repo.set(&one, of_beta);
                repo.set(other, of_alpha);
            }
            Bump => repo.release("alpha", "1.1.0", "1.1.0"),
            Downtime => repo.release("alpha", "1.2.0", "1.1.0"),
            Downgrade => repo.release("alpha", "1.0.0", "1.0.0"),
            AllowedDowngrade => {
                repo.release("alpha", "1.0.0", "1.0.0");
                let allowed = ("tidegate.dev/allow-downgrade", "alpha-1.0.0");
                repo.releases.get_mut("alpha").expect("a release").annotations.extend([allowed]);
            }
            AddVersion => repo.module("alpha", "1.3.0"),
            Select => {
                let gamma = ("gamma", "{name: gamma, managed: true}".to_owned());
                repo.kyma("one").expect("a Kyma").modules.extend([gamma]);
            }
            Drop => drop(repo.kyma("one").expect("a Kyma").modules.remove("beta")),
            Unmanage => {
                let beta = ("beta", "{name: beta, managed: false}".to_owned());
                repo.kyma("one").expect("a Kyma").modules.extend([beta]);
            }
            Channel => repo.kyma("one").expect("a Kyma").channel = "fast",
            Suspend => {
                let label = ("operator.kyma-project.io/skip-reconciliation", "true");
                repo.kyma("two").expect("a Kyma").labels.extend([label]);
                repo.set("modules/alpha/1.1.0/objects/config.yaml", config("alpha", "config", "edited too", ""));
            }
            SuspendAndDrop => {
                let label = ("operator.kyma-project.io/skip-reconciliation", "true");
                let kyma = repo.kyma("two").expect("a Kyma");
                kyma.labels.extend([label]);
                kyma.modules.remove("gamma");
            }
            Resume => {
                repo.kyma("two").expect("a Kyma").labels.remove("operator.kyma-project.io/skip-reconciliation");
            }
            RemoveKyma => drop(repo.kymas.remove("two")),
            Break => repo.kyma("two").expect("a Kyma").channel = "FAST",
            Mend => repo.kyma("two").expect("a Kyma").channel = "fast",
            Foreign | AdoptForeign => {
                repo.module("delta", "4.0.0");
                repo.release("delta", "4.0.0", "4.0.0");
                let adopt = (self == AdoptForeign).then_some(("tidegate.dev/adopt", "true"));
                repo.releases.get_mut("delta").expect("a release").annotations.extend(adopt);
            }
            Spread => {
                repo.release("omega", "5.1.0", "5.1.0");
                let waves = ("tidegate.dev/rollout-waves", "stage=canary");
                repo.releases.get_mut("omega").expect("a release").annotations.extend([waves]);
            }
            Paused => {
                repo.module("omega", "5.2.0");
                repo.release("omega", "5.2.0", "5.2.0");
                let paused = ("tidegate.dev/rollout-paused", "true");
                repo.releases.get_mut("omega").expect("a release").annotations.extend([paused]);
            }
            RemoveFromBoth => {
                let installed = repo.releases["omega"].channels["regular"];
                drop(repo.remove(&format!("modules/omega/{installed}/objects/shared.yaml")));
            }
            Restrict => {
                let installed = repo.releases["omega"].channels["regular"];
                let path = format!("modules/omega/{installed}/module-template.yaml");
                let labels = "metadata:\n  labels: {operator.kyma-project.io/internal: \"true\"}\n";
                let text = repo.remove(&path).replacen("metadata:\n", labels, 1);
                repo.set(&path, text);
            }
            NewModule => {
                repo.module("epsilon", "7.0.0");
                repo.release("epsilon", "7.0.0", "7.0.0");
                for kyma in repo.kymas.values_mut() {
                    kyma.modules.insert("epsilon", "{name: epsilon, managed: true}".to_owned());
                }
            }
            DropModule => {
                repo.releases.remove("gamma");
                repo.files.retain(|path, _| !path.starts_with("modules/gamma/"));
                repo.kymas.values_mut().for_each(|kyma| drop(kyma.modules.remove("gamma")));
            }
            Replace => {
                repo.module("gamma", "3.1.0");
                repo.release("gamma", "3.1.0", "3.1.0");
                repo.files.retain(|path, _| !path.starts_with("modules/gamma/3.0.0/"));
            }
            Component | ComponentOfBoth => {
                let module = if self == Component { "must" } else { "omega" };
                if let Some(release) = repo.releases.get_mut(module) {
                    release.is_renamed = true;
                }
            }
            RemoveFromMandatory => drop(repo.remove("modules/must/6.0.0/objects/shared.yaml")),
            BreakRelease => repo.releases.get_mut("beta").expect("a release").is_invalid = true,
            MendRelease => repo.releases.get_mut("beta").expect("a release").is_invalid = false,
            BumpMandatory => repo.releases.get_mut("must").expect("a release").mandatory = Some("6.1.0"),
            Turn => repo.release("must", "6.1.0", "6.1.0"),
            DropMandatory => {
                repo.releases.remove("must");
                repo.files.retain(|path, _| !path.starts_with("modules/must/"));
            }
        }
    }
}
