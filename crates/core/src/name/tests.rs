use super::*;

#[test]
fn names_are_subdomains() {
    for good in ["a", "keda-1.2.0", "0a", "24bd3cbf-454a-4075-baa6-113a23fdfcd0"] {
        assert_eq!(check_subdomain(good), Ok(()), "{good}");
    }
    for (bad, error) in [
        ("", ParseNameError::Empty),
        ("A", ParseNameError::Forbidden { found: 'A' }),
        ("a_b", ParseNameError::Forbidden { found: '_' }),
        ("-a", ParseNameError::Forbidden { found: '-' }),
        ("a-", ParseNameError::Forbidden { found: '-' }),
        ("a..b", ParseNameError::Forbidden { found: '.' }),
        ("a/b", ParseNameError::Forbidden { found: '/' }),
    ] {
        assert_eq!(check_subdomain(bad), Err(error), "{bad}");
    }
    assert_eq!(check_subdomain(&"a".repeat(254)), Err(ParseNameError::TooLong { found: 254, limit: 253 }));
}

#[test]
fn a_key_reads_what_it_prints() {
    let key: Key = "kcp-system/prod-eu".parse().unwrap();
    assert_eq!(key, Key::new("kcp-system", "prod-eu"));
    assert_eq!(key.to_string(), "kcp-system/prod-eu");
    assert!("prod-eu".parse::<Key>().is_err());
}
