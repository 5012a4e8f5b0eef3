//! How a scenario's time passes: paused, where the servers are simulated, so that waiting costs nothing; else as
//! everybody's.

use std::future::Future;

use tidegate_process::{ambient, tls};
use tokio::runtime::Builder;

/// What scenarios run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    /// In this process.
    Simulated,
    /// kube-apiserver and etcd.
    Real,
}

/// Time passes as everybody's while this lives.
pub(super) struct Flow(());

/// What `TIDEGATE_TEST_SERVERS` asks for.
pub(crate) fn servers() -> Servers {
    match std::env::var("TIDEGATE_TEST_SERVERS").as_deref() {
        Ok("real") => Servers::Real,
        Ok("simulated") | Err(_) => Servers::Simulated,
        Ok(other) => panic!("TIDEGATE_TEST_SERVERS is {other}, which is neither `simulated` nor `real`"),
    }
}

/// Runs a test from its first line to its last.
///
/// On simulated servers the clock is paused, and everything happens in this thread: the daemon, too. Whatever waits for
/// another process says so by [`flow`]. On real servers the daemon is a process and time is everybody's.
pub(crate) fn scenario(body: impl Future<Output = ()>) {
    tls::install();
    match servers() {
        Servers::Simulated => {
            let mut builder = Builder::new_current_thread();
            // Whoever waits for other tasks gets a turn after every poll of one.
            let runtime = builder.enable_all().start_paused(true).event_interval(1).build().expect("a runtime");
            runtime.block_on(async {
                let _simulated = ambient::simulate(jiff::Timestamp::now(), 1);
                body.await;
            });
        }
        Servers::Real => {
            Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(body);
        }
    }
}

/// From now on time passes, until the value is dropped: for what happens in other processes.
pub(super) fn flow() -> Option<Flow> {
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

/// Tests out of functions: each is a scenario.
macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        mod scenarios {
            $(
                #[test]
                fn $name() {
                    $crate::stage::scenario(super::$name());
                }
            )+
        }
    };
}

pub(crate) use scenarios;
