// SPDX-License-Identifier: Apache-2.0

//! `metadata.managedFields`: which manager owns which fields of an object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Operation, set::Set};

/// The owners and their fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed(pub(super) BTreeMap<Owner, Owned>);

/// One owner. An applier is one owner for all versions, an updater one for each version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner {
    pub(super) manager: String,
    pub(super) operation: Operation,
    /// Empty for an apply.
    api_version: String,
    pub(super) subresource: String,
}

/// What an owner has.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) set: Set,
    pub(super) api_version: String,
    /// When the owner last changed anything; as text, because another program may have written it.
    pub(super) time: Option<String>,
}

/// Limit of updating managers; the oldest beyond it are merged.
const UPDATERS_MAX: usize = 10;
/// The owner of the merged fields.
const ANCIENT: &str = "ancient-changes";

/// The text of a time, in seconds, as the server stores it.
pub(super) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The seconds of a time, for sorting; 0 if there is none.
fn seconds(time: Option<&str>) -> i64 {
    time.and_then(|time| time.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
}

/// Whether the list requests a reset of managed fields: one empty entry, or none. The server never sees an empty list
/// of a custom resource, because decoding drops it.
pub(super) fn is_reset(entries: Option<&Value>, is_custom: bool) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => !is_custom,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

// === impl Owner ===

impl Owner {
    pub(super) fn new(manager: &str, operation: Operation, api_version: &str, subresource: Option<&str>) -> Owner {
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Owner {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.unwrap_or_default().to_owned(),
        }
    }

    /// The name in messages.
    pub(super) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

// === impl Managed ===

impl Managed {
    pub(super) fn decode(entries: Option<&Value>) -> Result<Managed, String> {
        let entries = match entries {
            None | Some(Value::Null) => return Ok(Managed::default()),
            Some(Value::Array(entries)) => entries,
            Some(_) => return Err("managedFields must be a list".to_owned()),
        };
        let mut managed = Managed::default();
        for (index, entry) in entries.iter().enumerate() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
            }
            let set = Set::decode(&entry["fieldsV1"]).map_err(|problem| format!("error decoding set: {problem}"))?;
            let owned =
                Owned { set, api_version: api_version.to_owned(), time: entry["time"].as_str().map(str::to_owned) };
            let owner = Owner::new(text("manager"), operation, api_version, entry["subresource"].as_str());
            managed.0.insert(owner, owned);
        }
        Ok(managed)
    }

    /// The entries, in the server's order; `None` if there is no owner.
    pub(super) fn encode(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<(&Owner, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(owner, owned)| {
            (owner.operation, seconds(owned.time.as_deref()), &owner.manager, &owned.api_version, &owner.subresource)
        });
        Some(entries.into_iter().map(|(owner, owned)| entry(owner, owned)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Merges the oldest updates beyond the limit.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<Owner> =
            self.0.keys().filter(|owner| owner.operation == Operation::Update).cloned().collect();
        updaters.sort_by_cached_key(|owner| (seconds(self.0[owner].time.as_deref()), owner.clone()));
        let mut count = updaters.len();
        let mut firsts: BTreeMap<String, Owner> = BTreeMap::new();
        for owner in updaters {
            if count <= UPDATERS_MAX {
                return;
            }
            let version = self.0[&owner].api_version.clone();
            let Some(first) = firsts.get(&version) else {
                firsts.insert(version, owner);
                continue;
            };
            let bucket = Owner::new(ANCIENT, Operation::Update, &version, None);
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            let Some(owned) = self.0.remove(&owner) else { continue };
            if let Some(sum) = self.0.get_mut(&bucket) {
                sum.set = std::mem::take(&mut sum.set).union(&owned.set);
                // The last merged entry is the newest.
                sum.time = owned.time;
            }
            count -= 1;
        }
    }
}

fn entry(owner: &Owner, owned: &Owned) -> Value {
    let operation = match owner.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    let mut entry = Map::new();
    if !owner.manager.is_empty() {
        entry.insert("manager".to_owned(), json!(owner.manager));
    }
    entry.insert("operation".to_owned(), json!(operation));
    entry.insert("apiVersion".to_owned(), json!(owned.api_version));
    if let Some(time) = &owned.time {
        entry.insert("time".to_owned(), json!(time));
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), owned.set.encode());
    if !owner.subresource.is_empty() {
        entry.insert("subresource".to_owned(), json!(owner.subresource));
    }
    Value::Object(entry)
}
