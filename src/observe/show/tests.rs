use std::time::Duration;

use tidegate_core::object::{Digest, ObjectId};

use super::*;
use crate::observe::{
    decide::Compared,
    difference::{ComparedCluster, Reason},
    state::SeenSource,
};

fn id(kind: &str, name: &str) -> ObjectId {
    ObjectId::new("", kind, "kyma-system", name)
}

/// A runtime with a module that differs, one that KLM manages, and one that is equal.
fn seen(now: Instant) -> Seen {
    let mut seen = Seen::default();
    let changed = Difference::new(
        ComparedCluster::Runtime,
        Reason::Changed,
        id("ConfigMap", "keda-a"),
        &["data.text".to_owned()],
    );
    let differences = vec![
        Difference { module: Some("keda".into()), ..changed },
        Difference::managers(id("ConfigMap", "warden-a"), Some("warden")),
        Difference::managers(id("Namespace", "kyma-system"), None),
    ];
    let last = Compared { wanted: Digest::of_bytes(b""), at: now, reads: 9, objects: 20 };
    let one = SeenRuntime {
        standing: Standing::Compared(now),
        last: Some(last),
        modules: ["keda", "mailer", "warden"].map(str::to_owned).into(),
        differences,
        ..SeenRuntime::default()
    };
    let two = SeenRuntime {
        standing: Standing::Unreachable("cluster skr/kcp-system/two cannot be reached".to_owned()),
        ..SeenRuntime::default()
    };
    seen.runtimes.insert(Key::new("kcp-system", "one"), one);
    seen.runtimes.insert(Key::new("kcp-system", "two"), two);
    let foreign = Difference::new(ComparedCluster::ControlPlane, Reason::Foreign, id("Kyma", "one"), &[]);
    let source = SeenSource {
        revision: Some("main@c0ffee".to_owned()),
        differences: vec![foreign.with_detail(Some("it belongs to Argo CD".to_owned()))],
        ..SeenSource::default()
    };
    seen.set_source(&Key::new("kcp-system", "landscape"), source);
    seen
}

#[test]
fn the_table_has_a_row_for_each_module_and_a_line_for_each_difference() {
    let start = Instant::now();
    let report = Report::of(&seen(start), Vec::new(), start + Duration::from_secs(130));
    insta::assert_snapshot!(report.to_text());
}

#[test]
fn decided_improvements_are_named_and_counted_apart() {
    let start = Instant::now();
    let report = Report::of(&seen(start), Vec::new(), start);
    assert_eq!((report.summary.differences, report.summary.improvements), (2, 2));
    assert_eq!(report.summary.decided["R2"].differences, 2);
    let json = serde_json::to_value(&report).unwrap();
    let keda = &json["runtimes"][0]["modules"]["keda"];
    assert_eq!((&keda["differences"], &keda["improvements"]), (&1.into(), &0.into()));
    assert_eq!(keda["objects"][0]["reason"], "Changed");
    assert_eq!(keda["objects"][0]["kind"], "ConfigMap");
    assert_eq!(json["runtimes"][0]["modules"]["warden"]["objects"][0]["improvement"]["row"], "R2");
}

#[test]
fn what_is_not_compared_is_named() {
    let start = Instant::now();
    let mut seen = seen(start);
    let unreachable = "runtime kcp-system/two: cluster skr/kcp-system/two cannot be reached".to_owned();
    assert_eq!(Report::of(&seen, Vec::new(), start).not_compared(), *std::slice::from_ref(&unreachable));
    let one = seen.runtimes.get_mut(&Key::new("kcp-system", "one")).unwrap();
    one.unknown.push("module mailer 1.0.0: it is being read".to_owned());
    let unread = SeenSource { idle: Some("it cannot be read".to_owned()), ..SeenSource::default() };
    seen.set_source(&Key::new("kcp-system", "landscape"), unread);
    let report = Report::of(&seen, Vec::new(), start);
    let source = "source kcp-system/landscape: it cannot be read".to_owned();
    let module = "runtime kcp-system/one: module mailer 1.0.0: it is being read".to_owned();
    assert_eq!(report.not_compared(), [source, module, unreachable]);
    assert_eq!(report.summary.incomplete, 3);
    // A later revision is not used, and the control plane does not answer.
    let refused = SeenSource { unused: Some("main@2 is refused".to_owned()), ..SeenSource::default() };
    seen.set_source(&Key::new("kcp-system", "landscape"), refused);
    let report = Report::of(&seen, vec!["the control plane cannot be reached".to_owned()], start);
    let first = ["the control plane cannot be reached", "source kcp-system/landscape: main@2 is refused"];
    assert_eq!(report.not_compared()[..2], first);
    assert_eq!(report.summary.incomplete, 4);
    assert!(report.to_text().contains("\nNot compared:\nthe control plane cannot be reached\n"), "{report:?}");
    assert_eq!(
        seen.not_compared(1).map(|(part, number)| (part.as_str(), number)),
        [("ControlPlane", 1), ("Source", 1), ("Runtime", 1), ("Part", 1),]
    );
}
