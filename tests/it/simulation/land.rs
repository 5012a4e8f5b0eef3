//! A small landscape: the definitions in git as values and as files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    dice::Dice,
    world::{KCP, domain},
};

/// Modules and their versions, oldest first. `cache` has a CRD and a default custom resource, `mailer` a Deployment.
pub(super) const MODULES: [(&str, [&str; 2]); 3] =
    [("cache", ["1.0.0", "1.1.0"]), ("mailer", ["2.0.0", "2.1.0"]), ("router", ["3.0.0", "3.1.0"])];
pub(super) const CHANNELS: [&str; 2] = ["regular", "fast"];
/// Kymas that git may declare. Each has a runtime.
pub(super) const KYMAS: [&str; 2] = ["one", "two"];
/// A Kyma that a user made in the control plane. Its runtime chooses its modules.
pub(super) const USERS: &str = "three";

/// Paths on the API servers.
pub(super) const MAPS: &str = "/api/v1/namespaces/kyma-system/configmaps";
pub(super) const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kyma-system/deployments";
pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(super) const THINGS: &str = "/apis/example.org/v1/namespaces/kyma-system/things";
pub(super) const NAMESPACE: &str = "/api/v1/namespaces/kyma-system";
pub(super) const IN_RUNTIME: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kyma-system";
pub(super) const IN_KCP: &str = "/apis/operator.kyma-project.io/v1beta2/namespaces/kcp-system";
/// The kinds whose CRDs every runtime has.
pub(super) const KINDS: [&str; 3] = ["kymas", "modulereleasemetas", "moduletemplates"];

/// A cluster, and the path of an object in it. The path of a Manifest ends in Kyma and module, without the hash.
pub(super) type TestNamespace = (&'static str, String);
/// Objects, and the modules that bring them. The set is empty for objects that every runtime has.
pub(super) type Places = BTreeMap<TestNamespace, BTreeSet<&'static str>>;

/// The content that an object of a module must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// A ConfigMap with this text.
    Map(String),
    /// A Deployment with this image.
    Deployment(String),
    /// A ClusterRole, or the CRD of `Thing`.
    Other,
}

/// What git declares, and what users choose for their own Kyma.
#[derive(Clone, Debug)]
pub(super) struct Land {
    /// The ConfigMaps of each module version: name and text.
    pub(super) maps: BTreeMap<(&'static str, &'static str), BTreeMap<String, String>>,
    /// The version of a module in a channel.
    pub(super) channels: BTreeMap<(&'static str, &'static str), &'static str>,
    pub(super) kymas: BTreeMap<&'static str, Declared>,
    /// The error in a file, if a file has one.
    pub(super) broken: Option<Broken>,
    /// Whether the definitions adopt existing objects that lack the ownership label.
    pub(super) adopts: bool,
}

/// The error in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The definition is invalid.
    Definition,
    /// The YAML is invalid.
    Syntax,
}

/// A Kyma as git declares it.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) channel: &'static str,
    pub(super) modules: BTreeSet<&'static str>,
}

// === impl Land ===

impl Land {
    /// The initial landscape. In half of all worlds the second Kyma is added later or not at all.
    pub(super) fn new(dice: &mut Dice) -> Land {
        let mut land = Land {
            maps: BTreeMap::new(),
            channels: BTreeMap::new(),
            kymas: BTreeMap::new(),
            broken: None,
            adopts: false,
        };
        for (module, versions) in MODULES {
            for version in versions {
                let maps = [("a", version), ("b", "same")];
                let maps = maps.map(|(name, text)| (format!("{module}-{name}"), text.to_owned()));
                land.maps.insert((module, version), maps.into());
            }
            for (channel, version) in CHANNELS.into_iter().zip(versions) {
                land.channels.insert((module, channel), version);
            }
        }
        let count = 1 + usize::try_from(dice.below(2)).expect("0 or 1");
        for name in KYMAS.into_iter().take(count) {
            let declared = Declared { channel: "regular", modules: ["cache", "mailer"].into() };
            land.kymas.insert(name, declared);
        }
        land.kymas.insert(USERS, Declared { channel: "regular", modules: ["cache"].into() });
        land
    }

    /// The version of a module in a channel.
    pub(super) fn version(&self, module: &'static str, channel: &'static str) -> &'static str {
        self.channels[&(module, channel)]
    }

    /// The ConfigMaps that a runtime must have, with their texts.
    pub(super) fn wanted(&self, kyma: &str) -> BTreeMap<&str, &str> {
        let declared = self.kymas.get(kyma);
        let modules = declared.into_iter().flat_map(|of| of.modules.iter().map(|module| (*module, of.channel)));
        let maps = modules.flat_map(|(module, channel)| &self.maps[&(module, self.version(module, channel))]);
        maps.map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }

    /// The objects of a module version, by path, without its default custom resource.
    pub(super) fn brings(&self, module: &'static str, version: &'static str) -> BTreeMap<String, Brought> {
        let maps = &self.maps[&(module, version)];
        let maps = maps.iter().map(|(name, text)| (format!("{MAPS}/{name}"), Brought::Map(text.clone())));
        let mut brought: BTreeMap<String, Brought> = maps.collect();
        brought.insert(format!("{ROLES}/{module}"), Brought::Other);
        match module {
            "cache" => drop(brought.insert(format!("{DEFINITIONS}/things.example.org"), Brought::Other)),
            "mailer" => {
                drop(brought.insert(format!("{DEPLOYMENTS}/mailer"), Brought::Deployment(format!("mailer:{version}"))));
            }
            _ => {}
        }
        brought
    }

    /// Every object that a Kyma wants, in any cluster. If a user edited the channel of a Kyma, only what both channels
    /// want is certain.
    pub(super) fn places(&self, edited: &BTreeSet<&'static str>) -> Places {
        let mut all = Places::new();
        for (kyma, declared) in &self.kymas {
            let mut places = self.places_of(kyma, declared, declared.channel);
            if edited.contains(kyma) {
                let others = self.places_of(kyma, declared, "fast");
                places.retain(|place, modules| others.get(place).is_some_and(|others| modules.is_subset(others)));
            }
            all.extend(places);
        }
        all
    }

    fn places_of(&self, kyma: &'static str, declared: &Declared, channel: &'static str) -> Places {
        let mut places = Places::new();
        for module in &declared.modules {
            let mut brought: Vec<TestNamespace> =
                self.brings(module, self.version(module, channel)).into_keys().map(|path| (kyma, path)).collect();
            brought.push((KCP, format!("{IN_KCP}/manifests/{kyma}-{module}")));
            if *module == "cache" {
                brought.push((kyma, format!("{THINGS}/cache-default")));
            }
            for place in brought {
                places.entry(place).or_default().insert(*module);
            }
        }
        let shown = MODULES.iter().map(|(module, _)| format!("{IN_RUNTIME}/modulereleasemetas/{module}"));
        let offered = self
            .channels
            .iter()
            .map(|((module, _), version)| format!("{IN_RUNTIME}/moduletemplates/{module}-{version}"));
        let kinds = KINDS.iter().map(|kind| format!("{DEFINITIONS}/{kind}.operator.kyma-project.io"));
        let all = [NAMESPACE.to_owned(), format!("{IN_RUNTIME}/kymas/default")].into_iter();
        let every: Vec<TestNamespace> = all.chain(kinds).chain(shown).chain(offered).map(|path| (kyma, path)).collect();
        for place in every.into_iter().chain([(KCP, format!("{IN_KCP}/kymas/{kyma}"))]) {
            places.insert(place, BTreeSet::new());
        }
        places
    }

    /// Removes objects that several modules bring.
    pub(super) fn separate(&mut self) {
        for ((module, _), maps) in &mut self.maps {
            maps.retain(|name, _| name.starts_with(module));
        }
    }

    /// The files in git.
    pub(super) fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for (module, versions) in MODULES {
            for version in versions {
                let folder = format!("modules/{module}/{version}");
                files.insert(format!("{folder}/module-template.yaml"), template(module, version, &folder));
                files.insert(format!("{folder}/objects/objects.yaml"), self.objects(module, version));
            }
            files.insert(format!("modules/{module}/release.yaml"), self.release(module, &versions));
        }
        for (name, declared) in self.kymas.iter().filter(|(name, _)| **name != USERS) {
            files.insert(format!("kymas/{name}.yaml"), kyma(name, declared));
        }
        if let Some(broken) = self.broken {
            let text = match broken {
                Broken::Definition => {
                    "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata: {name: broken}\nspec: 1\n"
                }
                Broken::Syntax => "kind: [Kyma\n",
            };
            files.insert("kymas/broken.yaml".to_owned(), text.to_owned());
        }
        if self.adopts {
            for (_, text) in files.iter_mut().filter(|(path, _)| !path.ends_with("objects.yaml")) {
                *text = text.replace("annotations: {", "annotations: {tidegate.dev/adopt: \"true\", ");
            }
        }
        files
    }

    fn objects(&self, module: &'static str, version: &'static str) -> String {
        let mut text = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {module}}}\nrules: {}\n",
            rules()
        );
        for (name, value) in &self.maps[&(module, version)] {
            text.push_str(&format!(
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: kyma-system}}\ndata: \
                 {{text: \"{value}\"}}\n"
            ));
        }
        match module {
            "cache" => text.push_str(&format!("---\n{}", crate::stage::THING_CRD)),
            "mailer" => text.push_str(&format!(
                "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: mailer, namespace: kyma-system}}\nspec:\n  \
                 selector: {{matchLabels: {{app: mailer}}}}\n  template:\n    metadata: {{labels: {{app: mailer}}}}\n    \
                 spec: {{containers: [{{name: mailer, image: \"mailer:{version}\"}}]}}\n"
            )),
            _ => {}
        }
        text
    }

    /// The annotation allows any version to follow any other.
    fn release(&self, module: &'static str, versions: &[&str]) -> String {
        let allowed: Vec<String> = versions.iter().map(|version| format!("{module}-{version}")).collect();
        let allowed = format!("annotations: {{tidegate.dev/allow-downgrade: \"{}\"}}", allowed.join(","));
        let channels = CHANNELS.map(|channel| (channel, self.version(module, channel)));
        crate::stage::release(module, &channels)
            .replace("namespace: kcp-system}", &format!("namespace: kcp-system, {allowed}}}"))
    }
}

/// The rules of each module's ClusterRole.
pub(super) fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
}

fn template(module: &str, version: &str, folder: &str) -> String {
    let data = match module {
        "cache" => {
            "\n  data: {apiVersion: example.org/v1, kind: Thing, metadata: {name: cache-default, namespace: kyma-system}, \
             spec: {size: 1}}"
        }
        _ => "",
    };
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: {module}-{version}\n  \
         namespace: kcp-system\n  annotations: {{tidegate.dev/module-path: {folder}/objects}}\nspec:\n  moduleName: \
         {module}\n  version: {version}{data}\n"
    )
}

fn kyma(name: &str, declared: &Declared) -> String {
    let modules: Vec<&str> = declared.modules.iter().copied().collect();
    let metadata = format!(
        "metadata: {{name: {name}, namespace: kcp-system, labels: {{kyma-project.io/runtime-id: {name}}}, annotations: \
         {{skr-domain: {}}}}}",
        domain(name)
    );
    crate::stage::kyma(name, &modules)
        .replace("channel: regular", &format!("channel: {}", declared.channel))
        .replace(&format!("metadata: {{name: {name}, namespace: kcp-system}}"), &metadata)
}
