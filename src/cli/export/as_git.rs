//! `tidegate export --as-git`: a landscape as a repository, see [`tidegate_core::export`].
//!
//! Everything is read before the first file is written. The files are written into a folder beside their places, and
//! only then moved there, so that a failure leaves the folder as it was.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use kube::Client;
use serde_json::{Value, json};
use tidegate_core::{
    api::{
        Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher,
        names::{KCP_NAMESPACE, label},
        setup,
    },
    definition::Kind,
    export::{self, File, Refused},
    intake, landscape,
    name::Key,
    object::Object,
    plan::InstallSource,
    words::{counted, few},
    yaml,
};
use tidegate_process::{Exit, say, tell};

use super::{complete, without_path};
use crate::cli::control_plane::{self, Lacks};

/// What a landscape contains.
#[derive(Default)]
struct Landscape {
    /// The definitions by path.
    files: BTreeMap<String, Value>,
    /// How many there are of each kind.
    counts: BTreeMap<Kind, usize>,
    /// What is left out, one sentence each.
    left_out: Vec<String>,
    /// The modules whose objects are in git.
    from_git: BTreeMap<Key, FromGit>,
    /// The ModuleTemplates of these.
    templates_from_git: BTreeSet<Key>,
    /// The resources of kcp landscapes, which are not exported.
    of_kcp: Vec<String>,
    /// The kinds of kcp landscapes that must not be listed, each with its namespace.
    unknown: Vec<String>,
    /// The GitSources from whose repositories runtimes have the objects of ModuleTemplates.
    installed_from_git: BTreeMap<Key, BTreeSet<String>>,
}

/// A module whose objects are in the repository of a GitSource, which is where its definitions are as well.
#[derive(Default)]
struct FromGit {
    /// Its definitions in the control plane.
    definitions: BTreeSet<String>,
    /// The GitSources that own them.
    sources: BTreeSet<String>,
}

/// A folder that gets the files, or stays as it was.
struct Target {
    path: PathBuf,
    /// Whether it did not exist.
    is_new: bool,
}

/// The name of the GitSource.
const SOURCE: &str = "landscape";
/// The file that names it.
const SOURCE_PATH: &str = ".tidegate/source.yaml";

/// Runs the command. Fails if the folder is not empty or cannot be written.
pub(super) async fn run(client: &Client, namespaces: &[String], folder: &Path) -> anyhow::Result<Exit> {
    // Known before a large landscape is read.
    check_empty(folder)?;
    let landscape = match read(client, namespaces).await {
        Ok(landscape) => landscape,
        Err(error) => {
            // A repository with only some of the objects would claim that there are no others.
            tell!("error: {}", control_plane::conclude(&error).0);
            return Ok(Exit::Incomplete);
        }
    };
    if landscape.is_empty() {
        tell!(
            "there is nothing to export in {}: check the kubeconfig, or select the namespaces of the landscape with -n",
            namespaces.join(", ")
        );
        return Ok(Exit::Changes);
    }
    let definitions = landscape.files.iter().map(|(path, definition)| (path.as_str(), yaml::to_string(definition)));
    let files: Vec<(&str, String)> = definitions.chain([(SOURCE_PATH, source(namespaces))]).collect();
    let target = Target::open(folder)?;
    if let Err(error) = fill(&target.path, &files) {
        target.abandon();
        return Err(error).with_context(|| format!("cannot write to {}; nothing is written", folder.display()));
    }
    landscape.left_out.iter().for_each(|sentence| tell!("warning: {sentence}"));
    let count_of = |kind: Kind| landscape.counts.get(&kind).copied().unwrap_or_default();
    let counts: Vec<String> =
        export::KINDS.into_iter().map(|kind| counted(count_of(kind), &kind.to_string())).collect();
    let shown = folder.display();
    let check = match landscape.from_git.is_empty() {
        true => format!("check them with `{}`", validation(folder, namespaces)),
        false => {
            format!("add the folders of the modules below, then check it with `{}`", validation(folder, namespaces))
        }
    };
    say!("{} are in {shown}; {check}", counts.join(", "));
    landscape.from_git.iter().for_each(|(module, from_git)| tell!("not exported: {}", from_git.sentence(module)));
    if !landscape.of_kcp.is_empty() {
        tell!(
            "not exported: {} of kcp landscapes ({}); add their definitions, or a daemon with --kcp-landscapes prunes \
             those that a GitSource owns",
            counted(landscape.of_kcp.len(), "resource"),
            few(&landscape.of_kcp)
        );
    }
    if !landscape.unknown.is_empty() {
        tell!(
            "not known: whether there are resources of kcp landscapes, which are not exported: cannot list {}; use an \
             account that may, because a daemon with --kcp-landscapes prunes those that a GitSource owns and git lacks",
            landscape.unknown.join(", ")
        );
    }
    Ok(if landscape.is_whole() { Exit::Ok } else { Exit::Incomplete })
}

/// The command that checks the result, in the same namespaces.
fn validation(folder: &Path, namespaces: &[String]) -> String {
    let mut command = format!("tidegate validate {}", say::word(folder.display()));
    if namespaces != [KCP_NAMESPACE] {
        namespaces.iter().for_each(|namespace| command.push_str(&format!(" -n {namespace}")));
    }
    command
}

/// The file that names the GitSource. Its URL is in the control plane only.
fn source(namespaces: &[String]) -> String {
    yaml::to_string(&json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": SOURCE, "namespace": namespaces.first()},
    }))
}

/// All definitions. Fails if a request fails, or if a kind is not served.
async fn read(client: &Client, namespaces: &[String]) -> anyhow::Result<Landscape> {
    let mut landscape = Landscape::default();
    let mut lacks = Lacks::default();
    for namespace in namespaces {
        // What cannot be read, or is not served, names no module.
        let note = |manifest: Manifest| landscape.note(&manifest);
        control_plane::each(client, namespace, &mut Lacks::default(), note).await?;
        // Files of one namespace need no folder for it.
        let folder = if namespaces.len() > 1 { format!("{namespace}/") } else { String::new() };
        for kind in export::KINDS {
            let objects = match kind {
                Kind::Kyma => control_plane::list_untyped::<Kyma>(client, namespace, &mut lacks).await?,
                Kind::ModuleTemplate => {
                    control_plane::list_untyped::<ModuleTemplate>(client, namespace, &mut lacks).await?
                }
                Kind::ModuleReleaseMeta => {
                    control_plane::list_untyped::<ModuleReleaseMeta>(client, namespace, &mut lacks).await?
                }
                Kind::Watcher => control_plane::list_untyped::<Watcher>(client, namespace, &mut lacks).await?,
                Kind::Setup(_) => Vec::new(),
            };
            complete(&lacks)?;
            for object in objects {
                landscape.add(kind, &folder, object)?;
            }
        }
        for kind in setup::Kind::ALL {
            let Some(found) = control_plane::setup(client, kind, namespace).await? else {
                landscape.unknown.push(format!("{} in namespace {namespace}", kind.plural()));
                continue;
            };
            let names = found.into_iter().filter_map(|object| object.metadata.name);
            landscape.of_kcp.extend(names.map(|name| format!("{} {namespace}/{name}", kind.as_str())));
        }
    }
    Ok(landscape)
}

// === impl Landscape ===

impl Landscape {
    /// Whether there is nothing to export, and nothing that is left out.
    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.left_out.is_empty() && self.is_whole()
    }

    /// Whether git has all that is not exported.
    fn is_whole(&self) -> bool {
        self.from_git.is_empty() && self.of_kcp.is_empty() && self.unknown.is_empty()
    }

    /// Notes where a runtime has the objects of a module from, if it is git.
    fn note(&mut self, manifest: &Manifest) {
        let source = InstallSource::try_from(&manifest.spec.install.source);
        let Ok(InstallSource::Git { source, .. }) = source else { return };
        let module = landscape::label(&manifest.metadata, label::MODULE_NAME).unwrap_or_default();
        let version = manifest.spec.version.as_deref().unwrap_or_default();
        let template = Key::new(landscape::key(&manifest.metadata).namespace(), &format!("{module}-{version}"));
        self.installed_from_git.entry(template).or_default().insert(source.to_string());
    }

    /// Adds an object, or why it is left out. Fails if another object has its path.
    fn add(&mut self, kind: Kind, folder: &str, object: Value) -> anyhow::Result<()> {
        let object = Object::new(object).context("the control plane returned an object without a name")?;
        let id = object.id();
        let what = intake::text(&(kind, Key::new(&id.namespace, &id.name)));
        match File::of(kind, &object) {
            Ok(_) if kind == Kind::ModuleReleaseMeta && self.offers_from_git(&object) => {
                self.add_from_git(&id.name, &what, &object);
            }
            // `adopt release` has removed its path.
            Ok(_) if kind == Kind::ModuleTemplate && self.is_installed_from_git(&object) => {
                self.add_template_from_git(&what, &object);
            }
            Ok(File { path, definition }) => {
                if self.files.insert(format!("{folder}{path}"), definition).is_some() {
                    bail!("two objects would be in {folder}{path}, one of them is {what}");
                }
                *self.counts.entry(kind).or_default() += 1;
            }
            Err(Refused::Terminating) => self.left_out.push(format!("{what} is left out: {}", Refused::Terminating)),
            Err(Refused::FromGit) => self.add_template_from_git(&what, &object),
        }
        Ok(())
    }

    /// Whether runtimes have the objects of a ModuleTemplate from git that no GitSource owns.
    fn is_installed_from_git(&self, template: &Object) -> bool {
        let id = template.id();
        template.label(label::SOURCE).is_none()
            && self.installed_from_git.contains_key(&Key::new(&id.namespace, &id.name))
    }

    fn add_template_from_git(&mut self, what: &str, template: &Object) {
        let id = template.id();
        let key = Key::new(&id.namespace, &id.name);
        let module = template.value()["spec"]["moduleName"].as_str().filter(|module| !module.is_empty());
        self.add_from_git(module.unwrap_or(&id.name), what, template);
        self.templates_from_git.insert(key);
    }

    fn add_from_git(&mut self, module: &str, what: &str, object: &Object) {
        let id = object.id();
        let installed = self.installed_from_git.get(&Key::new(&id.namespace, &id.name)).cloned();
        let from_git = self.from_git.entry(Key::new(&id.namespace, module)).or_default();
        from_git.definitions.insert(what.to_owned());
        from_git.sources.extend(installed.unwrap_or_default());
        from_git.sources.extend(object.label(label::SOURCE).map(|source| source.replacen('.', "/", 1)));
    }

    /// Whether a ModuleReleaseMeta offers a version whose objects are in git. It is then declared there as well.
    fn offers_from_git(&self, release: &Object) -> bool {
        let (id, spec) = (release.id(), &release.value()["spec"]);
        let channels = spec["channels"].as_array().into_iter().flatten();
        let versions = channels.chain([&spec["mandatory"]]).filter_map(|offer| offer["version"].as_str());
        let template = |version: &str| Key::new(&id.namespace, &format!("{}-{version}", id.name));
        versions.map(template).any(|key| self.templates_from_git.contains(&key))
    }
}

// === impl FromGit ===

impl FromGit {
    /// What is not exported, why, and what to do.
    fn sentence(&self, module: &Key) -> String {
        let definitions: Vec<&str> = self.definitions.iter().map(String::as_str).collect();
        let sources: Vec<&str> = self.sources.iter().map(String::as_str).collect();
        let source = match sources.as_slice() {
            [] => "a GitSource that no longer owns it".to_owned(),
            sources => format!("GitSource {}", sources.join(", ")),
        };
        format!(
            "module {module} ({}): its objects are in the repository of {source}, which stays their source of truth; \
             copy its folder from there",
            definitions.join(", ")
        )
    }
}

// === impl Target ===

impl Target {
    /// Creates the folder if it does not exist. Fails if that is not possible, or if it is not empty.
    fn open(path: &Path) -> anyhow::Result<Target> {
        check_empty(path)?;
        let is_new = !path.exists();
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Target { path: path.to_owned(), is_new })
    }

    /// Removes the folder if it is new. It is empty.
    fn abandon(&self) {
        if self.is_new
            && let Err(error) = fs::remove_dir(&self.path)
        {
            tell!("warning: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Fails if a path is a file, or a folder that is not empty.
fn check_empty(path: &Path) -> anyhow::Result<()> {
    let mut entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot read the folder {}", path.display())),
    };
    match entries.next() {
        None => Ok(()),
        Some(_) => bail!("{} is not empty: name a folder that does not exist", path.display()),
    }
}

/// Writes the files into an empty folder. If it fails, the folder is empty again.
fn fill(folder: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    let staged = tempfile::Builder::new().prefix(".export-").tempdir_in(folder).map_err(without_path)?;
    for (path, text) in files {
        let path = staged.path().join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text)?;
    }
    let mut moved: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(staged.path())? {
        let entry = entry?;
        let place = folder.join(entry.file_name());
        if let Err(error) = fs::rename(entry.path(), &place) {
            // Back into the folder that goes with everything in it.
            for place in &moved {
                let name = place.file_name().context("an entry of a folder has a name")?;
                fs::rename(place, staged.path().join(name))
                    .with_context(|| format!("{} is left behind", place.display()))?;
            }
            return Err(error.into());
        }
        moved.push(place);
    }
    staged.close().context("the files are complete, but a temporary folder is left")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths below a folder.
    fn paths(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => found.extend(paths(&path).iter().map(|below| format!("{name}/{below}"))),
                false => found.push(name),
            }
        }
        found.sort();
        found
    }

    #[test]
    fn what_checks_the_result_names_the_namespaces_of_the_export() {
        let of = |namespaces: &[&str]| {
            let namespaces: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
            validation(Path::new("landscape"), &namespaces)
        };
        assert_eq!(of(&["kcp-system"]), "tidegate validate landscape");
        assert_eq!(of(&["a", "b"]), "tidegate validate landscape -n a -n b");
    }

    #[test]
    fn a_template_that_lost_its_path_is_not_exported_if_runtimes_have_its_objects_from_git() {
        let object = |kind: &str, name: &str, labels: Value, spec: Value| {
            json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind, "spec": spec,
                "metadata": {"name": name, "namespace": "kcp-system", "labels": labels},
            })
        };
        let source = json!({"type": "git", "source": "kcp-system/apps", "path": "m", "tree": "a".repeat(40)});
        let install = json!({"name": "raw-manifest", "source": source});
        let spec = json!({"remote": true, "version": "1.0.0", "install": install});
        let manifest = object("Manifest", "one-cache", json!({label::MODULE_NAME: "cache"}), spec);
        let mut landscape = Landscape::default();
        landscape.note(&serde_json::from_value(manifest).unwrap());
        let template = |version: &str, labels: Value| {
            let spec = json!({"moduleName": "cache", "version": version, "descriptor": {}});
            object("ModuleTemplate", &format!("cache-{version}"), labels, spec)
        };
        let mut add = |kind: Kind, object: Value| landscape.add(kind, "", object).unwrap();
        add(Kind::ModuleTemplate, template("1.0.0", json!({})));
        add(Kind::ModuleTemplate, template("1.1.0", json!({})));
        let channels = json!([{"channel": "regular", "version": "1.0.0"}]);
        let spec = json!({"moduleName": "cache", "channels": channels});
        add(Kind::ModuleReleaseMeta, object("ModuleReleaseMeta", "cache", json!({}), spec));
        assert_eq!(landscape.files.keys().collect::<Vec<_>>(), ["modules/cache/1.1.0.yaml"]);
        let said: Vec<String> = landscape.from_git.iter().map(|(module, one)| one.sentence(module)).collect();
        assert_eq!(
            said,
            ["module kcp-system/cache (ModuleReleaseMeta kcp-system/cache, ModuleTemplate \
                 kcp-system/cache-1.0.0): its objects are in the repository of GitSource kcp-system/apps, which stays \
                 their source of truth; copy its folder from there"]
        );

        // Its owner says that its objects are in a registry.
        let mut owned = Landscape { installed_from_git: landscape.installed_from_git, ..Landscape::default() };
        owned.add(Kind::ModuleTemplate, "", template("1.0.0", json!({label::SOURCE: "kcp-system.apps"}))).unwrap();
        assert!(owned.from_git.is_empty() && owned.files.len() == 1);
    }

    #[test]
    fn a_folder_gets_all_files_or_none() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new/landscape");
        let target = Target::open(&folder).unwrap();
        // A file cannot be a folder as well.
        let files = [("a", "1".to_owned()), ("b/c", "2".to_owned()), ("a/d", "3".to_owned())];
        assert!(fill(&target.path, &files).is_err());
        assert_eq!(paths(&folder), Vec::<String>::new());
        target.abandon();
        assert!(!folder.exists());

        let target = Target::open(&folder).unwrap();
        fill(&target.path, &files[..2]).unwrap();
        assert_eq!(paths(&folder), ["a", "b/c"]);
        let error = Target::open(&folder).map(drop).unwrap_err().to_string();
        assert!(error.ends_with("is not empty: name a folder that does not exist"), "{error}");
    }
}
