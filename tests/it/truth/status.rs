//! What `tidegate status` says, and its exit code, beside what is so.

use std::process::Stdio;

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use crate::{
    harness::apply,
    stage::{self, Stage, access_secret, flow, read, scenarios},
};

scenarios! {
    the_exit_code_of_status_says_whether_something_is_wrong,
    status_that_watches_prints_again_when_something_changes,
    a_source_is_reconciled_with_success_only_if_its_runtimes_have_no_errors,
    a_source_is_reconciled_once_the_runtime_of_a_new_kyma_has_its_modules,
}

/// The output of `tidegate status`, its errors and its exit code.
async fn status(stage: &Stage, more: &[&str]) -> (String, String, i32) {
    let output = stage.command(&[&["status"], more].concat()).await;
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code().expect("an exit code"))
}

async fn the_exit_code_of_status_says_whether_something_is_wrong() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let (text, _, code) = status(&stage, &[]).await;
    assert!(code == 0 && text.contains("kcp-system/one  Ready  2/2    cache 1.0.0, mailer 2.0.0"), "{code} {text}");
    let (text, _, code) = status(&stage, &["module/cache"]).await;
    assert!(code == 0 && text.starts_with("module cache  healthy\n  in 1 runtime\n"), "{code} {text}");
    let (_, errors, code) = status(&stage, &["-n", "nowhere"]).await;
    assert!(code == 2 && errors.contains("has no namespace nowhere: select another with -n"), "{code} {errors}");
    let (_, errors, code) = status(&stage, &["kyma/none"]).await;
    assert!(code == 2 && errors.contains("there is no Kyma `none` in kcp-system"), "{code} {errors}");
    let (_, _, code) = status(&stage, &["none"]).await;
    assert_eq!(code, 2, "a name alone is a usage error");

    stage.commit(
        "modules/mailer/release.yaml",
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n",
    );
    stage
        .until("the definition is held back", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["counts"]["withheld"].as_u64() > Some(0)
        })
        .await;
    let (text, _, code) = status(&stage, &[]).await;
    assert!(code == 1 && text.starts_with("Problems (1)\n  source kcp-system/landscape  "), "{code} {text}");
    let (text, _, code) = status(&stage, &["gitsource/landscape"]).await;
    assert!(code == 1 && text.contains("modules/mailer/release.yaml:"), "{code} {text}");
    let (_, _, code) = status(&stage, &["kyma/one"]).await;
    assert_eq!(code, 0, "nothing is wrong with the runtime");
}

async fn status_that_watches_prints_again_when_something_changes() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let kubeconfig = stage.kubeconfig();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["status", "--watch", "--kubeconfig"]).arg(&kubeconfig);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut until = async |part: &str| {
        let _flow = flow();
        let mut before = Vec::new();
        while let Some(line) = lines.next_line().await.expect("a line") {
            if line.contains(part) {
                return;
            }
            before.push(line);
        }
        panic!("it ended without {part}: {before:#?}");
    };
    until("kcp-system/one  Ready").await;
    let broken = "apiVersion: operator.kyma-project.io/v1beta2\nkind: ModuleReleaseMeta\n";
    stage.commit("modules/mailer/release.yaml", broken);
    stage
        .until("the definition is held back", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["counts"]["withheld"].as_u64() > Some(0)
        })
        .await;
    until("Problems (1)").await;
    child.kill().await.expect("it runs until it is ended");
}

async fn a_source_is_reconciled_with_success_only_if_its_runtimes_have_no_errors() {
    let stage = stage::ready(2).await;
    let reconcile = async || {
        let output = stage.command(&["reconcile", "gitsource/landscape", "--wait", "--timeout=120s"]).await;
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("UTF-8"))
    };
    let (code, text) = reconcile().await;
    assert!(code == Some(0) && text.starts_with("GitSource kcp-system/landscape: reconciled: applied "), "{text}");
    // With a second access Secret, it is not known where the runtime is.
    let mut second = access_secret("two", &stage.landscape.skrs[1]);
    second["metadata"]["name"] = json!("another");
    apply(&stage.kcp, &second).await;
    stage.kyma_in("two", "Error").await;
    let (code, text) = reconcile().await;
    let expected = "GitSource kcp-system/landscape: not as desired: 1 of its 2 runtimes has an error: kcp-system/two; \
                    kcp-system/two: ";
    assert!(code == Some(5) && text.starts_with(expected) && text.contains("access-two"), "{code:?} {text}");
}

async fn a_source_is_reconciled_once_the_runtime_of_a_new_kyma_has_its_modules() {
    let stage = stage::ready_beside_another_runtime().await;
    stage.rests().await;
    stage.commit("kymas/two.yaml", &stage::kyma("two", &["cache", "mailer"]));
    let output = stage.command(&["reconcile", "gitsource/landscape", "--wait", "--timeout=120s"]).await;
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{text}");
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "two").await.expect("it is applied");
    assert_eq!(kyma["status"]["state"], "Ready", "{kyma:#}");
    for map in ["cache-a", "mailer-a"] {
        assert!(read(&stage.skrs[1], "ConfigMap", "kyma-system", map).await.is_some(), "{map} is installed");
    }
}
