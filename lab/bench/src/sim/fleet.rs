//! Generates a landscape as files of a repository: Kymas, modules and objects.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::stage::Size;
use crate::registry::Content;
use tidegate_core::{
    api::{
        self,
        names::{KCP_NAMESPACE, SKR_NAMESPACE, annotation, label},
    },
    component::Component,
};

/// The versions of every module: the first one of the channel `regular`, the next one, and that of `fast`.
pub(super) const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "1.2.0"];
/// Limit of runtimes: each needs a port of this machine, and names have four digits.
pub(super) const RUNTIMES_MAX: i64 = 5_000;

/// Where the objects of modules are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    /// In the repository.
    #[default]
    Git,
    /// In an OCI registry.
    Oci,
}

/// Objects of a module other than ConfigMaps: the usual permissions of an operator.
const RIGHTS: usize = 5;

/// Words for the names of modules, which contain no digits.
const WORDS: [&str; 10] =
    ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"];

/// The name of a Kyma; indexes start at 1.
pub(super) fn kyma_name(index: usize) -> String {
    format!("runtime-{index:04}")
}

/// The id of a runtime, which is the common name of its certificate.
pub(super) fn runtime_id(index: usize) -> String {
    format!("3f0e7c1a-0000-4000-8000-{index:012}")
}

/// The domain of a runtime, which its certificate names.
pub(super) fn domain(index: usize) -> String {
    format!("{}.kyma.example.org", kyma_name(index))
}

/// The API resource of Kymas in KCP.
pub(super) fn kyma_sample() -> Value {
    let api_version = format!("{}/{}", api::KYMA_GROUP, api::KYMA_VERSION);
    json!({"apiVersion": api_version, "kind": "Kyma", "metadata": {"namespace": KCP_NAMESPACE}})
}

/// The version of a module in the status of a Kyma.
pub(super) fn version_of(kyma: &Value, module: usize) -> &str {
    let modules = kyma["status"]["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = module_name(module);
    let found = modules.iter().find(|one| one["name"] == *name);
    found.and_then(|one| one["version"].as_str()).unwrap_or_default()
}

/// The name of a module and of its RBAC objects.
pub(super) fn module_name(module: usize) -> String {
    let (ten, one) = (module / WORDS.len(), module % WORDS.len());
    if ten == 0 { WORDS[one].to_owned() } else { format!("{}-{}", WORDS[ten % WORDS.len()], WORDS[one]) }
}

/// The name of a ConfigMap of a module.
pub(super) fn object_name(module: usize, object: usize) -> String {
    format!("{}-{object:02}", module_name(module))
}

/// The GitSource in KCP.
pub(super) fn source(url: &str) -> Value {
    json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": KCP_NAMESPACE},
        "spec": {"url": url, "ref": {"branch": "main"}},
    })
}

/// All files.
pub(super) fn files(size: Size, origin: Origin) -> Vec<(String, String)> {
    let Size { runtimes, modules, objects } = size;
    let mut files = Vec::new();
    for module in 0..modules {
        files.push((release_path(module), release(module, VERSIONS[0])));
        for version in VERSIONS {
            let folder = format!("modules/{}/{version}", module_name(module));
            files.push((format!("{folder}/module-template.yaml"), template(module, version, origin)));
            if origin == Origin::Git {
                files.push((format!("{folder}/objects/objects.yaml"), objects_of(module, version, objects)));
            }
        }
    }
    files.extend((1..=runtimes).map(|index| (kyma_path(index), kyma(index, modules, &[]))));
    files
}

/// What a registry with the modules has.
pub(super) fn content(size: Size) -> anyhow::Result<Content> {
    let mut content = Content::default();
    for module in 0..size.modules {
        for version in VERSIONS {
            let component = Component::new(&component_name(module), version)?;
            content.publish(&component, &objects_of(module, version, size.objects));
        }
    }
    Ok(content)
}

fn component_name(module: usize) -> String {
    format!("example.org/module/{}", module_name(module))
}

/// The file of a Kyma.
pub(super) fn kyma_path(index: usize) -> String {
    format!("kymas/{}.yaml", kyma_name(index))
}

/// The file with the channels of a module.
pub(super) fn release_path(module: usize) -> String {
    format!("modules/{}/module-release-meta.yaml", module_name(module))
}

/// The channels of a module, with this version.
pub(super) fn release(module: usize, version: &str) -> String {
    let name = module_name(module);
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n\
         metadata: {{name: {name}, namespace: {KCP_NAMESPACE}}}\n\
         spec:\n  moduleName: {name}\n  ocmComponentName: {}\n\
         \x20 channels: [{{channel: regular, version: {version}}}, {{channel: fast, version: {}}}]\n",
        component_name(module),
        VERSIONS[2]
    )
}

fn template(module: usize, version: &str, origin: Origin) -> String {
    let name = module_name(module);
    let annotations = match origin {
        Origin::Git => format!("  annotations: {{{}: modules/{name}/{version}/objects}}\n", annotation::MODULE_PATH),
        Origin::Oci => String::new(),
    };
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\n\
         metadata:\n  name: {name}-{version}\n  namespace: {KCP_NAMESPACE}\n{annotations}\
         spec: {{moduleName: {name}, version: {version}, descriptor: {{}}}}\n"
    )
}

/// A Kyma with the first modules; those in `fast` are on that channel.
pub(super) fn kyma(index: usize, modules: usize, fast: &[usize]) -> String {
    let mut text = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\n\
         metadata:\n  name: {}\n  namespace: {KCP_NAMESPACE}\n  labels: {{{}: {}}}\n\
         \x20 annotations: {{{}: {}}}\nspec:\n  channel: regular\n  modules:\n",
        kyma_name(index),
        label::RUNTIME_ID,
        runtime_id(index),
        annotation::SKR_DOMAIN,
        domain(index),
    );
    for module in 0..modules {
        let name = module_name(module);
        let channel = if fast.contains(&module) { ", channel: fast" } else { "" };
        let _ = writeln!(text, "    - {{name: {name}{channel}}}");
    }
    text
}

/// RBAC objects of an operator, then ConfigMaps, all of which differ between versions.
fn objects_of(module: usize, version: &str, objects: usize) -> String {
    let name = module_name(module);
    let role = "rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get, list, watch]}]";
    let subject = format!("subjects: [{{kind: ServiceAccount, name: {name}, namespace: {SKR_NAMESPACE}}}]");
    let reference =
        |kind: &str| format!("roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {name}}}");
    let labels = format!("labels: {{app.kubernetes.io/version: {version}}}");
    let spaced = format!("metadata: {{name: {name}, namespace: {SKR_NAMESPACE}, {labels}}}");
    let wide = format!("metadata: {{name: {name}, {labels}}}");
    let rbac = "apiVersion: rbac.authorization.k8s.io/v1\nkind:";
    let mut all = vec![
        format!("apiVersion: v1\nkind: ServiceAccount\n{spaced}\n"),
        format!("{rbac} Role\n{spaced}\n{role}\n"),
        format!("{rbac} RoleBinding\n{spaced}\n{subject}\n{}\n", reference("Role")),
        format!("{rbac} ClusterRole\n{wide}\n{role}\n"),
        format!("{rbac} ClusterRoleBinding\n{wide}\n{subject}\n{}\n", reference("ClusterRole")),
    ];
    all.truncate(objects);
    for object in 0..objects.saturating_sub(RIGHTS) {
        all.push(format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}, namespace: {SKR_NAMESPACE}, {labels}}}\n\
             data: {{version: \"{version}\", text: {:?}}}\n",
            object_name(module, object),
            "settings of a module ".repeat(16)
        ));
    }
    all.join("---\n")
}
