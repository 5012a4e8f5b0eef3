//! What `tidegate status` says, and its exit code, beside what is so.

use crate::stage::{self, Stage, scenarios};

scenarios!(the_exit_code_of_status_says_whether_something_is_wrong);

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
