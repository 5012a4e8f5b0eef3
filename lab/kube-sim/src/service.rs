// SPDX-License-Identifier: Apache-2.0

//! HTTP: from a request to an answer.

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};

use super::{
    Server, body,
    delete::{DeleteOptions, Deleted},
    discovery,
    identity::User,
    journal::Answered,
    metadata, read,
    refusal::{BODY_BYTES_MAX, Named, Refusal},
    request::{Accept, Form, Parameters, ResourcePath, Route, verb},
    resource::Resource,
    reviews,
    write::{Sent, Written},
};
use tidegate_core::yaml;

/// A server as a tower service, for one connection or one user. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    server: Server,
    /// The user, if the connection determines it.
    user: Option<User>,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The server's warning for requests of Endpoints.
const OLD_ENDPOINTS: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

// === impl Service ===

impl Service {
    pub(super) fn new(server: Server, user: Option<User>) -> Service {
        Service { server, user }
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Error>,
    {
        let (parts, body) = request.into_parts();
        let mut asked = self.server.asked(&parts, self.user.as_ref());
        let answer = match self.respond(&parts, body, asked.as_mut()).await {
            Ok(response) => response,
            Err(refusal) => refused(&refusal),
        };
        if let Some(asked) = asked {
            self.server.keep(asked, answer.status());
        }
        if parts.method == Method::HEAD { answer.map(|_| Body::empty()) } else { answer }
    }

    async fn respond<B>(&self, parts: &Parts, body: B, asked: Option<&mut Answered>) -> Result<Response<Body>, Refusal>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<Error>,
    {
        let user = self.server.user(&parts.headers, self.user.as_ref())?.acting(&parts.headers)?;
        let parameters = Parameters::parse(parts.uri.query().unwrap_or_default());
        let mut place = match Route::parse(parts.uri.path()).ok_or_else(Refusal::not_served)? {
            Route::Resource(place) => place,
            Route::Other => return discovery::answer(&self.server, parts, &user),
        };
        if !user.is_known() {
            return Err(forbidden(&user, &place, verb(&parts.method, &place, parameters.flag("watch"))));
        }
        let Some(resource) = self.server.resource(&place.group, &place.version, &place.plural) else {
            return self.server.nothing_at(&place.group);
        };
        if resource.custom.is_some() {
            // The server ignores what follows the subresource of a custom resource.
            place.subresource = place.subresource.and_then(|of| of.split('/').next().map(str::to_owned));
        }
        let place = &place;
        let verb = verb(&parts.method, place, parameters.flag("watch"));
        if resource.custom.is_some() && !is_of_scope(&resource, place, verb) {
            return Ok(discovery::no_page());
        }
        check_place(&resource, place)?;
        let body = read_body(body).await?;
        if let Some(asked) = asked {
            asked.sends(&parts.method, &body);
        }
        let call = Call { server: &self.server, resource: &resource, place, parameters: &parameters, user: &user };
        self.server.count(verb);
        let mut answer = call.respond(parts, &body).await;
        if resource.is("endpoints") {
            match &mut answer {
                Ok(response) => warn(response, &[OLD_ENDPOINTS.to_owned()]),
                Err(refusal) => refusal.warnings.push(OLD_ENDPOINTS.to_owned()),
            }
        }
        let code = answer.as_ref().map_or_else(|refusal| refusal.code, Response::status);
        self.server.note(&user.name, verb, place, parameters.get("dryRun").is_some(), code);
        answer
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<Error>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("user", &self.user).finish_non_exhaustive()
    }
}

async fn read_body<B>(body: B) -> Result<Bytes, Refusal>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Error>,
{
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large()),
        Err(error) => Err(Refusal::bad_request(error.to_string())),
    }
}

fn forbidden(user: &User, place: &ResourcePath, verb: &str) -> Refusal {
    let name = place.name.as_deref().unwrap_or_default();
    let plural = match &place.subresource {
        Some(subresource) => format!("{}/{subresource}", place.plural),
        None => place.plural.clone(),
    };
    let (user, plural, group) = (json!(user.name), json!(plural), json!(place.group));
    let scope = match &place.namespace {
        Some(namespace) => format!("in the namespace {}", json!(namespace)),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!("User {user} cannot {verb} resource {plural} in API group {group} {scope}");
    let named = Named { group: &place.group, kind: &place.plural, name };
    if name.is_empty() { Refusal::forbidden_all(&named, &why) } else { Refusal::forbidden(&named, &why) }
}

/// Whether the path matches the scope of a custom resource; otherwise it is not found.
fn is_of_scope(resource: &Resource, place: &ResourcePath, verb: &str) -> bool {
    place.namespace.is_some() == resource.namespaced || place.namespace.is_none() && matches!(verb, "list" | "watch")
}

/// The path must match the scope of its resource.
fn check_place(resource: &Resource, place: &ResourcePath) -> Result<(), Refusal> {
    if place.namespace.is_some() && !resource.namespaced {
        return Err(Refusal::not_served());
    }
    if resource.namespaced && place.namespace.is_none() && place.name.is_some() {
        return Err(Refusal::not_served());
    }
    match place.subresource.as_deref() {
        None => Ok(()),
        Some("status") if resource.habits.status => Ok(()),
        Some("scale") if has_scale(resource) => Err(Refusal::not_implemented("the subresource scale")),
        Some(other) => match (&resource.custom, &place.name) {
            (Some(_), Some(name)) => Err(Refusal::not_found(&Named::resource(resource, name))),
            _ if is_real(resource, other) => Err(Refusal::not_implemented(&format!("the subresource {other}"))),
            _ => Err(Refusal::not_served()),
        },
    }
}

fn has_scale(resource: &Resource) -> bool {
    matches!(
        &*resource.collection,
        "deployments.apps" | "statefulsets.apps" | "replicasets.apps" | "replicationcontrollers"
    )
}

/// Subresources that the real server has.
fn is_real(resource: &Resource, subresource: &str) -> bool {
    match &*resource.collection {
        "namespaces" => subresource == "finalize",
        "serviceaccounts" => subresource == "token",
        "pods" => matches!(
            subresource,
            "attach"
                | "binding"
                | "ephemeralcontainers"
                | "eviction"
                | "exec"
                | "log"
                | "portforward"
                | "proxy"
                | "resize"
        ),
        "services" | "nodes" => subresource == "proxy",
        _ => false,
    }
}

/// A request on a resource that is served.
struct Call<'a> {
    server: &'a Server,
    resource: &'a std::sync::Arc<Resource>,
    place: &'a ResourcePath,
    parameters: &'a Parameters,
    user: &'a User,
}

// === impl Call ===

impl Call<'_> {
    async fn respond(&self, parts: &Parts, body: &[u8]) -> Result<Response<Body>, Refusal> {
        let name = self.place.name.as_deref();
        if self.resource.custom.is_some() {
            match (parts.method.as_str(), name, &self.place.subresource) {
                ("PUT" | "PATCH", None, _) => return Err(Refusal::bad_request("name must be provided")),
                ("POST", _, Some(_)) => return Err(Refusal::unsupported(self.resource, "create")),
                ("DELETE", _, Some(_)) => return Err(Refusal::unsupported(self.resource, "delete")),
                _ => {}
            }
        }
        match (parts.method.as_str(), name) {
            ("POST", None) if reviews::is_review(self.resource) && self.is_in_scope() => {
                let accept = Accept::from_headers(&parts.headers, false)?;
                let written = self.server.review(&self.sent(parts, body))?;
                self.written(&written, accept)
            }
            _ if reviews::is_review(self.resource) => {
                Err(if name.is_some() { Refusal::not_served() } else { Refusal::method_not_allowed() })
            }
            ("GET", Some(name)) => self.get(parts, name),
            ("GET", None) => self.get_many(parts),
            // The path may contain the name of a new custom resource; it is ignored.
            ("POST", name) if self.is_in_scope() && (name.is_none() || self.resource.custom.is_some()) => {
                let accept = Accept::from_headers(&parts.headers, false)?;
                let written = self.server.create(&self.sent(parts, body)).await?;
                self.written(&written, accept)
            }
            ("PUT" | "PATCH", Some(name)) => self.change(parts, name, body).await,
            ("DELETE", Some(name)) if self.place.subresource.is_none() => self.delete(parts, name, body).await,
            ("DELETE", None) if self.is_in_scope() && self.resource.verbs().contains(&"deletecollection") => {
                self.delete_many(parts, body).await
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    /// Whether the path has a namespace exactly if the resource is namespaced.
    fn is_in_scope(&self) -> bool {
        self.place.namespace.is_some() == self.resource.namespaced
    }

    fn namespace(&self) -> &str {
        self.place.namespace.as_deref().unwrap_or_default()
    }

    fn sent<'s>(&'s self, parts: &'s Parts, body: &'s [u8]) -> Sent<'s> {
        Sent {
            resource: self.resource,
            namespace: self.namespace(),
            subresource: self.place.subresource.as_deref(),
            parameters: self.parameters,
            user: self.user,
            headers: &parts.headers,
            body,
        }
    }

    fn get(&self, parts: &Parts, name: &str) -> Result<Response<Body>, Refusal> {
        let accept = Accept::from_headers(&parts.headers, false)?;
        let body = self.server.get(self.resource, self.namespace(), name, self.parameters, accept)?;
        Ok(ok(StatusCode::OK, body, accept))
    }

    fn get_many(&self, parts: &Parts) -> Result<Response<Body>, Refusal> {
        let accept = Accept::from_headers(&parts.headers, true)?;
        let namespace = self.place.namespace.as_deref();
        if !self.parameters.flag("watch") {
            let body = self.server.list(self.resource, namespace, self.parameters, accept)?;
            return Ok(ok(StatusCode::OK, body, accept));
        }
        let lines = self.server.watch(self.resource, namespace, self.parameters, accept)?;
        let body = Body::from_stream(lines.map(Ok::<Bytes, Infallible>));
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    async fn change(&self, parts: &Parts, name: &str, body: &[u8]) -> Result<Response<Body>, Refusal> {
        let accept = Accept::from_headers(&parts.headers, false)?;
        let sent = self.sent(parts, body);
        let written = if parts.method == Method::PUT {
            self.server.replace(&sent, name).await?
        } else {
            self.server.patch(&sent, name).await?
        };
        self.written(&written, accept)
    }

    fn written(&self, written: &Written, accept: Accept) -> Result<Response<Body>, Refusal> {
        let body = written.body(self.resource, accept, self.server)?;
        let mut response = ok(written.status, body, accept);
        warn(&mut response, &written.warnings);
        Ok(response)
    }

    async fn delete(&self, parts: &Parts, name: &str, body: &[u8]) -> Result<Response<Body>, Refusal> {
        let accept = Accept::from_headers(&parts.headers, false)?;
        body::check_type(&parts.headers, body)?;
        let options = DeleteOptions::parse(self.parameters, body)?;
        metadata::check_key(name)?;
        let mut warnings = Vec::new();
        let deleted =
            self.server.delete(self.resource, self.namespace(), name, &options, self.user, &mut warnings).await?;
        let body = match deleted {
            Deleted::Gone(object) => Deleted::status(self.resource, name, &object).to_string().into(),
            Deleted::Marked(object) => read::one(self.resource, &object, accept, self.server)?,
        };
        let mut response = ok(StatusCode::OK, body, accept);
        warn(&mut response, &warnings);
        Ok(response)
    }

    async fn delete_many(&self, parts: &Parts, body: &[u8]) -> Result<Response<Body>, Refusal> {
        let accept = Accept::from_headers(&parts.headers, true)?;
        body::check_type(&parts.headers, body)?;
        let options = DeleteOptions::parse(self.parameters, body)?;
        let namespace = self.place.namespace.as_deref();
        let mut warnings = Vec::new();
        let items = self
            .server
            .delete_collection(self.resource, namespace, self.parameters, &options, self.user, &mut warnings)
            .await?;
        let mut metadata = json!({"resourceVersion": self.server.0.store.version().to_string()});
        if !self.resource.is_built_in() {
            metadata["continue"] = "".into();
        }
        // If metadata of one object is requested, the answer is a list of it.
        let form = if accept.form == Form::Metadata { Form::MetadataList } else { accept.form };
        let body = read::many(self.resource, &metadata, &items, Accept { form, ..accept }, self.server);
        let mut response = ok(StatusCode::OK, body, accept);
        warn(&mut response, &warnings);
        Ok(response)
    }
}

/// An answer with an object, as JSON or YAML.
fn ok(status: StatusCode, body: Bytes, accept: Accept) -> Response<Body> {
    let (body, content_type) = if accept.yaml {
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        (Bytes::from(yaml::to_string(&value)), "application/yaml")
    } else {
        (body, "application/json")
    };
    response(status, content_type, body)
}

pub(super) fn response(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn refused(refusal: &Refusal) -> Response<Body> {
    let mut response = response(refusal.code, "application/json", refusal.body());
    if let Some(seconds) = refusal.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    warn(&mut response, &refusal.warnings);
    response
}

/// Adds warnings, each text once.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for (index, warning) in warnings.iter().enumerate() {
        let text = warning.replace('\\', "\\\\").replace('"', "\\\"");
        let value = HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes());
        if let Ok(value) = value
            && !warnings[..index].contains(warning)
        {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
