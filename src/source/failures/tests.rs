use std::time::Duration;

use tidegate_core::diagnostic::Diagnostic;

use super::*;
use crate::queue::{Finish, Limits};

fn failures() -> (RenderFailures, Queue) {
    let limits = Limits { running_max: 1, subjects_max: 10, interval: Duration::from_secs(60) };
    let queue = Queue::new(|_| None, limits);
    (RenderFailures::new(Key::new("kcp-system", "landscape"), queue.clone()), queue)
}

fn error(template: Template, subject: &str, message: &str) -> Error {
    Error {
        template: template.name().to_owned(),
        line: Some(4),
        message: message.to_owned(),
        subject: subject.to_owned(),
        path: Some(format!("templates/{}", template.name()).into()),
    }
}

#[tokio::test]
async fn a_source_is_woken_when_its_failures_change_and_reports_each_template_once() {
    let (failures, queue) = failures();
    let is_woken = async || {
        let is_ready = queue.depths().ready != 0;
        if is_ready {
            let work = queue.next().await.unwrap();
            queue.finish(work, Finish::Gone);
        }
        is_ready
    };
    let fail = |template: Template, subject: &str, message: &str| {
        failures.record(template, subject, Some(&error(template, subject, message)));
    };
    failures.record(Template::Kyma, "Kyma kcp-system/a", None);
    assert!(failures.is_empty() && !is_woken().await, "nothing has failed");
    fail(Template::Kyma, "Kyma kcp-system/a", "wrong");
    assert!(is_woken().await);
    fail(Template::Kyma, "Kyma kcp-system/a", "wrong");
    assert!(!is_woken().await, "nothing has changed");
    fail(Template::Kyma, "Kyma kcp-system/b", "wrong as well");
    fail(Template::Manifest, "module cache of Kyma kcp-system/a", "wrong");
    assert!(is_woken().await);

    let told = |known: &Diagnostics, gone: &str| -> Vec<String> {
        let found = failures.diagnostics(|key| key.name() != gone, known);
        found.iter().map(|one| format!("{one}; {}", one.hint.as_deref().unwrap_or_default())).collect()
    };
    let all = told(&Diagnostics::default(), "");
    let [manifest, kyma] = &all[..] else { panic!("{all:?}") };
    assert!(manifest.contains("the template fails for 1 object;"), "{manifest}");
    assert!(kyma.contains("templates/skr/kyma.yaml:4"), "{kyma}");
    assert!(kyma.contains("wrong") && kyma.contains("the template fails for 2 objects;"), "{kyma}");
    // The samples have shown it since.
    let mut known = Diagnostics::default();
    known.push(error(Template::Kyma, "a sample", "wrong").diagnostic());
    assert_eq!(told(&known, "").len(), 1);
    let mut known = Diagnostics::default();
    known.push(Diagnostic::error("other", "elsewhere"));
    assert_eq!(told(&known, "").len(), 2);
    assert_eq!(told(&Diagnostics::default(), "a").len(), 1, "Kyma a is gone");

    failures.record(Template::Kyma, "Kyma kcp-system/b", None);
    assert!(failures.is_empty() && is_woken().await);
}

#[tokio::test]
async fn what_a_kyma_no_longer_needs_is_forgotten_after_its_next_pass() {
    let (failures, _queue) = failures();
    let fail = |subject: &str| {
        failures.record(Template::Manifest, subject, Some(&error(Template::Manifest, subject, "wrong")));
    };
    let kyma = Key::new("kcp-system", "a");
    fail("module cache of Kyma kcp-system/a");
    fail("module mail of Kyma kcp-system/a");
    fail("module mail of Kyma kcp-system/b");
    let before = failures.count();
    fail("module mail of Kyma kcp-system/a");
    failures.passed(&kyma, before);
    let subjects: Vec<String> = failures.objects.lock().keys().map(|(_, subject)| subject.clone()).collect();
    assert_eq!(subjects, ["module mail of Kyma kcp-system/a", "module mail of Kyma kcp-system/b"]);
}

#[tokio::test]
async fn the_number_of_objects_is_limited() {
    let (failures, _queue) = failures();
    for number in 0..FAILED_OBJECTS_MAX + 10 {
        let subject = format!("Kyma kcp-system/k{number}");
        failures.record(Template::Kyma, &subject, Some(&error(Template::Kyma, &subject, "wrong")));
    }
    assert_eq!(failures.objects.lock().len(), FAILED_OBJECTS_MAX);
}
