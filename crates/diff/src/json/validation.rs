//! The result of `tidegate validate` as versioned JSON with a published schema:
//! `docs/validate.schema.json`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Severity, VERSION, escape};
use tidegate_core::diagnostic;

/// Problems of definitions and templates.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "tidegate validate")]
#[serde(rename_all = "camelCase")]
struct Root<'a> {
    /// Version of this schema: 1.
    #[schemars(range(min = 1, max = 1))]
    version: u32,
    /// Each problem once, by file and line.
    diagnostics: Vec<Problem<'a>>,
}

/// One problem.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Problem<'a> {
    /// The severity.
    severity: Severity,
    /// Stable code; see `docs/diagnostics.md`.
    code: &'a str,
    /// One sentence.
    message: &'a str,
    /// Path relative to the root of the definitions; null if the problem is not in a file.
    path: Option<&'a str>,
    /// Line, from 1; 1 for the whole file.
    line: Option<u32>,
    /// Column in characters, from 1; 1 if only the line is known.
    column: Option<u32>,
    /// What to do next.
    hint: Option<&'a str>,
}

/// Serializes diagnostics.
pub fn validation(diagnostics: &[diagnostic::Diagnostic]) -> String {
    let diagnostics = diagnostics.iter().map(|one| {
        let place = one.place.as_ref();
        Problem {
            severity: Severity::from_model(one.severity),
            code: one.code,
            message: &one.message,
            path: place.map(|place| &*place.path),
            line: place.map(|place| place.line.max(1)),
            column: place.map(|place| place.column.max(1)),
            hint: one.hint.as_deref(),
        }
    });
    let root = Root { version: VERSION, diagnostics: diagnostics.collect() };
    escape::json(&serde_json::to_value(root).expect("strings and numbers are valid JSON"))
}

/// The published schema of [`validation`].
pub fn validation_schema() -> Value {
    super::schema_of::<Root<'_>>()
}
