//! Bad repositories, and what `tidegate validate` says of each: one clear sentence at the right place, and the rest
//! goes on. The expected output of a case is `validate/<case>.txt`; `UPDATE_GOLDEN=1` writes it anew, to be reviewed
//! like code.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;

use crate::harness;

/// A repository in the making. Begins with one module, its release, a Kyma and a Watcher, all of them good.
struct Folder {
    root: tempfile::TempDir,
    arguments: Vec<String>,
}

const TEMPLATE: &str = "modules/cache/1.0.0/module-template.yaml";
const OBJECTS: &str = "modules/cache/1.0.0/objects/config.yaml";
const RELEASE: &str = "modules/cache/module-release-meta.yaml";
const KYMA: &str = "landscapes/dev/kyma.yaml";
const WATCHER: &str = "landscapes/dev/watcher.yaml";

const GOOD: [(&str, &str); 5] = [
    (
        TEMPLATE,
        "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleTemplate
metadata:
  name: cache-1.0.0
  namespace: kcp-system
  annotations:
    tidegate.dev/module-path: modules/cache/1.0.0/objects
spec:
  moduleName: cache
  version: 1.0.0
",
    ),
    (
        OBJECTS,
        "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: cache
  namespace: cache-system
data:
  size: 1Gi
",
    ),
    (
        RELEASE,
        "\
apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata:
  name: cache
  namespace: kcp-system
spec:
  moduleName: cache
  ocmComponentName: kyma-project.io/module/cache
  channels:
  - channel: regular
    version: 1.0.0
  - channel: fast
    version: 1.0.0
",
    ),
    (
        KYMA,
        "\
apiVersion: operator.kyma-project.io/v1beta2
kind: Kyma
metadata:
  name: dev
  namespace: kcp-system
spec:
  channel: fast
  modules:
  - name: cache
",
    ),
    (
        WATCHER,
        "\
apiVersion: operator.kyma-project.io/v1beta2
kind: Watcher
metadata:
  name: kyma
  namespace: kcp-system
spec:
  manager: lifecycle-manager
  serviceInfo:
    name: events
    namespace: kcp-system
    port: 8082
  labelsToWatch:
    operator.kyma-project.io/watched-by: kyma
  resourceToWatch:
    group: operator.kyma-project.io
    version: '*'
    resource: kymas
  field: spec
  gateway:
    selector:
      matchLabels:
        app: watcher
",
    ),
];

const CRD: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: caches.example.com
spec:
  group: example.com
  scope: Namespaced
  names:
    kind: Cache
    plural: caches
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size:
                type: integer
                minimum: 1
";

/// Objects of Kubernetes' own kinds, none of which an API server accepts.
const KUBERNETES: &str = "\
apiVersion: apps/v1
kind: Deploymnt
metadata: {name: a, namespace: b}
---
apiVersion: apps/v1beta1
kind: Deployment
metadata: {name: a, namespace: b}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: c, namespace: b}
spec:
  replicaz: 3
  selector: {matchLabels: {app: c}}
  template:
    metadata: {labels: {app: c}}
    spec:
      containers:
      - name: c
        image: c:1
        env:
        - name: PORT
          value: 80
        ports:
        - containerPort: eighty
        resources:
          limits:
            memory: 64MB
---
";

/// A copy of a live object, with a mistake.
const CREATED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: b, creationTimestamp: yesterday}
---
";

/// In the file of a Secret, no message quotes anything.
const SECRET: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: b}
stringdata: {password: hunter2}
---
apiVersion: v1
kind: Secret
metadata: {name: c, namespace: b}
data: {password: hunter3}
---
";

/// Custom resources whose kind nothing defines.
const CACHES: &str = "\
apiVersion: example.com/v1
kind: Cache
metadata: {name: a, namespace: b}
spec: {size: 1}
---
apiVersion: example.com/v1
kind: Cache
metadata: {name: c, namespace: b}
spec: {size: 1}
";

/// A kcp landscape with all kinds.
const KCP: &str = include_str!("../../examples/kcp/landscape.yaml");
const KCP_FILE: &str = "kcp/landscape.yaml";

impl Folder {
    fn good() -> Folder {
        let folder = Folder { root: tempfile::tempdir().unwrap(), arguments: Vec::new() };
        GOOD.iter().fold(folder, |folder, (path, text)| folder.file(path, text))
    }

    fn path(&self, path: &str) -> PathBuf {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Writes a file, in place of the one that may be there.
    fn file(self, path: &str, bytes: impl AsRef<[u8]>) -> Folder {
        fs::write(self.path(path), bytes).unwrap();
        self
    }

    /// Replaces a part of a file, which must be there once.
    #[track_caller]
    fn edit(self, path: &str, from: &str, to: &str) -> Folder {
        let text = fs::read_to_string(self.path(path)).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{from:?} in {path}");
        self.file(path, text.replacen(from, to, 1))
    }

    fn remove(self, path: &str) -> Folder {
        fs::remove_file(self.path(path)).unwrap();
        self
    }

    fn link(self, path: &str, target: &str) -> Folder {
        symlink(target, self.path(path)).unwrap();
        self
    }

    fn with(mut self, arguments: &[&str]) -> Folder {
        self.arguments.extend(arguments.iter().map(ToString::to_string));
        self
    }

    fn git(self, arguments: &[&str]) -> Folder {
        let status = Command::new("git")
            .args(["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .current_dir(self.root.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        self
    }

    /// What the command prints, and its exit code.
    fn run(&self, more: &[&str]) -> (String, i32) {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("validate")
            .arg(self.root.path())
            .args(&self.arguments)
            .args(more)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8(text).unwrap(), output.status.code().unwrap())
    }

    /// Compares what the command prints with the file of this name.
    #[track_caller]
    fn check(&self, case: &str) {
        let (text, exit) = self.run(&[]);
        let root = self.root.path().to_str().unwrap();
        let found = format!("{}\nexit {exit}\n", text.replace(root, "<root>"));
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/validate").join(format!("{case}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &found).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        assert!(found == expected, "{case}: expected\n{expected}\nfound\n{found}");
    }
}

/// One test a case; its name is that of the file with the expected output.
macro_rules! cases {
    ($($name:ident => $folder:expr;)*) => {
        $(
            #[test]
            fn $name() {
                $folder.check(stringify!($name));
            }
        )*

        #[test]
        fn every_expected_output_belongs_to_a_case() {
            let cases = [$(concat!(stringify!($name), ".txt")),*];
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/validate");
            for entry in fs::read_dir(folder).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(cases.contains(&name.as_str()), "no case is named {name}");
            }
        }
    };
}

fn good() -> Folder {
    Folder::good()
}

/// The CustomResourceDefinition is in a module of another repository: the landscape file names it.
#[test]
fn a_kind_whose_group_another_source_defines_is_not_judged() {
    let folder = good().file("modules/cache/1.0.0/objects/cache.yaml", CACHES);
    let landscape = |group: &str| {
        let template = json!({
            "metadata": {"namespace": "kcp-system", "name": "store-1.0.0", "labels": {"tidegate.dev/source": "kcp-system.store"}},
            "spec": {"moduleName": "store", "version": "1.0.0", "descriptor": {}},
        });
        let definition = format!("apiextensions.k8s.io/v1/CustomResourceDefinition//caches.{group}");
        json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "Landscape", "written": "2020-01-01T00:00:00Z", "kymas": [],
            "templates": [template],
            "modules": [{"template": "kcp-system/store-1.0.0", "objects": [definition]}],
        })
    };
    let beside = harness::folder();
    for (group, expected) in [("example.com", 0), ("example.org", 3)] {
        let file = beside.path().join("landscape.json");
        fs::write(&file, landscape(group).to_string()).unwrap();
        let (text, exit) = folder.run(&["--strict", "--landscape", file.to_str().unwrap()]);
        assert_eq!((exit, text.contains("undefined-kind")), (expected, expected == 3), "{group}: {text}");
    }
}

/// The good repository, whose module has a default resource of a kind.
fn default_resource(api_version: &str, kind: &str, field: &str) -> Folder {
    let data = format!(
        "  data:\n    apiVersion: {api_version}\n    kind: {kind}\n    metadata:\n      name: a\n    spec:\n      {field}\n"
    );
    good().edit(TEMPLATE, "  version: 1.0.0\n", &format!("  version: 1.0.0\n{data}"))
}

/// The good repository and a good kcp landscape.
fn kcp() -> Folder {
    Folder::good().file(KCP_FILE, KCP)
}

cases! {
    // what Kubernetes knows
    object_created_yesterday => good().edit(OBJECTS, "apiVersion: v1\n", &format!("{CREATED}apiVersion: v1\n"));
    kubernetes_kinds => good().edit(OBJECTS, "apiVersion: v1\n", &format!("{KUBERNETES}apiVersion: v1\n"));
    kubernetes_kinds_beside_a_secret => good()
        .edit(OBJECTS, "apiVersion: v1\n", &format!("{KUBERNETES}{SECRET}apiVersion: v1\n"));
    kubernetes_version => good()
        .edit(OBJECTS, "apiVersion: v1\n",
            "apiVersion: scheduling.k8s.io/v1beta1\nkind: Workload\nmetadata: {name: a, namespace: b}\n---\napiVersion: v1\n")
        .with(&["--kubernetes-version", "1.34"]);
    kubernetes_version_unknown => good().with(&["--kubernetes-version", "1.20"]);
    kind_undefined => good().file("modules/cache/1.0.0/objects/cache.yaml", CACHES);
    kind_undefined_strict => good().file("modules/cache/1.0.0/objects/cache.yaml", CACHES).with(&["--strict"]);
    kind_defined_by_the_module => good().file("modules/cache/1.0.0/objects/cache.yaml", format!("{CACHES}---\n{CRD}"))
        .with(&["--strict"]);
    kind_defined_by_another_module => good().file("modules/cache/1.0.0/objects/cache.yaml", CACHES)
        .file("modules/store/module-template.yaml", GOOD[0].1.replace("modules/cache/1.0.0", "modules/store").replace("cache", "store"))
        .file("modules/store/objects/crd.yaml", CRD)
        .with(&["--strict"]);

    // kcp landscapes
    good_kcp => kcp();
    kcp_unknown_field => kcp().edit(KCP_FILE, "  targetWorkspace: root:company\n", "  targetWorkspac: root:company\n");
    kcp_rule_of_the_schema => kcp().edit(KCP_FILE, "    serviceAccount: {enabled: true}\n    dropGroups", "    dropGroups");
    kcp_reference_missing => kcp().edit(KCP_FILE, "kcpVirtualWorkspace: {name: eu-workspaces}", "kcpVirtualWorkspace: {name: eu}");
    kcp_reference_empty => kcp().edit(KCP_FILE, "  rootShard: {ref: {name: main}}\n  image: {tag: v0.32.3}\n  replicas", "  rootShard: {}\n  image: {tag: v0.32.3}\n  replicas");
    kcp_reference_held_back => kcp().edit(KCP_FILE, "hostname: kcp.example.com, port: 443}\n  cache", "hostname: kcp.example.com, port: 0}\n  cache");
    kcp_origins_of_a_ca => kcp().edit(KCP_FILE, "name: selfsigned}\n  image: {tag: v0.32.3}\n  replicas", "name: selfsigned}\n    caSecretRef: {name: ca}\n  image: {tag: v0.32.3}\n  replicas");
    kcp_rules => kcp()
        .edit(KCP_FILE, "username: admin@example.com", "username: system:kcp-operator")
        .edit(KCP_FILE, "validity: 8766h", "validity: 10m")
        .edit(KCP_FILE, "spec: {type: LoadBalancer}", "spec: {type: ExternalName}")
        .edit(KCP_FILE, "  replicas: 3\n", "  replicas: -1\n");
    kcp_name_of_a_shard => kcp()
        .edit(KCP_FILE, "kind: Shard\nmetadata:\n  name: eu\n", "kind: Shard\nmetadata:\n  name: root\n")
        .edit(KCP_FILE, "shardRef: {name: eu}", "shardRef: {name: root}");
    kcp_collision => kcp().edit(KCP_FILE, "secretRef: {name: admin-kubeconfig}", "secretRef: {name: main-server}");
    kcp_annotation => kcp().edit(KCP_FILE, "  name: public\n", "  name: public\n  annotations: {tidegate.dev/clusters: eu}\n");
    kcp_no_effect => kcp().edit(KCP_FILE, "cache: {ref: {name: cache}}", "cache: {ref: {name: cache}, embedded: {enabled: true}}");
    kcp_version => kcp().edit(KCP_FILE, "apiVersion: operator.kcp.io/v1alpha1\nkind: RootShard", "apiVersion: operator.kcp.io/v1\nkind: RootShard");
    kcp_kind_misspelt => kcp().edit(KCP_FILE, "kind: FrontProxy", "kind: FrontProxi");
    kcp_kind_missing => kcp().edit(KCP_FILE, "kind: FrontProxy\n", "");
    kcp_bundle => kcp().file("kcp/bundle.yaml", "apiVersion: operator.kcp.io/v1alpha1\nkind: Bundle\nmetadata: {name: a, namespace: kcp-system}\n");
    kcp_kinds_of_kcp_itself => kcp().file("kcp/shard.yaml", "apiVersion: core.kcp.io/v1alpha1\nkind: Shard\nmetadata: {name: a}\n");

    // what is fine
    good_repository => good();
    good_crlf => good().edit(KYMA, "spec:\n", "spec:\r\n").edit(KYMA, "kind: Kyma\n", "kind: Kyma\r\n");
    good_empty_files => good().file("empty.yaml", "").file("comment.yaml", "# nothing here\n---\n---\n").file("empty.json", "");
    good_anchors => good().edit(RELEASE, "  channels:\n  - channel: regular\n    version: 1.0.0\n  - channel: fast\n    version: 1.0.0\n",
        "  channels:\n  - channel: regular\n    version: &stable 1.0.0\n  - channel: fast\n    version: *stable\n");
    good_json => good().remove(KYMA).file("landscapes/dev/kyma.json",
        "{\n\t\"apiVersion\": \"operator.kyma-project.io/v1beta2\",\n\t\"kind\": \"Kyma\",\n\t\"metadata\": {\"name\": \"dev\", \"namespace\": \"kcp-system\"},\n\t\"spec\": {\"channel\": \"fast\"}\n}\n");
    good_byte_order_mark => good().file("landscapes/dev/more.yaml", format!("\u{feff}{}", GOOD[3].1.replace("dev", "more")));
    good_files_that_are_passed_over => good()
        .file("landscapes/dev/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [kyma.yaml]\n")
        .file("values.yaml", "replicas: 3\n")
        .file(".github/workflows/ci.yaml", "on: [push\n")
        .file("README.md", "{{{\n");

    // text
    yaml_bomb => good().file("bomb.yaml", bomb());
    deep_nesting => good().file("deep.yaml", format!("a: {}{}\n", "[".repeat(200), "]".repeat(200)));
    duplicate_key => good().edit(KYMA, "  channel: fast\n", "  channel: fast\n  channel: regular\n");
    tab_indentation => good().edit(KYMA, "  modules:\n", "\tmodules:\n");
    bad_indentation => good().edit(KYMA, "  channel: fast\n", "   channel: fast\n");
    unclosed_bracket => good().edit(WATCHER, "'*'", "[1, 2");
    unclosed_quote => good().edit(WATCHER, "'*'", "'*");
    unknown_alias => good().edit(RELEASE, "  - channel: fast\n    version: 1.0.0\n", "  - channel: fast\n    version: *stable\n");
    second_colon => good().edit(KYMA, "  channel: fast\n", "  channel: fast: regular\n");
    space_missing_behind_a_colon => good().edit(KYMA, "  channel: fast\n", "  channel:fast\n");
    no_break_space => good().edit(KYMA, "  channel: fast\n", "  channel:\u{a0}fast\n");
    four_dashes => good().edit(KYMA, "apiVersion", "----\napiVersion");
    second_document_without_a_separator => good().file("landscapes/dev/two.json", "{\"a\": 1}\n{\"b\": 2}\n");
    nul_character => good().edit(KYMA, "channel: fast", "channel: fa\0st");
    merge_conflict => good().edit(KYMA, "  channel: fast\n", "<<<<<<< HEAD\n  channel: fast\n=======\n  channel: regular\n>>>>>>> main\n");
    template_expression => good().edit(KYMA, "channel: fast", "channel: {{ .Values.channel }}");
    broken_json => good().file("landscapes/dev/more.json", "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"Kyma\"\n  \"metadata\": {}\n}\n");
    invalid_utf8 => good().file("landscapes/dev/more.yaml", b"apiVersion: v1\nkind: \xff\xfe\n");
    too_many_documents => good().file("many.yaml", "---\na: 1\n".repeat(10_001));
    one_bad_document_keeps_the_others => good().file("landscapes/dev/more.yaml", format!(
        "{}---\na: [\n---\n{}", GOOD[3].1.replace("dev", "one"), GOOD[3].1.replace("dev", "two").replace("fast", "fest")));
    control_characters => good().file("landscapes/dev/more.yaml", "apiVersion: \"x\\e[31m\"\nkind: \"Red\\e[0m\"\n");

    // files
    file_too_large => good().file("large.yaml", format!("# {}\n", "x".repeat(2 << 20)));
    symbolic_link => good().link("landscapes/dev/linked.yaml", "kyma.yaml");
    symbolic_link_to_a_folder => good().link("landscapes/prod", "dev");
    lfs_pointer => good().file("modules/large.yaml",
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n");
    submodule => good().git(&["init", "-q"]).git(&["init", "-q", "third-party"])
        .file("third-party/README.md", "other\n").git(&["-C", "third-party", "add", "-A"])
        .git(&["-C", "third-party", "commit", "-qm", "one"]).git(&["add", "-A"]);
    path_missing => good().with(&["--paths", "landscapes/prod"]);
    path_outside => good().with(&["--paths", "../elsewhere"]);
    root_missing => good().with(&["--rev", "no-such-branch"]).git(&["init", "-q"]).git(&["add", "-A"]).git(&["commit", "-qm", "one"]);

    // kinds
    kind_missing => good().edit(KYMA, "kind: Kyma\n", "");
    api_version_missing => good().edit(KYMA, "apiVersion: operator.kyma-project.io/v1beta2\n", "");
    api_version_old => good().edit(TEMPLATE, "v1beta2", "v1beta1");
    api_version_core => good().edit(KYMA, "operator.kyma-project.io/v1beta2", "v1");
    kind_misspelt => good().edit(RELEASE, "ModuleReleaseMeta", "ModuleRelaseMeta");
    kind_foreign => good().file("configmap.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
    kind_foreign_strict => good().file("configmap.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").with(&["--strict"]);
    kind_list => good().file("list.yaml", "apiVersion: v1\nkind: List\nitems: []\n");
    kind_manifest => good().file("manifest.yaml", "apiVersion: operator.kyma-project.io/v1beta2\nkind: Manifest\nmetadata: {name: a}\n");
    kind_git_source => good().file("source.yaml", "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: a}\n");
    kind_list_of_ours => good().file("list.yaml", format!("apiVersion: operator.kyma-project.io/v1beta2\nkind: KymaList\nitems:\n- {}", GOOD[3].1.replace('\n', "\n  ")));
    kind_unknown_in_our_group => good().edit(WATCHER, "kind: Watcher", "kind: Foo");
    group_misspelt => good().edit(KYMA, "operator.kyma-project.io/v1beta2", "operator.kima-project.io/v1beta2");
    document_is_a_list => good().file(WATCHER, format!("- {}", GOOD[4].1.replace('\n', "\n  ")));
    document_is_a_text => good().file("text.yaml", "hello world\n---\n- a\n---\n5\n");
    document_is_a_json_array => good().remove(KYMA).file("landscapes/dev/kymas.json", "[{\"apiVersion\": \"operator.kyma-project.io/v1beta2\", \"kind\": \"Kyma\", \"metadata\": {\"name\": \"a\"}}]\n");
    json_with_a_comment => good().remove(KYMA).file("landscapes/dev/kyma.json",
        "// hi\n{\"apiVersion\": \"operator.kyma-project.io/v1beta2\", \"kind\": \"Kyma\", \"metadata\": {\"name\": \"dev\"}}\n");
    object_below_a_key => good().file("landscapes/dev/more.yaml", format!("kymas:\n- {}", GOOD[3].1.replace("dev", "more").replace('\n', "\n  ")));
    definition_in_a_kustomization => good().file("kustomization.yaml", GOOD[3].1.replace("dev", "more").replace("fast", "Fast"));
    kustomization_of_definitions => good().file("landscapes/dev/kustomization.yaml",
        "resources: [kyma.yaml]\npatches:\n- path: patch.yaml\n");
    kustomization_that_lists_files => good().file("landscapes/dev/kustomization.yaml", "resources: [kyma.yaml]\n");
    upper_case_extension => good().remove(KYMA).file("landscapes/dev/KYMA.YAML", GOOD[3].1.replace("fast", "Fast"));
    neither_version_nor_kind => good().file("half.yaml", "metadata: {name: a}\nspec: {}\n");

    // schema
    unknown_field => good().edit(KYMA, "  channel: fast\n", "  chanel: fast\n");
    unknown_field_in_a_list => good().edit(KYMA, "  - name: cache\n", "  - name: cache\n    customResourcePolicies: Ignore\n");
    wrong_type => good().edit(KYMA, "  modules:\n  - name: cache\n", "  modules: cache\n");
    number_for_text => good().edit(RELEASE, "    version: 1.0.0\n  - channel: fast\n", "    version: 1.0\n  - channel: fast\n");
    number_for_a_version => good().edit(TEMPLATE, "  version: 1.0.0\n", "  version: 1.5\n");
    spec_missing => good().edit(KYMA, "spec:\n  channel: fast\n  modules:\n  - name: cache\n", "");
    pattern_of_a_channel => good().edit(KYMA, "channel: fast", "channel: Fast");
    pattern_of_a_version => good().edit(RELEASE, "    version: 1.0.0\n  - channel: fast\n", "    version: v1.0.0\n  - channel: fast\n");
    pattern_of_a_component => good().edit(RELEASE, "kyma-project.io/module/cache", "Cache");
    enum_of_a_policy => good().edit(KYMA, "  - name: cache\n", "  - name: cache\n    customResourcePolicy: CreateAndDelet\n");
    two_modules_of_one_name => good().edit(KYMA, "  - name: cache\n", "  - name: cache\n  - name: cache\n");
    rule_channels_or_mandatory => good().edit(RELEASE, "  channels:\n", "  mandatory: {version: 1.0.0}\n  channels:\n");
    integer_overflow => good().edit(WATCHER, "8082", "99999999999999999999");
    port_out_of_range => good().edit(WATCHER, "8082", "80820");
    selector_operator => good().edit(WATCHER, "      matchLabels:\n        app: watcher\n",
        "      matchExpressions:\n      - {key: app, operator: in, values: [watcher]}\n");

    several_mistakes_at_once => good().edit(WATCHER, "8082", "80821").edit(WATCHER, "field: spec", "field: sepc").edit(WATCHER,
        "      matchLabels:\n        app: watcher\n", "      matchExpressions:\n      - {key: app, operator: in, values: [watcher]}\n");
    spec_without_a_value => good().edit(KYMA, "spec:\n  channel: fast\n  modules:\n  - name: cache\n", "spec:\n");
    mistake_that_an_alias_repeats => good().edit(KYMA, "  - name: cache\n", "  - &x {name: cache, chanel: fast}\n  - *x\n");
    huge_number_for_text => good().edit(KYMA, "channel: fast", "channel: 99999999999999999999999");
    module_without_a_name => good().edit(KYMA, "  - name: cache\n", "  - {}\n  - name: [1]\n");

    // metadata
    namespace_misspelt => good().edit(KYMA, "  namespace: kcp-system\n", "  namspace: kcp-system\n");
    annotation_without_a_value => good().edit(KYMA, "  name: dev\n", "  name: dev\n  annotations:\n    a:\n");
    label_key => good().edit(KYMA, "  name: dev\n", "  name: dev\n  labels:\n    a b: c\n");
    name_missing => good().edit(KYMA, "  name: dev\n", "");
    name_number => good().edit(KYMA, "  name: dev\n", "  name: 123\n");
    name_upper_case => good().edit(KYMA, "  name: dev\n", "  name: Dev_1\n");
    name_generated => good().edit(KYMA, "  name: dev\n", "  generateName: dev-\n");
    namespace_missing => good().edit(KYMA, "  namespace: kcp-system\n", "");
    namespace_elsewhere => good().edit(KYMA, "  namespace: kcp-system\n", "  namespace: default\n");
    namespace_elsewhere_allowed => good().edit(KYMA, "  namespace: kcp-system\n", "  namespace: team\n").with(&["--namespace", "kcp-system", "--namespace", "team"]);
    annotation_boolean => good().edit(KYMA, "  name: dev\n", "  name: dev\n  annotations:\n    tidegate.dev/prune: true\n");
    annotation_value => good().edit(KYMA, "  name: dev\n", "  name: dev\n  annotations:\n    tidegate.dev/modules-from: gti\n");
    rollout_value => good().edit(RELEASE, "  name: cache\n",
        "  name: cache\n  annotations:\n    tidegate.dev/rollout-max-unavailable: none\n");
    rollout_waves => good().edit(RELEASE, "  name: cache\n",
        "  name: cache\n  annotations:\n    tidegate.dev/rollout-waves: stage=canary;region in eu\n");
    rollout_on_a_kyma => good().edit(KYMA, "  name: dev\n", "  name: dev\n  annotations:\n    tidegate.dev/rollout-paused: \"true\"\n");
    annotation_unknown => good().edit(KYMA, "  name: dev\n", "  name: dev\n  annotations:\n    tidegate.dev/module-from: git\n");
    label_value => good().edit(KYMA, "  name: dev\n", "  name: dev\n  labels: {stage: not a label}\n");
    mark_forged => good().edit(KYMA, "  name: dev\n", "  name: dev\n  labels:\n    tidegate.dev/source: kcp-system.other\n");
    copy_of_a_live_object => good().edit(KYMA, "  name: dev\n",
        "  name: dev\n  uid: 0b5b0ad2-4d43-4f0e-9b62-000000000000\n  resourceVersion: '12'\n  creationTimestamp: null\n").file("landscapes/dev/more.yaml", format!("{}status:\n  state: Ready\n", GOOD[3].1.replace("dev", "more")));

    // names and references
    template_name => good().edit(TEMPLATE, "  name: cache-1.0.0\n", "  name: cache-1.0\n");
    release_name => good().edit(RELEASE, "  name: cache\n", "  name: caches\n");
    template_missing => good().edit(RELEASE, "  - channel: fast\n    version: 1.0.0\n", "  - channel: fast\n    version: 1.1.0\n");
    template_broken => good().edit(TEMPLATE, "spec:\n", "spec:\n  mandatory: maybe\n");
    channel_unknown => good().edit(KYMA, "channel: fast", "channel: fest");
    channel_of_a_module_unknown => good().edit(KYMA, "  - name: cache\n", "  - name: cache\n    channel: experimental\n");
    channel_none => good().edit(KYMA, "channel: fast", "channel: none");
    channel_none_in_a_release => good().edit(RELEASE, "channel: fast", "channel: none");
    module_unknown => good().edit(KYMA, "  - name: cache\n", "  - name: cahce\n");
    declared_twice => good().file("landscapes/prod/kyma.yaml", GOOD[3].1);
    module_mandatory => good().edit(RELEASE, "  channels:\n  - channel: regular\n    version: 1.0.0\n  - channel: fast\n    version: 1.0.0\n", "  mandatory:\n    version: 1.0.0\n");

    // modules in git
    module_path_missing => good().edit(TEMPLATE, "modules/cache/1.0.0/objects", "modules/cache/objects");
    module_path_relative_to_its_file => good().edit(TEMPLATE, "modules/cache/1.0.0/objects", "objects");
    module_path_outside => good().edit(TEMPLATE, "modules/cache/1.0.0/objects", "../objects");
    module_path_absolute => good().edit(TEMPLATE, "modules/cache/1.0.0/objects", "/modules/cache/1.0.0/objects");
    module_path_link => good().link("modules/latest", "cache").edit(TEMPLATE, "modules/cache/1.0.0/objects", "modules/latest/1.0.0/objects");
    module_path_of_itself => good().edit(TEMPLATE, "modules/cache/1.0.0/objects", "modules/cache");
    module_empty => good().remove(OBJECTS).file("modules/cache/1.0.0/objects/README.md", "none\n");
    module_object_broken => good().edit(OBJECTS, "\ndata:\n", "\ndata: [\n");
    module_object_without_name => good().edit(OBJECTS, "  name: cache\n", "");
    module_object_without_kind => good().edit(OBJECTS, "kind: ConfigMap\n", "");
    module_with_a_kustomization => good().file("modules/cache/1.0.0/objects/kustomization.yaml", "resources: [config.yaml]\nnamePrefix: prod-\n");
    module_with_a_list_of_files => good().file("modules/cache/1.0.0/objects/kustomization.yaml", "resources: [config.yaml]\n");
    module_objects_that_no_server_accepts => good().file("modules/cache/1.0.0/objects/more.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: D_d\n  labels:\n    a: b c\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: more\n  namespace: a\ndata:\n  a: 5\n");
    module_object_in_a_misspelt_namespace => good().file("modules/cache/1.0.0/objects/more.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: cache-system}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: more\n  namespace: cahce-system\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-a-user, namespace: monitoring}\n");
    module_object_without_namespace => good().file("modules/cache/1.0.0/objects/more.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: more\n");
    module_secret_that_is_not_base64 => good().file("modules/cache/1.0.0/objects/more.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: more\n  namespace: a\ndata:\n  a: TOPHUSH!\n  b: 5\n  c: YQ==\nstringData:\n  d: [1]\n");
    module_crd_broken => good().file("modules/cache/1.0.0/objects/crd.yaml", CRD.replace("caches.example.com", "cache.example.com")
        .replace("Namespaced", "namespaced").replace("storage: true", "storage: false").replace("type: integer", "type: int").replace("required:", "require:"));
    module_crd_without_schema => good().file("modules/cache/1.0.0/objects/crd.yaml", CRD.replace("    schema:", "    shema:"));
    module_custom_resource => good().file("modules/cache/1.0.0/objects/crd.yaml", CRD).file("modules/cache/1.0.0/objects/cr.yaml",
        "apiVersion: example.com/v1\nkind: Cache\nmetadata:\n  name: a\n  namespace: b\nspec:\n  size: big\n  colour: red\n");
    module_default_resource => good().file("modules/cache/1.0.0/objects/crd.yaml", CRD).edit(TEMPLATE, "  version: 1.0.0\n",
        "  version: 1.0.0\n  data:\n    apiVersion: example.com/v1\n    kind: Cache\n    metadata:\n      name: a\n    spec:\n      size: -1\n");
    default_resource_of_a_misspelt_kind => default_resource("apps/v1", "Deploymnt", "replicas: 3");
    default_resource_of_a_removed_version => default_resource("apps/v1beta1", "Deployment", "replicas: 3");
    default_resource_with_an_unknown_field => default_resource("apps/v1", "Deployment", "replicaz: 3");
    default_resource_of_an_undefined_kind => default_resource("example.com/v1", "Cachee", "size: 3")
        .file("modules/cache/1.0.0/objects/crd.yaml", CRD);
    default_resource_of_an_undefined_kind_strict => default_resource("example.com/v1", "Cache", "size: 3").with(&["--strict"]);
    good_module_with_a_crd => good().file("modules/cache/1.0.0/objects/crd.yaml", CRD).file("modules/cache/1.0.0/objects/cr.yaml",
        "apiVersion: example.com/v1\nkind: Cache\nmetadata:\n  name: a\n  namespace: b\nspec:\n  size: 3\n").file("modules/cache/1.0.0/objects/role.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: example:cache\nrules: []\n");
    module_object_list => good().file("modules/cache/1.0.0/objects/list.yaml", "apiVersion: v1\nkind: List\n");
    module_object_twice => good().file("modules/cache/1.0.0/objects/more.yaml", GOOD[1].1);
    module_with_a_definition => good().file("modules/cache/1.0.0/objects/kyma.yaml", GOOD[3].1.replace("dev", "more"));
    module_with_a_link => good().link("modules/cache/1.0.0/objects/more.yaml", "config.yaml");
    module_with_a_secret => good().file("modules/cache/1.0.0/objects/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: access\n  labels:\n    tier: 1\nstringData:\n  password: hunter2\n");
    secret_beside_a_definition => good().file("landscapes/dev/more.yaml", format!("{}---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: access\nstringData:\n  HUSH: a\n  HUSH: b\n",
        GOOD[3].1.replace("dev", "more").replace("fast", "TOPHUSH!").replace("  modules:\n", "  HUSH: {}\n  modules:\n")));
    secret_beside_an_unknown_module => good().file("landscapes/dev/more.yaml", format!("{}---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: access\n",
        GOOD[3].1.replace("dev", "more").replace("cache", "tophush")));
    module_path_is_a_number => good().edit(TEMPLATE, "modules/cache/1.0.0/objects", "5");
    secret_with_broken_text => good().file("secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: access\nstringData:\n  password: hunter2: 3\n");

    // templates
    template_override => good().file("templates/kcp/manifest.yaml", "{% if %}\n").file("templates/kcp/manifst.yaml", "a: b\n")
        .file("source.yaml", "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\nspec:\n  url: https://git.example.com/landscape.git\n  templates: templates\n  ignore: [source.yaml]\n").source_file();
}

impl Folder {
    fn source_file(self) -> Folder {
        let file = self.root.path().join("source.yaml").to_str().unwrap().to_owned();
        self.with(&["--source-file", &file])
    }
}

fn bomb() -> String {
    let level = |level: usize| {
        let item = if level == 0 { "x".to_owned() } else { format!("*l{}", level - 1) };
        format!("l{level}: &l{level} [{}]\n", vec![item; 9].join(", "))
    };
    (0..9).map(level).collect()
}

#[test]
fn json_has_exactly_the_documented_fields() {
    let folder = good().edit(KYMA, "  channel: fast\n", "  chanel: fast\n").file("large.yaml", "#".repeat(2 << 20));
    let (text, exit) = folder.run(&["-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = value["diagnostics"].as_array().unwrap();
    assert_eq!((exit, found.len()), (3, 2), "{text}");
    for diagnostic in found {
        let fields: Vec<&str> = diagnostic.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["severity", "code", "message", "path", "line", "column", "hint"]);
    }
    let unknown = found.iter().find(|diagnostic| diagnostic["code"] == "unknown-field").unwrap();
    assert_eq!((&unknown["path"], &unknown["line"], &unknown["column"]), (&KYMA.into(), &7.into(), &3.into()));
    let fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((fields, &value["version"]), (vec!["version", "diagnostics"], &1.into()));
}

#[test]
fn a_path_that_is_not_there_is_one_sentence() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["validate", "/no/such/folder"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_folder_without_definitions_is_told_of() {
    let folder = Folder { root: tempfile::tempdir().unwrap(), arguments: Vec::new() };
    let (text, exit) = folder.run(&[]);
    assert!(text.starts_with("error[nothing-found]: ") && exit == 3, "{text}");
    let (text, exit) = folder.run(&["--namespace", "A B"]);
    assert!(text.starts_with("error: --namespace `A B`: ") && exit == 2, "{text}");
}

#[test]
fn two_runs_print_the_same() {
    let folder =
        good().edit(KYMA, "channel: fast", "channel: none").file("configmap.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    assert_eq!(folder.run(&[]), folder.run(&[]));
}

#[test]
fn a_revision_is_read_from_the_repository() {
    let folder = good().git(&["init", "-q"]).git(&["add", "-A"]).git(&["commit", "-qm", "good"]).edit(
        KYMA,
        "channel: fast",
        "channel: none",
    );
    assert_eq!(folder.run(&["--rev", "main"]).1, 0);
    assert_eq!(folder.run(&[]).1, 3);
}

#[test]
fn of_a_part_only_its_own_problems_count() {
    let folder = good()
        .git(&["init", "-q"])
        .edit(RELEASE, "channel: regular", "channel: none")
        .file("landscapes/dev/more.yaml", GOOD[3].1.replace("dev", "more").replace("cache", "cahce"));
    let run = |path: &str| {
        let path = folder.root.path().join(path);
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("validate").arg(path).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let (text, exit) = run("landscapes");
    assert!(text.ends_with("1 error, 0 warnings in 3 files\n") && text.contains("unknown-module"), "{text}");
    assert_eq!(exit, Some(3));
    // The modules that it refers to stand outside of the part.
    assert_eq!(run(KYMA), ("0 errors, 0 warnings in 1 file\n".to_owned(), Some(0)));
}

#[test]
fn the_example_is_good() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("validate").arg(example).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("0 errors, 0 warnings in "), "{text}");
}

const SOURCE: &str = "\
apiVersion: tidegate.dev/v1alpha1
kind: GitSource
metadata: {name: landscape, namespace: kcp-system}
spec:
  url: https://git.example.com/landscape
";

/// A folder that no snapshot can have: it is too deep.
fn with_junk(folder: Folder, path: &str) -> Folder {
    folder.file(&format!("{path}{}/x.yaml", "/d".repeat(70)), "")
}

#[test]
fn what_is_outside_of_the_paths_is_not_opened() {
    let folder = with_junk(good(), "junk");
    assert_eq!(folder.run(&[]).1, 2);
    let (text, exit) = folder.run(&["--paths", "modules,landscapes"]);
    assert_eq!(exit, 0, "{text}");
    // A folder with `.tidegate` in a larger repository.
    let outer = tempfile::tempdir().unwrap();
    // Without a prefix, its name would be hidden.
    let root = tempfile::Builder::new().prefix("land").tempdir_in(outer.path()).unwrap();
    let mut folder = Folder { root, arguments: Vec::new() };
    for (path, text) in GOOD {
        folder = folder.file(path, text);
    }
    folder = with_junk(folder, "junk").git(&["init", "-q", ".."]);
    for (name, fields) in
        [("none", ""), ("paths", "  paths: [modules, landscapes]\n"), ("ignore", "  ignore: [/junk/]\n")]
    {
        folder = folder.file(&format!(".tidegate/{name}.yaml"), format!("{SOURCE}{fields}"));
        let file = folder.root.path().join(format!(".tidegate/{name}.yaml"));
        let (text, exit) = folder.run(&["--source-file", file.to_str().unwrap()]);
        assert_eq!(exit, if name == "none" { 2 } else { 0 }, "{name}: {text}");
    }
}

#[test]
fn a_check_ends_after_the_timeout_of_the_source() {
    let integer = "type: integer\n                minimum: 1\n";
    let slow = "type: array\n                items: {type: integer}\n                \
                x-kubernetes-validations: [{rule: 'self.all(a, self.all(b, self.all(c, a + b + c >= 0)))'}]\n";
    let crd = CRD.replace(integer, slow);
    let cache = "apiVersion: example.com/v1\nkind: Cache\nmetadata: {name: a, namespace: cache-system}\n";
    let sizes = vec!["1"; 2000].join(", ");
    let folder = good()
        .file("modules/cache/1.0.0/objects/slow.yaml", format!("{crd}---\n{cache}spec: {{size: [{sizes}]}}\n"))
        .file(".tidegate/dev.yaml", format!("{SOURCE}  timeout: 1s\n"));
    let file = folder.root.path().join(".tidegate/dev.yaml");
    let (text, exit) = folder.run(&["--source-file", file.to_str().unwrap()]);
    assert!(text.contains("error[check-unfinished]: ") && text.contains("spec.timeout") && exit == 3, "{text}");
}

/// Runs `tidegate` in a folder with this input. Returns the exit code and all output.
fn piped(folder: &Path, arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads no input closes it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn without_a_path_the_working_directory_is_read_and_a_hyphen_is_standard_input() {
    let folder = good().git(&["init", "-q"]);
    let root = folder.root.path();
    assert_eq!(piped(root, &["validate"], "").0, Some(0));
    assert_eq!(piped(&root.join("landscapes/dev"), &["validate"], "").0, Some(0));
    let (code, rendered) = piped(root, &["render", "--target", "kcp"], "");
    assert_eq!(code, Some(0), "{rendered}");
    assert!(rendered.contains("kind: Kyma"), "{rendered}");

    let watcher = fs::read_to_string(root.join(WATCHER)).unwrap();
    let (code, text) = piped(root, &["validate", "-"], &watcher);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = piped(root, &["validate", "-"], &watcher.replace("field: spec", "field: specs"));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("stdin.yaml:"), "{text}");
    // As `kubectl get` prints it.
    let item = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        format!("- {}", lines.join("\n  "))
    };
    let list = |text: &str| format!("apiVersion: v1\nkind: List\nitems:\n{}\n", item(text));
    let (code, text) = piped(root, &["validate", "-"], &list(&watcher));
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = piped(root, &["validate", "-"], &list(&watcher.replace("field: spec", "field: specs")));
    assert!(code == Some(3) && text.contains("stdin.yaml:"), "{text}");
    fs::write(root.join("list.yaml"), list(&watcher)).unwrap();
    let (code, text) = piped(root, &["validate"], "");
    assert!(code == Some(3) && text.contains("a `List` of objects is not supported"), "{text}");
    fs::remove_file(root.join("list.yaml")).unwrap();
    let (code, text) = piped(root, &["validate", "-"], "");
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("no definitions found: standard input is empty\n"), "{text}");
    assert!(!text.contains("--paths"), "{text}");
    let (code, text) = piped(root, &["validate", "-", "--rev", "main"], &watcher);
    assert_eq!((code, text.as_str()), (Some(2), "error: standard input has no revisions: leave out --rev\n"));
}

/// Junk that is deeper than any folder may be, outside of the `paths` of the repository's own source.
#[test]
fn only_what_the_repositorys_own_source_reads_is_read() {
    let own = |spec: &str| {
        format!(
            "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: a, namespace: kcp-system}}\nspec: {spec}\n"
        )
    };
    let folder = good().git(&["init", "-q"]);
    let root = folder.root.path();
    let junk = root.join("junk").join("d/".repeat(70));
    fs::create_dir_all(&junk).unwrap();
    fs::write(junk.join("x.yaml"), "a: 1\n").unwrap();
    fs::create_dir_all(root.join(".tidegate")).unwrap();
    let validate = |spec: &str, arguments: &[&str]| {
        fs::write(root.join(".tidegate/source.yaml"), own(spec)).unwrap();
        piped(root, &[&["validate"], arguments].concat(), "")
    };
    for arguments in [&[][..], &["landscapes/dev"], &[KYMA]] {
        let (code, text) = validate("{paths: [landscapes, modules]}", arguments);
        assert_eq!(code, Some(0), "{arguments:?} {text}");
        assert_eq!(validate("{ignore: [junk]}", arguments).0, Some(0), "{arguments:?}");
        let (code, text) = validate("{}", arguments);
        assert!(code == Some(2) && text.contains("is more than 64 folders deep"), "{arguments:?} {text}");
    }
}

#[test]
fn fields_of_a_source_file_that_do_not_go_together_are_refused_as_by_the_daemon() {
    let folder = good().file(
        "source.yml.txt",
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: a, namespace: kcp-system}\nspec:\n  url: \
         https://git.example.com/a\n  verify: {mode: Tag, secretRef: {name: signers}}\n",
    );
    let (code, text) = piped(folder.root.path(), &["validate", "--source-file", "source.yml.txt"], "");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.starts_with("error: source.yml.txt:4: spec.verify.mode is Tag, which needs a tag"), "{text}");
}
