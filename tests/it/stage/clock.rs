//! The time of a scenario. With simulated servers the clock is paused, so waiting costs nothing. Otherwise it is real
//! time.

use std::future::Future;

use tidegate_process::{ambient, tls};
use tokio::runtime::Builder;

/// The API servers of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    /// In this process.
    Simulated,
    /// kube-apiserver and etcd.
    Real,
}

/// Real time passes while this value exists.
pub(crate) struct Flow(());

tokio::task_local! {
    /// The servers that the running test requires, regardless of the environment.
    static REQUIRED: Servers;
}

/// The servers that the running test requires, or else those that `TIDEGATE_TEST_SERVERS` names.
pub(crate) fn servers() -> Servers {
    if let Ok(required) = REQUIRED.try_with(|servers| *servers) {
        return required;
    }
    match std::env::var("TIDEGATE_TEST_SERVERS").as_deref() {
        Ok("real") => Servers::Real,
        Ok("simulated") | Err(_) => Servers::Simulated,
        Ok(other) => panic!("TIDEGATE_TEST_SERVERS is {other}, which is neither `simulated` nor `real`"),
    }
}

/// Runs a test from its first line to its last.
///
/// With simulated servers the clock is paused, and everything, including the daemon, runs in this thread. Code that
/// waits for another process calls [`flow`]. With real servers the daemon is a process and time is real.
pub(crate) fn scenario(body: impl Future<Output = ()>) {
    tls::install();
    match servers() {
        Servers::Simulated => {
            let mut builder = Builder::new_current_thread();
            // A task that waits for other tasks gets a turn after every poll of one.
            let runtime = builder.enable_all().start_paused(true).event_interval(1).build().expect("a runtime");
            runtime.block_on(async {
                let _simulated = ambient::simulate(jiff::Timestamp::now(), 1);
                body.await;
            });
        }
        Servers::Real => block_on_real(body),
    }
}

/// Runs a test on real servers, whatever the environment asks for: one test of each conformance row does.
pub(crate) fn scenario_on_real_servers(body: impl Future<Output = ()>) {
    tls::install();
    block_on_real(REQUIRED.scope(Servers::Real, body));
}

fn block_on_real(body: impl Future<Output = ()>) {
    Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(body);
}

/// From now on time passes, until the value is dropped: for what happens in other processes.
pub(crate) fn flow() -> Option<Flow> {
    ambient::is_simulated().then(|| {
        tokio::time::resume();
        Flow(())
    })
}

impl Drop for Flow {
    fn drop(&mut self) {
        tokio::time::pause();
    }
}

/// Tests out of functions: each is a scenario. Those after `on real servers:` never run on simulated ones.
macro_rules! scenarios {
    ($($name:ident),* $(,)? $(; on real servers: $($real:ident),+ $(,)?)?) => {
        mod scenarios {
            $(
                #[test]
                fn $name() {
                    $crate::stage::scenario(super::$name());
                }
            )*
            $($(
                #[test]
                fn $real() {
                    $crate::stage::scenario_on_real_servers(super::$real());
                }
            )+)?
        }
    };
}

pub(crate) use scenarios;
