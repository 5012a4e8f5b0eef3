//! Values to YAML that kubectl reads back unchanged.

use serde_json::Value;

/// Writes a value as one YAML document without `---`, ending in a line break.
///
/// Texts that YAML 1.1 or 1.2 would read as something else (`yes`, `010`, `2001-01-01`, `null`) are quoted. Equal
/// values give equal bytes.
pub fn to_string(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        // Folding long lines makes every change of one word a change of many lines.
        folded_wrap_chars: 1_000_000_000,
    };
    let mut text = serde_saphyr::to_string_with_options(value, options)
        .expect("a JSON value has nothing that YAML cannot say: no complex keys, no infinite numbers");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
