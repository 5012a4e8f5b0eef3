use super::*;

fn metadata(label: &str, annotation: &str) -> ObjectMeta {
    ObjectMeta {
        labels: Some(BTreeMap::from([(names::label::SOURCE.to_owned(), label.to_owned())])),
        annotations: Some(BTreeMap::from([(names::annotation::SOURCE.to_owned(), annotation.to_owned())])),
        ..ObjectMeta::default()
    }
}

#[test]
fn a_short_source_name_is_its_own_label() {
    let source = SourceName::new(Key::new("kcp-system", "landscape"));
    assert_eq!(source.label_value(), "kcp-system.landscape");
}

#[test]
fn a_long_source_name_is_cut_and_hashed_and_stays_distinct() {
    let long = |end: &str| SourceName::new(Key::new("kcp-system", &format!("{}{end}", "landscape-".repeat(8))));
    let (a, b) = (long("a").label_value(), long("b").label_value());
    assert!(a.len() <= LABEL_LEN_MAX && b.len() <= LABEL_LEN_MAX);
    assert_ne!(a, b);
}

#[test]
fn a_source_counts_only_where_label_and_annotation_agree() {
    let source = SourceName::of(&metadata("kcp-system.landscape", "kcp-system/landscape"));
    assert_eq!(source, Some(SourceName::new(Key::new("kcp-system", "landscape"))));
    assert_eq!(SourceName::of(&metadata("kcp-system.other", "kcp-system/landscape")), None);
    assert_eq!(SourceName::of(&ObjectMeta::default()), None);
}
