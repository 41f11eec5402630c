//! The messages to send: text and HTML of an order confirmation, filled from a seeded generator.
//!
//! They compress about as well as such mail does (the ratio is printed). With constant bytes a compressing store would
//! look too good, with random ones too bad. All messages are encoded as JSON beforehand, so creating a request is a
//! copy.

use std::fmt::Write as _;

use crate::Outcome;

/// Sending domain of all messages.
pub(crate) const SENDING_DOMAIN: &str = "bench.test";

/// Number of different messages of a row, used in rotation.
const VARIETY: u64 = 64;
/// Default level of zstd, for the printed ratio.
const ZSTD_LEVEL: i32 = 3;

const WORDS: &str = "the your order has been shipped and will arrive on Monday please check address below if anything is \
    missing write to us within fourteen days of delivery we refund full amount invoice number customer account payment \
    card ending was charged for items in this parcel tracking link shows where it now thank you shopping with our team \
    cotton shirt blue large ceramic mug set four walnut desk lamp brass hinge steel bottle litre wool blanket grey linen \
    cushion cover notebook dotted paper pencil case leather strap watch glass jar lid bamboo tray oak shelf small medium \
    return label printed enclosed keep receipt warranty two years support hours weekdays morning evening holiday notice";

/// Messages of one size.
pub(crate) struct MessageBodies {
    /// Each from `"from":` to the closing brace, as JSON.
    encoded: Vec<String>,
    /// Each as a complete message without its To field, dot-stuffed and with the end of data.
    messages: Vec<String>,
    /// Average size of text and HTML together, in bytes.
    pub(crate) bytes: usize,
    /// Compression ratio with zstd, message by message.
    pub(crate) ratio: f64,
}

impl MessageBodies {
    /// Creates messages of `kilobytes` KB: a quarter is text, the rest HTML.
    pub(crate) fn new(kilobytes: usize) -> Outcome<Self> {
        let wanted = kilobytes * 1024;
        let (mut encoded, mut messages, mut bytes, mut compressed) = (Vec::new(), Vec::new(), 0, 0);
        for seed in 0..VARIETY {
            let mut rng = Rng(seed);
            let text = text(&mut rng, wanted / 4);
            let html = html(&mut rng, wanted - text.len().min(wanted));
            bytes += text.len() + html.len();
            compressed += zstd::bulk::compress(format!("{text}{html}").as_bytes(), ZSTD_LEVEL)?.len();
            messages.push(message(&text, &html));
            encoded.push(fields(&mut rng, &text, &html)?);
        }
        Ok(Self { bytes: bytes / encoded.len(), ratio: bytes as f64 / compressed as f64, encoded, messages })
    }

    /// Writes submission `number` to `into` in the form after DATA.
    #[allow(dead_code, reason = "only the main job submits by SMTP")]
    pub(crate) fn write_mime(&self, number: usize, to: &str, into: &mut Vec<u8>) {
        into.extend_from_slice(format!("To: {to}\r\n").as_bytes());
        into.extend_from_slice(self.messages[number % self.messages.len()].as_bytes());
    }

    /// Writes the body of submission `number` to `into`.
    pub(crate) fn write(&self, number: usize, to: &str, into: &mut Vec<u8>) {
        into.extend_from_slice(b"{\"to\":\"");
        into.extend_from_slice(to.as_bytes());
        into.extend_from_slice(b"\",");
        into.extend_from_slice(self.encoded[number % self.encoded.len()].as_bytes());
    }
}

/// Returns header fields, text and HTML, as written by a client. Lines never begin with a dot.
fn message(text: &str, html: &str) -> String {
    let head = format!(
        "From: The Shop at the Corner <orders@{SENDING_DOMAIN}>\r\nSubject: Your order is on its way\r\n\
         Date: Tue, 24 Nov 2026 08:00:00 +0000\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/alternative; boundary=\"b\"\r\n\r\n"
    );
    let part = |kind: &str, text: &str| {
        let text = wrapped(text);
        format!("--b\r\nContent-Type: text/{kind}; charset=utf-8\r\n\r\n{text}\r\n")
    };
    format!("{head}{}{}--b--\r\n.\r\n", part("plain", text), part("html", html))
}

/// Returns the text with CRLF line ends and at most 998 bytes per line.
fn wrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 32);
    for line in text.lines() {
        let mut width = 0;
        for word in line.split_inclusive(' ') {
            if width + word.len() > 900 {
                out.push_str("\r\n");
                width = 0;
            }
            out.push_str(word);
            width += word.len();
        }
        out.push_str("\r\n");
    }
    out
}

fn fields(rng: &mut Rng, text: &str, html: &str) -> Outcome<String> {
    let object = serde_json::json!({
        "from": format!("orders@{SENDING_DOMAIN}"),
        "from_name": "The Shop at the Corner",
        "subject": format!("Your order {} is on its way", rng.reference()),
        "text": text,
        "html": html,
    });
    let encoded = serde_json::to_string(&object)?;
    Ok(encoded.trim_start_matches('{').to_owned())
}

fn text(rng: &mut Rng, bytes: usize) -> String {
    let mut out = format!("Dear {},\n\n", rng.name());
    while out.len() < bytes {
        let _ = write!(out, "{}.\n{}  {}\n", rng.words(12), rng.reference(), rng.price());
    }
    out
}

fn html(rng: &mut Rng, bytes: usize) -> String {
    const END: &str = "</p></body></html>\n";
    let mut out = format!(
        "<!doctype html><html><body style=\"margin:0;background:#f6f6f6\"><p>Dear {}, {}.</p><table width=\"600\">\n",
        rng.name(),
        rng.words(10)
    );
    loop {
        let row = table_row(rng);
        if out.len() + row.len() + END.len() > bytes {
            break;
        }
        out.push_str(&row);
    }
    out.push_str("</table><p>");
    while out.len() + END.len() < bytes {
        let _ = write!(out, "{} ", rng.words(1));
    }
    out.push_str(END);
    out
}

fn table_row(rng: &mut Rng) -> String {
    const CELL: &str = "style=\"padding:8px 12px;border-bottom:1px solid #e5e5e5;font:14px Arial,sans-serif\"";
    let (item, note) = (rng.words(5), rng.words(9));
    let (reference, price, token) = (rng.reference(), rng.price(), rng.token());
    format!(
        "<tr><td {CELL}><a href=\"https://shop.{SENDING_DOMAIN}/o/{reference}?t={token}\">{item}</a></td>\
         <td {CELL}>{note}</td><td {CELL}>{price}</td></tr>\n"
    )
}

/// A seeded generator (splitmix64), so that every run sends the same messages.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns words. The first of the list are more frequent, as in natural language.
    fn words(&mut self, count: usize) -> String {
        let all: Vec<&str> = WORDS.split_whitespace().collect();
        let mut picked = Vec::with_capacity(count);
        for _ in 0..count {
            let bound = 1 + self.below(all.len());
            picked.push(all[self.below(bound)]);
        }
        picked.join(" ")
    }

    fn name(&mut self) -> &'static str {
        ["Ada Moreau", "Jonas Weber", "Mina Okafor", "Luis Prado", "Sofia Lindqvist"][self.below(5)]
    }

    fn reference(&mut self) -> String {
        format!("SC-{:08}", self.below(100_000_000))
    }

    fn price(&mut self) -> String {
        format!("{}.{:02} EUR", self.below(200), self.below(100))
    }

    /// Returns a link's token: the part of a real message that does not compress.
    fn token(&mut self) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())
    }
}
