use super::*;

#[test]
fn all_connections_are_used_however_few_the_runtimes_are() {
    for runtimes in 1..=CONNECTIONS {
        let all: usize = (0..runtimes).map(|index| share(index, runtimes)).sum();
        assert_eq!(all, CONNECTIONS, "{runtimes} runtimes");
    }
    // With more runtimes than connections, the next runtime gets the connection that became free.
    assert_eq!(share(199, CONNECTIONS), 1);
}

#[test]
fn the_median_of_the_runs_counts_and_the_worst_neighbour() {
    let run = |seconds, others| Limit::from_measured(Duration::from_secs(seconds), 10, others);
    assert!(Limit::median(Vec::new()).is_none());
    let limit = Limit::median(vec![run(3, Some(0.5)), run(1, None), run(2, Some(0.1))]).expect("of three");
    let seconds = Duration::from_secs;
    assert_eq!((limit.wall, limit.between, limit.others), (seconds(2), (seconds(1), seconds(3)), Some(0.5)));
}
