//! The flags of Lifecycle Manager, so that the arguments of its Deployment can be given to `tidegate run` unchanged.
//!
//! A flag with the same meaning is an option or an alias of one. A flag that sets how Lifecycle Manager polls, retries
//! or limits itself is accepted and ignored, with one warning at start. A value that asks for something that Tidegate
//! does not do is refused. `docs/flags.md` lists all of them; a test compares it with this file.

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};

use tidegate_core::api::names::SKR_NAMESPACE;

/// A flag that is accepted and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The flag, without dashes.
    pub flag: &'static str,
    /// Why it has no effect, or what to use instead.
    pub why: &'static str,
    /// Whether the flag may stand without a value.
    is_switch: bool,
}

const fn value(flag: &'static str, why: &'static str) -> Ignored {
    Ignored { flag, why, is_switch: false }
}

const fn switch(flag: &'static str, why: &'static str) -> Ignored {
    Ignored { flag, why, is_switch: true }
}

const WORKERS: &str = "all kinds share `--workers`";
const BACKOFF: &str = "the back-off of each object doubles from 0.5 s to 2 min, with jitter";
const WATCHED: &str = "Tidegate watches instead of polling; `--resync` sets the interval of full comparisons";
const KCP_REQUESTS: &str = "`--control-plane-requests` limits concurrent requests instead";
const SKR_REQUESTS: &str = "`--runtime-requests` limits concurrent requests instead";
const SECRETS: &str = "Tidegate watches Secrets";
const MANDATORY: &str = "changes of mandatory modules take effect at once";
const PPROF: &str = "Tidegate has no pprof endpoint";

/// The flags that are accepted and ignored, sorted.
pub const IGNORED: [Ignored; 37] = [
    value("cache-sync-timeout", "`/readyz` reports what is missing"),
    value("drop-crd-stored-version-map", "Tidegate does not change stored versions"),
    switch("enable-webhooks", "Lifecycle Manager has no webhook either"),
    value("failure-base-delay", BACKOFF),
    value("failure-max-delay", BACKOFF),
    value("istio-gateway-cert-switch-before-expiration-time", "it has no effect in Lifecycle Manager either"),
    value("istio-gateway-secret-requeue-error-interval", SECRETS),
    value("istio-gateway-secret-requeue-success-interval", SECRETS),
    value("k8s-client-burst", KCP_REQUESTS),
    value("k8s-client-qps", KCP_REQUESTS),
    value("k8s-skr-client-burst", SKR_REQUESTS),
    value("k8s-skr-client-qps", SKR_REQUESTS),
    value("kyma-requeue-busy-interval", BACKOFF),
    value("kyma-requeue-error-interval", BACKOFF),
    value("kyma-requeue-success-interval", WATCHED),
    value("kyma-requeue-warning-interval", BACKOFF),
    value("log-level", "use `--log`, for example `--log=warn,tidegate=debug`"),
    value("mandatory-module-deletion-requeue-success-interval", MANDATORY),
    value("mandatory-module-requeue-success-interval", MANDATORY),
    value("manifest-requeue-busy-interval", BACKOFF),
    value("manifest-requeue-error-interval", BACKOFF),
    value("manifest-requeue-jitter-percentage", BACKOFF),
    value("manifest-requeue-jitter-probability", BACKOFF),
    value("manifest-requeue-success-interval", WATCHED),
    value("manifest-requeue-warning-interval", BACKOFF),
    value("max-concurrent-kyma-reconciles", WORKERS),
    value("max-concurrent-mandatory-modules-deletion-reconciles", WORKERS),
    value("max-concurrent-mandatory-modules-reconciles", WORKERS),
    value("max-concurrent-manifest-reconciles", WORKERS),
    value("max-concurrent-watcher-reconciles", WORKERS),
    value("metrics-cleanup-interval", "Tidegate removes the series of a deleted Kyma at once"),
    switch("pprof", PPROF),
    value("pprof-bind-address", PPROF),
    value("pprof-server-timeout", PPROF),
    value("rate-limiter-burst", BACKOFF),
    value("rate-limiter-frequency", BACKOFF),
    value("watcher-requeue-success-interval", WATCHED),
];

/// The only namespace of a runtime that Tidegate installs into. Parts of Lifecycle Manager hard-code it, too.
const SYNC_NAMESPACE: &str = "sync-namespace";

/// Adds the flags that are no options. They are not in the help: they are for those who have them already.
pub(super) fn augment(command: Command) -> Command {
    let ignored = IGNORED.iter().map(|ignored| {
        let arg = Arg::new(ignored.flag).long(ignored.flag).hide(true).action(ArgAction::Set);
        if ignored.is_switch {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true")
        } else {
            arg.num_args(1).allow_hyphen_values(true)
        }
    });
    let namespace = Arg::new(SYNC_NAMESPACE).long(SYNC_NAMESPACE).hide(true).value_parser(sync_namespace);
    command.args(ignored).arg(namespace)
}

/// The flags of a command line that have no effect.
pub(super) fn ignored(matches: &ArgMatches) -> Vec<Ignored> {
    let is_given = |ignored: &&Ignored| matches.value_source(ignored.flag) == Some(ValueSource::CommandLine);
    IGNORED.iter().filter(is_given).copied().collect()
}

fn sync_namespace(text: &str) -> Result<String, String> {
    if text == SKR_NAMESPACE {
        return Ok(text.to_owned());
    }
    Err(format!("Tidegate installs modules in {SKR_NAMESPACE} only: remove the flag"))
}

/// A switch as Go reads it: `strconv.ParseBool`.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// A port; none if the text is empty, as in the arguments of Lifecycle Manager.
pub(super) fn parse_port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| "use a port from 1 to 65535".to_owned())
}

#[cfg(test)]
mod tests;
