//! OpenAPI documents of several versions of Kubernetes as one table of kinds and fields.
//!
//! A row that ends in `=` and a hexadecimal number is of the versions whose bits are set, the first version being the
//! lowest bit. Any other row is of all versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;

/// Prefixes of the names of types that say nothing.
const PREFIXES: [&str; 4] = [
    "io.k8s.api.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
];
/// Types with values of more than one kind.
const WORDS: [(&str, &str); 6] = [
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "any"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "any"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
];
/// Schemas are checked elsewhere.
const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// A row, and the versions that have it.
type Rows = BTreeMap<String, u32>;

/// The table of documents by version, oldest version first.
pub(crate) fn table(documents: &[(String, Value)]) -> String {
    let (mut kinds, mut types) = (Rows::new(), BTreeMap::<String, Rows>::new());
    for (index, (_, document)) in documents.iter().enumerate() {
        let bit = 1 << index;
        let (found, mut wanted) = creatable(document);
        for row in found {
            *kinds.entry(row).or_default() |= bit;
        }
        let mut known = BTreeSet::new();
        while let Some(name) = wanted.pop_first() {
            if !known.insert(name.clone()) {
                continue;
            }
            let rows = types.entry(short(&name).to_owned()).or_default();
            let fields = document["definitions"][&name]["properties"].as_object();
            for (field, schema) in fields.into_iter().flatten() {
                let kind = kind_of(document, schema, &mut wanted);
                *rows.entry(format!("{field} {kind}")).or_default() |= bit;
            }
        }
    }
    let mut text = String::from("# Made by `cargo run -p tidegate-core --example kubernetes-schemas`.\n");
    let versions: Vec<&str> = documents.iter().map(|(version, _)| version.as_str()).collect();
    let all = (1 << versions.len()) - 1;
    let mut line = |line: &str, bits: u32| {
        let bits = if bits == all { String::new() } else { format!(" ={bits:x}") };
        writeln!(text, "{line}{bits}").expect("a string takes any text");
    };
    line(&format!("versions {}", versions.join(" ")), all);
    kinds.iter().for_each(|(row, bits)| line(row, *bits));
    for (name, rows) in &types {
        line(&format!("type {name}"), all);
        rows.iter().for_each(|(row, bits)| line(&format!(" {row}"), *bits));
    }
    text
}

/// The kinds that clients can create, and the types of their bodies.
fn creatable(document: &Value) -> (Vec<String>, BTreeSet<String>) {
    let (mut rows, mut types) = (Vec::new(), BTreeSet::new());
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        // What is below an object is a subresource.
        if path.contains("{name}") {
            continue;
        }
        let post = &item["post"];
        let text = |field: &str| post["x-kubernetes-group-version-kind"][field].as_str().unwrap_or_default();
        let parameters = post["parameters"].as_array().into_iter().flatten();
        let mut bodies = parameters.filter_map(|parameter| parameter["schema"]["$ref"].as_str());
        let (kind, Some(body)) = (text("kind"), bodies.find_map(|body| body.strip_prefix("#/definitions/"))) else {
            continue;
        };
        let version = [text("group"), text("version")].join("/");
        let scope = if path.contains("/namespaces/{namespace}/") { "Namespaced" } else { "Cluster" };
        rows.push(format!("kind {} {kind} {scope} {}", version.trim_start_matches('/'), short(body)));
        types.insert(body.to_owned());
    }
    (rows, types)
}

/// The kind of a field's values. Adds the types that it refers to.
fn kind_of(document: &Value, schema: &Value, wanted: &mut BTreeSet<String>) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix("#/definitions/")) {
        if let Some((_, word)) = WORDS.iter().find(|(known, _)| *known == name) {
            return (*word).to_owned();
        }
        // A type without fields may be one of which the document does not tell them.
        if name == SCHEMA || !document["definitions"][name]["properties"].is_object() {
            return "any".to_owned();
        }
        wanted.insert(name.to_owned());
        return short(name).to_owned();
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("array"), _) => format!("[]{}", kind_of(document, &schema["items"], wanted)),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("{{}}{}", kind_of(document, &schema["additionalProperties"], wanted))
        }
        (Some("string"), Some("int-or-string")) => "int-or-string".to_owned(),
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some(known @ ("string" | "boolean" | "number")), _) => known.to_owned(),
        (Some("integer"), Some("int32")) => "int32".to_owned(),
        (Some("integer"), _) => "int64".to_owned(),
        _ => "any".to_owned(),
    }
}

fn short(name: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}
