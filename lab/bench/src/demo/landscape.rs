//! The files of the example, embedded so that the demo works outside a checkout, and the parts that the tour uses.

use tidegate_core::component::Component;

use crate::registry::Content;

/// Path and text of each file of `examples/landscape`.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../examples/landscape/", $path)))),*]
    };
}

/// All files of the example.
pub(super) const FILES: &[(&str, &str)] = files![
    ".tidegate/dev.yaml",
    ".tidegate/prod.yaml",
    "README.md",
    "landscapes/dev/kyma.yaml",
    "landscapes/dev/watcher.yaml",
    "landscapes/prod/kyma.yaml",
    "landscapes/prod/watcher.yaml",
    "modules/audit-baseline/1.0.0/module-template.yaml",
    "modules/audit-baseline/1.0.0/objects/config.yaml",
    "modules/audit-baseline/1.0.0/objects/rbac.yaml",
    "modules/audit-baseline/module-release-meta.yaml",
    "modules/cache/1.0.0/module-template.yaml",
    "modules/cache/1.0.0/objects/config.yaml",
    "modules/cache/1.0.0/objects/crd.yaml",
    "modules/cache/1.0.0/objects/manager.yaml",
    "modules/cache/1.0.0/objects/rbac.yaml",
    "modules/cache/1.0.0/objects/service.yaml",
    "modules/cache/1.1.0/module-template.yaml",
    "modules/cache/1.1.0/objects/config.yaml",
    "modules/cache/1.1.0/objects/crd.yaml",
    "modules/cache/1.1.0/objects/manager.yaml",
    "modules/cache/1.1.0/objects/rbac.yaml",
    "modules/cache/1.1.0/objects/service.yaml",
    "modules/cache/module-release-meta.yaml",
    "modules/mailer/2.4.0/module-template.yaml",
    "modules/mailer/2.4.0/objects/config.yaml",
    "modules/mailer/2.4.0/objects/crd.yaml",
    "modules/mailer/2.4.0/objects/manager.yaml",
    "modules/mailer/2.4.0/objects/rbac.yaml",
    "modules/mailer/2.4.0/objects/service.yaml",
    "modules/mailer/module-release-meta.yaml",
    "modules/tracing-agent/0.5.0/module-template.yaml",
    "modules/tracing-agent/0.5.0/objects/config.yaml",
    "modules/tracing-agent/0.5.0/objects/crd.yaml",
    "modules/tracing-agent/0.5.0/objects/manager.yaml",
    "modules/tracing-agent/0.5.0/objects/rbac.yaml",
    "modules/tracing-agent/0.5.0/objects/service.yaml",
    "modules/tracing-agent/module-release-meta.yaml",
];

/// A file of the example without pods: the images of its Deployments do not exist.
pub(super) fn without_pods(text: &str) -> String {
    match text.contains("\nkind: Deployment\n") {
        true => text.replace("\n  replicas: 1\n", "\n  replicas: 0\n"),
        false => text.to_owned(),
    }
}

/// The Kyma on channel `fast`; its runtime is `skr-1`.
pub(super) const DEV: &str = "dev";
/// The Kyma on channel `regular`; its runtime is `skr-2`.
pub(super) const PROD: &str = "prod";
/// The Kymas of the example, in the order of their runtimes. [`more`] has all others.
const KYMAS: [&str; 2] = [DEV, PROD];
/// The names of as many Kymas as there are runtimes, in their order.
pub(super) fn kymas(runtimes: usize) -> Vec<String> {
    let more = (KYMAS.len() + 1..=runtimes).map(|index| format!("runtime-{index:03}"));
    KYMAS.iter().map(|name| (*name).to_owned()).chain(more).collect()
}

/// The files of the Kymas that the example does not have: copies of production, each with a runtime of its own.
pub(super) fn more(kymas: &[String]) -> Vec<(String, String)> {
    let names = kymas.iter().enumerate().skip(KYMAS.len());
    names
        .map(|(index, name)| {
            let number = index + 1;
            let text = format!(
                "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: {name}\n  \
                 namespace: kcp-system\n  labels:\n    operator.kyma-project.io/beta: \"false\"\n    \
                 kyma-project.io/runtime-id: 3f0e7c1a-0000-4000-8000-{number:012}\n  annotations:\n    \
                 skr-domain: {name}.kyma.example.org\nspec:\n  channel: regular\n  modules:\n    - name: cache\n    \
                 - name: mailer\n"
            );
            (format!("landscapes/more/{name}.yaml"), text)
        })
        .collect()
}

/// The modules of `dev` at first, with their versions.
pub(super) const DEV_MODULES: [(&str, &str); 3] = [("cache", "1.1.0"), ("mailer", "2.4.0"), ("tracing-agent", "0.5.0")];
/// The modules of `prod` at first, with their versions.
pub(super) const PROD_MODULES: [(&str, &str); 2] = [("cache", "1.0.0"), ("mailer", "2.4.0")];

/// The mandatory module, which every runtime has.
pub(super) const MANDATORY: &str = "audit-baseline";

/// The file with the channels of `cache`.
pub(super) const CACHE_RELEASE: &str = "modules/cache/module-release-meta.yaml";
/// The version of `cache` that both runtimes have after the bump, and a file of it to change.
pub(super) const CACHE_CONFIG: &str = "modules/cache/1.1.0/objects/config.yaml";
/// The file with the channels of `mailer`.
pub(super) const MAILER_RELEASE: &str = "modules/mailer/module-release-meta.yaml";
/// A version of `mailer` with a mistake.
pub(super) const MAILER_BROKEN: &str = "modules/mailer/2.5.0/module-template.yaml";
/// `dev`'s Kyma.
pub(super) const DEV_KYMA: &str = "landscapes/dev/kyma.yaml";

/// A module in an OCI registry, and its versions.
pub(super) const SCANNER: &str = "scanner";
/// The first version of it.
pub(super) const SCANNER_FIRST: &str = "1.0.0";
/// A version whose installation interrupts the service.
pub(super) const SCANNER_SECOND: &str = "2.0.0";
/// The file with its channels.
pub(super) const SCANNER_RELEASE: &str = "modules/scanner/module-release-meta.yaml";

/// What the OCI registry has.
pub(super) fn scanner_content() -> Content {
    let mut content = Content::default();
    for version in [SCANNER_FIRST, SCANNER_SECOND] {
        let component = Component::new(SCANNER_COMPONENT, version).expect("a valid name and version");
        let objects = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: scanner-config\n  namespace: kyma-system\ndata:\n  \
             version: {version}\n"
        );
        content.publish(&component, &objects);
    }
    content
}

const SCANNER_COMPONENT: &str = "example.org/module/scanner";

/// The definitions of that module.
pub(super) fn scanner_files() -> Vec<(String, String)> {
    let template = |version: &str, more: &str| {
        let text = format!(
            "# No annotation names a folder: the objects are in the OCI registry.\n\
             apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleTemplate\nmetadata:\n  \
             name: scanner-{version}\n  namespace: kcp-system\nspec:\n  moduleName: scanner\n  version: {version}\n  descriptor: {{}}\n\
             {more}"
        );
        (format!("modules/scanner/{version}/module-template.yaml"), text)
    };
    let release = format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\nmetadata:\n  name: scanner\n  \
         namespace: kcp-system\nspec:\n  moduleName: scanner\n  ocmComponentName: {SCANNER_COMPONENT}\n  channels:\n    \
         - channel: fast\n      version: {SCANNER_FIRST}\n"
    );
    vec![
        template(SCANNER_FIRST, ""),
        template(SCANNER_SECOND, "  requiresDowntime: true\n"),
        (SCANNER_RELEASE.to_owned(), release),
    ]
}

/// The template of [`MAILER_BROKEN`]: a version without quotes is a number, and the schema requires a string.
pub(super) const MAILER_BROKEN_TEXT: &str = "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleTemplate
metadata:
  name: mailer-2.5.0
  namespace: kcp-system
  annotations:
    tidegate.dev/module-path: modules/mailer/2.4.0/objects
spec:
  moduleName: mailer
  version: 2.5
";
/// The line of the mistake in [`MAILER_BROKEN_TEXT`].
pub(super) const MAILER_BROKEN_LINE: i64 = 10;

/// The file of the kcp landscape.
pub(super) const KCP: &str = "landscapes/kcp.yaml";
/// A kcp landscape with one user: a root shard, the entrance of users, and the kubeconfig of an administrator.
pub(super) const KCP_TEXT: &str = "\
apiVersion: operator.kcp.io/v1alpha1
kind: RootShard
metadata: {name: main, namespace: kcp-system}
spec:
  external: {hostname: kcp.example.com, port: 443}
  image: {tag: v0.32.3}
  cache: {}
  etcd: {endpoints: [http://etcd.kcp-system.svc:2379]}
  certificates:
    # The built-in CA takes the place of this issuer.
    issuerRef: {group: cert-manager.io, kind: ClusterIssuer, name: selfsigned}
---
apiVersion: operator.kcp.io/v1alpha1
kind: FrontProxy
metadata: {name: public, namespace: kcp-system}
spec:
  rootShard: {ref: {name: main}}
  external: {hostname: kcp.example.com, port: 443}
  image: {tag: v0.32.3}
---
apiVersion: operator.kcp.io/v1alpha1
kind: Kubeconfig
metadata: {name: admin, namespace: kcp-system}
spec:
  target: {frontProxyRef: {name: public}}
  username: admin@example.com
  groups: [company:platform]
  validity: 8766h
  secretRef: {name: admin-kubeconfig}
";
/// The groups of the administrator at first, and after a change in git.
pub(super) const KCP_GROUPS: [&str; 2] = ["[company:platform]", "[company:platform, company:support]"];

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn every_file_of_the_example_is_embedded() {
        fn walk(folder: &Path, base: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, base, found);
                } else {
                    found.push(path.strip_prefix(base).unwrap().display().to_string());
                }
            }
        }
        let base = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/landscape"));
        let mut found = Vec::new();
        walk(base, base, &mut found);
        found.sort();
        let mut embedded: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
        embedded.sort_unstable();
        assert_eq!(found, embedded, "the list of files in this module must be that of examples/landscape");
    }

    #[test]
    fn every_runtime_has_a_kyma_of_its_own() {
        let kymas = kymas(4);
        assert_eq!(kymas, ["dev", "prod", "runtime-003", "runtime-004"]);
        let files = more(&kymas);
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["landscapes/more/runtime-003.yaml", "landscapes/more/runtime-004.yaml"]);
        assert!(files[1].1.contains("runtime-id: 3f0e7c1a-0000-4000-8000-000000000004"), "{}", files[1].1);
        assert!(more(&self::kymas(1)).is_empty(), "the example's two are always there");
    }

    #[test]
    fn no_deployment_of_the_example_needs_an_image() {
        let texts = || FILES.iter().map(|(_, text)| (*text, without_pods(text)));
        let deployments: Vec<_> = texts().filter(|(text, _)| text.contains("\nkind: Deployment\n")).collect();
        assert_eq!(deployments.len(), 4);
        assert!(deployments.iter().all(|(_, text)| text.contains("\n  replicas: 0\n")));
        assert!(texts().all(|(text, without)| text == without || text.contains("\nkind: Deployment\n")));
    }

    #[test]
    fn the_mistake_stands_where_the_tour_says() {
        let line = MAILER_BROKEN_TEXT.lines().nth(usize::try_from(MAILER_BROKEN_LINE).unwrap() - 1);
        assert_eq!(line, Some("  version: 2.5"));
    }
}
