//! From the files of a revision to everything that a pass needs of it. Pure, and slow for large repositories.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidegate_core::{
    api::{
        git_source::GitSourceSpec,
        names::{KCP_NAMESPACE, annotation},
    },
    definition::{self, Cache, Definition, Definitions, KcpLandscapes, Options},
    diagnostic::{Diagnostic, Diagnostics, FilePosition},
    intake::{self, Declared, Id, SourceFile, Terms, status::Withheld},
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::Digest,
    plan::reporting::Agent,
    render::Trial,
    snapshot::Snapshot,
    template::{self, Engine, Templates, Uses},
};

use super::share;
use crate::source::registry::{Loaded, Overrides, OverridesOrigin};

/// The inputs for a revision that may become active.
pub(super) struct Parse {
    /// The source.
    pub(super) name: SourceName,
    /// The files.
    pub(super) snapshot: Arc<Snapshot>,
    /// How they are read.
    pub(super) options: Options,
    /// Digest of the settings of the GitSource with which they are read.
    pub(super) reading: Digest,
    /// The settings of the GitSource, for a comparison with the repository's own file.
    pub(super) spec: GitSourceSpec,
    /// The template engine.
    pub(super) engine: Engine,
    /// The templates of the daemon.
    pub(super) base: Templates,
    /// The active revision: definitions that did not change are taken from it.
    pub(super) before: Option<Arc<Loaded>>,
    /// The objects in the control plane.
    pub(super) landscape: Arc<Landscape>,
    /// The modules that runtimes have, by Kyma.
    pub(super) installed: BTreeMap<Key, BTreeSet<String>>,
    /// The agent in runtimes, if the daemon installs one.
    pub(super) agent: Option<Agent>,
    /// Whether definitions of kcp landscapes are applied.
    pub(super) kcp_landscapes: KcpLandscapes,
}

// === impl Parse ===

impl Parse {
    /// Reads and checks the files. `cache` has the files of earlier revisions.
    pub(super) fn run(self, mut cache: Cache) -> (Loaded, Cache) {
        let mut diagnostics = Diagnostics::default();
        let mut definitions = definition::read(&mut diagnostics, &self.snapshot, &self.options, &mut cache);
        definitions.retain_applied(&mut diagnostics, self.kcp_landscapes);
        diagnostics.extend(self.differences());
        let is_over = self.options.budget.is_over();
        let overrides = self.options.templates.as_deref().filter(|_| !is_over).map(|folder| self.overrides(folder));
        let templates = match overrides {
            None => Overrides::default(),
            Some((read, mut found)) => {
                if !found.has_errors() {
                    self.trial(&definitions).run(&mut found, &read);
                }
                let has_errors = found.has_errors();
                diagnostics.append(read.with_uses(found, &Uses::from_definitions(&definitions)));
                if has_errors {
                    self.last_good(read)
                } else {
                    Overrides { active: Some(read), origin: OverridesOrigin::Own, former: None }
                }
            }
        };
        let broken = definitions.broken();
        let declared =
            definitions.good.iter().map(|(id, definition)| (id.clone(), self.declared(id, definition, &broken)));
        let withheld = definitions.withheld.iter().map(|withheld| Withheld {
            id: (withheld.kind, withheld.key.clone()),
            path: withheld.place.path.to_string(),
            line: withheld.place.line,
            message: withheld.message.clone(),
        });
        let loaded = Loaded {
            revision: self.snapshot.revision.clone(),
            reading: self.reading,
            elsewhere: self.options.elsewhere.of_interest(&definitions.outside),
            kcp_landscapes: self.kcp_landscapes,
            declared: declared.collect(),
            broken,
            withheld: withheld.collect(),
            declares: Arc::new(definitions.declared()),
            diagnostics,
            templates,
            bytes: share::size(self.snapshot.bytes(), cache.values()),
            snapshot: Arc::new(without_modules(&self.snapshot, &definitions)),
            definitions,
        };
        (loaded, cache)
    }

    /// What the GitSource says otherwise than the repository's own file: commands without a cluster use that one.
    fn differences(&self) -> Vec<Diagnostic> {
        let key = self.name.key();
        match SourceFile::read(&self.snapshot) {
            Ok(own) => own.map_or_else(Vec::new, |own| own.differences(key.name(), key.namespace(), &self.spec)),
            Err(problem) => vec![problem],
        }
    }

    /// The overrides of this revision, and their problems.
    fn overrides(&self, folder: &str) -> (Templates, Diagnostics) {
        let mut found = Diagnostics::default();
        let read = overrides(&self.engine, &mut found, &self.snapshot, folder, &self.base);
        (read, found)
    }

    /// The definitions for which overrides are rendered before they become active.
    fn trial<'a>(&'a self, definitions: &'a Definitions) -> Trial<'a> {
        let Parse { name, landscape, installed, agent, .. } = self;
        Trial { source: name, definitions, catalog: landscape, installed, agents: std::slice::from_ref(agent) }
    }

    /// What replaces the overrides of this revision, which have errors: a mistake in one file must not change or stop
    /// thousands of objects.
    fn last_good(&self, read: Templates) -> Overrides {
        match self.before.as_ref().map(|before| &before.templates) {
            // They were good when they became active. What is new in this revision is not worth older ones.
            Some(Overrides {
                active: Some(active), origin: OverridesOrigin::Own | OverridesOrigin::Earlier, ..
            }) if *active == read => Overrides { active: Some(read), origin: OverridesOrigin::Own, former: None },
            Some(Overrides { active, origin: OverridesOrigin::Own | OverridesOrigin::Earlier, .. }) => {
                Overrides { active: active.clone(), origin: OverridesOrigin::Earlier, former: None }
            }
            Some(Overrides { origin: OverridesOrigin::Broken, .. }) | None => {
                Overrides { active: Some(read), origin: OverridesOrigin::Broken, former: None }
            }
        }
    }

    fn declared(&self, id: &Id, definition: &Definition, broken: &BTreeMap<Id, FilePosition>) -> Declared {
        let before = self.before.as_ref().and_then(|before| {
            let found = before.definitions.good.get(id)?;
            let same = found.digest == definition.digest
                && found.place.path == definition.place.path
                && found.module == definition.module;
            before.declared.get(id).filter(|_| same)
        });
        let digest = match before {
            Some(before) => Arc::clone(&before.digest),
            None => {
                let object = landscape::stamp(definition, &self.name);
                object.annotation(annotation::DIGEST).unwrap_or_default().into()
            }
        };
        Declared {
            digest,
            place: definition.place.clone(),
            adopt: definition.object.annotation(annotation::ADOPT) == Some("true"),
            needs: intake::needs(definition, broken),
        }
    }
}

/// The snapshot without the files of valid modules, whose objects are in memory anyway.
fn without_modules(snapshot: &Snapshot, definitions: &Definitions) -> Snapshot {
    let modules = definitions.good.values().filter_map(|definition| definition.module.as_ref());
    let mut rest = snapshot.clone();
    let paths: BTreeSet<&str> = modules.map(|module| module.path.as_str()).collect();
    for path in paths {
        let files: Vec<Arc<str>> = rest.below(path).map(|(path, _)| Arc::clone(path)).collect();
        files.iter().for_each(|file| drop(rest.files.remove(file)));
    }
    rest
}

/// How the files of a GitSource are read, by its settings and the namespaces of the daemon.
pub(super) fn options(terms: &Terms, namespaces: &BTreeSet<String>) -> Options {
    // Definitions without a namespace get the first one.
    let mut namespaces: Vec<String> = namespaces.iter().cloned().collect();
    namespaces.sort_by_key(|namespace| namespace != KCP_NAMESPACE);
    Options {
        paths: terms.paths.clone(),
        ignore: terms.ignore.clone(),
        templates: terms.templates.clone(),
        strict: terms.strict,
        allow: definition::Allow::from(&terms.allow),
        namespaces,
        ..Options::default()
    }
}

/// The overrides in a folder of a revision, on top of those of the daemon.
pub(super) fn overrides(
    engine: &Engine,
    diagnostics: &mut Diagnostics,
    snapshot: &Snapshot,
    folder: &str,
    base: &Templates,
) -> Templates {
    let files = template::files(diagnostics, snapshot, folder);
    let mut templates = base.with_overrides(engine, diagnostics, files);
    templates.check(diagnostics);
    templates
}

#[cfg(test)]
pub(super) mod tests;
