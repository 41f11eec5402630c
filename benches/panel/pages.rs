//! The measured pages and searches.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::instance::Instance;
use crate::letters;
use crate::measure::load_average;
use crate::{Options, Outcome};

/// End of every page. A truncated page is not measured.
const END: &str = "</html>";

/// Requests each page as often as `options` say, and prints its cost.
pub(crate) async fn measure(instance: &Instance, options: &Options) -> Outcome<Vec<Value>> {
    let mut rows = Vec::new();
    for (name, path) in pages(instance, options.messages).await? {
        if options.only.as_deref().is_none_or(|only| name.contains(only)) {
            rows.push(measured(instance, &name, &path, options.rounds).await?);
        }
    }
    Ok(rows)
}

async fn measured(instance: &Instance, name: &str, path: &str, rounds: usize) -> Outcome<Value> {
    let start = cpu(instance.pid())?;
    let first = instance.page(path).await?;
    let before = cpu(instance.pid())?;
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let seen = instance.page(path).await?;
        if !seen.text.ends_with(END) && !seen.text.trim_end().ends_with(END) {
            return Err(format!("{path} is not a complete page").into());
        }
        took.push(seen.took);
    }
    let used = cpu(instance.pid())?.saturating_sub(before);
    took.sort_unstable();
    let millis = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    Ok(json!({
        "page": name,
        "path": path,
        "wall_ms": millis(took[took.len() / 2]),
        "wall_first_ms": millis(first.took),
        "wall_max_ms": millis(took[took.len() - 1]),
        "cpu_first_ms": millis(before.saturating_sub(start)),
        "cpu_ms": millis(used / u32::try_from(rounds)?),
        "rows": first.text.matches("<tr>").count().saturating_sub(1),
        "kb": (first.text.len() as f64 / 100.0).round() / 10.0,
        "load": load_average(),
    }))
}

/// Returns the CPU time of all threads of a process, in nanoseconds.
fn cpu(pid: u32) -> Outcome<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        // A thread may end between the two reads.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(Duration::from_nanos(nanos))
}

/// Returns name and path of each page: the navigation's pages, a record of each kind, then searches.
async fn pages(instance: &Instance, count: u64) -> Outcome<Vec<(String, String)>> {
    let mut pages: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, path: String| pages.push((name.to_owned(), path));
    for (name, path) in [
        ("overview, 7 days", "/"),
        ("overview, 24 hours", "/?range=24h"),
        ("overview, 30 days", "/?range=30d"),
        ("messages", "/messages"),
        ("events", "/events"),
        ("events of a rare type", "/events?type=complained"),
        ("queue, 20,000 waiting", "/queue"),
        ("domains", "/domains"),
        ("webhooks", "/webhooks"),
        ("suppressions", "/suppressions"),
        ("keys", "/keys"),
        ("settings", "/settings"),
        ("users", "/users"),
        ("audit log", "/audit"),
    ] {
        add(name, path.to_owned());
    }
    // The last domain is the first one that `dev` created, which has the reports.
    let domains = instance.page("/domains").await?.text;
    let domain =
        domains.rsplit_once("/domains/dom_").and_then(|(_, rest)| rest.get(..26)).ok_or("there is no domain")?;
    let domain = format!("/domains/dom_{domain}");
    for days in [400, 30] {
        add(&format!("DMARC reports, {days} days"), format!("{domain}/dmarc?days={days}"));
    }
    add("a domain", domain.clone());
    add("a domain's checklist", format!("{domain}/checklist"));
    let middle = letters::recipient(count / 2);
    let found = instance.page(&query(&[("q", &middle)])).await?.text;
    let message = link(&found, "/messages/msg_").ok_or("no message is found")?;
    add("a message", message.clone());
    add("a message's JSON", format!("{message}?tab=json"));
    let webhook = link(&instance.page("/webhooks").await?.text, "/webhooks/whk_").ok_or("there is no webhook")?;
    add("a webhook, with 100,000 deliveries", webhook.clone());
    add("a webhook's failed deliveries: none", format!("{webhook}?state=failed"));
    let id = message.trim_start_matches("/messages/").to_owned();
    let (order, header) = ((count / 2 / 20 * 20).to_string(), format!("<{id}@example.test>"));
    let searches: [(&str, Vec<(&str, &str)>); 19] = [
        ("an address", vec![("q", &middle)]),
        ("an address that had nothing", vec![("q", "nobody@example.org")]),
        ("a Message-ID", vec![("q", &header)]),
        ("a Message-ID of others", vec![("q", "<abc@mail.gmail.com>")]),
        ("a word of three subjects", vec![("q", "zephyr")]),
        ("the beginning of one", vec![("q", "zeph")]),
        ("a number that one subject has", vec![("q", &order)]),
        ("a common word", vec![("q", "order")]),
        ("a word of every 200th subject", vec![("q", "quarterly")]),
        ("a word that no subject has", vec![("q", "xylophone")]),
        ("three words", vec![("q", "quarterly poetry club")]),
        ("two common words that never meet", vec![("q", "invoice password")]),
        ("address, word and status", vec![("q", "to:ann.16@gmail.com subject:order status:bounced")]),
        ("a common sender and a rare word", vec![("q", "from:shop@example.test zephyr")]),
        ("a common status", vec![("status", "delivered")]),
        ("a rare status", vec![("status", "complained")]),
        ("a status of no message", vec![("status", "canceled")]),
        ("a stream of no message", vec![("stream", "marketing")]),
        ("a domain that had nothing", vec![("q", "@example.org")]),
    ];
    for (name, params) in searches {
        add(&format!("search: {name}"), query(&params));
    }
    let long_ago = format!("before:{}", day(27));
    add("search: three weeks ago and before", query(&[("q", &long_ago)]));
    add("search: a word, three weeks ago and before", query(&[("q", &format!("{long_ago} quarterly"))]));
    add("search: the hundredth page", hundredth(instance, &[("q", "order")]).await?);
    Ok(pages)
}

/// Returns the UTC day this many days ago.
fn day(ago: i64) -> String {
    let now = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * ago);
    now.strftime("%Y-%m-%d").to_string()
}

fn query(params: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(params);
    format!("/messages?{}", query.finish())
}

/// Returns the path of a search's hundredth page, found by following links.
async fn hundredth(instance: &Instance, params: &[(&str, &str)]) -> Outcome<String> {
    let mut path = query(params);
    for _ in 1..100 {
        let page = instance.page(&path).await?.text;
        let next = page.split("rel=\"next\"").nth(1).and_then(|rest| rest.split("href=\"").nth(1));
        let next = next.and_then(|rest| rest.split('"').next()).ok_or("there are no hundred pages")?;
        path = next.replace("&#38;", "&").replace("&amp;", "&");
    }
    Ok(path)
}

/// Returns the first link of a page with this prefix.
fn link(page: &str, begin: &str) -> Option<String> {
    let rest = page.split(&format!("href=\"{begin}")).nth(1)?;
    Some(format!("{begin}{}", rest.split('"').next()?))
}
