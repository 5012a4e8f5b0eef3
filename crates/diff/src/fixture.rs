//! Handmade reports for tests.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use super::{
    model::{
        Action, Conflict, Difference, Effect, Finding, Groups, Held, Hunk, Line, Move, NotKnown, Report, Runtimes,
        Side, Subject, Unreached, Why,
    },
    policy::Labels,
};
use tidegate_core::{
    diagnostic::{Diagnostic, FilePosition, Severity},
    name::Key,
    object::{Gvk, ObjectId},
    render::live::Unknown,
};

/// `count` runtimes, `kcp-system/skr-0001` and so on.
pub(super) fn keys(count: usize) -> Arc<[Key]> {
    (1..=count).map(|number| Key::new("kcp-system", &format!("skr-{number:04}"))).collect()
}

pub(super) fn place(path: &str, line: u32, column: u32) -> FilePosition {
    FilePosition { path: path.into(), line, column }
}

/// A change of a Deployment in three runtimes.
pub(super) fn difference() -> Difference {
    Difference {
        target: Side::Runtime,
        id: ObjectId::new("apps", "Deployment", "kyma-system", "cache-manager"),
        gvk: Gvk::new("apps", "v1", "Deployment"),
        action: Action::Change,
        effect: Effect::Applies,
        runtimes: keys(3),
        objects: 3,
        old: Some(Arc::new(deployment(1))),
        new: Some(Arc::new(deployment(2))),
        hunks: vec![Hunk {
            path: "spec.replicas".to_owned(),
            old_start: 6,
            new_start: 6,
            lines: vec![
                Line::Same("spec:".to_owned()),
                Line::Old("  replicas: 1".to_owned()),
                Line::New("  replicas: 2".to_owned()),
            ],
        }],
        places: vec![place("modules/cache/1.1.0/objects/manager.yaml", 12, 3)],
        maker: None,
        conflicts: Vec::new(),
        refusal: None,
        overdue: None,
        is_former: false,
    }
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cache-manager", "namespace": "kyma-system", "labels": {"app": "cache"}},
        "spec": {"replicas": replicas},
    })
}

/// An object that exists on one side only, with all its lines.
pub(super) fn whole(action: Action, id: ObjectId, version: &str, value: Value, runtimes: usize) -> Difference {
    let lines = tidegate_core::yaml::to_string(&value);
    let is_new = action == Action::Create;
    let hunk = Hunk {
        path: String::new(),
        old_start: usize::from(!is_new),
        new_start: usize::from(is_new),
        lines: lines
            .lines()
            .map(|line| if is_new { Line::New(line.to_owned()) } else { Line::Old(line.to_owned()) })
            .collect(),
    };
    let value = Arc::new(value);
    Difference {
        gvk: Gvk::new(&id.group, version, &id.kind),
        id,
        action,
        runtimes: keys(runtimes),
        objects: runtimes.max(1),
        target: if runtimes == 0 { Side::ControlPlane } else { Side::Runtime },
        old: (!is_new).then(|| Arc::clone(&value)),
        new: is_new.then_some(value),
        hunks: vec![hunk],
        ..difference()
    }
}

/// The labels of `count` runtimes in two regions.
fn regions(count: usize) -> Labels {
    let region = |number: usize| BTreeMap::from([("region".to_owned(), ["eu", "us"][number % 2].to_owned())]);
    keys(count).iter().enumerate().map(|(number, key)| (key.clone(), region(number))).collect()
}

/// A report with one item of every kind.
pub(super) fn report() -> Report {
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cache", "namespace": "cache-system"},
        "data": {"size": "1Gi"},
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "caches.cache.example.org"},
    });
    let release = "modules/cache/module-release-meta.yaml";
    let manifests = Difference {
        target: Side::ControlPlane,
        id: ObjectId::new("operator.kyma-project.io", "Manifest", "kcp-system", "skr-0001-cache-1"),
        gvk: Gvk::new("operator.kyma-project.io", "v1beta2", "Manifest"),
        runtimes: keys(812),
        objects: 812,
        places: vec![place(release, 9, 5)],
        maker: Some("kcp/manifest.yaml"),
        hunks: vec![Hunk {
            path: "spec.version".to_owned(),
            old_start: 20,
            new_start: 20,
            lines: vec![Line::Old("  version: \"1.0.0\"".to_owned()), Line::New("  version: \"1.1.0\"".to_owned())],
        }],
        ..difference()
    };
    let conflict = Difference {
        action: Action::Conflict,
        runtimes: keys(1),
        objects: 1,
        conflicts: vec![
            Conflict { field: ".spec.replicas".to_owned(), manager: "kubectl-edit".to_owned() },
            Conflict { field: String::new(), manager: "helm".to_owned() },
        ],
        ..difference()
    };
    let deleted = whole(
        Action::Delete,
        ObjectId::new("apiextensions.k8s.io", "CustomResourceDefinition", "", "caches.cache.example.org"),
        "v1",
        crd,
        2,
    );
    let created = whole(Action::Create, ObjectId::new("", "ConfigMap", "cache-system", "cache"), "v1", config, 812);
    Report {
        groups: Groups::new(&regions(5_000)),
        subject: Subject {
            from: "main@sha1:2b1e9d3c4f5a6978695a4b3c2d1e0f9e8d7c6b5a".to_owned(),
            to: "worktree".to_owned(),
            source: "kcp-system/landscape".to_owned(),
            landscape_written: Some("2026-11-20T08:00:00Z".to_owned()),
            files: 1042,
        },
        differences: vec![
            manifests,
            conflict,
            Difference { effect: Effect::NeedsConfirmation, ..deleted },
            difference(),
            created,
        ],
        runtimes: Runtimes { total: 5000, touched: 812, variants: 3, compared: 5000 },
        moves: vec![Move {
            module: Key::new("kcp-system", "cache"),
            channel: "fast".to_owned(),
            from: Some("1.0.0".to_owned()),
            to: Some("1.1.0".to_owned()),
            runtimes: 812,
            place: Some(place(release, 9, 5)),
        }],
        held: vec![
            Held {
                why: Why::Downgrade,
                module: "mailer".to_owned(),
                runtimes: keys(7),
                message: "2.0.0 is installed, and 1.9.0 is lower".to_owned(),
                hint: Some("annotate the Kyma with `tidegate.dev/allow-downgrade`".to_owned()),
                place: Some(place("modules/mailer/module-release-meta.yaml", 8, 5)),
            },
            Held {
                why: Why::DecidedByRuntime,
                module: String::new(),
                runtimes: keys(1),
                message: "the Kyma in the runtime decides after creation".to_owned(),
                hint: None,
                place: None,
            },
        ],
        unknown: vec![
            NotKnown {
                value: "CA bundle".to_owned(),
                first: unknown("CA bundle", "webhooks[0].clientConfig.caBundle"),
                occurrences: 5000,
                may_hide: false,
            },
            NotKnown {
                value: "gateway hosts".to_owned(),
                first: unknown("gateway hosts", "spec.hosts[0]"),
                occurrences: 1,
                may_hide: true,
            },
        ],
        diagnostics: vec![
            Diagnostic::warning("landscape-old", "the landscape file is 26 hours old").hint("export it again"),
            Diagnostic::error("unknown-field", "the schema has no field `chanel`")
                .at(place("landscapes/dev/kyma.yaml", 7, 3))
                .hint("did you mean `channel`?"),
            Diagnostic::warning("foreign-kind", "ConfigMap is not applied").at(FilePosition::file("notes.yaml")),
        ],
        unreached: vec![Unreached {
            target: "skr/kcp-system/skr-0099".to_owned(),
            message: "the connection timed out after 10 s".to_owned(),
        }],
        checked: vec!["fail-on: delete".to_owned(), "fail-on: recreate".to_owned(), "no-public-buckets".to_owned()],
        findings: vec![
            Finding {
                severity: Severity::Error,
                rule: "fail-on: delete".to_owned(),
                message: "CustomResourceDefinition.apiextensions.k8s.io caches.cache.example.org is deleted".to_owned(),
                difference: Some(2),
                place: Some(place("modules/cache/1.0.0/objects/crd.yaml", 1, 1)),
            },
            Finding {
                severity: Severity::Warning,
                rule: "no-public-buckets".to_owned(),
                message: "a bucket is public".to_owned(),
                difference: None,
                place: None,
            },
        ],
    }
}

fn unknown(value: &str, path: &str) -> Unknown {
    Unknown {
        value: value.to_owned(),
        target: "kcp".to_owned(),
        object: "VirtualService.networking.istio.io kcp-system/kyma-dev".to_owned(),
        path: path.to_owned(),
    }
}

/// Strings with a special meaning in an output: workflow commands, fences, HTML, terminal escapes,
/// ends of CDATA, bidirectional text, mentions.
pub(super) const NASTY: &[&str] = &[
    "::error file=a,line=1::injected",
    "x ##[error]injected ###[x] ##vso[task.complete]",
    "```\n````` <script>alert(1)</script> ![x](http://e.example/i.png)",
    "</details><!-- --> @everyone #123 GH-1 owner/repo#5 https://e.example/",
    "\u{1b}[31mred\u{1b}]0;title\u{7} \u{9b}2J \r\n::set-output name=a::b",
    "a]]>b & 'c' \"d\" \u{0} \u{b} \u{fffe}",
    "\u{202e}desrever\u{202c} \u{2066}x\u{2069} \u{2028}::warning::y\u{2029} \u{85}z",
    "50% a,b:c | d \\| e",
];

/// A report in which every string has a special meaning in an output.
pub(super) fn nasty() -> Report {
    let mut report = report();
    let all = NASTY.join("\n");
    let id = ObjectId::new("g`<b>|x", "Kind`<b>|@k", "ns::x", &all);
    report.subject.source.clone_from(&all);
    report.subject.from.clone_from(&all);
    report.subject.to.clone_from(&all);
    report.subject.landscape_written = Some(all.clone());
    for difference in &mut report.differences {
        difference.id = id.clone();
        difference.runtimes = vec![Key::new("a", &all)].into();
        difference.places = vec![place(&all, 3, 4)];
        difference.conflicts.push(Conflict { field: all.clone(), manager: all.clone() });
        for hunk in &mut difference.hunks {
            hunk.path.clone_from(&all);
            hunk.lines.extend(NASTY.iter().flat_map(|text| {
                [Line::Same((*text).to_owned()), Line::Old((*text).to_owned()), Line::New((*text).to_owned())]
            }));
        }
    }
    for one in &mut report.moves {
        one.module = Key::new("a", &all);
        one.channel.clone_from(&all);
        one.from = Some(all.clone());
        one.to = Some(all.clone());
    }
    for held in &mut report.held {
        held.module.clone_from(&all);
        held.message.clone_from(&all);
        held.hint = Some(all.clone());
    }
    for unknown in &mut report.unknown {
        unknown.value.clone_from(&all);
        unknown.first = Unknown { value: all.clone(), target: all.clone(), object: all.clone(), path: all.clone() };
    }
    for diagnostic in &mut report.diagnostics {
        diagnostic.message.clone_from(&all);
        diagnostic.hint = Some(all.clone());
        diagnostic.place = diagnostic.place.as_ref().map(|_| place(&all, 1, 1));
    }
    for unreached in &mut report.unreached {
        *unreached = Unreached { target: all.clone(), message: all.clone() };
    }
    for finding in &mut report.findings {
        finding.rule.clone_from(&all);
        finding.message.clone_from(&all);
        finding.place = Some(place(&all, 1, 1));
    }
    report.checked = vec![all];
    report
}
