//! Description of one route, in addition to its row of the table, and the conversion of both to an operation of the
//! document. Facts of the row (method, path, scope, body types) are not repeated.

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::errors;
use super::headers::{EVERY_ANSWER, Header, KNOWN_KEY, sent};
use super::schema::Schema;
use super::words::page;
use crate::domain::api_key::Scopes;
use crate::http::error::ApiError;
use crate::http::route::{Access, BodyRule, Route};
use crate::http::state::Api;

/// The description of a route.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    tag: &'static str,
    summary: &'static str,
    says: &'static str,
    parameters: Vec<Value>,
    takes: Vec<(Schema, Vec<(&'static str, Value)>)>,
    gives: Vec<SuccessResponse>,
    fails: Vec<ApiError>,
    refusal: Option<Schema>,
}

/// One successful answer.
#[derive(Debug, Clone)]
struct SuccessResponse {
    status: StatusCode,
    says: &'static str,
    bodies: Vec<(&'static str, Schema)>,
    always: Vec<Header>,
    sometimes: Vec<Header>,
}

const JSON: &str = "application/json";

impl Operation {
    /// Creates the description of a route under `tag` with this summary.
    pub(super) const fn new(tag: &'static str, summary: &'static str) -> Self {
        Self {
            tag,
            summary,
            says: "",
            parameters: Vec::new(),
            takes: Vec::new(),
            gives: Vec::new(),
            fails: Vec::new(),
            refusal: None,
        }
    }

    /// Adds details to the summary.
    pub(super) const fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }

    fn parameter(mut self, place: &str, name: &str, schema: Schema, says: &str) -> Self {
        let parameter = json!({
            "in": place,
            "name": name,
            "required": place == "path",
            "description": says,
            "schema": schema.into_value(),
        });
        self.parameters.push(parameter);
        self
    }

    /// Adds the parameter of the path.
    pub(super) fn at(self, name: &str, schema: Schema, says: &str) -> Self {
        self.parameter("path", name, schema, says)
    }

    /// Adds a query parameter.
    pub(super) fn query(self, name: &str, schema: Schema, says: &str) -> Self {
        self.parameter("query", name, schema, says)
    }

    /// Adds query parameters for the members of `object`, each in brackets after `name`.
    pub(super) fn query_members(mut self, name: &str, object: Schema, says: &str) -> Self {
        self = self.query(name, object, says);
        if let Some(parameter) = self.parameters.last_mut() {
            parameter["style"] = json!("deepObject");
            parameter["explode"] = json!(true);
        }
        self
    }

    /// Adds a request header.
    pub(super) fn header(self, name: &str, schema: Schema, says: &str) -> Self {
        self.parameter("header", name, schema, says)
    }

    /// Adds a body, with examples of successful requests. Several bodies are in the order of the row's types.
    pub(super) fn takes(mut self, schema: Schema, examples: &[(&'static str, Value)]) -> Self {
        self.takes.push((schema, examples.to_vec()));
        self
    }

    fn given(mut self, status: StatusCode, says: &'static str, bodies: Vec<(&'static str, Schema)>) -> Self {
        let always = if matches!(status, StatusCode::CREATED | StatusCode::ACCEPTED) {
            vec![Header::Location]
        } else {
            Vec::new()
        };
        self.gives.push(SuccessResponse { status, says, bodies, always, sometimes: Vec::new() });
        self
    }

    /// Adds a success with JSON; 201 and 202 have `Location`.
    pub(super) fn gives(self, status: StatusCode, says: &'static str, schema: Schema) -> Self {
        self.given(status, says, vec![(JSON, schema)])
    }

    /// Adds a success with a body of another type.
    pub(super) fn gives_as(self, media: &'static str, says: &'static str, schema: Schema) -> Self {
        self.given(StatusCode::OK, says, vec![(media, schema)])
    }

    /// Adds another type for the body of the last success.
    pub(super) fn or_as(mut self, media: &'static str, schema: Schema) -> Self {
        self.gives.last_mut().into_iter().for_each(|given| given.bodies.push((media, schema.clone())));
        self
    }

    /// Adds a 204.
    pub(super) fn gives_nothing(self, says: &'static str) -> Self {
        self.given(StatusCode::NO_CONTENT, says, Vec::new())
    }

    /// Adds a page of a list, and its parameters.
    pub(super) fn gives_page(self, name: &str, row: Schema) -> Self {
        self.gives_page_of(page(name, row))
    }

    /// Adds a page of a list with this schema, and its parameters.
    pub(super) fn gives_page_of(self, page: Schema) -> Self {
        let limit = Schema::count().within(1, 100).with("default", 50);
        let cursor = "The `next_cursor` of the previous page. It contains the filters, so it can be sent alone.";
        self.query("limit", limit, "Maximum number of rows.")
            .query("cursor", Schema::string(), cursor)
            .gives(StatusCode::OK, "One page, newest first.", page)
            .sometimes(&[Header::Link])
    }

    /// Adds headers that the last success always has.
    pub(super) fn always(mut self, headers: &[Header]) -> Self {
        self.gives.last_mut().into_iter().for_each(|given| given.always.extend(headers));
        self
    }

    /// Adds headers that the last success may have.
    pub(super) fn sometimes(mut self, headers: &[Header]) -> Self {
        self.gives.last_mut().into_iter().for_each(|given| given.sometimes.extend(headers));
        self
    }

    /// Adds errors besides those that the row implies.
    pub(super) fn fails(mut self, errors: impl IntoIterator<Item = ApiError>) -> Self {
        self.fails.extend(errors);
        self
    }

    /// Adds another form of the 422.
    pub(super) fn refuses_with(mut self, schema: Schema) -> Self {
        self.refusal = Some(schema);
        self
    }

    /// Returns the operation of `route`. Responses that many routes share go to `shared`.
    pub(super) fn render(self, route: &Route<Api>, shared: &mut Map<String, Value>) -> Value {
        let keyed = is_keyed(route);
        let scope = match route.access {
            Access::Scoped(scopes, _) => needed(scopes),
            Access::Key(_) => "Needs a key with any scope.".to_owned(),
            Access::Open(_) => "Needs no key.".to_owned(),
            Access::Page(..) | Access::Loopback(_) | Access::Operator(_) => String::new(),
        };
        let mut responses = Map::new();
        for given in &self.gives {
            responses.insert(given.status.as_str().to_owned(), given.render(keyed));
        }
        responses.extend(errors::responses(route, &self.fails, self.refusal, shared));
        let says = format!("{} {scope}", self.says);
        let mut operation = json!({
            "operationId": route.name.replace(['.', '-'], "_"),
            "tags": [self.tag],
            "summary": self.summary,
            "description": says.trim(),
            "responses": responses,
            "security": if keyed { json!([{ "key": [] }]) } else { json!([]) },
        });
        if !self.parameters.is_empty() {
            operation["parameters"] = self.parameters.into();
        }
        if let BodyRule::Of(types) = route.body {
            let content: Map<_, _> = types.iter().zip(self.takes).map(|(media, takes)| content(media, takes)).collect();
            operation["requestBody"] = json!({ "required": true, "content": content });
        }
        operation
    }
}

fn needed(scopes: Scopes) -> String {
    let names: Vec<_> = scopes.as_list().into_iter().map(|scope| format!("`{scope}`")).collect();
    let kind = if names.len() == 1 { "scope" } else { "scopes" };
    format!("Needs the {kind} {}.", names.join(" and "))
}

/// Returns whether the route requires a key.
pub(super) const fn is_keyed(route: &Route<Api>) -> bool {
    matches!(route.access, Access::Key(_) | Access::Scoped(..))
}

fn content(media: &str, (schema, examples): (Schema, Vec<(&'static str, Value)>)) -> (String, Value) {
    let mut content = json!({ "schema": schema.into_value() });
    for (name, value) in examples {
        content["examples"][name] = json!({ "value": value });
    }
    (media.to_owned(), content)
}

impl SuccessResponse {
    fn render(&self, keyed: bool) -> Value {
        let mut always = EVERY_ANSWER.to_vec();
        always.extend(if keyed { &KNOWN_KEY[..] } else { &[] });
        always.extend(&self.always);
        let mut response = json!({ "description": self.says, "headers": sent(&always, &self.sometimes) });
        for (media, schema) in &self.bodies {
            response["content"][*media] = json!({ "schema": schema.clone().into_value() });
        }
        response
    }
}
