//! What holds for any header of a gateway. The fuzz target runs it, and so does `cargo test` over the seeds.
//!
//! The first byte says whether the listener is behind a sidecar; the rest are the lines of the header.

use std::{net::IpAddr, sync::LazyLock, time::Duration};

use tidegate_events::identity::{Authorities, Error, Identity, Known, Peers, Xfcc, moment};

/// What a sidecar says of the gateway.
const GATEWAY: &str = "spiffe://cluster.local/ns/istio-system/sa/gateway";

/// Trusts one CA whose key does not exist, so no certificate can be valid.
static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let known = Known::default();
    let now = moment(Duration::from_secs(1_800_000_000));
    known.set_authorities(Some(Authorities::parse(include_bytes!("authority.pem"), now).unwrap()));
    known
});

/// Parsing any header ends. It selects at most one certificate, behind a sidecar only if the element names the gateway.
/// No certificate is accepted.
pub(crate) fn xfcc(bytes: &[u8]) {
    let Some((mode, header)) = bytes.split_first() else { return };
    let gateway = (mode % 2 == 1).then(|| GATEWAY.to_owned());
    let is_behind_sidecar = gateway.is_some();
    let xfcc = Xfcc { peers: Peers::loopback(), gateway };
    let lines = || header.split(|byte| *byte == b'\n');
    let element = xfcc.element(IpAddr::from([192, 0, 2, 1]), lines());
    assert_eq!(element.unwrap_err(), Error::PeerNotTrusted);
    let _ = Identity::parse(header);
    let Ok(element) = xfcc.element(IpAddr::from([127, 0, 0, 1]), lines()) else { return };
    assert!(count(&element, b"Cert=") <= 1);
    if is_behind_sidecar {
        assert!(count(header, GATEWAY.as_bytes()) > 0);
    } else {
        assert!(count(header, b"Cert=") <= 1);
    }
    assert!(KNOWN.by_element(&element, moment(Duration::from_secs(1_800_000_000))).is_err());
}

fn count(text: &[u8], part: &[u8]) -> usize {
    text.windows(part.len()).filter(|window| window.eq_ignore_ascii_case(part)).count()
}
