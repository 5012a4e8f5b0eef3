//! The name of a Manifest: the same function as upstream's. With another, a take-over would install
//! every module twice.

/// Names of 63 bytes or more are cut to this length.
const LEN_MAX: usize = 62;

/// `<kyma>-<last path segment of the component>-<hash>`, cut to 62 bytes, without a trailing `-`.
///
/// The hash is the 32-bit FNV-1 (not 1a) of the component's and the module's name, in decimal.
pub fn manifest_name(kyma: &str, component: &str, module: &str) -> String {
    let last = component.rsplit('/').next().unwrap_or(component);
    let hash = fnv1([component, module].iter().flat_map(|text| text.bytes()));
    let mut name = format!("{kyma}-{last}-{hash}");
    if LEN_MAX < name.len() {
        // Names are ASCII, but another character must not cause a panic, so the cut is at a character boundary.
        let mut end = LEN_MAX;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        name.truncate(name.trim_end_matches('-').len());
    }
    name
}

fn fnv1(bytes: impl Iterator<Item = u8>) -> u32 {
    const OFFSET: u32 = 2_166_136_261;
    const PRIME: u32 = 16_777_619;
    bytes.fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::manifest_name;

    #[test]
    fn names_equal_upstreams() {
        for (module, hash) in [
            ("keda", "1095022605"),
            ("telemetry", "812080235"),
            ("btp-operator", "732144065"),
            ("template-operator", "2235966007"),
            ("connectivity-proxy", "3817348617"),
        ] {
            let name = manifest_name("k", &format!("kyma-project.io/module/{module}"), module);
            assert_eq!(name, format!("k-{module}-{hash}"));
        }
    }

    #[test]
    fn a_long_name_is_cut_at_62_bytes() {
        let kyma = "24bd3cbf-454a-4075-baa6-113a23fdfcd0";
        let name = manifest_name(kyma, "kyma-project.io/module/connectivity-proxy", "connectivity-proxy");
        assert_eq!(name, "24bd3cbf-454a-4075-baa6-113a23fdfcd0-connectivity-proxy-381734");
    }

    #[test]
    fn a_cut_name_does_not_end_in_a_dash() {
        let name = manifest_name(&"k".repeat(61), "kyma-project.io/module/keda", "keda");
        assert_eq!(name, "k".repeat(61));
    }
}
