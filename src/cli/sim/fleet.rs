//! A landscape as files of a repository: as many Kymas, modules and objects as asked for.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::api::names::{KCP_NAMESPACE, SKR_NAMESPACE, annotation};

/// The versions that every module has; the channel starts with the first.
pub(super) const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];

/// Objects of a module that are no ConfigMaps: the usual rights of an operator.
const RIGHTS: usize = 5;

/// Words that may be parts of a module's name, which has no digits.
const WORDS: [&str; 10] =
    ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"];

/// The name of a Kyma; they count from 1.
pub(super) fn kyma_name(index: usize) -> String {
    format!("runtime-{index:04}")
}

fn module_name(module: usize) -> String {
    let (ten, one) = (module / WORDS.len(), module % WORDS.len());
    if ten == 0 { WORDS[one].to_owned() } else { format!("{}-{}", WORDS[ten % WORDS.len()], WORDS[one]) }
}

/// The name of an object of a module.
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
pub(super) fn files(runtimes: usize, modules: usize, objects: usize) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for module in 0..modules {
        files.push((release_path(module), release(module, VERSIONS[0])));
        for version in VERSIONS {
            let folder = format!("modules/{}/{version}", module_name(module));
            files.push((format!("{folder}/module-template.yaml"), template(module, version)));
            files.push((format!("{folder}/objects/objects.yaml"), objects_of(module, version, objects)));
        }
    }
    files.extend((1..=runtimes).map(|index| (format!("kymas/{}.yaml", kyma_name(index)), kyma(index, modules))));
    files
}

/// The file with the channels of a module.
pub(super) fn release_path(module: usize) -> String {
    format!("modules/{}/module-release-meta.yaml", module_name(module))
}

/// A module whose channel has a version.
pub(super) fn release(module: usize, version: &str) -> String {
    let name = module_name(module);
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n\
         metadata: {{name: {name}, namespace: {KCP_NAMESPACE}}}\n\
         spec:\n  moduleName: {name}\n  ocmComponentName: example.org/module/{name}\n\
         \x20 channels: [{{channel: regular, version: {version}}}]\n"
    )
}

fn template(module: usize, version: &str) -> String {
    let name = module_name(module);
    let key = annotation::MODULE_PATH;
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\n\
         metadata:\n  name: {name}-{version}\n  namespace: {KCP_NAMESPACE}\n\
         \x20 annotations: {{{key}: modules/{name}/{version}/objects}}\n\
         spec: {{moduleName: {name}, version: {version}}}\n"
    )
}

fn kyma(index: usize, modules: usize) -> String {
    let mut text = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\n\
         metadata: {{name: {}, namespace: {KCP_NAMESPACE}}}\nspec:\n  channel: regular\n  modules:\n",
        kyma_name(index)
    );
    for module in 0..modules {
        let _ = writeln!(text, "    - {{name: {}}}", module_name(module));
    }
    text
}

/// Rights as an operator has them, then ConfigMaps, of which every one differs between versions.
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
