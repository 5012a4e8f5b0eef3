//! Renders everything that the definitions of one revision produce, without a cluster.
//!
//! One target is the control plane; the others are the runtimes. A value that only a cluster knows
//! is a placeholder unless it is assumed. Objects that the daemon only creates if they are missing
//! (a namespace in the control plane) are omitted.
//!
//! An [`Outline`] contains the shared objects, rendered once, and renders everything else on
//! demand; [`render_each`] renders all of it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use serde::Deserialize;
use serde_json::Value;

use super::live::{self, Unknown};
use crate::{
    definition::Definitions,
    diagnostic::{Diagnostics, FilePosition},
    landscape::{Landscape, SourceName},
    name::Key,
    object::Object,
    plan::{Components, Settings},
    template::Library,
};

mod outline;

pub use outline::default_resource;
pub use outline::{Inputs, Outline, Part, SetupPart};

/// A target cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetName {
    /// The control plane.
    Kcp,
    /// The runtime of a Kyma.
    Runtime(Key),
}

/// A piece of a rendering.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A target begins. Its objects follow.
    Target(TargetName),
    /// The next object of the target, in the order of apply.
    Object(Rendered),
}

/// Receives the pieces of a rendering, one by one.
pub type Take<'a, E> = dyn FnMut(Piece) -> Result<(), E> + 'a;

/// One object and its origin.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The object.
    pub object: Object,
    /// The definitions behind it.
    pub places: Vec<FilePosition>,
    /// Its origin: the name of a template, or `built in`; `None` for an object that is applied as
    /// written.
    pub maker: Option<&'static str>,
    /// What must exist or be ready before it is applied, as `tidegate render -o json` prints it.
    pub waits_for: Vec<Value>,
    /// The name of another cluster than its target that has it: of an object of a kcp landscape.
    pub cluster: Option<String>,
}

/// Values that replace placeholders, by the name in the placeholder.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Assumptions(BTreeMap<String, Assumed>);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Assumed {
    One(String),
    Many(Vec<String>),
}

/// The origin of objects that are not from a template.
pub const BUILT_IN: &str = "built in";

/// Code of the warning about a module that the plan rejects.
pub const CODE_REFUSED: &str = "module-refused";
/// Code of the error about an invalid Watcher.
pub const CODE_WATCHER: &str = "watcher";
/// Code of the error about missing objects of a Manifest.
pub const CODE_MODULE_OBJECTS: &str = "module-objects-absent";

/// What [`render_each`] renders.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// The definitions.
    pub definitions: &'a Definitions,
    /// What is known of components in registries.
    pub components: &'a Components,
    /// The source of the definitions.
    pub source: &'a SourceName,
    /// Templates.
    pub library: &'a Library,
    /// Values that replace placeholders.
    pub assumptions: &'a Assumptions,
}

/// Renders what definitions produce for the targets that `wanted` selects: the control plane,
/// then the runtimes by name.
///
/// A failure is a diagnostic and affects no other object. Each object is passed to `take` before the next one is
/// rendered, because hundreds of thousands may not fit into memory.
///
/// # Errors
///
/// Fails with the first error of `take`.
pub fn render_each<E>(
    diagnostics: &mut Diagnostics,
    given: Given<'_>,
    wanted: &dyn Fn(&TargetName) -> bool,
    take: &mut Take<'_, E>,
) -> Result<(), E> {
    let Given { definitions, components, source, library, assumptions } = given;
    let landscape = Landscape::from_definitions(diagnostics, definitions, source);
    let settings = Settings::default();
    let inputs =
        Inputs { definitions, landscape: &landscape, components, source, library, assumptions, settings: &settings };
    let outline = Outline::new(diagnostics, inputs);
    if wanted(&TargetName::Kcp) {
        outline.control_plane(diagnostics, take)?;
    }
    let mut modules = HashMap::new();
    for (key, kyma) in &landscape.kymas {
        let name = TargetName::Runtime(key.clone());
        if wanted(&name) {
            take(Piece::Target(name))?;
            for object in outline.runtime(diagnostics, key, kyma, &mut modules) {
                take(Piece::Object(object))?;
            }
        }
    }
    Ok(())
}

// === impl Assumptions ===

impl Assumptions {
    /// A key that no placeholder uses.
    pub fn unknown_key(&self) -> Option<&str> {
        let known = |key: &&String| {
            let fixed = [live::GATEWAYS, live::GATEWAY_HOSTS, live::CA_BUNDLE].contains(&key.as_str());
            fixed || [live::UID_OF, live::DATA_OF, live::MOUNTS_OF].iter().any(|prefix| key.starts_with(prefix))
        };
        self.0.keys().find(|key| !known(key)).map(String::as_str)
    }

    /// The value of a placeholder, or the placeholder.
    pub fn one(&self, name: &str) -> String {
        match self.0.get(name) {
            Some(Assumed::One(value)) => value.clone(),
            Some(Assumed::Many(values)) => values.join(","),
            None => live::placeholder(name),
        }
    }

    /// The values of a placeholder, or the placeholder.
    pub fn many(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Assumed::One(value)) => vec![value.clone()],
            Some(Assumed::Many(values)) => values.clone(),
            None => vec![live::placeholder(name)],
        }
    }
}

// === impl Rendered ===

impl Rendered {
    fn new(object: Object, places: Vec<FilePosition>, maker: Option<&'static str>) -> Rendered {
        Rendered { object, places, maker, waits_for: Vec::new(), cluster: None }
    }

    /// Every remaining placeholder, in an object of this target.
    pub fn unknown(&self, target: &TargetName) -> Vec<Unknown> {
        // An object that is applied as written may contain any text.
        if self.maker.is_none() {
            return Vec::new();
        }
        let (target, object) = (target.to_string(), self.object.id().to_string());
        let unknown = |(path, value)| Unknown { value, target: target.clone(), object: object.clone(), path };
        live::placeholders(self.object.value()).into_iter().map(unknown).collect()
    }

    /// Its origin: `path:line (template)`.
    pub fn from(&self) -> String {
        let places = self.places.iter().map(|place| match place.line {
            0 => place.path.to_string(),
            line => format!("{}:{line}", place.path),
        });
        let places = places.collect::<Vec<_>>().join(", ");
        match self.maker {
            Some(maker) => format!("{places} ({maker})").trim_start().to_owned(),
            None => places,
        }
    }
}

// === impl TargetName ===

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetName::Kcp => f.write_str("kcp"),
            TargetName::Runtime(key) => write!(f, "skr/{key}"),
        }
    }
}
