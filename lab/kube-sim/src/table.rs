// SPDX-License-Identifier: Apache-2.0

//! Tables, as `kubectl get` shows them: columns of CustomResourceDefinitions and of built-in kinds. Some kinds that our
//! modules do not use have only name and age.

mod columns;
mod path;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use self::{columns::Column, path::evaluate};
use super::{resource::Resource, store::Object};

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
                    resources may allow a client to request the generation of an appropriate name automatically. Name \
                    is primarily intended for creation idempotence and configuration definition. Cannot be updated. \
                    More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// A table of objects. `with_columns` says whether it contains the column definitions; later rows of a watch do not.
pub(super) fn render(
    resource: &Resource,
    metadata: &Value,
    objects: &[Arc<Object>],
    now: Timestamp,
    with_columns: bool,
) -> Bytes {
    let definitions = if with_columns { Value::from(definitions(resource)) } else { Value::Null };
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            json!({
                "cells": cells(resource, &object.value(), now),
                "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object.metadata_value(),
                },
            })
        })
        .collect();
    let table = json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions,
        "rows": rows,
    });
    table.to_string().into()
}

fn definitions(resource: &Resource) -> Vec<Value> {
    let column = |name: &str, kind: &str, format: &str, description: &str, priority: u64| {
        json!({
            "name": name, "type": kind, "format": format, "description": description, "priority": priority,
        })
    };
    let Some(custom) = &resource.custom else {
        let own = columns::for_collection(&resource.collection).iter();
        return own
            .map(|Column(name, kind, priority, _)| {
                let (format, description) = if *name == "Name" { ("name", NAME) } else { ("", "") };
                column(name, kind, format, description, (*priority).into())
            })
            .collect();
    };
    let mut columns = vec![column("Name", "string", "name", NAME, 0)];
    if custom.columns.is_empty() {
        columns.push(column("Age", "date", "", "", 0));
    }
    columns.extend(custom.columns.iter().map(|of| {
        let text = |field: &str| of[field].as_str().unwrap_or_default();
        let described = text("description");
        let path = format!("Custom resource definition column (in JSONPath format): {}", text("jsonPath"));
        let description = if described.is_empty() { &path } else { described };
        column(text("name"), text("type"), text("format"), description, of["priority"].as_u64().unwrap_or_default())
    }));
    columns
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let Some(custom) = &resource.custom else {
        return columns::for_collection(&resource.collection)
            .iter()
            .map(|Column(_, _, _, cell)| cell(object, now))
            .collect();
    };
    let mut cells = vec![object["metadata"]["name"].clone()];
    if custom.columns.is_empty() {
        cells.push(age(&object["metadata"]["creationTimestamp"], now));
    }
    cells.extend(custom.columns.iter().map(|column| {
        let found = evaluate(column["jsonPath"].as_str().unwrap_or_default(), object);
        match (column["type"].as_str(), found) {
            (Some("date"), Some(value)) => age(&value, now),
            (Some("integer"), Some(value)) if !value.is_number() => Value::Null,
            (Some("string"), Some(value)) if !value.is_string() => Value::from(value.to_string()),
            (_, found) => found.unwrap_or_default(),
        }
    }));
    cells
}

/// The age of a time, for people: two units if that is useful.
fn age(time: &Value, now: Timestamp) -> Value {
    let Some(then) = time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return Value::from("<unknown>");
    };
    Value::from(duration(now.as_second().saturating_sub(then.as_second()).max(0)))
}

fn duration(seconds: i64) -> String {
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{large_unit}") } else { format!("{large}{large_unit}{small}{small_unit}") }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests;
