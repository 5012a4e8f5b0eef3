use super::*;

const STAT: &str =
    "cpu  100 10 50 900 5 7 3 20 0 0\ncpu0 50 5 25 450 2 3 1 10 0 0\ncpu1 50 5 25 450 3 4 2 10 0 0\nintr 1\n";

fn used(pid: u32, parent: u32, ticks: u64) -> Used {
    let stat = format!("{pid} (a (b) c) S {parent} 0 0 0 -1 0 0 0 0 0 {ticks} 1 1 1 20 0 1 0 5 0 0");
    Used::parse(&stat).expect("a line as Linux writes it")
}

#[test]
fn a_busy_machine_is_one_that_works_for_any_process() {
    assert_eq!(busy(STAT), Some((ticks(180), 2)));
    assert_eq!(busy(""), None);
}

#[test]
fn what_comes_of_a_process_counts_as_its_own() {
    let processes = [used(1, 0, 1_000), used(10, 1, 7), used(11, 10, 17), used(12, 11, 27), used(20, 1, 500)];
    assert_eq!(used_by(10, processes.into_iter()), ticks(7 + 17 + 27 + 3 * 3));
}

#[test]
fn others_take_what_is_neither_ours_nor_idle() {
    let began = Machine { at: Instant::now(), processors: 2, busy: ticks(1_000), ours: ticks(300) };
    let ended = Machine { at: began.at + Duration::from_secs(10), busy: ticks(2_200), ours: ticks(1_000), ..began };
    // Twelve of twenty seconds were used, seven by us.
    assert!((ended.others_since(&began) - 0.25).abs() < 1e-9);
}

#[test]
fn this_machine_tells() {
    let machine = Machine::now().expect("Linux tells");
    assert!(machine.processors > 0 && machine.busy >= machine.ours, "{machine:?}");
}
