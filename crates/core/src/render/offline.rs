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
    diagnostic::{Diagnostics, Place},
    landscape::{Landscape, SourceName},
    name::Key,
    object::Object,
    plan::{Components, Settings},
    template::Library,
};

mod outline;

pub use outline::default_resource;
pub use outline::{Inputs, Outline, Part};

/// A target cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetName {
    /// The control plane.
    Kcp,
    /// The runtime of a Kyma.
    Runtime(Key),
}

/// The objects of one target, in the order of apply.
#[derive(Clone, Debug)]
pub struct Target {
    /// The cluster.
    pub name: TargetName,
    /// The objects.
    pub objects: Vec<Rendered>,
}

/// One object and its origin.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The object.
    pub object: Object,
    /// The definitions behind it.
    pub places: Vec<Place>,
    /// Its origin: the name of a template, or `built in`; `None` for an object that is applied as
    /// written.
    pub maker: Option<&'static str>,
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
/// A failure is a diagnostic and affects no other object. Each target is passed to `take` before the next one is
/// rendered, because thousands may not fit into memory. Fails with the first error of `take`.
pub fn render_each<E>(
    diagnostics: &mut Diagnostics,
    given: Given<'_>,
    wanted: &dyn Fn(&TargetName) -> bool,
    take: &mut dyn FnMut(Target) -> Result<(), E>,
) -> Result<(), E> {
    let Given { definitions, components, source, library, assumptions } = given;
    let landscape = Landscape::from_definitions(diagnostics, definitions, source);
    let settings = Settings::default();
    let inputs =
        Inputs { definitions, landscape: &landscape, components, source, library, assumptions, settings: &settings };
    let outline = Outline::new(diagnostics, inputs);
    if wanted(&TargetName::Kcp) {
        take(outline.control_plane(diagnostics))?;
    }
    let mut modules = HashMap::new();
    for (key, kyma) in &landscape.kymas {
        let name = TargetName::Runtime(key.clone());
        if wanted(&name) {
            take(outline.runtime(diagnostics, name, key, kyma, &mut modules))?;
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

// === impl Target ===

impl Target {
    /// Every remaining placeholder.
    pub fn unknown(&self) -> Vec<Unknown> {
        let target = self.name.to_string();
        // An object that is applied as written may contain any text.
        let made = self.objects.iter().filter(|rendered| rendered.maker.is_some());
        made.flat_map(|rendered| {
            let object = rendered.object.id().to_string();
            let target = target.clone();
            live::placeholders(rendered.object.value()).into_iter().map(move |(path, value)| Unknown {
                value,
                target: target.clone(),
                object: object.clone(),
                path,
            })
        })
        .collect()
    }

    /// The JSON of `tidegate render -o json`.
    pub fn to_value(&self) -> Value {
        let objects: Vec<&Value> = self.objects.iter().map(|rendered| rendered.object.value()).collect();
        serde_json::json!({ "name": self.name.to_string(), "objects": objects })
    }
}

// === impl Rendered ===

impl Rendered {
    fn new(object: Object, places: Vec<Place>, maker: Option<&'static str>) -> Rendered {
        Rendered { object, places, maker }
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
