//! Names of browsers for people, from the `User-Agent` field (RFC 9110 10.1.5). The field is chosen by the client, so
//! the names only help people recognise their own sign-ins; no rule depends on them.

/// Browsers and the tokens that identify them. Browsers also name the browsers that they imitate, so the order counts.
const BROWSERS: [(&str, &str); 12] = [
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Vivaldi/", "Vivaldi"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("FxiOS/", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chromium/", "Chromium"),
    ("HeadlessChrome/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Epiphany/", "GNOME Web"),
    ("Safari/", "Safari"),
];
/// Operating systems and the tokens that identify them.
const SYSTEMS: [(&str, &str); 8] = [
    ("Windows", "Windows"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Macintosh", "macOS"),
    ("Linux", "Linux"),
    ("BSD", "BSD"),
];

/// Returns the browser and its operating system: `Firefox on Linux`. `None` for an unknown client.
pub fn browser_name(agent: &str) -> Option<String> {
    let name =
        |known: &[(&str, &'static str)]| known.iter().find(|(token, _)| agent.contains(token)).map(|(_, name)| *name);
    let browser = name(&BROWSERS)?;
    Some(name(&SYSTEMS).map_or_else(|| browser.to_owned(), |system| format!("{browser} on {system}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_named_with_its_system() {
        let engine = "AppleWebKit/537.36 (KHTML, like Gecko)";
        for (agent, name) in [
            ("Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0".to_owned(), "Firefox on Linux"),
            (format!("Mozilla/5.0 (Windows NT 10.0) {engine} Chrome/130.0 Safari/537.36 Edg/130.0"), "Edge on Windows"),
            (
                format!("Mozilla/5.0 (Linux; Android 14) {engine} Chrome/130.0 Mobile Safari/537.36"),
                "Chrome on Android",
            ),
            (format!("Mozilla/5.0 (X11; CrOS x86_64) {engine} Chrome/130.0 Safari/537.36"), "Chrome on ChromeOS"),
            (format!("Mozilla/5.0 (Macintosh; Intel Mac OS X 14_0) {engine} Safari/605.1"), "Safari on macOS"),
            (format!("Mozilla/5.0 (iPhone; like Mac OS X) {engine} CriOS/130.0 Safari/604.1"), "Chrome on iPhone"),
            ("Mozilla/5.0 Firefox/128.0".to_owned(), "Firefox"),
        ] {
            assert_eq!(browser_name(&agent).as_deref(), Some(name), "{agent}");
        }
        assert_eq!(["", "curl/8.5.0", "Linux"].map(browser_name), [None, None, None]);
    }
}
