//! The style, the script and the icon, inside the program. Their names carry a hash of their bytes, so that browsers
//! keep them for ever and still see a new version at once.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use sha2::{Digest as _, Sha256};

use super::fault::Fault;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// A file, and the path that it is served at.
#[derive(Debug)]
pub(super) struct Asset {
    /// The path, with the hash.
    pub(super) path: String,
    content_type: &'static str,
    bytes: &'static [u8],
}

/// Every file.
#[derive(Debug)]
pub(super) struct Assets {
    /// The style of every page.
    pub(super) style: Asset,
    /// What the documentation adds to it.
    pub(super) docs_style: Asset,
    /// The script, which only improves.
    pub(super) script: Asset,
    /// What the browser shows beside the title.
    pub(super) icon: Asset,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::new("panel", "css", "text/css; charset=utf-8", include_bytes!("../../data/assets/panel.css")),
    docs_style: Asset::new("docs", "css", "text/css; charset=utf-8", include_bytes!("../../data/assets/docs.css")),
    script: Asset::new("panel", "js", "text/javascript; charset=utf-8", include_bytes!("../../data/assets/panel.js")),
    icon: Asset::new("icon", "svg", "image/svg+xml", include_bytes!("../../data/assets/icon.svg")),
});

impl Asset {
    fn new(stem: &str, extension: &str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        let hash = hex::encode(&Sha256::digest(bytes)[..8]);
        Self { path: format!("/assets/{stem}-{hash}.{extension}"), content_type, bytes }
    }
}

/// The files.
pub(super) fn assets() -> &'static Assets {
    &ASSETS
}

/// `GET /assets/{name}`.
pub(super) async fn show(_: &Api, call: Call<()>) -> Result<Answer, Fault> {
    let all = assets();
    let asset =
        [&all.style, &all.docs_style, &all.script, &all.icon].into_iter().find(|asset| asset.path == call.path());
    let asset = asset.ok_or(ApiError::NotFound)?;
    let answer = Answer::bytes(StatusCode::OK, asset.content_type, asset.bytes);
    Ok(answer.with_header(CACHE_CONTROL, "public, max-age=31536000, immutable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_loads_is_small() {
        let all = assets();
        assert!(all.script.bytes.len() < 10_000 && all.style.bytes.len() < 30_000 && all.icon.bytes.len() < 2_000);
    }
}
