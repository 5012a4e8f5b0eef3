use std::sync::Mutex;

use tidegate_core::{
    diagnostic::Diagnostics,
    template::{Template, TemplateFile},
};

use super::*;

/// An engine that reports when a rendering begins, and ends it when the test sends a message.
struct Slow {
    renderer: Renderer,
    templates: Templates,
    begun: UnboundedReceiver<()>,
    end: mpsc::Sender<()>,
}

fn slow() -> Slow {
    let (begins, begun) = unbounded_channel();
    let (end, ends) = mpsc::channel();
    let ends = Arc::new(Mutex::new(ends));
    let engine = Engine::Elsewhere(Arc::new(move |overrides, request| match request {
        Request::Read(_) => Ok(Answer::Read(overrides.iter().map(|_| Ok(Vec::new())).collect())),
        Request::Render { .. } => {
            begins.send(()).unwrap();
            ends.lock().unwrap().recv().unwrap();
            Ok(Answer::Rendered(Ok("apiVersion: v1\nkind: Namespace\n".to_owned())))
        }
    }));
    let name = Template::Namespace.name();
    let file = TemplateFile { name: name.to_owned(), path: name.into(), text: Some(String::new()) };
    let templates = Templates::embedded().with_overrides(&engine, &mut Diagnostics::default(), [file]);
    Slow { renderer: Renderer::new(engine), templates, begun, end }
}

fn namespace(templates: &Templates) -> bool {
    tidegate_core::render::runtime_namespace(templates).is_ok()
}

/// One thread runs all tasks: if the rendering blocked it, the test would never end.
#[tokio::test]
async fn a_slow_override_holds_up_no_other_task() {
    let Slow { renderer, templates, mut begun, end } = slow();
    let others = async {
        begun.recv().await.unwrap();
        assert!(renderer.with(&Templates::embedded(), namespace).await, "embedded templates wait for nothing");
        end.send(()).unwrap();
    };
    let (rendered, ()) = tokio::join!(renderer.with(&templates, namespace), others);
    assert!(rendered);
}

#[tokio::test]
async fn no_more_overrides_are_rendered_at_once_than_there_are_processes() {
    let Slow { renderer, templates, mut begun, end } = slow();
    let renderer = Arc::new(renderer);
    let mut renderings = JoinSet::new();
    for _ in 0..PROCESSES_MAX {
        let (renderer, templates) = (Arc::clone(&renderer), templates.clone());
        renderings.spawn(async move { renderer.with(&templates, namespace).await });
        begun.recv().await.unwrap();
    }
    let mut one_more = Box::pin(renderer.with(&templates, namespace));
    assert!(futures::poll!(&mut one_more).is_pending());
    assert!(begun.try_recv().is_err(), "it waits for its turn");
    end.send(()).unwrap();
    assert!(renderings.join_next().await.unwrap().unwrap());
    let ends = async {
        begun.recv().await.unwrap();
        (0..PROCESSES_MAX).for_each(|_| end.send(()).unwrap());
    };
    assert!(tokio::join!(one_more, ends).0);
}
