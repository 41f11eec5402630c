//! The HTTP side of the daemon: the route table of API, panel and documentation, and the listeners.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::admin_client::SOCKET_NAME;
use super::cli_error::CliError;
use super::config::Config;
use super::daemon::broken;
use super::exit::Exit;
use super::settings;
use crate::engine::Engine;
use crate::http::dev::{self, Dev};
use crate::http::router::Router;
use crate::http::service::HttpService;
use crate::http::state::Api;
use crate::http::{api, compat, pages};
use crate::net::http_listener::{HttpServer, HttpTls};
use crate::net::network_guard::Guard;
use crate::net::passed_sockets::PassedSockets;
use crate::panel;

/// Returns the router of all pages and API routes, including those under `/dev` if `is_dev`.
fn router(config: &Config, is_dev: bool) -> Result<Router<Api>, CliError> {
    let mut table = api::routes();
    table.extend(panel::routes());
    table.extend(pages::routes());
    table.extend(compat::routes(config.compat.root));
    if is_dev {
        table.extend(dev::routes());
    }
    Router::new(table).map_err(|fault| broken("the route table", &fault))
}

/// Returns the API's state and the service that answers requests, with the routes under `/dev` if `dev` is given.
pub(super) fn service(
    config: &Config,
    engine: &Arc<Engine>,
    hooks_guard: Arc<Guard>,
    dev: Option<Arc<Dev>>,
) -> Result<(Arc<Api>, HttpService<Api>), CliError> {
    let router = router(config, dev.is_some())?;
    let limits = settings::service_limits(config);
    let budgets = Arc::clone(&limits.budgets);
    let api = Arc::new(Api::new(Arc::clone(engine), hooks_guard, config.limits.body_bytes, budgets, dev));
    let (clock, entropy) = (Arc::clone(&engine.clock), Arc::clone(&engine.entropy));
    let service = HttpService::new(Arc::clone(&api), router, clock, entropy, limits);
    Ok((api, service.with_error_page(panel::error_page)))
}

/// Listens for HTTP as configured, and on the operator's socket.
pub(super) async fn listen(
    http: &mut HttpServer<HttpService<Api>>,
    config: &Config,
    tls: Option<HttpTls>,
    sockets: &PassedSockets,
    directory: &Path,
) -> Result<Vec<SocketAddr>, CliError> {
    let mut bound = Vec::new();
    for address in &config.http.listen {
        let socket = sockets.listen(*address).await;
        bound.push(socket.and_then(|socket| http.listen_on(socket, tls.clone())).map_err(|error| {
            let what = format!("cannot listen on {address}");
            let remedy = "Free the port, or name another: in http.listen, or for dev with --listen.";
            CliError::new(Exit::Failed, what, error.to_string(), remedy)
        })?);
    }
    let socket = directory.join(SOCKET_NAME);
    http.listen_unix(&socket).map_err(|error| broken(&socket.display().to_string(), &error))?;
    Ok(bound)
}
