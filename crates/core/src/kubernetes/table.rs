//! Reads the table of kinds and fields. `crates/core/examples/kubernetes-schemas` makes it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::LazyLock,
};

use serde_json::Value;

/// The table, read when it is first needed.
pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("schemas.txt")));

/// The kinds and fields of all versions.
pub(super) struct Table {
    /// The minor versions, oldest first.
    pub(super) versions: Vec<&'static str>,
    /// By API version and kind. A kind has several rows if it changes between versions.
    pub(super) kinds: BTreeMap<(&'static str, &'static str), Vec<Row>>,
    /// The groups of the kinds.
    pub(super) groups: BTreeSet<&'static str>,
    pub(super) types: HashMap<&'static str, Vec<Field>>,
}

/// A kind in some versions.
pub(super) struct Row {
    pub(super) type_name: &'static str,
    pub(super) is_namespaced: bool,
    pub(super) of: Versions,
}

/// A field in some versions.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) of: Versions,
}

/// A set of versions: bit 0 is the oldest one.
#[derive(Clone, Copy)]
pub(super) struct Versions(u32);

/// What a field accepts besides null.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Any,
    Text,
    /// Text in base64.
    Bytes,
    /// A date and a time of day with a zone, as text.
    Time,
    Boolean,
    Number,
    /// A whole number, with its limits unless they are those of 64 bits.
    Integer {
        range: Option<(f64, f64)>,
    },
    IntOrString,
    Quantity,
    /// A mapping with these fields.
    Named(&'static str),
    List(&'static Type),
    Map(&'static Type),
}

// === impl Table ===

impl Table {
    fn parse(text: &'static str) -> Table {
        let mut table =
            Table { versions: Vec::new(), kinds: BTreeMap::new(), groups: BTreeSet::new(), types: HashMap::new() };
        let mut fields = Vec::new();
        let mut name = "";
        for line in text.lines() {
            let (row, of) = match line.split_once(" =") {
                Some((row, bits)) => (row, u32::from_str_radix(bits, 16).expect("the generator writes hexadecimals")),
                None => (line, u32::MAX),
            };
            let of = Versions(of);
            let words: Vec<&'static str> = row.split(' ').collect();
            match words[..] {
                ["", field, kind] => fields.push(Field { name: field, kind: Type::parse(kind), of }),
                ["kind", version, kind, scope, type_name] => {
                    table.groups.insert(version.split_once('/').map_or("", |(group, _)| group));
                    let row = Row { type_name, is_namespaced: scope == "Namespaced", of };
                    table.kinds.entry((version, kind)).or_default().push(row);
                }
                ["type", next] => {
                    table.types.insert(name, std::mem::take(&mut fields));
                    name = next;
                }
                // Only the minor version is known by name: 1.36 of 1.36.3.
                ["versions", ref all @ ..] => {
                    let minor = |version: &&'static str| version.rsplit_once('.').map_or(*version, |(minor, _)| minor);
                    table.versions = all.iter().map(minor).collect();
                }
                _ => {}
            }
        }
        table.types.insert(name, fields);
        table
    }
}

// === impl Versions ===

impl Versions {
    pub(super) fn has(self, version: usize) -> bool {
        self.0 >> version & 1 == 1
    }
}

// === impl Type ===

impl Type {
    fn parse(word: &'static str) -> Type {
        // Types are few and live as long as the table.
        let inner = |word| &*Box::leak(Box::new(Type::parse(word)));
        match word {
            "any" => Type::Any,
            "string" => Type::Text,
            "bytes" => Type::Bytes,
            "time" => Type::Time,
            "boolean" => Type::Boolean,
            "number" => Type::Number,
            "int32" => Type::Integer { range: Some((f64::from(i32::MIN), f64::from(i32::MAX))) },
            "int64" => Type::Integer { range: None },
            "int-or-string" => Type::IntOrString,
            "quantity" => Type::Quantity,
            _ => match (word.strip_prefix("[]"), word.strip_prefix("{}")) {
                (Some(item), _) => Type::List(inner(item)),
                (None, Some(value)) => Type::Map(inner(value)),
                (None, None) => Type::Named(word),
            },
        }
    }

    /// Whether a value has this type, without what is in it.
    pub(super) fn accepts(self, value: &Value) -> bool {
        let is_whole = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
        match self {
            Type::Any => true,
            Type::Text | Type::Bytes | Type::Time => value.is_string(),
            Type::Boolean => value.is_boolean(),
            Type::Number => value.is_number(),
            Type::Integer { .. } => is_whole(),
            Type::IntOrString => value.is_string() || is_whole(),
            Type::Quantity => value.is_string() || value.is_number(),
            Type::Named(_) | Type::Map(_) => value.is_object(),
            Type::List(_) => value.is_array(),
        }
    }

    /// The description for a message.
    pub(super) fn description(self) -> &'static str {
        match self {
            Type::Any => "anything",
            Type::Text => "a string",
            Type::Bytes => "a string in base64",
            Type::Time => "a time",
            Type::Boolean => "`true` or `false`",
            Type::Number => "a number",
            Type::Integer { .. } => "a whole number",
            Type::IntOrString => "a whole number or a string",
            Type::Quantity => "a quantity",
            Type::Named(_) | Type::Map(_) => "a mapping",
            Type::List(_) => "a list",
        }
    }
}
