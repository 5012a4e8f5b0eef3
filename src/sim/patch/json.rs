//! JSON patch, RFC 6902, with what the server's library adds: indices from the end, `replace` of a field that is absent,
//! `copy` of a field that is absent, and its words for what does not fit.

use serde_json::{Map, Value};

use super::PatchError;

/// More operations are refused, as the server does.
pub const OPERATIONS_MAX: usize = 10_000;

/// What cannot be done, in the library's words, which end with the name of the cause.
const MISSING: &str = "missing value";
const INVALID_INDEX: &str = "invalid index referenced";
const TEST_FAILED: &str = "test failed";

/// What `live` is after the operations of the patch, in their order.
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

/// One step of a patch, still as it was sent.
struct Operation<'a>(&'a Map<String, Value>);

/// The place that a pointer names: its parent, and the last part of the pointer.
enum Place<'a> {
    Field(&'a mut Map<String, Value>, String),
    Item(&'a mut Vec<Value>, String),
}

/// Every operation of a patch whose texts are texts.
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

/// How Go's decoder names the type of a value.
pub(super) fn go_type(value: &Value) -> &'static str {
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
        match self.text("op").unwrap_or("unknown") {
            "add" => self.add(document),
            "remove" => self.remove(document),
            "replace" => self.replace(document),
            "move" => self.relocate(document),
            "test" => self.test(document),
            "copy" => self.copy(document),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn path(&self, operation: &str) -> Result<&str, String> {
        self.text("path").ok_or_else(|| {
            format!("{operation} operation failed to decode path: operation missing path field: {MISSING}")
        })
    }

    fn from(&self, operation: &str) -> Result<&str, String> {
        self.text("from").ok_or_else(|| {
            format!("{operation} operation failed to decode from: operation, missing from field: {MISSING}")
        })
    }

    fn value(&self) -> Value {
        self.0.get("value").cloned().unwrap_or_default()
    }

    fn add(&self, document: &mut Value) -> Result<(), String> {
        let path = self.text("path").ok_or_else(|| format!("add operation failed to decode path: {MISSING}"))?;
        Place::of(document, path)
            .ok_or_else(|| format!("add operation does not apply: doc is missing path: \"{path}\": {MISSING}"))?
            .add(self.value())
            .map_err(|error| format!("error in add for path: '{path}': {error}"))
    }

    fn remove(&self, document: &mut Value) -> Result<(), String> {
        let path = self.text("path").ok_or_else(|| format!("remove operation failed to decode path: {MISSING}"))?;
        Place::of(document, path)
            .ok_or_else(|| format!("remove operation does not apply: doc is missing path: \"{path}\": {MISSING}"))?
            .remove()
            .map(drop)
            .map_err(|error| format!("error in remove for path: '{path}': {error}"))
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path("replace")?;
        if path.is_empty() {
            let value = self.value();
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            *document = value;
            return Ok(());
        }
        let mut place = Place::of(document, path)
            .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: {MISSING}"))?;
        place.get().map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: {MISSING}"))?;
        place.set(self.value());
        Ok(())
    }

    fn relocate(&self, document: &mut Value) -> Result<(), String> {
        let from = self.from("move")?;
        let mut place = Place::of(document, from)
            .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: {MISSING}"))?;
        let key = place.key().to_owned();
        let in_move = |error: String| format!("error in move for path: '{key}': {error}");
        place.get().map_err(in_move)?;
        let value = place.remove().map_err(in_move)?;
        let path = self.path("move")?;
        Place::of(document, path)
            .ok_or_else(|| {
                format!("move operation does not apply: doc is missing destination path: {path}: {MISSING}")
            })?
            .add(value)
            .map_err(|error| format!("error in move for path: '{path}': {error}"))
    }

    fn copy(&self, document: &mut Value) -> Result<(), String> {
        let from = self.from("copy")?;
        let value = Place::of(document, from)
            .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: {MISSING}"))?
            .get()
            .map_err(|error| format!("error in copy for from: '{from}': {error}"))?
            .unwrap_or_default();
        let path = self.text("path").ok_or_else(|| format!("copy operation failed to decode path: {MISSING}"))?;
        Place::of(document, path)
            .ok_or_else(|| {
                format!("copy operation does not apply: doc is missing destination path: {path}: {MISSING}")
            })?
            .add(value)
            .map_err(|error| format!("error while adding value during copy: {error}"))
    }

    fn test(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path("test")?;
        let found = if path.is_empty() {
            document.clone()
        } else {
            Place::of(document, path)
                .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: {MISSING}"))?
                .get()
                .map_err(|error| format!("error in test for path: '{path}': {error}"))?
                .unwrap_or_default()
        };
        if found == self.value() { Ok(()) } else { Err(format!("testing value {path} failed: {TEST_FAILED}")) }
    }
}

// === impl Place ===

impl<'a> Place<'a> {
    /// The place that a pointer names; none if anything on the way is neither mapping nor list, or absent.
    fn of(document: &'a mut Value, pointer: &str) -> Option<Place<'a>> {
        let mut parts = pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).peekable();
        let mut container = document;
        loop {
            let part = parts.next()?;
            let last = parts.peek().is_none();
            container = match container {
                Value::Object(fields) => {
                    if last {
                        return Some(Place::Field(fields, part));
                    }
                    fields.get_mut(&part)?
                }
                Value::Array(items) => {
                    if last {
                        return Some(Place::Item(items, part));
                    }
                    let index = existing(&part, items.len()).ok()?;
                    items.get_mut(index)?
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
            };
        }
    }

    fn key(&self) -> &str {
        match self {
            Place::Field(_, key) | Place::Item(_, key) => key,
        }
    }

    /// What stands there. A field may be absent, an item must not be.
    fn get(&mut self) -> Result<Option<Value>, String> {
        match self {
            Place::Field(fields, key) => Ok(fields.get(key.as_str()).cloned()),
            Place::Item(items, key) => Ok(Some(items[existing(key, items.len())?].clone())),
        }
    }

    fn set(self, value: Value) {
        match self {
            Place::Field(fields, key) => {
                fields.insert(key, value);
            }
            Place::Item(items, key) => {
                if let Ok(index) = existing(&key, items.len()) {
                    items[index] = value;
                }
            }
        }
    }

    fn add(self, value: Value) -> Result<(), String> {
        match self {
            Place::Field(fields, key) => {
                fields.insert(key, value);
            }
            Place::Item(items, key) if key == "-" => items.push(value),
            Place::Item(items, key) => {
                let index =
                    number(&key).map_err(|error| format!("value was not a proper array index: '{key}': {error}"))?;
                items.insert(within(index, items.len() + 1)?, value);
            }
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, String> {
        match self {
            Place::Field(fields, key) => {
                fields.shift_remove(&key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: {MISSING}"))
            }
            Place::Item(items, key) => {
                let index = existing(&key, items.len())?;
                Ok(items.remove(index))
            }
        }
    }
}

/// The index of an item that exists.
fn existing(key: &str, count: usize) -> Result<usize, String> {
    within(number(key)?, count)
}

fn number(key: &str) -> Result<i64, String> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("strconv.Atoi: parsing {key:?}: invalid syntax"));
    }
    key.parse().map_err(|_| format!("strconv.Atoi: parsing {key:?}: value out of range"))
}

/// An index from the start, or from the end if it is negative.
fn within(index: i64, count: usize) -> Result<usize, String> {
    let invalid = || format!("Unable to access invalid index: {index}: {INVALID_INDEX}");
    let distance = usize::try_from(index.unsigned_abs()).map_err(|_| invalid())?;
    if 0 <= index {
        if distance < count { Ok(distance) } else { Err(invalid()) }
    } else {
        count.checked_sub(distance).ok_or_else(invalid)
    }
}
