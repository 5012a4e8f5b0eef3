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
fn of_few_runtimes_a_label_is_a_name() {
    assert_eq!(Groups::new(&labels(2)), Groups::default());
    assert_eq!(Groups::new(&Labels::new()), Groups::default());
}
