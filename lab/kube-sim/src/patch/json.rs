// SPDX-License-Identifier: Apache-2.0

//! JSON patch, RFC 6902, with the extensions of the server's library: indices from the end, and `replace` and `copy` of
//! an absent field.

use serde_json::{Map, Value};

use super::PatchError;

/// Limit of operations, as in the server.
pub const OPERATIONS_MAX: usize = 10_000;

/// Applies the operations of a patch, in order.
///
/// # Errors
///
/// Fails if the patch is malformed, too large, or does not match the object.
pub fn json_patch(live: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    if OPERATIONS_MAX < operations.len() {
        let count = operations.len();
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
        )));
    }
    let mut document = live.clone();
    for operation in operations {
        operation.enact(&mut document).map_err(PatchError::Unfitting)?;
    }
    Ok(document)
}

/// One operation, as it was sent.
struct Operation<'a>(&'a Map<String, Value>);

/// The target of a pointer: its parent, and the last part of the pointer.
enum Target<'a> {
    Field(&'a mut Map<String, Value>, String),
    Item(&'a mut Vec<Value>, String),
}

/// The operations of a patch. Checks that texts are texts.
fn operations(patch: &Value) -> Result<Vec<Operation<'_>>, PatchError> {
    let malformed = |problem: String| PatchError::Malformed(format!("error decoding patch: json: {problem}"));
    let items = match patch {
        Value::Array(items) => items.as_slice(),
        Value::Null => &[],
        other => {
            let found = go_type(other);
            return Err(malformed(format!("cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp")));
        }
    };
    let empty = || {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        &*EMPTY
    };
    let mut operations = Vec::with_capacity(items.len());
    for item in items {
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => empty(),
            other => {
                let found = go_type(other);
                return Err(malformed(format!("cannot unmarshal {found} into Go value of type handlers.jsonPatchOp")));
            }
        };
        for name in ["op", "path", "from"] {
            if let Some(value) = fields.get(name).filter(|value| !value.is_string() && !value.is_null()) {
                let found = go_type(value);
                return Err(malformed(format!(
                    "cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string"
                )));
            }
        }
        operations.push(Operation(fields));
    }
    Ok(operations)
}

/// Unknown fields of operations, with paths as strict decoding writes them.
pub(crate) fn unknown_in_operations(patch: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    for (index, operation) in patch.as_array().into_iter().flatten().enumerate() {
        for (name, _) in operation.as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "op" | "path" | "from" | "value") {
                unknown.push(format!("[{index}].{name}"));
            }
        }
    }
    unknown
}

/// The type of a value in Go's decoder.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

// === impl Operation ===

impl Operation<'_> {
    fn enact(&self, document: &mut Value) -> Result<(), String> {
        match self.text("op")? {
            "add" => self.place(document, "path")?.add(self.value()),
            "remove" => self.place(document, "path")?.remove().map(drop),
            "replace" => self.replace(document),
            "move" => self.relocate(document),
            "test" => self.test(document),
            "copy" => self.copy(document),
            other => Err(format!("unknown operation `{other}`")),
        }
    }

    fn text(&self, name: &str) -> Result<&str, String> {
        self.0.get(name).and_then(Value::as_str).ok_or_else(|| format!("an operation has no `{name}`"))
    }

    /// The target of `path` or `from`.
    fn place<'a>(&self, document: &'a mut Value, name: &str) -> Result<Target<'a>, String> {
        let pointer = self.text(name)?;
        Target::resolve(document, pointer).ok_or_else(|| format!("there is nothing at `{pointer}`"))
    }

    fn value(&self) -> Value {
        self.0.get("value").cloned().unwrap_or_default()
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        if self.text("path")?.is_empty() {
            let value = self.value();
            if !value.is_object() && !value.is_array() {
                return Err("a whole document must be a mapping or a list".to_owned());
            }
            *document = value;
            return Ok(());
        }
        let place = self.place(document, "path")?;
        place.get()?;
        place.set(self.value());
        Ok(())
    }

    fn relocate(&self, document: &mut Value) -> Result<(), String> {
        let value = self.place(document, "from")?.remove()?;
        self.place(document, "path")?.add(value)
    }

    fn copy(&self, document: &mut Value) -> Result<(), String> {
        let value = self.place(document, "from")?.get()?.cloned().unwrap_or_default();
        self.place(document, "path")?.add(value)
    }

    fn test(&self, document: &mut Value) -> Result<(), String> {
        let path = self.text("path")?;
        let value = self.value();
        let is_equal = if path.is_empty() {
            *document == value
        } else {
            self.place(document, "path")?.get()?.unwrap_or(&Value::Null) == &value
        };
        if is_equal { Ok(()) } else { Err(format!("`{path}` is not what the patch expects")) }
    }
}

// === impl Target ===

impl<'a> Target<'a> {
    /// The target of a pointer; `None` if a part of the path is absent, or is neither mapping nor list.
    fn resolve(document: &'a mut Value, pointer: &str) -> Option<Target<'a>> {
        let mut parts = pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).peekable();
        let mut container = document;
        loop {
            let part = parts.next()?;
            let last = parts.peek().is_none();
            container = match container {
                Value::Object(fields) => {
                    if last {
                        return Some(Target::Field(fields, part));
                    }
                    fields.get_mut(&part)?
                }
                Value::Array(items) => {
                    if last {
                        return Some(Target::Item(items, part));
                    }
                    let index = existing(&part, items.len()).ok()?;
                    items.get_mut(index)?
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
    }

    /// The value there. A field may be absent, an item may not.
    fn get(&self) -> Result<Option<&Value>, String> {
        match self {
            Target::Field(fields, key) => Ok(fields.get(key.as_str())),
            Target::Item(items, key) => Ok(Some(&items[existing(key, items.len())?])),
        }
    }

    fn set(self, value: Value) {
        match self {
            Target::Field(fields, key) => {
                fields.insert(key, value);
            }
            Target::Item(items, key) => {
                if let Ok(index) = existing(&key, items.len()) {
                    items[index] = value;
                }
            }
        }
    }

    fn add(self, value: Value) -> Result<(), String> {
        match self {
            Target::Field(fields, key) => {
                fields.insert(key, value);
            }
            Target::Item(items, key) if key == "-" => items.push(value),
            // One past the end is valid, too.
            Target::Item(items, key) => items.insert(existing(&key, items.len() + 1)?, value),
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, String> {
        match self {
            Target::Field(fields, key) => fields.shift_remove(&key).ok_or_else(|| format!("there is no field `{key}`")),
            Target::Item(items, key) => {
                let index = existing(&key, items.len())?;
                Ok(items.remove(index))
            }
        }
    }
}

/// The position of an item in a list of this length; negative numbers count from the end.
fn existing(key: &str, count: usize) -> Result<usize, String> {
    let invalid = || format!("`{key}` is not a position in a list of {count}");
    let index: i64 = key.parse().map_err(|_| invalid())?;
    let distance = usize::try_from(index.unsigned_abs()).map_err(|_| invalid())?;
    if 0 <= index {
        if distance < count { Ok(distance) } else { Err(invalid()) }
    } else {
        count.checked_sub(distance).ok_or_else(invalid)
    }
}
