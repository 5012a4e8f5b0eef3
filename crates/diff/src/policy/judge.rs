//! Checks differences against rules.

use std::collections::{BTreeSet, HashMap};

use cel::Value as CelValue;

use super::{Approvals, FailOn, Labels, Match, Policies, Policy};
use tidegate_core::{
    api::names::annotation,
    diagnostic::{FilePosition, Severity},
    name::Key,
    object::Stage,
    schema::expression::{self, Variables},
};

use crate::{
    mask::Masker,
    model::{Action, Difference, Effect, Finding, Report, Side},
    words::{self, counted, thousands},
};

/// Maximum number of evaluations of all rules together, which take some tens of seconds. Only rules
/// that are evaluated per runtime come near it.
const EVALUATIONS_MAX: usize = 2_000_000;

/// Name of the rule that warns of Namespaces and PersistentVolumeClaims that leave runtimes.
const DATA_LOSS: &str = "data-loss";

/// The facts that are the same for all runtimes of a difference.
const SHARED: [&str; 2] = ["count", "target"];

/// Checks the differences of a report against rules, and adds violations to [`Report::findings`].
/// `masker` removes secrets from messages.
///
/// A rule in `approvals` yields warnings instead of errors. Content that changes without a new version, and changes
/// that the API server refuses, are warnings even without a rule. So are Namespaces and PersistentVolumeClaims that
/// leave runtimes, because users' data go with them.
pub fn judge(
    report: &mut Report,
    (fail_on, approvals): (&[FailOn], &Approvals),
    policies: &Policies,
    labels: &Labels,
    masker: &Masker,
) {
    let mut findings = Vec::new();
    let bookkeeping = report.bookkeeping();
    for rule in fail_on {
        let start = findings.len();
        by_name(&mut findings, report, &bookkeeping, *rule);
        if let Some(by) = approvals.by(*rule) {
            for finding in &mut findings[start..] {
                finding.severity = Severity::Warning;
                finding.message = format!("{} (approved by {by})", finding.message);
            }
        }
    }
    for rule in [FailOn::SameVersion, FailOn::Refused] {
        if fail_on.contains(&rule) {
            continue;
        }
        let start = findings.len();
        by_name(&mut findings, report, &bookkeeping, rule);
        for finding in &mut findings[start..] {
            finding.severity = Severity::Warning;
            rule.name().clone_into(&mut finding.rule);
        }
    }
    findings.extend(report.differences.iter().enumerate().filter_map(data_loss));
    report.findings.extend(findings);
    judge_with(report, policies, labels, masker, EVALUATIONS_MAX);
    report.checked.extend(fail_on.iter().map(|rule| name(*rule)));
    report.checked.sort();
    report.checked.dedup();
}

/// Checks differences against CEL rules, with a limited number of evaluations.
pub(super) fn judge_with(
    report: &mut Report,
    policies: &Policies,
    labels: &Labels,
    masker: &Masker,
    evaluations_max: usize,
) {
    let mut findings = Vec::new();
    let around = Around { labels, masker };
    let mut budget = Budget { left: evaluations_max, exceeded: false };
    let values: Vec<Values> = if policies.rules.is_empty() {
        Vec::new()
    } else {
        let bookkeeping = report.bookkeeping();
        let all = report.differences.iter().enumerate();
        all.map(|(index, one)| Values::from_difference(one, bookkeeping.contains(&index))).collect()
    };
    for policy in &policies.rules {
        for (index, (difference, values)) in report.differences.iter().zip(&values).enumerate() {
            if policy.matches.holds(difference) {
                findings.extend(policy.hold(difference, values, &around, &mut budget).map(|message| Finding {
                    severity: policy.severity,
                    rule: policy.name.clone(),
                    message,
                    difference: Some(index),
                    place: difference.places.first().cloned(),
                }));
            }
        }
    }
    if budget.exceeded {
        findings.push(Finding {
            severity: Severity::Error,
            rule: "evaluations".to_owned(),
            message: format!(
                "the policies need more than {} evaluations, so some were skipped; match fewer differences, \
                 or do not ask for each `runtime`",
                thousands(evaluations_max)
            ),
            difference: None,
            place: None,
        });
    }
    report.findings.extend(findings);
    report.findings.sort();
    report.findings.dedup();
    report.checked.extend(policies.rules.iter().map(|policy| policy.name.clone()));
    report.checked.sort();
    report.checked.dedup();
}

/// The facts that are the same for all rules and differences.
struct Around<'a> {
    labels: &'a Labels,
    masker: &'a Masker,
}

/// The number of remaining evaluations.
struct Budget {
    left: usize,
    exceeded: bool,
}

impl Budget {
    fn take(&mut self) -> bool {
        self.exceeded |= self.left == 0;
        self.left = self.left.saturating_sub(1);
        !self.exceeded
    }
}

fn name(rule: FailOn) -> String {
    format!("fail-on: {rule}")
}

/// What users lose with a Namespace or a PersistentVolumeClaim that leaves a runtime.
fn data_loss((index, one): (usize, &Difference)) -> Option<Finding> {
    let is_lost = one.target == Side::Runtime
        && one.action == Action::Delete
        && one.effect != Effect::Held
        && one.id.group.is_empty();
    let what = match (is_lost, &*one.id.kind) {
        (true, "Namespace") => "everything in it, also what users created",
        (true, "PersistentVolumeClaim") => "its data",
        _ => return None,
    };
    let message = format!(
        "{}, with {what}; to keep it, annotate it with `{}: disabled` before it leaves its module",
        words::sentence(one),
        annotation::PRUNE
    );
    let place = one.places.first().cloned();
    Some(Finding { severity: Severity::Warning, rule: DATA_LOSS.to_owned(), message, difference: Some(index), place })
}

fn by_name(findings: &mut Vec<Finding>, report: &Report, bookkeeping: &BTreeSet<usize>, rule: FailOn) {
    let finding = |message: String, difference: Option<usize>, place: Option<&FilePosition>| Finding {
        severity: Severity::Error,
        rule: name(rule),
        message,
        difference,
        place: place.cloned(),
    };
    let is_crd = |one: &Difference| one.id.stage() == Stage::Crd;
    let touched: BTreeSet<&Key> = match rule {
        FailOn::SameVersion => report.in_runtimes().flat_map(|one| one.runtimes.iter()).collect(),
        _ => BTreeSet::new(),
    };
    let violates = |index: usize, one: &Difference| match rule {
        FailOn::Delete => one.action == Action::Delete && !bookkeeping.contains(&index),
        FailOn::Recreate => one.may_be(Action::Recreate) && !bookkeeping.contains(&index),
        // What differs whatever the revision says is no reason to refuse it.
        FailOn::Refused => one.may_be(Action::Refuse) && !bookkeeping.contains(&index),
        FailOn::Conflict => {
            (one.action == Action::Conflict || !one.conflicts.is_empty())
                && !(one.is_former && bookkeeping.contains(&index))
        }
        FailOn::Crd => is_crd(one) && one.action != Action::Create,
        FailOn::SameVersion => changed_content(one, &touched).is_some() || one.same_version_default().is_some(),
        FailOn::MassChange(_) => false,
    };
    for (index, one) in report.differences.iter().enumerate().filter(|(index, one)| violates(*index, one)) {
        let message = match rule {
            FailOn::SameVersion => same_version(one, &touched),
            _ => words::sentence(one),
        };
        findings.push(finding(message, Some(index), one.places.first()));
    }
    if let FailOn::MassChange(percent) = rule {
        let runtimes = report.runtimes;
        if runtimes.touched * 100 > usize::from(percent) * runtimes.compared {
            let touched = thousands(runtimes.touched);
            let of = counted(runtimes.compared, "runtime");
            findings.push(finding(format!("{touched} of {of} are affected, more than {percent} %"), None, None));
        }
    }
}

/// The module and version of a Manifest that gets other content under the same version, if objects in its runtimes
/// differ.
fn changed_content<'a>(one: &'a Difference, touched: &BTreeSet<&Key>) -> Option<(&'a str, &'a str)> {
    one.same_version().filter(|_| one.runtimes.iter().any(|key| touched.contains(key)))
}

/// What changes of a module that keeps its version.
fn same_version(one: &Difference, touched: &BTreeSet<&Key>) -> String {
    let runtimes = counted(one.runtimes.len(), "runtime");
    match (changed_content(one, touched), one.same_version_default()) {
        (Some((module, version)), _) => {
            format!("the content of {module} {version} changes in {runtimes} without a new version")
        }
        (None, Some((module, version))) => format!(
            "the default resource of {module} {version} changes without a new version: only runtimes that get the \
             module from now on get the change, not the {runtimes} with this version"
        ),
        (None, None) => words::sentence(one),
    }
}

// === impl Match ===

impl Match {
    fn holds(&self, difference: &Difference) -> bool {
        let id = &difference.id;
        let is_kind = |wanted: &String| match wanted.split_once('.') {
            Some((kind, group)) => *kind == *id.kind && *group == *id.group,
            None => **wanted == *id.kind,
        };
        (self.kinds.is_empty() || self.kinds.iter().any(is_kind))
            && (self.targets.is_empty() || self.targets.contains(&difference.target))
            && (self.actions.is_empty() || self.actions.iter().any(|action| difference.may_be(*action)))
    }
}

// === impl Policy ===

impl Policy {
    /// The violation, if a difference violates the rule.
    fn hold(
        &self,
        difference: &Difference,
        values: &Values,
        around: &Around<'_>,
        budget: &mut Budget,
    ) -> Option<String> {
        let mut variables = values.variables(difference);
        let mut evaluate = |key: Option<&Key>| {
            let runtime = runtime(key, difference, around.labels);
            variables.set("runtime", runtime.clone());
            self.evaluate(&variables, around.masker, &|| {
                let mut shown = values.shown(difference, around.masker).variables(difference);
                shown.set("runtime", runtime.clone());
                shown
            })
        };
        let sentence = words::sentence(difference);
        if !self.asks_for_each() || difference.runtimes.is_empty() {
            if !budget.take() {
                return None;
            }
            return evaluate(None).map(|said| format!("{said}: {sentence}"));
        }
        let mut first = None;
        let mut violated: Vec<Key> = Vec::new();
        for key in &*difference.runtimes {
            if !budget.take() {
                break;
            }
            if let Some(said) = evaluate(Some(key)) {
                first.get_or_insert(said);
                violated.push(key.clone());
            }
        }
        first.map(|said| format!("{said}: {sentence} (in {})", words::names(&violated, words::NAMES_SHOWN)))
    }

    /// Whether the rule uses facts that differ between runtimes. Most rules do not; then one
    /// evaluation covers all runtimes of a difference.
    fn asks_for_each(&self) -> bool {
        let shared = |field: &&str| SHARED.contains(field);
        [Some(&self.rule), self.message_expression.as_ref()]
            .into_iter()
            .flatten()
            .any(|expression| expression.fields_of("runtime").is_none_or(|fields| !fields.iter().all(shared)))
    }

    /// The violation, if there is one. `shown` contains the values that a message may use.
    fn evaluate(&self, variables: &Variables, masker: &Masker, shown: &dyn Fn() -> Variables) -> Option<String> {
        match self.rule.evaluate(variables) {
            Ok(CelValue::Bool(true)) => None,
            Ok(CelValue::Bool(false)) => Some(self.message(shown)),
            Ok(_) => Some(format!("the result of the rule `{}` is not a boolean", self.rule.text())),
            Err(problem) => {
                Some(format!("the rule `{}` cannot be evaluated: {}", self.rule.text(), masker.scrub(&problem)))
            }
        }
    }

    fn message(&self, shown: &dyn Fn() -> Variables) -> String {
        let computed = self.message_expression.as_ref().map(|expression| match expression.evaluate(&shown()) {
            Ok(CelValue::String(message)) if !message.trim().is_empty() => Ok(message.to_string()),
            Ok(_) => Err("the result of its `messageExpression` is not a string".to_owned()),
            Err(problem) => Err(format!("its `messageExpression` cannot be evaluated: {problem}")),
        });
        match (computed, &self.message) {
            (Some(Ok(message)), _) => message,
            (_, Some(message)) => message.clone(),
            (Some(Err(problem)), None) => format!("the rule `{}` is violated, and {problem}", self.rule.text()),
            (None, None) => format!("the rule `{}` is violated", self.rule.text()),
        }
    }
}

// === impl Values ===

/// The object of a difference, as rules see it.
struct Values {
    old: CelValue,
    new: CelValue,
    is_bookkeeping: bool,
}

impl Values {
    fn from_difference(difference: &Difference, is_bookkeeping: bool) -> Values {
        let bind =
            |value: Option<&std::sync::Arc<serde_json::Value>>| value.map_or(CelValue::Null, |v| expression::bind(v));
        let (old, new) = (bind(difference.old.as_ref()), bind(difference.new.as_ref()));
        Values { old, new, is_bookkeeping }
    }

    /// The values as reports show them.
    fn shown(&self, difference: &Difference, masker: &Masker) -> Values {
        let bind = |value: Option<&std::sync::Arc<serde_json::Value>>| {
            value.map_or(CelValue::Null, |value| {
                let mut value = serde_json::Value::clone(value);
                masker.scrub_object(&mut value);
                expression::bind(&value)
            })
        };
        let (old, new) = (bind(difference.old.as_ref()), bind(difference.new.as_ref()));
        Values { old, new, is_bookkeeping: self.is_bookkeeping }
    }

    /// The variables of a rule without the runtime.
    fn variables(&self, difference: &Difference) -> Variables {
        let mut variables = Variables::default();
        for (name, value) in [("old", &self.old), ("new", &self.new), ("object", self.object())] {
            variables.set(name, value.clone());
        }
        variables.set("action", CelValue::from(difference.action.as_str()));
        variables.set("catalog", CelValue::Bool(difference.is_catalog_copy()));
        variables.set("bookkeeping", CelValue::Bool(self.is_bookkeeping));
        variables
    }

    /// The new object or, without one, the old one.
    fn object(&self) -> &CelValue {
        if matches!(self.new, CelValue::Null) { &self.old } else { &self.new }
    }
}

/// A runtime as rules see it: always a mapping, so that rules need not check whether it exists.
fn runtime(key: Option<&Key>, difference: &Difference, labels: &Labels) -> CelValue {
    let text = |text: &str| CelValue::from(text);
    let labels: HashMap<String, CelValue> = key
        .and_then(|key| labels.get(key))
        .map(|labels| labels.iter().map(|(name, value)| (name.clone(), text(value))).collect())
        .unwrap_or_default();
    let count = i64::try_from(difference.runtimes.len()).unwrap_or(i64::MAX);
    // For the control plane, or without a single runtime, its fields are empty.
    let target = match difference.target {
        Side::ControlPlane => "kcp",
        Side::Runtime => "runtime",
    };
    CelValue::from(HashMap::from([
        ("namespace".to_owned(), text(key.map_or("", Key::namespace))),
        ("name".to_owned(), text(key.map_or("", Key::name))),
        ("labels".to_owned(), CelValue::from(labels)),
        ("count".to_owned(), CelValue::Int(count)),
        ("target".to_owned(), text(target)),
    ]))
}
