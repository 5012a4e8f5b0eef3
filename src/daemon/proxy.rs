//! The proxy before git servers that the environment names, as for curl and git: `HTTPS_PROXY` and `NO_PROXY`, in
//! capitals or not. Only https URLs of sources use it. `spec.proxySecretRef` of a GitSource replaces it.

use anyhow::Context as _;
use tidegate_git::Proxy;

/// The proxy; `None` if the environment names none. Fails if its address is invalid.
pub(super) fn of_environment(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Option<Proxy>> {
    let first = |names: [&'static str; 2]| {
        names.into_iter().find_map(|name| Some((name, variable(name).filter(|value| !value.trim().is_empty())?)))
    };
    let Some((name, address)) = first(["HTTPS_PROXY", "https_proxy"]) else { return Ok(None) };
    // The error does not repeat the address, which may contain a password.
    let proxy = Proxy::new(&address, None).with_context(|| format!("environment variable {name}"))?;
    let except = first(["NO_PROXY", "no_proxy"]).map(|(_, hosts)| hosts).unwrap_or_default();
    Ok(Some(proxy.except(&except)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_proxy_and_its_exceptions_in_capitals_or_not() {
        let found = |variables: &[(&str, &str)]| {
            let value =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            of_environment(value).map_err(|error| format!("{error:#}"))
        };
        let proxy = |address: &str| Proxy::new(address, None).unwrap();
        assert_eq!(found(&[]), Ok(None));
        assert_eq!(found(&[("HTTPS_PROXY", " "), ("NO_PROXY", "*"), ("HTTP_PROXY", "http://other:80")]), Ok(None));
        assert_eq!(found(&[("https_proxy", "proxy:3128")]), Ok(Some(proxy("http://proxy:3128"))));
        assert_eq!(
            found(&[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:1"), ("no_proxy", "localhost,.svc")]),
            Ok(Some(proxy("http://a:1").except("localhost,.svc")))
        );
        assert_eq!(
            found(&[("HTTPS_PROXY", "socks5://anna:s3cret@proxy:1080")]),
            Err("environment variable HTTPS_PROXY: is not the address of a proxy: use http://host:port or \
                 https://host:port"
                .to_owned())
        );
    }
}
