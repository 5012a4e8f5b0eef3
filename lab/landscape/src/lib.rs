//! Generates a landscape as files of a repository, with the size of real ones: runtimes on two channels, modules in
//! many versions.
//!
//! Equal sizes give equal bytes, so that measurements are comparable.

use std::fmt::Write as _;

/// The size of a landscape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of runtimes.
    pub runtimes: usize,
    /// Modules of each runtime; every runtime has the first module.
    pub modules: usize,
    /// Number of ModuleTemplates, [`VERSIONS`] for each module.
    pub templates: usize,
    /// Objects in each version of a module.
    pub objects: usize,
}

/// Versions of each module; the last is on the channel `fast`.
pub const VERSIONS: usize = 25;

/// The index of the version on the channel `regular`.
pub const REGULAR: usize = VERSIONS - 3;

/// Runtimes in a folder. Real repositories do not keep thousands of files in one.
const IN_FOLDER: usize = 100;
/// One in this many runtimes is on the channel `fast`.
const FAST: usize = 10;
/// Words for the names of modules, which contain no digits.
const WORDS: [&str; 10] =
    ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett"];

impl Size {
    /// The number of modules.
    pub fn kinds(&self) -> usize {
        self.templates.div_ceil(VERSIONS).max(self.modules)
    }

    /// All files, by path.
    pub fn files(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        for module in 0..self.kinds() {
            files.push((release_path(module), release(module, REGULAR)));
            for version in 0..VERSIONS {
                let folder = format!("modules/{}/{}", name(module), number(version));
                files.push((format!("{folder}/module-template.yaml"), template(module, version)));
                files.push((format!("{folder}/objects/objects.yaml"), objects(module, version, self.objects)));
            }
        }
        files.extend((1..=self.runtimes).map(|index| self.kyma(index)));
        files
    }

    fn kyma(&self, index: usize) -> (String, String) {
        let channel = if index.is_multiple_of(FAST) { "fast" } else { "regular" };
        let mut text = format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: runtime-{index:04}\n  \
             namespace: kcp-system\n  labels:\n    operator.kyma-project.io/beta: \"false\"\n    \
             kyma-project.io/runtime-id: 3f0e7c1a-0000-4000-8000-{index:012}\n    \
             kyma-project.io/global-account-id: account-{}\n  annotations:\n    \
             skr-domain: runtime-{index:04}.kyma.example.org\nspec:\n  channel: {channel}\n  modules:\n",
            index % 50
        );
        let others = self.kinds() - 1;
        for position in 0..self.modules {
            // Neighbours have different modules, and every module has runtimes.
            let module = if position == 0 { 0 } else { 1 + (index * (self.modules - 1) + position) % others.max(1) };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "    - name: {}", name(module));
        }
        (format!("kymas/{:02}/runtime-{index:04}.yaml", index / IN_FOLDER), text)
    }
}

/// The path of the file with a module's channels.
pub fn release_path(module: usize) -> String {
    format!("modules/{}/module-release-meta.yaml", name(module))
}

/// The channels of a module, with the version of this index on `regular`.
pub fn release(module: usize, regular: usize) -> String {
    let name = name(module);
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata:\n  name: {name}\n  \
         namespace: kcp-system\nspec:\n  moduleName: {name}\n  ocmComponentName: example.org/module/{name}\n  \
         channels:\n    - channel: fast\n      version: {}\n    - channel: regular\n      version: {}\n",
        number(VERSIONS - 1),
        number(regular),
    )
}

/// The name of a module.
fn name(module: usize) -> String {
    let (ten, one) = (module / WORDS.len(), module % WORDS.len());
    if ten == 0 { WORDS[one].to_owned() } else { format!("{}-{}", WORDS[(ten - 1) % WORDS.len()], WORDS[one]) }
}

fn number(version: usize) -> String {
    format!("1.{version}.0")
}

fn template(module: usize, version: usize) -> String {
    let (name, version) = (name(module), number(version));
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  name: {name}-{version}\n  \
         namespace: kcp-system\n  annotations:\n    tidegate.dev/module-path: modules/{name}/{version}/objects\n\
         spec:\n  moduleName: {name}\n  version: {version}\n  info:\n    \
         repository: https://git.example.org/modules/{name}\n    documentation: https://docs.example.org/{name}\n  \
         manager: {{group: apps, version: v1, kind: Deployment, namespace: kyma-system, name: {name}}}\n  data:\n    \
         apiVersion: {name}.example.org/v1\n    kind: Settings\n    \
         metadata: {{name: default, namespace: kyma-system}}\n    spec: {{replicas: 1}}\n"
    )
}

/// A ServiceAccount, a Deployment and ConfigMaps, all of which differ between versions.
fn objects(module: usize, version: usize, objects: usize) -> String {
    let (name, version) = (name(module), number(version));
    let labels = format!("labels: {{app.kubernetes.io/version: {version}}}");
    let metadata = format!("metadata: {{name: {name}, namespace: kyma-system, {labels}}}");
    let mut all = vec![
        format!("apiVersion: v1\nkind: ServiceAccount\n{metadata}\n"),
        format!(
            "apiVersion: apps/v1\nkind: Deployment\n{metadata}\nspec:\n  replicas: 1\n  selector:\n    \
             matchLabels:\n      app: {name}\n  template:\n    metadata:\n      labels:\n        app: {name}\n    \
             spec:\n      serviceAccountName: {name}\n      containers:\n        - name: manager\n          \
             image: registry.example.org/{name}/manager:{version}\n          args: [--leader-elect]\n          \
             resources:\n            requests:\n              cpu: 10m\n              memory: 64Mi\n"
        ),
    ];
    let settings = "settings of a module ".repeat(16);
    all.truncate(objects);
    for object in all.len()..objects {
        all.push(format!(
            "apiVersion: v1\nkind: ConfigMap\n\
             metadata: {{name: {name}-{object:02}, namespace: kyma-system, {labels}}}\n\
             data:\n  version: \"{version}\"\n  text: {settings:?}\n"
        ));
    }
    all.join("---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_landscape_has_the_size_that_is_asked_for() {
        let size = Size { runtimes: 12, modules: 2, templates: 50, objects: 4 };
        let files = size.files();
        let named = |end: &str| files.iter().filter(|(path, _)| path.ends_with(end)).count();
        assert_eq!(named("module-template.yaml"), 50);
        assert_eq!(named("module-release-meta.yaml"), 2);
        let objects = files.iter().find(|(path, _)| path.ends_with("objects.yaml")).map(|(_, text)| text.clone());
        assert_eq!(objects.map(|text| text.matches("\nkind: ").count()), Some(4));
    }
}
