use super::*;

#[test]
fn link_local_and_metadata_addresses_are_forbidden_in_every_notation() {
    for address in [
        "169.254.169.254",
        "169.254.0.1",
        "100.100.100.200",
        "fe80::1",
        "febf::1",
        "fd00:ec2::254",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "2002:a9fe:a9fe::1",
    ] {
        assert!(is_forbidden(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn private_and_loopback_addresses_are_where_git_servers_live() {
    for address in ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.253.0.1", "::1", "fd00::1", "2001:db8::1"] {
        assert!(!is_forbidden(address.parse().unwrap()), "{address}");
    }
}
