use k8s_openapi::jiff::ToSpan as _;

use super::*;

/// Milliseconds after the first pass, whether the pass wrote an object, and for how long its status waits.
type Row = (i64, bool, Option<u64>);

#[test]
fn a_status_that_only_says_that_the_work_goes_on_waits_until_nothing_was_written_for_a_second() {
    let began = Timestamp::from_second(1_800_000_000).expect("a time");
    let key = Key::new("kcp-system", "main");
    let rest: [Row; 3] = [(0, true, Some(1_000)), (300, false, Some(700)), (1_000, false, None)];
    let busy: [Row; 4] =
        [(0, true, Some(1_000)), (900, true, Some(1_000)), (4_200, true, Some(800)), (5_000, true, None)];
    for rows in [&rest[..], &busy[..]] {
        let memory = SetupMemory::default();
        for &(after, moved, expected) in rows {
            let waits = memory.postpone(Kind::Shard, &key, moved, began + after.milliseconds());
            assert_eq!(waits, expected.map(Duration::from_millis), "{after} ms");
        }
        // The next one waits again, and what was said begins anew.
        let later = began + 10.seconds();
        let full = Some(Duration::from_secs(1));
        assert_eq!(memory.postpone(Kind::Shard, &key, false, later), full);
        memory.said(Kind::Shard, &key);
        assert_eq!(memory.postpone(Kind::Shard, &key, false, later + 900.milliseconds()), full);
    }
}
