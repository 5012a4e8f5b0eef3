//! Everything that the definitions of one revision lead to, without any cluster.
//!
//! One target is the control plane, the others are the runtimes. What only a cluster knows is a placeholder unless it is
//! assumed. Objects that the daemon makes only where they are absent (a namespace in the control plane) are not shown.
//!
//! An [`Outline`] holds what runtimes share, made once, and makes everything else when it is asked for; [`render_each`]
//! asks for all of it.

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
    plan::Settings,
    template::Library,
};

mod outline;

pub use outline::default_resource;
pub use outline::{Inputs, Outline, Part};

/// Where objects go.
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
    /// Where they go.
    pub name: TargetName,
    /// The objects.
    pub objects: Vec<Rendered>,
}

/// One object, and what it comes from.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The object.
    pub object: Object,
    /// The definitions behind it.
    pub places: Vec<Place>,
    /// What made it: a template's name, or `built in`; `None` for what is written as it is.
    pub maker: Option<&'static str>,
}

/// What stands for values that only a cluster knows: by the name in the placeholder.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Assumptions(BTreeMap<String, Assumed>);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Assumed {
    One(String),
    Many(Vec<String>),
}

/// What made the objects that come from no template.
pub const BUILT_IN: &str = "built in";

/// Code of the warning about a module that the plan refuses.
pub const CODE_REFUSED: &str = "module-refused";
/// Code of the error about a Watcher that cannot be acted upon.
pub const CODE_WATCHER: &str = "watcher";
/// Code of the error about a Manifest's objects that are not there.
pub const CODE_MODULE_OBJECTS: &str = "module-objects-absent";

/// Renders what `definitions` lead to, for the targets that `wanted` asks for: the control plane, then runtimes by name.
///
/// What cannot be rendered is a diagnostic, and everything else is still there. One target is given away before the next
/// is made, since thousands of them may not fit into memory. Ends early with the first error of `take`.
pub fn render_each<E>(
    diagnostics: &mut Diagnostics,
    definitions: &Definitions,
    source: &SourceName,
    library: &Library,
    assumptions: &Assumptions,
    wanted: &dyn Fn(&TargetName) -> bool,
    take: &mut dyn FnMut(Target) -> Result<(), E>,
) -> Result<(), E> {
    let landscape = Landscape::of(diagnostics, definitions, source);
    let settings = Settings::default();
    let inputs = Inputs { definitions, landscape: &landscape, source, library, assumptions, settings: &settings };
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
    /// A key that no placeholder ever has.
    pub fn unknown_key(&self) -> Option<&str> {
        let known = |key: &&String| {
            let fixed = [live::GATEWAYS, live::GATEWAY_HOSTS, live::CA_BUNDLE].contains(&key.as_str());
            fixed || key.starts_with(live::UID_OF)
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
    /// Every placeholder that is left in it.
    pub fn unknown(&self) -> Vec<Unknown> {
        let target = self.name.to_string();
        // What is written as it is may hold any text.
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

    /// As in the output of `tidegate render -o json`.
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

    /// Where it comes from: `path:line (template)`.
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
