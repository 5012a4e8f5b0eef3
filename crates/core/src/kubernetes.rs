//! The kinds and fields that Kubernetes itself serves, for each of several versions.
//!
//! Reports what every API server of a version rejects: kinds and API versions that it does not serve, unknown fields,
//! and values of the wrong type. It rejects nothing that such a server accepts. So it does not check required fields,
//! ranges and allowed values: the documents that the table is made from say of many fields that they are required, and
//! the API server fills them in.
//!
//! The table is text, with one row a field for all versions together. It is read when it is first needed.

mod removed;
mod table;

use std::{fmt, str::FromStr};

use serde_json::{Map, Value};

use self::table::{Field, TABLE, Type};
use crate::{
    budget::Budget,
    object::PathPart,
    schema::{self, Violation, ViolationKind, cut, nearest, type_name},
};

/// A version of Kubernetes whose kinds and fields are known, such as 1.36.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(usize);

/// The text names no version whose kinds are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kinds of this version are not known; use {known}")]
pub struct UnknownVersion {
    known: String,
}

/// What is known about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Api {
    /// Kubernetes serves it.
    Served(Served),
    /// Its group belongs to Kubernetes, which does not serve it.
    Absent {
        /// One sentence.
        message: String,
        /// What to do next.
        hint: String,
        /// The wrong field: `apiVersion` or `kind`.
        field: &'static str,
    },
    /// Its group does not belong to Kubernetes: only a CustomResourceDefinition can tell.
    Foreign {
        /// The API version with a similar name in which Kubernetes serves the kind.
        did_you_mean: Option<&'static str>,
    },
}

/// A kind that Kubernetes serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    version: Version,
    type_name: &'static str,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
}

/// The walk along an object.
struct Walk<'a> {
    version: Version,
    path: Vec<PathPart>,
    budget: &'a Budget,
    max: usize,
    listed: Vec<Violation>,
    /// How many are only counted.
    more: usize,
}

/// Whether any version of Kubernetes serves a kind with this name in any of its groups. Ignores case.
pub fn is_known_kind(kind: &str) -> bool {
    TABLE.kinds.keys().any(|(_, known)| known.eq_ignore_ascii_case(kind))
}

// === impl Version ===

impl Version {
    /// All versions, oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Version> {
        (0..TABLE.versions.len()).map(Version)
    }

    /// The newest one.
    pub fn newest() -> Version {
        Version(TABLE.versions.len() - 1)
    }

    /// What this version serves as a kind of an API version, such as `Deployment` of `apps/v1`.
    pub fn api(self, api_version: &str, kind: &str) -> Api {
        let rows = TABLE.kinds.get(&(api_version, kind)).map_or(&[][..], Vec::as_slice);
        if let Some(row) = rows.iter().find(|row| row.of.has(self.0)) {
            return Api::Served(Served { version: self, type_name: row.type_name, is_namespaced: row.is_namespaced });
        }
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        // A CustomResourceDefinition cannot have a group without a dot.
        if group.contains('.') && !TABLE.groups.contains(group) {
            return Api::Foreign { did_you_mean: nearest(api_version, self.versions_with(kind)) };
        }
        let shown = || (cut(api_version), cut(kind));
        if let Some(removed) = removed::find(api_version, kind) {
            let (api_version, kind) = shown();
            let message = format!("Kubernetes {} removed {kind} of `{api_version}`", removed.in_version);
            let hint = match removed.instead {
                Some(instead) => format!("use `{instead}`"),
                None => "Kubernetes has no replacement; remove it".to_owned(),
            };
            return Api::Absent { message, hint, field: "apiVersion" };
        }
        let (shown_version, shown_kind) = shown();
        let message = format!("Kubernetes {self} does not serve {shown_kind} of `{shown_version}`");
        // The preferred version of a kind is a stable one.
        let stable = |version: &&str| (version.contains("alpha"), version.contains("beta"));
        if let Some(other) = self.versions_with(kind).min_by_key(stable) {
            return Api::Absent { message, hint: format!("use `{other}`"), field: "apiVersion" };
        }
        if let Some(other) = Version::all().find(|version| rows.iter().any(|row| row.of.has(version.0))) {
            let hint = format!("Kubernetes {other} serves it: name the version of the runtimes");
            return Api::Absent { message, hint, field: "apiVersion" };
        }
        let served = || TABLE.kinds.iter().filter(|(_, rows)| rows.iter().any(|row| row.of.has(self.0)));
        let of_version = served().filter(|((version, _), _)| *version == api_version).map(|((_, kind), _)| *kind);
        let hint = match nearest(kind, of_version) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => match nearest(kind, served().map(|((_, kind), _)| *kind)) {
                Some(meant) => {
                    let version = self.versions_with(meant).min_by_key(stable).unwrap_or_default();
                    format!("did you mean `{meant}` of `{version}`?")
                }
                None => "`kubectl api-resources` lists the kinds of a cluster".to_owned(),
            },
        };
        Api::Absent { message, hint, field: "kind" }
    }

    /// The API versions in which this version serves a kind.
    fn versions_with(self, kind: &str) -> impl Iterator<Item = &'static str> {
        let rows = TABLE.kinds.iter().filter(move |((_, known), _)| *known == kind);
        rows.filter(move |(_, rows)| rows.iter().any(|row| row.of.has(self.0))).map(|((version, _), _)| *version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TABLE.versions[self.0])
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Version {
    type Err = UnknownVersion;

    /// Reads `1.36`, `v1.36` or `1.36.2`: releases of a minor version serve the same kinds.
    fn from_str(text: &str) -> Result<Version, UnknownVersion> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        let minor = plain.match_indices('.').nth(1).map_or(plain, |(end, _)| &plain[..end]);
        let known = || {
            let all: Vec<String> = Version::all().map(|version| version.to_string()).collect();
            all.join(", ")
        };
        Version::all()
            .find(|version| TABLE.versions[version.0] == minor)
            .ok_or_else(|| UnknownVersion { known: known() })
    }
}

// === impl Served ===

impl Served {
    /// The violations of an object of this kind, at most `max` of them, and the number of the others. Leaves out
    /// `apiVersion`, `kind` and `metadata`, which are the same for every kind. Incomplete if the budget ends before.
    pub fn check(self, object: &Value, max: usize, budget: &Budget) -> (Vec<Violation>, usize) {
        let Served { version, type_name, .. } = self;
        let mut walk = Walk { version, path: Vec::new(), budget, max, listed: Vec::new(), more: 0 };
        if let Some(fields) = object.as_object() {
            walk.fields(type_name, fields, |field| matches!(field, "apiVersion" | "kind" | "metadata"));
        }
        (walk.listed, walk.more)
    }
}

// === impl Walk ===

impl Walk<'_> {
    fn value(&mut self, of: Type, value: &Value) {
        // The API server reads null as a missing value, in lists and maps as well.
        if self.budget.is_over() || value.is_null() {
            return;
        }
        match (of, value) {
            (Type::List(item), Value::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    self.within(index.into(), |walk| walk.value(*item, value));
                }
            }
            (Type::Map(of), Value::Object(fields)) => {
                for (name, value) in fields {
                    self.within(name.as_str().into(), |walk| walk.value(*of, value));
                }
            }
            (Type::Named(name), Value::Object(fields)) => self.fields(name, fields, |_| false),
            (Type::Bytes, Value::String(text)) if !is_base64(text) => {
                let hint = Some("encode the bytes, for example with `base64 -w0`".to_owned());
                self.push(|| (ViolationKind::Format, "is not base64".to_owned(), hint));
            }
            (Type::Time, Value::String(text)) if !schema::is_date_time(text) => {
                let hint = Some("write it as `2026-01-31T12:00:00Z`".to_owned());
                self.push(|| (ViolationKind::Format, "is not a time".to_owned(), hint));
            }
            (Type::Text | Type::Bytes | Type::Time, Value::Number(_) | Value::Bool(_)) => {
                // The value is not repeated: the parser has already turned `1.10` into 1.1.
                let hint = Some("write it in quotes".to_owned());
                self.push(|| (ViolationKind::Type, wrong(of, value), hint));
            }
            (Type::Quantity, Value::String(text)) if !is_quantity(text) => {
                let hint = Some("write a number with a unit, for example `100m`, `64Mi` or `2G`".to_owned());
                self.push(|| (ViolationKind::Format, "is not a quantity".to_owned(), hint));
            }
            (Type::Integer { range: Some((min, max)) }, Value::Number(number))
                if number.as_f64().is_some_and(|number| number < min || max < number) =>
            {
                let hint = Some("write a smaller number".to_owned());
                self.push(|| (ViolationKind::Range, "does not fit into 32 bits".to_owned(), hint));
            }
            _ if of.accepts(value) => {}
            _ => self.push(|| (ViolationKind::Type, wrong(of, value), None)),
        }
    }

    /// Checks the fields of a type, but those that the caller knows.
    fn fields(&mut self, type_name: &'static str, fields: &Map<String, Value>, is_known: impl Fn(&str) -> bool) {
        let Some(known) = TABLE.types.get(type_name) else { return };
        for (name, value) in fields.iter().filter(|(name, _)| !is_known(name)) {
            let found = || known.iter().filter(|field| field.name == name);
            match found().find(|field| field.of.has(self.version.0)) {
                Some(Field { kind, .. }) => self.within(name.as_str().into(), |walk| walk.value(*kind, value)),
                None => {
                    let elsewhere = Version::all().find(|version| found().any(|field| field.of.has(version.0)));
                    self.within(name.as_str().into(), |walk| walk.unknown(name, known, elsewhere));
                }
            }
        }
    }

    fn unknown(&mut self, name: &str, known: &[Field], elsewhere: Option<Version>) {
        let version = self.version;
        self.push(|| {
            let names = known.iter().filter(|field| field.of.has(version.0)).map(|field| field.name);
            let did_you_mean = nearest(name, names).map(str::to_owned);
            let hint = match (elsewhere, &did_you_mean) {
                (Some(elsewhere), _) => format!("Kubernetes {elsewhere} knows it: name the version of the runtimes"),
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => "remove it, or correct its name or indentation".to_owned(),
            };
            let message = format!("Kubernetes {version} knows no field `{}`", cut(name));
            (ViolationKind::UnknownField { did_you_mean }, message, Some(hint))
        });
    }

    /// Adds a violation, or counts it. Suggestions cost time, so only those that are listed are made.
    fn push(&mut self, violation: impl FnOnce() -> (ViolationKind, String, Option<String>)) {
        if self.max <= self.listed.len() {
            self.more += 1;
            return;
        }
        let (kind, message, hint) = violation();
        self.listed.push(Violation { path: self.path.clone(), kind, message, hint });
    }

    fn within(&mut self, part: PathPart, work: impl FnOnce(&mut Self)) {
        self.path.push(part);
        work(self);
        self.path.pop();
    }
}

fn wrong(of: Type, value: &Value) -> String {
    format!("must be {}, not {}", of.description(), type_name(value))
}

/// Whether the API server reads a text as bytes: base64 with padding, in one or more lines.
fn is_base64(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    text.is_empty() || schema::is_base64(&text)
}

/// Whether the API server reads a text as a quantity: a number, and a unit or an exponent.
fn is_quantity(text: &str) -> bool {
    const UNITS: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let text = text.trim();
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let is_number = number.chars().any(|c| c.is_ascii_digit()) && number.matches('.').count() <= 1;
    let exponent = unit.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    let is_exponent = exponent.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()));
    is_number && (is_exponent || UNITS.contains(&unit))
}

#[cfg(test)]
mod tests;
