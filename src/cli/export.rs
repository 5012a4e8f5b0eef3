//! `tidegate export`: writes the facts about a landscape that a pipeline needs to a file, so that the pipeline needs no
//! cluster; or writes the landscape as a repository.

mod as_git;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use super::control_plane::{self, Lacks};
use crate::stores::kyma_of;
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate,
        names::{annotation, label},
        shared::Time,
    },
    content::ContentId,
    definition::ModuleNames,
    inventory::Inventory,
    landscape::{
        self,
        file::{KnownKyma, LandscapeFile},
    },
    name::Key,
    plan,
    revision::Oid,
    status,
};
use tidegate_process::{Exit, tell};

/// Writes a landscape to a file for `tidegate diff --landscape`, or to a folder as a repository.
///
/// `--landscape FILE` writes the runtimes and the catalog. The catalog is every ModuleTemplate and ModuleReleaseMeta in
/// the control plane: those of GitSources, and those that other clients have applied. It also writes the names of
/// Kymas, their module lists, channels and installed versions, the limits of GitSources, which of them are suspended or
/// wait for a confirmation, which Manifests are paused, and which runtimes had other objects of a module in git than
/// the control plane. If there are several GitSources, it also writes the names of the objects that runtimes have of
/// modules in git, from their Manifests. Of the labels of Kymas it writes only those that select modules: `beta`,
/// `internal`, the source of the Kyma, and the labels that selectors of ModuleReleaseMetas name. Identifiers of
/// customers are not among them.
///
/// For a runtime that chooses its own modules, the list comes from its Kyma's status.
///
/// `--as-git DIR` writes Kymas, ModuleTemplates, ModuleReleaseMetas and Watchers as definitions, and names their
/// GitSource in `.tidegate/source.yaml`. It leaves out what the API server, Lifecycle Manager and other tools have
/// added to the objects. Labels of customers stay. A Kyma that no GitSource owns has no `spec.modules` in its file,
/// because its runtime decides on its modules. Modules in registries stay references. A module whose objects are in git
/// is not exported, because the repository of its GitSource has it: it is named, and the exit code is 5. If there is
/// nothing to export, the exit code is 1.
///
/// Reads no Secrets and contacts no runtimes.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["landscape", "as_git"])))]
pub(super) struct Arguments {
    #[command(flatten)]
    access: control_plane::Access,
    /// Write to this file, for example `landscape.yaml`; `-` is standard output [default: none; required without
    /// --as-git]
    #[arg(long, value_name = "FILE")]
    landscape: Option<PathBuf>,
    /// Write the landscape as a repository into this folder, which must be empty or not exist, for example
    /// `landscape` [default: none; required without --landscape]
    #[arg(long, value_name = "DIR")]
    as_git: Option<PathBuf>,
    /// Export the objects in this namespace; repeat the option for more [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Write this label as well, for example `example.org/region` if a selector will use it; repeat the option for more
    /// [default: none]
    #[arg(long = "label", value_name = "KEY", conflicts_with = "as_git")]
    labels: Vec<String>,
}

/// Labels of a Kyma that are always written, independent of selectors.
const DECIDING: [&str; 4] = [label::BETA, label::INTERNAL, label::SKIP_RECONCILIATION, label::SOURCE];

/// Runs the command. Fails if the kubeconfig cannot be used, if a namespace does not exist, or if the file or folder
/// cannot be written.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let namespaces = control_plane::namespaces(&arguments.namespaces);
    match (&arguments.landscape, &arguments.as_git) {
        (Some(file), _) => {
            // The default is checked if nothing is there: an account of a pipeline may not read namespaces.
            if !arguments.namespaces.is_empty() {
                control_plane::check_namespaces(&client, &namespaces).await?;
            }
            landscape(&client, &namespaces, &arguments.labels, file).await
        }
        (None, Some(folder)) => {
            // Without its namespace, a landscape would look empty.
            control_plane::check_namespaces(&client, &namespaces).await?;
            as_git::run(&client, &namespaces, folder).await
        }
        (None, None) => bail!("use --landscape FILE or --as-git DIR"),
    }
}

/// Writes the facts about a landscape.
async fn landscape(client: &Client, namespaces: &[String], labels: &[String], path: &Path) -> anyhow::Result<Exit> {
    let (mut kymas, mut releases, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    let mut templates = Vec::new();
    let mut lacks = Lacks::default();
    for namespace in namespaces {
        let listed = async {
            kymas.extend(control_plane::list::<Kyma>(client, namespace, &mut lacks).await?);
            templates.extend(control_plane::list::<ModuleTemplate>(client, namespace, &mut lacks).await?);
            releases.extend(control_plane::list::<ModuleReleaseMeta>(client, namespace, &mut lacks).await?);
            sources.extend(control_plane::list::<GitSource>(client, namespace, &mut lacks).await?);
            complete(&lacks)
        };
        if let Err(error) = listed.await {
            // A file with only some of the Kymas would claim that there are no others.
            tell!("error: {}", control_plane::conclude(&error).0);
            return Ok(Exit::Incomplete);
        }
    }
    if kymas.is_empty() && templates.is_empty() && releases.is_empty() && sources.is_empty() {
        control_plane::check_namespaces(client, namespaces).await?;
    }
    let ModulesInRuntimes { objects, behind } = modules(client, namespaces, &templates).await;
    // The repository of the only source has all objects.
    let objects = if 1 < sources.len() { objects } else { BTreeMap::new() };
    let paused = paused(client, namespaces).await;
    let kept = kept(&releases, labels);
    let known = kymas.iter().map(|kyma| {
        let known = known(kyma, &kept);
        let of = |modules: &BTreeMap<Key, BTreeSet<String>>| modules.get(&known.key()).cloned().unwrap_or_default();
        KnownKyma { paused: of(&paused), behind: of(&behind), ..known }
    });
    let known = known.collect();
    let file = LandscapeFile::new(Time(status::seconds(Timestamp::now())), known)
        .with_sources(&sources)
        .with_catalog(templates, releases)
        .with_modules(objects);
    write(path, &file.to_text())?;
    Ok(Exit::Ok)
}

/// What runtimes have of the modules in git.
#[derive(Default)]
struct ModulesInRuntimes {
    /// The objects, by ModuleTemplate.
    objects: BTreeMap<Key, ModuleNames>,
    /// The modules of which the control plane has other objects than the runtime, by Kyma.
    behind: BTreeMap<Key, BTreeSet<String>>,
}

/// What runtimes have of the modules in git, from their Manifests. If Manifests cannot be read, it says so and knows
/// nothing.
async fn modules(client: &Client, namespaces: &[String], templates: &[ModuleTemplate]) -> ModulesInRuntimes {
    let in_git: BTreeMap<Key, ContentId> = templates.iter().filter_map(in_git).collect();
    let mut modules = ModulesInRuntimes::default();
    let mut lacks = Lacks::default();
    for namespace in namespaces.iter().filter(|_| !in_git.is_empty()) {
        let take = |manifest: Manifest| {
            let module = landscape::label(&manifest.metadata, label::MODULE_NAME).unwrap_or_default();
            let version = manifest.spec.version.as_deref().unwrap_or_default();
            let template = Key::new(namespace, &format!("{module}-{version}"));
            let Some(content) = in_git.get(&template) else { return };
            if let Some(kyma) = kyma_of(&manifest.metadata).filter(|_| !plan::has_followed(&manifest, *content)) {
                modules.behind.entry(kyma).or_default().insert(module.to_owned());
            }
            if let Some(status) = &manifest.status {
                modules.objects.entry(template).or_default().extend(&Inventory::from_status(&status.synced));
            }
        };
        let listed = control_plane::each(client, namespace, &mut lacks, take).await;
        // The objects of some runtimes only would look like all of them.
        if let Err(error) = listed.and_then(|()| complete(&lacks)) {
            let why = control_plane::conclude(&error).0;
            tell!(
                "warning: {why}: a comparison does not see which objects of other sources' modules leave runtimes, and \
                 which runtimes have not followed the control plane"
            );
            return ModulesInRuntimes::default();
        }
    }
    modules
}

/// A ModuleTemplate of a module in git, and what the control plane has of it.
fn in_git(template: &ModuleTemplate) -> Option<(Key, ContentId)> {
    let tree: Oid = landscape::annotation(&template.metadata, annotation::MODULE_TREE)?.parse().ok()?;
    Some((landscape::key(&template.metadata), tree.into()))
}

/// The modules whose Manifests a label pauses, by Kyma. If Manifests cannot be read, it says so and knows nothing.
async fn paused(client: &Client, namespaces: &[String]) -> BTreeMap<Key, BTreeSet<String>> {
    let mut paused: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
    let mut lacks = Lacks::default();
    let selector = format!("{}=true", label::SKIP_RECONCILIATION);
    for namespace in namespaces {
        let take = |manifest: Manifest| {
            let module = landscape::label(&manifest.metadata, label::MODULE_NAME);
            if let Some((kyma, module)) = kyma_of(&manifest.metadata).zip(module) {
                paused.entry(kyma).or_default().insert(module.to_owned());
            }
        };
        let listed = control_plane::each_with(client, namespace, Some(&selector), &mut lacks, take).await;
        if let Err(error) = listed.and_then(|()| complete(&lacks)) {
            let why = control_plane::conclude(&error).0;
            tell!("warning: {why}: a comparison does not see which Manifests are paused");
            return BTreeMap::new();
        }
    }
    paused
}

/// Fails if an object could not be read, or if a kind is not served.
fn complete(lacks: &Lacks) -> anyhow::Result<()> {
    if let Some(problem) = lacks.unreadable.first() {
        bail!(problem.sentence());
    }
    let not_served: Vec<&str> = lacks.not_served.iter().map(String::as_str).collect();
    if !not_served.is_empty() {
        bail!(control_plane::not_served(&not_served));
    }
    Ok(())
}

/// The labels to write.
fn kept(releases: &[ModuleReleaseMeta], more: &[String]) -> BTreeSet<String> {
    let selectors = releases.iter().filter_map(|release| release.spec.kyma_selector.as_ref());
    let asked = selectors.flat_map(|selector| {
        let equal = selector.match_labels.iter().flat_map(BTreeMap::keys).cloned();
        let expressed = selector.match_expressions.iter().flatten().map(|requirement| requirement.key.clone());
        equal.chain(expressed).collect::<Vec<String>>()
    });
    DECIDING.into_iter().map(str::to_owned).chain(asked).chain(more.iter().cloned()).collect()
}

fn known(kyma: &Kyma, kept: &BTreeSet<String>) -> KnownKyma {
    let mut known = KnownKyma::from_kyma(kyma, &plan::reported(kyma));
    known.labels.retain(|label, _| kept.contains(label));
    known
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return match io::stdout().lock().write_all(text.as_bytes()) {
            // The reader closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("cannot write to standard output"),
        };
    }
    if path.is_dir() {
        bail!("{} is a folder: use the path of a file", path.display());
    }
    // A device or a pipe is written, a link leads to the file, and neither is replaced.
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let written =
            fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        return written.with_context(|| format!("cannot write {}", path.display()));
    }
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file is replaced as a whole, because a pipeline may read it at any time.
    let written = || -> io::Result<()> {
        fs::metadata(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(without_path)?;
        file.write_all(text.as_bytes())?;
        readable(&file)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

/// The error without the name of a temporary file: it means nothing to a user, who has named another.
fn without_path(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => error.kind().into(),
    }
}

/// Lets all users read the file. Temporary files are for their owner only.
#[cfg(unix)]
fn readable(file: &tempfile::NamedTempFile) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_file: &tempfile::NamedTempFile) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_is_written_and_a_link_leads_to_the_file() {
        let error = write(Path::new("/dev/full"), "text").unwrap_err();
        assert_eq!(format!("{error:#}"), "cannot write /dev/full: No space left on device (os error 28)");
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "after").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        write(&folder.path().join("new"), "text").unwrap();
    }

    #[test]
    fn an_error_names_the_file_of_the_user_and_no_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/landscape.yaml");
        let error = write(&path, "text").unwrap_err();
        let shown = path.display();
        assert_eq!(format!("{error:#}"), format!("cannot write {shown}: No such file or directory (os error 2)"));
        // A folder of the system, in which no user can create a file.
        let error = write(Path::new("/proc/landscape.yaml"), "text").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("cannot write /proc/landscape.yaml: ") && !text.contains(".tmp"), "{text}");
    }

    /// A control plane that answers each request with this.
    fn answering(code: u16, body: &serde_json::Value) -> Client {
        let text = body.to_string();
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let body = kube::client::Body::from(text.clone().into_bytes());
            let response = http::Response::builder().status(code).body(body).expect("a response");
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn objects_of_modules_are_written_only_if_all_manifests_could_be_read() {
        let template: ModuleTemplate = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
            "metadata": {"namespace": "kcp-system", "name": "cache-1.0.0",
                "annotations": {annotation::MODULE_TREE: "c15cab3d04ec92b416507419d7124ec912699dc9"}},
            "spec": {"moduleName": "cache", "version": "1.0.0", "descriptor": {}},
        }))
        .unwrap();
        let manifest = |name: &str, remote: serde_json::Value| {
            json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
                "metadata": {"namespace": "kcp-system", "name": name, "labels": {label::MODULE_NAME: "cache", label::KYMA_NAME: "one"}},
                "spec": {"remote": remote, "version": "1.0.0", "install": {"name": "raw-manifest", "source": {}}},
                "status": {"state": "Ready", "synced": [
                    {"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "kyma-system", "name": name},
                ]},
            })
        };
        let list = |manifests: &[serde_json::Value]| {
            json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ManifestList",
                "metadata": {"resourceVersion": "1"}, "items": manifests,
            })
        };
        let not_served = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "not found", "reason": "NotFound",
            "code": 404,
        });
        let (good, bad) = (manifest("good", json!(true)), manifest("bad", json!("not-a-boolean")));
        let namespaces = ["kcp-system".to_owned()];
        for (code, body, expected) in
            [(200, list(std::slice::from_ref(&good)), 1), (200, list(&[good, bad]), 0), (404, not_served, 0)]
        {
            let client = answering(code, &body);
            let found = modules(&client, &namespaces, std::slice::from_ref(&template)).await;
            assert_eq!(found.objects.len(), expected, "{body}");
            // Its Manifest names no content.
            assert_eq!(found.behind.len(), expected, "{body}");
        }
    }

    #[test]
    fn only_labels_that_decide_are_written() {
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"namespace": "kcp-system", "name": "a",
                "annotations": {"tidegate.dev/modules-from": "git", "note": "internal"},
                "labels": {label::BETA: "true", label::GLOBAL_ACCOUNT_ID: "customer", "region": "eu", "tier": "1", "wave": "2"}},
            "spec": {"channel": "regular", "modules": [{"name": "cache", "managed": true}]},
        }))
        .unwrap();
        let release: ModuleReleaseMeta = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
            "metadata": {"namespace": "kcp-system", "name": "cache"},
            "spec": {"moduleName": "cache", "ocmComponentName": "example.org/cache", "channels": [],
                "kymaSelector": {"matchLabels": {"region": "eu"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
        }))
        .unwrap();
        let known = known(&kyma, &kept(&[release], &["wave".to_owned()]));
        assert_eq!(
            known.labels.keys().map(String::as_str).collect::<Vec<_>>(),
            [label::BETA, "region", "tier", "wave"]
        );
        let text = LandscapeFile::new(Time(Timestamp::UNIX_EPOCH), vec![known]).to_text();
        assert!(!text.contains("customer") && !text.contains("internal"), "{text}");
    }
}
