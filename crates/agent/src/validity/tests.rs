use super::*;

fn certificate(not_before: (i32, u8, u8), not_after: (i32, u8, u8)) -> Vec<u8> {
    let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(not_before.0, not_before.1, not_before.2);
    params.not_after = rcgen::date_time_ymd(not_after.0, not_after.1, not_after.2);
    params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
}

#[test]
fn both_spellings_of_time_are_read() {
    let expected = Validity { not_before: 1_767_225_600, not_after: 2_398_377_600 };
    assert_eq!(Validity::from_der(&certificate((2026, 1, 1), (2046, 1, 1))), Some(expected));
    // From 2050 on, certificates use four-digit years; times before 1970 count as 1970.
    let expected = Validity { not_before: 0, not_after: 4_102_444_800 };
    assert_eq!(Validity::from_der(&certificate((1960, 1, 1), (2100, 1, 1))), Some(expected));
}

#[test]
fn what_is_cut_off_has_no_validity() {
    let whole = certificate((2026, 1, 1), (2027, 1, 1));
    for end in 0..whole.len() {
        assert_eq!(Validity::from_der(&whole[..end]), None, "{end}");
    }
    for byte in 0..=u8::MAX {
        assert_eq!(Validity::from_der(&[0x30, byte, 0x30, byte]), None);
    }
}

#[test]
fn the_two_moments_are_within() {
    let validity = Validity { not_before: 10, not_after: 20 };
    let check = |second| validity.check(UnixTime::since_unix_epoch(Duration::from_secs(second))).is_ok();
    assert_eq!([9, 10, 20, 21].map(check), [false, true, true, false]);
}
