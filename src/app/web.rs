//! The HTTP side of the daemon: the route table of the API, the panel and the documentation, and the listeners.

use std::net::SocketAddr;
use std::path::Path;

use super::admin_client::SOCKET_NAME;
use super::config::Config;
use super::daemon::broken;
use super::exit::Exit;
use super::trouble::Trouble;
use crate::http::router::Router;
use crate::http::service::HttpService;
use crate::http::state::Api;
use crate::http::{api, compat, dev, pages};
use crate::net::handed_over::HandedOver;
use crate::net::http_listener::{HttpServer, TlsDoor};
use crate::panel;

/// The router of all pages and API routes; with the routes under `/dev` where `is_dev`.
pub(super) fn router(config: &Config, is_dev: bool) -> Result<Router<Api>, Trouble> {
    let mut table = api::routes();
    table.extend(panel::routes());
    table.extend(pages::routes());
    table.extend(compat::routes(config.compat.root));
    if is_dev {
        table.extend(dev::routes());
    }
    Router::new(table).map_err(|fault| broken("the route table", &fault))
}

/// Listens for HTTP where the configuration says, and on the operator's socket.
pub(super) async fn listen(
    http: &mut HttpServer<HttpService<Api>>,
    config: &Config,
    tls: Option<TlsDoor>,
    sockets: &HandedOver,
    directory: &Path,
) -> Result<Vec<SocketAddr>, Trouble> {
    let mut bound = Vec::new();
    for address in &config.http.listen {
        let socket = sockets.listen(*address).await;
        bound.push(socket.and_then(|socket| http.listen_on(socket, tls.clone())).map_err(|error| {
            let what = format!("cannot listen on {address}");
            Trouble::new(Exit::Failed, what, error.to_string(), "Free the port, or name another in http.listen.")
        })?);
    }
    let socket = directory.join(SOCKET_NAME);
    http.listen_unix(&socket).map_err(|error| broken(&socket.display().to_string(), &error))?;
    Ok(bound)
}
