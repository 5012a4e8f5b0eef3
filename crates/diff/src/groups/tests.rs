use super::*;

fn labels(count: usize) -> Labels {
    let of = |number: usize| {
        let mut labels = BTreeMap::from([
            ("region".to_owned(), ["eu", "us", "ap"][number % 3].to_owned()),
            ("id".to_owned(), number.to_string()),
            ("same".to_owned(), "same".to_owned()),
            ("tidegate.dev/source".to_owned(), ["a", "b"][number % 2].to_owned()),
        ]);
        if number.is_multiple_of(2) {
            labels.insert("stage".to_owned(), "prod".to_owned());
        }
        labels
    };
    (0..count).map(|number| (Key::new("kcp-system", &format!("skr-{number}")), of(number))).collect()
}

#[test]
fn labels_that_divide_runtimes_are_chosen() {
    let all = labels(12);
    let groups = Groups::new(&all);
    let some: Vec<Key> = all.keys().filter(|key| !key.name().ends_with('0')).cloned().collect();
    let found = groups.of(&some);
    let expected = [("stage", "prod 4 of 6, 6 runtimes without it"), ("region", "ap 4 of 4, eu 3 of 4, us 3 of 4")];
    assert_eq!(found, expected.map(|(label, text)| (label.to_owned(), text.to_owned())));
}

#[test]
fn a_label_that_an_export_leaves_out_is_not_counted_as_missing() {
    let (in_git, only_known) = (labels(12), |number: usize| Key::new("kcp-system", &format!("known-{number}")));
    let known: BTreeSet<Key> = (0..3).map(only_known).collect();
    let all = in_git.iter().map(|(key, labels)| (key.clone(), labels.clone()));
    let all = all.chain(known.iter().map(|key| (key.clone(), BTreeMap::new()))).collect::<Labels>();
    let groups = |exported: &[&str]| {
        let exported = exported.iter().map(|name| (*name).to_owned()).collect();
        let labels = all.clone().with_partly(known.clone(), exported);
        let found = Groups::new(&labels).of(&labels.keys().cloned().collect::<Vec<_>>());
        found.into_iter().find(|(name, _)| name == "region").map(|(_, text)| text)
    };
    let all_known = "ap 4 of 4, eu 4 of 4, us 4 of 4, ";
    let left_out = format!("{all_known}3 runtimes whose labels are not in the landscape file");
    assert_eq!(groups(&[]), Some(left_out));
    assert_eq!(groups(&["region"]), Some(format!("{all_known}3 runtimes without it")));
}

#[test]
fn of_few_runtimes_a_label_is_a_name() {
    assert_eq!(Groups::new(&labels(2)), Groups::default());
    assert_eq!(Groups::new(&Labels::new()), Groups::default());
}
