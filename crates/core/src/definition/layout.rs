//! Recognizes what other tools write: SOPS, Helm and OCI. Each is one diagnostic that names it, instead of one for each
//! field that it has in another form.

use std::{collections::BTreeSet, sync::Arc};

use super::{code, kinds::DocumentKind};
use crate::{
    diagnostic::{Diagnostic, FilePosition},
    snapshot::{File, Snapshot, is_below_any},
    yaml::{self, Node},
};

/// The file that makes a folder a Helm chart.
const CHART: &str = "Chart.yaml";

/// The diagnostic for a document that another tool wrote in a form of its own. An object of a foreign kind is not
/// applied anyway, so it is only a warning.
pub(super) fn of_document(node: &Node, found: &DocumentKind) -> Option<Diagnostic> {
    if node.get("sops").is_some_and(|sops| sops.get("mac").is_some()) {
        let message = "this document is encrypted with SOPS, and Tidegate decrypts nothing";
        let diagnostic = match found {
            DocumentKind::Foreign { .. } => Diagnostic::warning(code::ENCRYPTED, message),
            _ => Diagnostic::error(code::ENCRYPTED, message),
        };
        return Some(diagnostic.hint("commit it decrypted if it holds no secret, or name the file in `ignore`"));
    }
    let is_index =
        node.get("schemaVersion").is_some() && (node.get("manifests").is_some() || node.get("layers").is_some());
    (*found == DocumentKind::Untyped && is_index).then(|| {
        let message = "this is the index of an OCI image layout, not a definition";
        let hint = "extract the manifests of the image and commit them, or name the folder in `ignore`";
        Diagnostic::error(code::OCI_LAYOUT, message).hint(hint)
    })
}

/// The folders among these files that are Helm charts.
pub(super) fn charts<'a>(
    snapshot: &Snapshot,
    files: impl Iterator<Item = (&'a Arc<str>, &'a File)>,
) -> BTreeSet<&'a str> {
    let folders = files.filter_map(|(path, _)| match path.strip_suffix(CHART)? {
        "" => Some(""),
        folder => folder.strip_suffix('/'),
    });
    folders
        .filter(|folder| {
            let within = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
            snapshot.below(&within("templates")).next().is_some()
                || snapshot.files.contains_key(&*within("values.yaml"))
        })
        .collect()
}

/// Whether a file is in one of the charts.
pub(super) fn is_of_chart(charts: &BTreeSet<&str>, path: &str) -> bool {
    is_below_any(path, charts)
}

/// One diagnostic for each chart that is in no other one.
pub(super) fn of_charts(charts: &BTreeSet<&str>) -> Vec<Diagnostic> {
    let parent = |chart: &&str| chart.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
    let is_outer = |chart: &&&str| chart.is_empty() || !is_below_any(&parent(chart), charts);
    let diagnostic = |chart: &&str| {
        let path = if chart.is_empty() { CHART.to_owned() } else { format!("{chart}/{CHART}") };
        let folder = if chart.is_empty() { "." } else { chart };
        Diagnostic::error(code::CHART, "this folder is a Helm chart, and Tidegate renders no charts")
            .hint(format!(
                "name the folder in `ignore`, and commit its objects: `helm template NAME {} > objects.yaml`; a \
                 pipeline can do it, see examples/ci/render-github.yaml",
                yaml::short(folder)
            ))
            .at(FilePosition::file(&path))
    };
    charts.iter().filter(is_outer).map(diagnostic).collect()
}
