//! Selects the files of a snapshot that are read for definitions.

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::{Options, code};
use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    snapshot::{Snapshot, is_below, is_definition_name, is_hidden},
    yaml,
};

/// Decides by path whether a file is read for definitions.
pub(super) struct Selection {
    /// Folders and files, without `./` and trailing `/`. Empty for the whole repository.
    paths: Vec<String>,
    ignore: Gitignore,
    templates: Option<String>,
}

impl Selection {
    /// Builds the selection from the options. An invalid option is a diagnostic without a place,
    /// because it is in no file.
    pub(super) fn new(diagnostics: &mut Diagnostics, snapshot: &Snapshot, options: &Options) -> Selection {
        let mut paths = Vec::new();
        for written in &options.paths {
            match normalise(written) {
                Ok(path) => {
                    let exists = path.is_empty() || snapshot.object_id(&path).is_some();
                    if !exists && snapshot.below(&path).next().is_none() {
                        let message =
                            format!("`paths` names `{}`, where the repository has no YAML file", yaml::short(written));
                        let hint = "an entry of `paths` is a folder or file relative to the repository's root";
                        diagnostics.push(Diagnostic::error(code::PATH_MISSING, message).hint(hint));
                    }
                    paths.push(path);
                }
                Err(problem) => diagnostics.push(invalid("paths", written, problem)),
            }
        }
        if paths.iter().any(String::is_empty) {
            paths.clear();
        }
        let templates = options.templates.as_deref().and_then(|written| match normalise(written) {
            Ok(path) if path.is_empty() => None,
            Ok(path) => Some(path),
            Err(problem) => {
                diagnostics.push(invalid("templates", written, problem));
                None
            }
        });
        Selection { paths, ignore: ignore(diagnostics, &options.ignore), templates }
    }

    /// Whether anything at this path matters, regardless of its name.
    pub(super) fn covers(&self, path: &str) -> bool {
        let selected = self.paths.is_empty() || self.paths.iter().any(|folder| is_below(path, folder));
        let is_template = self.templates.as_deref().is_some_and(|folder| is_below(path, folder));
        selected
            && !is_template
            && !is_hidden(path)
            && !self.ignore.matched_path_or_any_parents(path, false).is_ignore()
    }

    /// Whether a file at this path is read for definitions.
    pub(super) fn takes(&self, path: &str) -> bool {
        is_definition_name(path) && self.covers(path)
    }
}

/// A path relative to the repository root, without `./` and trailing `/`. The root itself is empty.
/// Fails with the problem if the path is absolute or contains `..` or a hidden name.
pub(crate) fn normalise(written: &str) -> Result<String, &'static str> {
    if written.starts_with('/') {
        return Err("begins with `/`");
    }
    if written.split('/').any(|part| part == "..") {
        return Err("contains `..`");
    }
    let parts: Vec<&str> = written.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.iter().any(|part| part.starts_with('.')) {
        return Err("contains a name that starts with `.`");
    }
    Ok(parts.join("/"))
}

fn invalid(field: &str, written: &str, problem: &str) -> Diagnostic {
    let message = format!("`{field}` names `{}`, which {problem}", yaml::short(written));
    Diagnostic::error(code::PATH_INVALID, message).hint("use a path relative to the root of the repository")
}

fn ignore(diagnostics: &mut Diagnostics, patterns: &[String]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for pattern in patterns {
        if builder.add_line(None, pattern).is_err() {
            let message = format!("`ignore` has `{}`, which is not a valid gitignore pattern", yaml::short(pattern));
            diagnostics.push(Diagnostic::error(code::PATH_INVALID, message));
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
