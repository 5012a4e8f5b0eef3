//! Walks a value along its schema and collects violations.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::{
    Violation, ViolationKind, metadata,
    node::{Allowed, Bounds, Limit, List, Node, Others, Type, Width},
    rule, suggest,
};
use crate::{budget::Budget, object::PathPart};

/// The current position of the walk.
#[derive(Default)]
pub(super) struct Path(Vec<PathPart>);

/// The sink of violations: lists the first ones, and counts the others.
pub(super) struct ViolationSink<'a> {
    pub(super) listed: Vec<Violation>,
    /// How many are only counted.
    pub(super) more: usize,
    max: usize,
    /// The time for the walk.
    budget: &'a Budget,
}

/// The longest excerpt of a value in a message, in characters.
const EXCERPT_LEN_MAX: usize = 60;

// === impl ViolationSink ===

impl<'a> ViolationSink<'a> {
    /// An empty sink that lists at most `max` violations.
    pub(super) fn at_most(max: usize, budget: &'a Budget) -> ViolationSink<'a> {
        ViolationSink { listed: Vec::new(), more: 0, max, budget }
    }

    pub(super) fn push(&mut self, violation: Violation) {
        if self.is_full() {
            self.more += 1;
        } else {
            self.listed.push(violation);
        }
    }

    fn len(&self) -> usize {
        self.listed.len() + self.more
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_full(&self) -> bool {
        self.max <= self.listed.len()
    }
}

// === impl Path ===

impl Path {
    /// Descends one level while `work` runs.
    pub(super) fn within<T>(&mut self, field: &str, work: impl FnOnce(&mut Path) -> T) -> T {
        self.step(PathPart::from(field), work)
    }

    fn step<T>(&mut self, part: PathPart, work: impl FnOnce(&mut Path) -> T) -> T {
        self.0.push(part);
        let result = work(self);
        self.0.pop();
        result
    }

    /// A violation at this position.
    pub(super) fn violation(&self, kind: ViolationKind, message: String) -> Violation {
        Violation { path: self.0.clone(), kind, message, hint: None }
    }

    /// An unknown field at this position.
    pub(super) fn unknown_field(&self, field: &str, did_you_mean: Option<String>) -> Violation {
        let hint = did_you_mean.as_ref().map(|meant| format!("did you mean `{meant}`?"));
        let kind = ViolationKind::UnknownField { did_you_mean };
        Violation { hint, ..self.violation(kind, format!("unknown field `{}`", cut(field))) }
    }
}

/// Checks a whole object, which replaces the old one if there is one.
pub(super) fn object(root: &Node, value: &Value, old: Option<&Value>, out: &mut ViolationSink<'_>) {
    let path = &mut Path::default();
    let Some(fields) = value.as_object() else {
        out.push(path.violation(ViolationKind::Type, format!("an object must be a mapping, not {}", type_name(value))));
        return;
    };
    metadata::check_type(fields, path, out);
    metadata::check(fields.get("metadata"), metadata::Of::Object, path, out);
    node(root, value, At { is_root: true, old }, path, out);
}

/// What is known about a value besides its schema.
#[derive(Clone, Copy, Default)]
struct At<'a> {
    /// It is the object itself, whose type and metadata are checked elsewhere.
    is_root: bool,
    /// The value that it replaces.
    old: Option<&'a Value>,
}

impl<'a> At<'a> {
    fn below(old: Option<&'a Value>) -> At<'a> {
        At { is_root: false, old }
    }
}

fn node(schema: &Node, value: &Value, at: At<'_>, path: &mut Path, out: &mut ViolationSink<'_>) {
    // A schema with many alternatives may take long for each of many values.
    if out.budget.is_over() || (value.is_null() && schema.nullable) {
        return;
    }
    if value.is_null() && schema.kind != Type::Any {
        let message = format!("must be {}, not null", schema.kind.description());
        out.push(path.violation(ViolationKind::Null, message));
        return;
    }
    if !schema.kind.accepts(value) {
        out.push(wrong_type(schema.kind, value, path));
        return;
    }
    // The object as a whole always differs from the old one: its version increases.
    if !at.is_root && at.old == Some(value) {
        unchanged(schema, value, at, path, out);
        return;
    }
    let before = out.len();
    check_allowed(schema, value, path, out);
    match value {
        Value::String(text) => check_text(schema, text, path, out),
        Value::Number(number) => check_number(schema, number, path, out),
        Value::Array(items) => check_list(schema, items, at.old, path, out),
        Value::Object(fields) => check_mapping(schema, fields, at, path, out),
        Value::Null | Value::Bool(_) => {}
    }
    check_combinations(schema, value, at.old, path, out);
    // A rule may rely on the schema, so it is not evaluated for a value that violates the schema.
    if !schema.rules.is_empty() && out.len() == before {
        check_rules(schema, value, at.old, &ViolationKind::Rule, path, out);
    }
}

/// Checks a value that is unchanged or part of an unchanged one. Transition rules are evaluated;
/// violations of others are warnings.
fn unchanged(schema: &Node, value: &Value, at: At<'_>, path: &mut Path, out: &mut ViolationSink<'_>) {
    if !schema.rules.is_empty() {
        check_rules(schema, value, at.old, &ViolationKind::Tolerated, path, out);
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let of = match (schema.properties.get(name), &schema.others) {
                    (Some(property), _) => property,
                    (None, Others::Of(of)) => of,
                    (None, Others::Kept | Others::Unknown) => continue,
                };
                let at = At::below(at.old.map(|_| value));
                path.within(name, |path| unchanged(of, value, at, path, out));
            }
        }
        Value::Array(items) => {
            let Some(of) = schema.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                // Only items with keys can be matched with old ones.
                let old = at.old.filter(|_| matches!(schema.list, List::Map(_))).map(|_| item);
                path.step(PathPart::from(index), |path| unchanged(of, item, At::below(old), path, out));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_mapping(schema: &Node, fields: &Map<String, Value>, at: At<'_>, path: &mut Path, out: &mut ViolationSink<'_>) {
    let has_own_type = at.is_root || schema.embedded;
    if schema.embedded {
        metadata::check_type(fields, path, out);
        metadata::check(fields.get("metadata"), metadata::Of::Embedded, path, out);
    }
    let old = |name: &str| at.old.and_then(|old| old.get(name)).filter(|old| !old.is_null());
    for (name, value) in fields {
        if has_own_type && metadata::is_type_or_metadata(name) {
            continue;
        }
        path.within(name, |path| match (schema.properties.get(name), &schema.others) {
            (Some(property), _) => {
                if !is_dropped(property, value) {
                    node(property, value, At::below(old(name)), path, out);
                }
            }
            (None, Others::Kept) => {}
            (None, Others::Of(of)) => {
                if !is_dropped(of, value) {
                    node(of, value, At::below(old(name)), path, out);
                }
            }
            // To find what the user meant takes longer than all other checks.
            (None, Others::Unknown) if out.is_full() => out.more += 1,
            (None, Others::Unknown) => {
                let known = schema.properties.keys().map(String::as_str).filter(|known| !fields.contains_key(*known));
                let did_you_mean = suggest::nearest(name, known).map(str::to_owned);
                out.push(path.unknown_field(name, did_you_mean));
            }
        });
    }
    for name in &schema.required {
        let property = schema.properties.get(name);
        let is_there = fields.get(name).is_some_and(|value| !property.is_some_and(|node| is_dropped(node, value)));
        if !is_there && schema.default_of(name).is_none() {
            path.within(name, |path| {
                out.push(path.violation(ViolationKind::Required, format!("the required field `{name}` is missing")));
            });
        }
    }
    check_count(fields.len(), schema.properties_count, "field", path, out);
}

/// The server removes nulls from fields that are not nullable before it validates them.
fn is_dropped(schema: &Node, value: &Value) -> bool {
    value.is_null() && !schema.nullable && schema.kind != Type::Any
}

fn check_list(schema: &Node, items: &[Value], old: Option<&Value>, path: &mut Path, out: &mut ViolationSink<'_>) {
    check_count(items.len(), schema.items_count, "item", path, out);
    let Some(item_schema) = schema.items.as_deref() else { return };
    for (index, item) in items.iter().enumerate() {
        let old = old.and_then(|old| known_again(item_schema, &schema.list, item, old));
        path.step(PathPart::from(index), |path| node(item_schema, item, At::below(old), path, out));
    }
    if schema.list == List::Atomic {
        return;
    }
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        // Items without any key violate the schema already, and are not duplicates.
        if let List::Map(keys) = &schema.list
            && keys.iter().all(|key| item.get(key).is_none() && item_schema.default_of(key).is_none())
        {
            continue;
        }
        let key = rule::key_of(item_schema, &schema.list, item);
        if !seen.insert(key) {
            path.step(PathPart::from(index), |path| {
                out.push(path.violation(ViolationKind::Duplicate, duplicate_message(&schema.list, item)));
            });
        }
    }
}

/// The item of the old list that an item with keys replaces.
fn known_again<'a>(schema: &Node, list: &List, item: &Value, old: &'a Value) -> Option<&'a Value> {
    if !matches!(list, List::Map(_)) {
        return None;
    }
    let key = rule::key_of(schema, list, item);
    old.as_array()?.iter().find(|old| rule::key_of(schema, list, old) == key)
}

fn duplicate_message(list: &List, item: &Value) -> String {
    match list {
        List::Map(keys) => {
            let key: Vec<String> =
                keys.iter().map(|key| format!("{key}: {}", excerpt(item.get(key).unwrap_or(&Value::Null)))).collect();
            format!("another item of this list has the same `{}`", key.join(", "))
        }
        List::Set | List::Atomic => format!("`{}` is already in this list", excerpt(item)),
    }
}

fn check_allowed(schema: &Node, value: &Value, path: &mut Path, out: &mut ViolationSink<'_>) {
    let Allowed { all, first } = &schema.allowed;
    if all.is_empty() || all.contains(value) {
        return;
    }
    if out.is_full() {
        out.more += 1;
        return;
    }
    let allowed = first.iter().map(|allowed| format!("`{}`", excerpt(allowed))).collect::<Vec<String>>().join(", ");
    let message = match all.len().saturating_sub(first.len()) {
        0 => format!("`{}` is not one of {allowed}", excerpt(value)),
        more => format!("`{}` is not one of {allowed} and {more} more", excerpt(value)),
    };
    let mut violation = path.violation(ViolationKind::Enum, message);
    let texts = all.iter().filter_map(Value::as_str).filter(|text| !text.is_empty());
    violation.hint =
        value.as_str().and_then(|text| suggest::nearest(text, texts)).map(|meant| format!("did you mean `{meant}`?"));
    out.push(violation);
}

fn check_text(schema: &Node, text: &str, path: &mut Path, out: &mut ViolationSink<'_>) {
    // The byte count bounds the character count, so most texts need no counting.
    let bounds = schema.length;
    if bounds.min.is_some() || bounds.max.is_some_and(|max| text.len() > max) {
        check_count(text.chars().count(), bounds, "character", path, out);
    }
    if let Some(pattern) = &schema.pattern
        && !pattern.is_match(text)
    {
        let message = format!("`{}` does not match the pattern `{}`", cut(text), schema.pattern_text);
        out.push(path.violation(ViolationKind::Pattern, message));
    }
    if let Some(format) = schema.format
        && !format.accepts(text)
    {
        let message = format!("`{}` is not {}", cut(text), format.description());
        out.push(path.violation(ViolationKind::Format, message));
    }
}

fn check_number(schema: &Node, number: &Number, path: &mut Path, out: &mut ViolationSink<'_>) {
    let Some(value) = number.as_f64() else { return };
    let mut refuse = |message: String| out.push(path.violation(ViolationKind::Range, message));
    match schema.minimum {
        Some(Limit { value: limit, exclusive: true }) if value <= limit => {
            refuse(format!("{number} must be greater than {limit}"));
        }
        Some(Limit { value: limit, exclusive: false }) if value < limit => {
            refuse(format!("{number} must be at least {limit}"));
        }
        _ => {}
    }
    match schema.maximum {
        Some(Limit { value: limit, exclusive: true }) if value >= limit => {
            refuse(format!("{number} must be less than {limit}"));
        }
        Some(Limit { value: limit, exclusive: false }) if value > limit => {
            refuse(format!("{number} must be at most {limit}"));
        }
        _ => {}
    }
    if let Some((min, max)) = schema.width.map(Width::range)
        && !whole(number).is_some_and(|whole| (min..=max).contains(&whole))
    {
        refuse(format!("{number} must be between {min} and {max}"));
    }
    if let Some(step) = schema.multiple_of
        && step > 0.0
        && (value / step).fract() != 0.0
    {
        refuse(format!("{number} must be a multiple of {step}"));
    }
}

/// A whole number, also if written as `8080.0`. `None` for a fraction or a number beyond all
/// limits.
pub(super) fn whole(number: &Number) -> Option<i128> {
    let written_whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let written_as_fraction = || number.as_f64().filter(|float| float.fract() == 0.0);
    written_whole.or_else(|| format!("{:.0}", written_as_fraction()?).parse().ok())
}

fn check_count(count: usize, bounds: Bounds<usize>, unit: &str, path: &mut Path, out: &mut ViolationSink<'_>) {
    let plural = |number: usize| if number == 1 { unit.to_owned() } else { format!("{unit}s") };
    if let Some(min) = bounds.min.filter(|&min| count < min) {
        let message = format!("has {count} {}; at least {min} are required", plural(count));
        out.push(path.violation(ViolationKind::TooShort, message));
    }
    if let Some(max) = bounds.max.filter(|&max| count > max) {
        let message = format!("has {count} {}; at most {max} are allowed", plural(count));
        out.push(path.violation(ViolationKind::TooLong, message));
    }
}

fn check_combinations(schema: &Node, value: &Value, old: Option<&Value>, path: &mut Path, out: &mut ViolationSink<'_>) {
    for condition in &schema.all_of {
        node(condition, value, At::below(old), path, out);
    }
    let budget = out.budget;
    let holds = |condition: &Node| {
        let mut problems = ViolationSink::at_most(0, budget);
        node(condition, value, At::default(), &mut Path::default(), &mut problems);
        problems.is_empty()
    };
    let mut refuse = |message: String| out.push(path.violation(ViolationKind::Combination, message));
    if !schema.any_of.is_empty() && !schema.any_of.iter().any(holds) {
        refuse(format!("matches none of the {} allowed forms", schema.any_of.len()));
    }
    if !schema.one_of.is_empty() {
        let fitting = schema.one_of.iter().filter(|condition| holds(condition)).count();
        if fitting != 1 {
            refuse(format!("must match exactly one of {} forms, but matches {fitting}", schema.one_of.len()));
        }
    }
    if schema.not.as_deref().is_some_and(holds) {
        refuse("matches a form that is not allowed".to_owned());
    }
}

/// Evaluates the rules. `kind` is the violation kind of rules that do not compare with the old
/// value.
fn check_rules(
    schema: &Node,
    value: &Value,
    old: Option<&Value>,
    kind: &ViolationKind,
    path: &mut Path,
    out: &mut ViolationSink<'_>,
) {
    let this = rule::bind(schema, value);
    let former = old.map(|old| rule::bind(schema, old));
    for rule in &schema.rules {
        if out.budget.is_over() {
            return;
        }
        if let Some(broken) = rule.check(&this, former.as_ref(), out.budget) {
            let kind = if rule.is_transition { ViolationKind::Rule } else { kind.clone() };
            let mut violation = path.violation(kind, broken.message);
            if !broken.fails {
                violation.path.extend(rule.field.iter().map(|field| PathPart::from(field.as_str())));
            }
            out.push(violation);
        }
    }
}

fn wrong_type(kind: Type, value: &Value, path: &Path) -> Violation {
    let message = format!("must be {}, not {}", kind.description(), type_name(value));
    let mut violation = path.violation(ViolationKind::Type, message);
    if kind == Type::Text && (value.is_number() || value.is_boolean()) {
        violation.hint = Some(format!("write it in quotes: \"{value}\""));
    }
    violation
}

/// The type of a value, for a message.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "`true` or `false`",
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() != 0.0) => {
            "a number with a fraction"
        }
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

fn excerpt(value: &Value) -> String {
    match value {
        Value::String(text) => cut(text),
        other => cut(&other.to_string()),
    }
}

/// The beginning of a text for a message: one line, limited in length.
pub(crate) fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut cut: String = line.chars().take(EXCERPT_LEN_MAX).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}
