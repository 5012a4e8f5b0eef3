//! `tidegate export`: what a pipeline must know of a landscape, as a file that needs no cluster to be read.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use k8s_openapi::jiff::Timestamp;

use super::control_plane;
use tidegate_core::{
    api::{GitSource, Kyma, ModuleReleaseMeta, names::label, shared::Time},
    landscape::{
        self,
        file::{KnownKyma, LandscapeFile},
    },
    plan, status,
};
use tidegate_process::{Exit, tell};

/// Writes which runtimes there are, and what decides on their modules, for `tidegate diff --landscape`.
///
/// Identities, module lists, channels, installed versions and which GitSources are suspended are written, and of the labels only those that decide:
/// `beta`, `internal`, which source declares the Kyma, and what selectors of ModuleReleaseMetas ask for. Customers'
/// identifiers are no such labels. Secrets are neither written nor read, and runtimes are not asked: who decides on his
/// modules himself has the ones that his Kyma's status shows.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    access: control_plane::Access,
    /// Where to write it; `-` for standard output.
    #[arg(long, value_name = "FILE")]
    landscape: PathBuf,
    /// Namespace with Kymas; may be given several times [default: kcp-system]
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// A further label to keep, such as one that a selector will ask for; may be given several times
    #[arg(long = "label", value_name = "KEY")]
    labels: Vec<String>,
}

/// Labels of a Kyma that decide whatever the selectors ask for.
const DECIDING: [&str; 4] = [label::BETA, label::INTERNAL, label::SKIP_RECONCILIATION, label::SOURCE];

/// Runs the command.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.access.client().await?;
    let (mut kymas, mut releases, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    for namespace in control_plane::namespaces(&arguments.namespaces) {
        let listed = async {
            kymas.extend(control_plane::list::<Kyma>(&client, &namespace).await?);
            releases.extend(control_plane::list::<ModuleReleaseMeta>(&client, &namespace).await?);
            sources.extend(control_plane::list::<GitSource>(&client, &namespace).await?);
            anyhow::Ok(())
        };
        if let Err(error) = listed.await {
            // A file with some of the Kymas would say that there are no others.
            tell!("error: {error:#}");
            return Ok(Exit::Incomplete);
        }
    }
    let kept = kept(&releases, &arguments.labels);
    let known = kymas.iter().map(|kyma| known(kyma, &kept)).collect();
    let suspended = sources.iter().filter(|source| source.spec.suspend).map(|source| landscape::key(&source.metadata));
    let file = LandscapeFile::new(Time(status::seconds(Timestamp::now())), &suspended.collect(), known);
    write(&arguments.landscape, &file.to_text())?;
    Ok(Exit::Ok)
}

/// The labels that are kept.
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
    let mut known = KnownKyma::of(kyma, &plan::reported(kyma));
    known.labels.retain(|label, _| kept.contains(label));
    known
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return match io::stdout().lock().write_all(text.as_bytes()) {
            // Whoever reads has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.context("cannot write to standard output"),
        };
    }
    // Whole or not at all: a pipeline may read the file at any time.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() {
        bail!("{} is a folder; name a file", path.display());
    }
    let written = || -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        readable(&file)?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

/// Temporary files are for their owner only; this one is for whoever may read its folder.
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
    fn only_labels_that_decide_are_written() {
        let kyma: Kyma = serde_json::from_value(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {"namespace": "kcp-system", "name": "a",
                "annotations": {"tidegate.dev/modules-from": "git", "note": "for nobody"},
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
        let text = LandscapeFile::new(Time(Timestamp::UNIX_EPOCH), &BTreeSet::new(), vec![known]).to_text();
        assert!(!text.contains("customer") && !text.contains("for nobody"), "{text}");
    }
}
