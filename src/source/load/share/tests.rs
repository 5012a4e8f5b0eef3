use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

#[test]
fn a_source_with_more_than_its_share_waits_if_the_sum_is_reached_and_one_with_less_does_not() {
    use Purpose::{Follow, Recall};
    for (purpose, own, active, others, expected) in [
        // A source that is alone may use everything, but for what is kept for new sources.
        (Follow, 88, None, &[][..], true),
        (Follow, 89, None, &[], false),
        (Follow, 97, Some(97), &[], true),
        // Of two sources, each is sure of 24 MiB.
        (Follow, 64, Some(1), &[1], true),
        (Follow, 65, Some(1), &[1], false),
        (Follow, 48, Some(1), &[40], true),
        (Follow, 49, Some(1), &[40], false),
        (Follow, 24, Some(1), &[64], true),
        (Follow, 25, Some(1), &[64], false),
        // Of four, 12 MiB: two large ones leave it to the small ones.
        (Follow, 48, Some(1), &[40, 2, 1], false),
        (Follow, 24, Some(1), &[40, 2, 1], true),
        (Follow, 25, Some(1), &[40, 2, 1], false),
        (Follow, 12, Some(1), &[40, 24, 1], true),
        (Follow, 12, Some(1), &[40, 24, 12], true),
        (Follow, 13, Some(1), &[40, 24, 1], false),
        // Without an active revision a source takes nothing that others are sure of.
        (Follow, 12, None, &[40, 24, 1], true),
        (Follow, 12, None, &[48, 40], false),
        // What is no larger than before always fits.
        (Follow, 39, Some(40), &[40, 16, 16], true),
        (Follow, 40, Some(40), &[40, 16, 16], true),
        (Follow, 41, Some(40), &[40, 16, 16], false),
        // What an earlier process had is active again while there is memory.
        (Recall, 48, None, &[40, 2, 1], true),
        (Recall, 54, None, &[40, 2, 1], false),
        // Where larger ones leave less than a share, the others divide what they leave.
        (Follow, 8, Some(1), &[40, 32, 1], true),
        (Follow, 9, Some(1), &[40, 32, 1], false),
        (Follow, 12, Some(1), &[40, 48, 1], false),
    ] {
        let others: BTreeMap<Key, u64> =
            others.iter().enumerate().map(|(number, size)| (key(number), size * MIB)).collect();
        let found = fits(purpose, own * MIB, active.map(|active| active * MIB), &others);
        assert_eq!(found.is_ok(), expected, "{purpose:?} {own} {active:?} {others:?}");
    }
}

#[test]
fn a_small_new_source_finds_room_whatever_large_ones_hold() {
    const KIB: u64 = 1 << 10;
    for (large, small, fits_until) in [
        // One source with as much as sources may take, two, and ten.
        (&[88 * MIB][..], &[][..], 1024 * KIB),
        (&[44 * MIB, 44 * MIB], &[], 1024 * KIB),
        (&[8 * MIB + 819 * KIB; 10], &[], 1024 * KIB),
        // Sources that came before take an eighth of what is left, and leave the rest.
        (&[88 * MIB], &[1024 * KIB], 896 * KIB),
        (&[88 * MIB], &[1024 * KIB; 4], 512 * KIB),
        (&[88 * MIB], &[100 * KIB; 40], 524 * KIB),
    ] {
        let others: BTreeMap<Key, u64> =
            large.iter().chain(small).enumerate().map(|(number, size)| (key(number), *size)).collect();
        for active in [None, Some(1)] {
            let found = [fits_until, fits_until + 4 * KIB].map(|own| fits(Purpose::Follow, own, active, &others));
            let [small, larger] = found.map(|result| result.map_err(|problem| problem.to_string()));
            assert_eq!(small, Ok(()), "{others:?}");
            let message = larger.unwrap_err();
            assert!(message.contains("the largest are kcp-system/source-0 with"), "{message}");
        }
    }
}

#[test]
fn the_message_names_the_largest_sources_and_what_to_do() {
    let sizes = [1, 40 * MIB + 1, 20 * MIB, 3 * MIB, 31 * MIB];
    let others = sizes.into_iter().enumerate().map(|(number, size)| (key(number), size)).collect();
    let message = fits(Purpose::Follow, 9 * MIB, Some(1), &others).unwrap_err().to_string();
    assert_eq!(
        message,
        "the files of this revision have 9.0 MiB, and those of all GitSources together may have 96.0 MiB: the others \
         have 94.1 MiB, the largest are kcp-system/source-1 with 40.1 MiB, kcp-system/source-4 with 31.0 MiB, \
         kcp-system/source-2 with 20.0 MiB; this source is sure of its share of 0.3 MiB: name folders without \
         definitions in spec.ignore, or make the largest sources smaller"
    );
    let message = fits(Purpose::Follow, 97 * MIB, None, &BTreeMap::new()).unwrap_err().to_string();
    assert!(message.contains("may have 96.0 MiB; this source is sure of its share of 48.0 MiB: name"), "{message}");
}

#[test]
fn short_values_count_more_than_their_text() {
    for (bytes, values, expected) in [
        (0, 0, 0),
        (20 * MIB, 1_000, 20 * MIB),
        // A list of 1 MiB, `[1, 1, 1]` without spaces.
        (MIB, 500_000, 64_000_000),
        // The definitions of ten thousand runtimes.
        (4 * MIB, 200_000, 25_600_000),
        (1, u64::MAX, u64::MAX),
    ] {
        assert_eq!(size(bytes, values), expected, "{bytes} {values}");
    }
    let own = size(MIB, 800_000);
    let problem = fits(Purpose::Follow, own, None, &BTreeMap::new()).unwrap_err();
    assert_eq!((problem.class(), problem.clone().of_values(800_000).class()), (Class::Waiting, Class::Transient));
    assert_eq!(
        problem.of_values(800_000).to_string(),
        "the definitions of this revision have 800,000 values or more, which count as 97.7 MiB, and those of all \
         GitSources together may have 96.0 MiB; this source is sure of its share of 48.0 MiB: name folders without \
         definitions in spec.ignore, or make the largest sources smaller"
    );
}

proptest! {
    /// Whatever sources ask for, in whatever order, and whichever of them are deleted.
    #[test]
    fn sources_have_what_they_are_sure_of_and_all_together_never_exceed_the_limit(
        steps in prop::collection::vec((0..12_usize, 0..65_u64, prop::bool::weighted(0.1)), 1..200),
    ) {
        let mut sizes = BTreeMap::<Key, u64>::new();
        for (number, mib, is_deleted) in steps {
            let source = key(number);
            let active = sizes.remove(&source);
            if is_deleted {
                continue;
            }
            let sure = sure(&sizes);
            prop_assert!(0 < sure, "{sizes:?}");
            prop_assert!(fits(Purpose::Follow, sure, active, &sizes).is_ok(), "{sizes:?}");
            match fits(Purpose::Follow, mib * MIB, active, &sizes) {
                Ok(()) => drop(sizes.insert(source, mib * MIB)),
                Err(problem) => {
                    prop_assert!(sure < mib * MIB, "{problem}");
                    active.map(|size| sizes.insert(source, size));
                }
            }
            prop_assert!(sizes.values().sum::<u64>() < SOURCES_BYTES_MAX);
        }
    }

    /// As long as no large source comes before them, sources have their share, however many of them come.
    #[test]
    fn sources_within_their_share_leave_each_other_theirs(
        steps in prop::collection::vec((0..40_usize, 0..1_001_u64), 1..200),
    ) {
        const SOURCES: usize = 40;
        const SHARE: u64 = SHARED_BYTES / SOURCES as u64;
        let mut sizes: BTreeMap<Key, u64> = (0..SOURCES).map(|number| (key(number), 0)).collect();
        for (number, permille) in steps {
            let source = key(number);
            let active = sizes.remove(&source);
            let own = SHARE * permille / 1000;
            prop_assert!(SHARE <= sure(&sizes));
            prop_assert!(fits(Purpose::Follow, own, active, &sizes).is_ok());
            sizes.insert(source, own);
        }
    }
}

fn key(number: usize) -> Key {
    Key::new("kcp-system", &format!("source-{number}"))
}
