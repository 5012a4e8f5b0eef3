//! The template engine, configured as a sandbox with limits.
//!
//! It has no loader, so templates include only each other. It has no clock, randomness or
//! environment. A step costs fuel, output has a limit, nesting has a limit. Delimiters are the
//! usual `{{ }}`, `{% %}` and `{# #}` of Jinja.

use std::io;

use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior,
    syntax::SyntaxConfig,
    value::{Value, ValueKind},
};

use crate::yaml;

/// Maximum steps of one rendering. A webhook configuration for a thousand Watchers uses a tenth.
pub(super) const FUEL_MAX: u64 = 250_000;
/// Maximum output of one rendering, in bytes: twice the largest definition.
pub(super) const OUTPUT_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum depth of includes and macro calls.
const RECURSION_MAX: usize = 64;

/// An engine without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_debug(true);
    environment.set_fuel(Some(FUEL_MAX));
    environment.set_recursion_limit(RECURSION_MAX);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the engine's own"));
    environment.set_formatter(|output, _, value| {
        // Python's output format (`True`, `None`, single quotes) is not YAML.
        let written = match value.kind() {
            ValueKind::None | ValueKind::Bool => write!(output, "{}", json(value)?),
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
                let advice = "cannot print a list or mapping directly: use the filter `tojson` or `toyaml`";
                return Err(Error::new(ErrorKind::InvalidOperation, advice));
            }
            _ => write!(output, "{value}"),
        };
        written.map_err(|_| Error::new(ErrorKind::WriteFailure, "output cannot be written"))
    });
    environment.add_filter("tojson", |value: Value| json(&value));
    environment.add_filter("toyaml", |value: Value| -> Result<String, Error> {
        let value: serde_json::Value = serde_json::to_value(&value).map_err(|error| unprintable(&error))?;
        Ok(yaml::to_string(&value).trim_end().to_owned())
    });
    environment.add_filter("quote", |value: Value| -> Result<String, Error> { json(&Value::from(value.to_string())) });
    environment.add_function("fail", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.remove_global("debug");
    environment
}

fn json(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    serde_json::to_string(value).map_err(|error| unprintable(&error))
}

fn unprintable(error: &serde_json::Error) -> Error {
    Error::new(ErrorKind::BadSerialization, error.to_string())
}

/// Collects the output of a template, up to the limit.
#[derive(Default)]
pub(super) struct Capped(Vec<u8>);

impl Capped {
    pub(super) fn text(&self) -> String {
        // The cut may be within a character.
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl io::Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if OUTPUT_BYTES_MAX < self.0.len() + bytes.len() {
            return Err(io::Error::other("output is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
