use super::*;

#[test]
fn words_and_options_may_be_quoted() {
    assert_eq!(word("a,b c"), ("a,b".to_owned(), " c"));
    assert_eq!(word("  \"a b\" c"), ("a b".to_owned(), " c"));
    assert_eq!(word("namespaces=\"git, file\" c"), ("namespaces=\"git, file\"".to_owned(), " c"));
    assert_eq!(options("cert-authority,namespaces=\"git,file\""), ["cert-authority", "namespaces=\"git,file\""]);
}

#[test]
fn times_are_in_utc() {
    assert_eq!(time("20261101"), Ok(1_793_491_200));
    assert_eq!(time("20261101Z"), Ok(1_793_491_200));
    assert_eq!(time("202611011230"), Ok(1_793_491_200 + 45_000));
    assert_eq!(time("20261101123001Z"), Ok(1_793_491_200 + 45_001));
    for bad in ["", "2026", "20261301", "2026110", "20261101T12", "Z", "2026110112300"] {
        assert!(time(bad).is_err(), "{bad}");
    }
}

#[test]
fn principals_match_as_in_ssh_keygen() {
    let all = |patterns: &str| patterns.split(',').map(str::to_owned).collect::<Vec<_>>();
    for (patterns, name, expected) in [
        ("anna", "anna", true),
        ("anna", "Anna", false),
        ("*@example.com", "anna@example.com", true),
        ("*@example.com", "anna@example.org", false),
        ("ann?", "anna", true),
        ("*,!eve@*", "eve@example.com", false),
        ("!eve", "anna", false),
        ("a*b*c", "aXbXbc", true),
        ("", "", true),
        ("***", "", true),
    ] {
        assert_eq!(matches(&all(patterns), name), expected, "{patterns} {name}");
    }
}

#[test]
fn a_line_holds_only_in_its_namespaces_and_times() {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILOQodLUq71gGRBQB2KhhNufJ0x9PmKj1VRSWtrDuQQC";
    let check = |options: &str, signed_at, now| {
        let line = AllowedSigner::parse(&format!("anna {options} {key} comment")).unwrap();
        line.check("k", signed_at, now).map_err(|refusal| refusal.reason())
    };
    let (november, december) = (1_793_491_200, 1_796_083_200);
    for (options, signed_at, now, expected) in [
        ("", november, december, Ok(())),
        ("namespaces=\"git\"", november, december, Ok(())),
        ("namespaces=\"*\"", november, december, Ok(())),
        ("namespaces=\"file\"", november, december, Err("KeyNotForSigning")),
        ("valid-after=\"20261102\"", november, december, Err("KeyNotYetValid")),
        ("valid-before=\"20261115\"", november, december, Err("KeyExpired")),
        // What a commit says of its time does not help an expired key.
        ("valid-before=\"20261115\"", november, november, Ok(())),
        ("VALID-BEFORE=\"20270101\",valid-after=\"20261101\"", november, december, Ok(())),
    ] {
        assert_eq!(check(options, signed_at, now), expected, "{options}");
    }
}
