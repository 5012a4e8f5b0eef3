//! Writes values as YAML that kubectl reads back unchanged.

use serde_json::Value;

/// Writes a value as one YAML document without `---`, ending in a line break.
///
/// Strings that YAML 1.1 or 1.2 would read as another type (`yes`, `010`, `2001-01-01`, `null`) are
/// quoted. Equal values give equal bytes.
pub fn to_string(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        // Folded lines would turn a change of one word into a change of many lines.
        folded_wrap_chars: 1_000_000_000,
    };
    let mut text = serde_saphyr::to_string_with_options(value, options)
        .expect("YAML can represent every JSON value: there are no complex keys and no infinite numbers");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
