//! Reports as written and packed by receivers, and the expected results. The documents are in `tests/corpus/dmarc`,
//! modelled on published ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::samples::{gzip, zip};
use super::*;
use crate::domain::dmarc_record::DmarcPolicy;
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

macro_rules! corpus {
    ($name:literal) => {
        include_bytes!(concat!("../../../tests/corpus/dmarc/", $name, ".xml")).as_slice()
    };
}

/// Two of our domains.
struct Ours;

const OURS: [&str; 2] = ["example.com", "news.example.com"];

impl OwnDomains for Ours {
    fn domain(&mut self, name: &DomainName) -> Option<usize> {
        OURS.iter().position(|own| name.as_str() == *own)
    }
    fn has_selector(&self, _: usize, selector: &str) -> bool {
        selector.starts_with("pr-own-")
    }
    fn is_own_network(&mut self, domain: usize, network: SourceNetwork) -> bool {
        domain == 0 && network == SourceNetwork::V4([203, 0, 113])
    }
}

fn read_at(message: &[u8], now: Timestamp) -> Result<Vec<AggregateReport>, Unreadable> {
    read(message, now, &mut Ours)
}

/// Returns the only report of a message.
fn one(message: &[u8]) -> Result<AggregateReport, Unreadable> {
    let mut reports = read_at(message, NOW)?;
    assert_eq!(reports.len(), 1);
    Ok(reports.remove(0))
}

/// Returns a message with the body `content` and this content type.
fn body(content: &[u8], content_type: &str) -> Vec<u8> {
    let encoded = STANDARD.encode(content);
    let lines: Vec<_> = encoded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let head =
        format!("From: dmarc@reporter.example\r\nContent-Type: {content_type}\r\nContent-Transfer-Encoding: base64");
    format!("{head}\r\n\r\n{}\r\n", lines.join("\r\n")).into_bytes()
}

/// Returns a message with this part and a note.
fn part(content: &[u8], content_type: &str) -> Vec<u8> {
    multipart(&[b"Content-Type: text/plain\r\n\r\nThis is a report.".as_slice(), &body(content, content_type)])
}

fn multipart(parts: &[&[u8]]) -> Vec<u8> {
    let mut message = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_vec();
    for part in parts {
        message.extend([b"--b\r\n", *part, b"\r\n"].concat());
    }
    message.extend(b"--b--\r\n");
    message
}

/// Returns a report with this range and these rows.
fn document(begin: u64, end: u64, rows: &str) -> String {
    format!(
        "<feedback><report_metadata><org_name>R</org_name><report_id>1</report_id>\
         <date_range><begin>{begin}</begin><end>{end}</end></date_range></report_metadata>\
         <policy_published><domain>example.com</domain><p>none</p></policy_published>{rows}</feedback>"
    )
}

fn row(address: &str) -> String {
    format!("<record><row><source_ip>{address}</source_ip><count>1</count></row></record>")
}

const DAY: u64 = 24 * 3600;
const TODAY: u64 = 1_700_000_000;

fn network(text: &str) -> SourceNetwork {
    text.parse().unwrap()
}

/// Returns the numbers of messages, passes, DKIM alignments and SPF alignments.
fn counts(counts: &DmarcCounts) -> [u64; 4] {
    [counts.messages(), counts.passed(), counts.dkim_aligned(), counts.spf_aligned()]
}

#[test]
fn reads_a_google_report_from_an_archive_as_the_only_body() {
    let archive = zip(&[("google.com!example.com!1699833600!1699919999.xml", corpus!("google"), true)]);
    let report = one(&body(&archive, "application/zip; name=\"x.zip\"")).unwrap();
    assert_eq!((report.reporter.as_str(), report.report_id.as_str()), ("google.com", "1234567890123456789"));
    assert_eq!((report.begin, report.end), (1_699_833_600, 1_699_919_999));
    assert_eq!(report.policy_domain.as_str(), "example.com");
    let [own, news] = report.parts.as_slice() else { panic!("{:?}", report.parts) };
    assert_eq!((own.domain, own.policy, news.domain, news.policy), (0, DmarcPolicy::None, 1, DmarcPolicy::Quarantine));
    // A row with a From domain that is not ours belongs to the policy's domain.
    let networks: Vec<_> =
        own.sources.iter().map(|(network, source)| (network.to_string(), counts(&source.counts))).collect();
    assert_eq!(
        networks,
        [("192.0.2.0/24".to_owned(), [120, 120, 120, 120]), ("198.51.100.0/24".to_owned(), [2, 0, 0, 0])]
    );
    assert_eq!(own.sources[1].1.counts.disposed(DmarcPolicy::Quarantine), 2);
    assert!(own.sources[0].1.has_own_signature && !own.sources[1].1.has_own_signature);
    assert_eq!(own.sources[0].1.dkim_domains, [("example.com".parse().unwrap(), 120)]);
    assert_eq!(own.sources[0].1.spf_domains, [("rp.example.com".parse().unwrap(), 120)]);
    let forwarded = &news.sources[0];
    assert_eq!((forwarded.0, counts(&forwarded.1.counts)), (network("2001:db8:77::/48"), [3, 0, 0, 0]));
    assert!(forwarded.1.has_own_signature, "a broken signature contains our selector");
}

#[test]
fn reads_every_packing_used_by_receivers() {
    for (name, document, messages, passed) in [
        ("microsoft", corpus!("microsoft"), 5, 5),
        ("yahoo", corpus!("yahoo"), 7, 7),
        ("gmx", corpus!("gmx"), 11, 11),
        ("mimecast", corpus!("mimecast"), 4, 4),
        ("unclosed schema", corpus!("unclosed-schema"), 1, 1),
        ("any case", corpus!("any-case"), 8, 2),
    ] {
        let (packed, archive) = (gzip(document), zip(&[("x.xml", document, true)]));
        for message in [
            body(document, "text/xml"),
            body(&packed, "application/gzip"),
            part(&packed, "application/gzip; name=x.xml.gz"),
            // Wrong labels: gzip labelled as zip, zip labelled as gzip, and neither.
            part(&packed, "application/zip; name=x.zip"),
            part(&archive, "application/x-gzip; name=x.xml.gz"),
            part(&archive, "application/octet-stream"),
            [b"Content-Type: application/xml\r\n\r\n", document].concat(),
            multipart(&[&part(&packed, "application/gzip")]),
        ] {
            let report = one(&message).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            let [own] = report.parts.as_slice() else { panic!("{name}") };
            let mut sum = DmarcCounts::default();
            own.sources.iter().for_each(|(_, source)| sum.merge(&source.counts));
            assert_eq!((sum.messages(), sum.passed(), own.skipped_rows), (messages, passed, 0), "{name}");
        }
    }
}

#[test]
fn reads_the_new_namespace_and_its_values() {
    let report = one(&body(corpus!("gmx"), "text/xml")).unwrap();
    assert_eq!(report.parts[0].policy, DmarcPolicy::Quarantine);
    let counts = report.parts[0].sources[0].1.counts;
    assert_eq!((counts.disposed(DmarcPolicy::None), counts.messages()), (11, 11), "disposition pass");
}

#[test]
fn parses_values_in_any_case() {
    let report = one(&body(corpus!("any-case"), "text/xml")).unwrap();
    assert_eq!((report.reporter.as_str(), report.report_id.as_str()), ("Zöho & Co", "z-17"));
    assert_eq!((report.policy_domain.as_str(), report.parts[0].policy), ("example.com", DmarcPolicy::Reject));
    let [(network, source)] = report.parts[0].sources.as_slice() else { panic!() };
    assert_eq!((network.to_string().as_str(), source.counts.disposed(DmarcPolicy::Quarantine)), ("192.0.2.0/24", 6));
    assert_eq!(source.dkim_domains, [("signer.example".parse().unwrap(), 6)]);
    assert!(source.spf_domains.is_empty() && !source.has_own_signature);
}

#[test]
fn a_row_without_a_valid_source_and_count_is_skipped() {
    let report = one(&body(corpus!("skipped-rows"), "text/xml")).unwrap();
    assert_eq!(report.parts[0].skipped_rows, 7);
    assert_eq!(report.parts[0].sources[0].1.counts.messages(), 1_000_000_000);
}

#[test]
fn a_report_about_other_domains_has_no_part() {
    let of_another = String::from_utf8(corpus!("yahoo").to_vec()).unwrap().replace("example.com", "example.org");
    assert_eq!(one(&body(of_another.as_bytes(), "text/xml")).unwrap().parts, []);
    let inherited = of_another.replace("<header_from>example.org", "<header_from>news.example.com");
    let report = one(&body(inherited.as_bytes(), "text/xml")).unwrap();
    assert_eq!((report.parts.len(), report.parts[0].domain), (1, 1));
    let empty = one(&body(document(TODAY - DAY, TODAY, "").as_bytes(), "text/xml")).unwrap();
    assert_eq!(
        (empty.parts.len(), empty.parts[0].sources.len()),
        (1, 0),
        "a report without rows belongs to the domain"
    );
}

#[test]
fn replaces_invalid_utf_8() {
    let latin = document(TODAY - DAY, TODAY, &row("192.0.2.1")).replace(">R<", ">Zusteller \u{fc}<");
    let latin: Vec<u8> = latin.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
    assert_eq!(one(&body(&latin, "text/xml")).unwrap().reporter, "Zusteller \u{fffd}");
}

#[test]
fn a_report_without_a_required_element_is_unreadable() {
    let whole = document(TODAY - DAY, TODAY, &row("192.0.2.1"));
    assert!(one(&body(whole.as_bytes(), "text/xml")).is_ok());
    for missing in [
        "<org_name>R</org_name>".to_owned(),
        "<report_id>1</report_id>".to_owned(),
        format!("<begin>{}</begin>", TODAY - DAY),
        format!("<end>{TODAY}</end>"),
        "<domain>example.com</domain>".to_owned(),
    ] {
        let without = whole.replace(&missing, "");
        assert_ne!(without, whole);
        assert_eq!(one(&body(without.as_bytes(), "text/xml")), Err(Unreadable::Incomplete), "{missing}");
    }
}

#[test]
fn a_range_must_be_short_and_recent() {
    let read = |begin, end| one(&body(document(begin, end, "").as_bytes(), "text/xml")).map(|_| ());
    assert_eq!(read(TODAY - 7 * DAY, TODAY), Ok(()));
    assert_eq!(read(TODAY - 7 * DAY - 1, TODAY), Err(Unreadable::Range));
    assert_eq!(read(TODAY, TODAY + DAY), Ok(()));
    assert_eq!(read(TODAY, TODAY + DAY + 1), Err(Unreadable::Range));
    assert_eq!(read(TODAY - 61 * DAY, TODAY - 60 * DAY), Ok(()));
    assert_eq!(read(TODAY - 61 * DAY, TODAY - 60 * DAY - 1), Err(Unreadable::Range));
    assert_eq!(read(TODAY, TODAY - 1), Err(Unreadable::Range));
    assert_eq!(read(0, u64::MAX), Err(Unreadable::Range));
}

#[test]
fn costly_documents_are_unreadable() {
    let of = |document: &str| one(&part(&gzip(document.as_bytes()), "application/gzip")).map(|_| ());
    let rows = |count: usize| document(TODAY - DAY, TODAY, &row("192.0.2.1").repeat(count));
    assert_eq!(of(&rows(ROWS_MAX)), Ok(()));
    assert_eq!(of(&rows(ROWS_MAX + 1)), Err(Unreadable::TooManyRows));
    let padded = |bytes: usize| document(TODAY - DAY, TODAY, &" ".repeat(bytes));
    let room = usize::try_from(UNPACKED_BYTES_MAX).unwrap() - padded(0).len();
    assert_eq!(of(&padded(room)), Ok(()));
    assert_eq!(of(&padded(room + 1)), Err(Unreadable::TooLarge));
    let declared = format!("<!DOCTYPE feedback [<!ENTITY a 'aaaa'>]>{}", rows(1));
    assert_eq!(of(&declared), Err(Unreadable::DocumentType));
    let deep = document(TODAY - DAY, TODAY, &format!("{}{}", "<a>".repeat(40), "</a>".repeat(40)));
    assert_eq!(of(&deep), Err(Unreadable::TooDeep));
    let whole = rows(3);
    assert_eq!(of(&whole[..whole.len() - 20]), Err(Unreadable::Malformed));
    assert_eq!(of("<html><body>no report</body></html>"), Err(Unreadable::NoReport));
    let member = zip(&[("x.xml", whole.as_bytes(), true)]);
    assert_eq!(one(&part(&gzip(&member), "application/gzip")), Err(Unreadable::Nested));
}

#[test]
fn a_message_without_a_report_is_unreadable() {
    for message in [
        b"Subject: hello\r\n\r\nIs this the right address?\r\n".to_vec(),
        b"Content-Type: text/html\r\n\r\n<html><p>Please send feedback</html>".to_vec(),
        multipart(&[b"\r\nonly a note"]),
        Vec::new(),
        b"\r\n".to_vec(),
    ] {
        assert_eq!(one(&message), Err(Unreadable::NoReport));
    }
    // Multiparts are searched to depth 3.
    let report = gzip(corpus!("yahoo"));
    let within = |depth: usize| {
        let mut message = body(&report, "application/gzip");
        for level in 0..depth {
            let boundary = format!("boundary=b{level}");
            let wrapped = String::from_utf8(multipart(&[&message])).unwrap();
            let wrapped = wrapped.replacen("boundary=b", &boundary, 1);
            let end = format!("--b{level}--\r\n");
            message = wrapped
                .replacen("\r\n--b\r\n", &format!("\r\n--b{level}\r\n"), 1)
                .strip_suffix("--b--\r\n")
                .map(|start| format!("{start}{end}"))
                .unwrap()
                .into_bytes();
        }
        one(&message).map(|_| ())
    };
    assert_eq!((within(MULTIPARTS_MAX), within(MULTIPARTS_MAX + 1)), (Ok(()), Err(Unreadable::NoReport)));
}

#[test]
fn skips_an_html_note_beside_the_report() {
    let note = b"Content-Type: text/html\r\n\r\n<!DOCTYPE html><!-- x > y --><html><p>A <feedback> report<br></html>"
        .as_slice();
    let message = multipart(&[note, &body(&gzip(corpus!("yahoo")), "application/gzip")]);
    assert!(one(&message).is_ok());
}

#[test]
fn an_archive_may_contain_several_reports() {
    let archive =
        zip(&[("1.xml", corpus!("yahoo"), true), ("readme.txt", b"hello", false), ("2.xml", corpus!("gmx"), true)]);
    let reports = read_at(&body(&archive, "application/zip"), NOW).unwrap();
    let reporters: Vec<_> = reports.iter().map(|report| report.reporter.as_str()).collect();
    assert_eq!(reporters, ["Yahoo", "GMX"]);
    let one_bad = zip(&[("1.xml", corpus!("yahoo"), true), ("2.xml", b"<feedback>", true)]);
    assert_eq!(read_at(&body(&one_bad, "application/zip"), NOW), Err(Unreadable::Malformed));
}

#[test]
fn networks_above_the_limit_are_counted_together() {
    let rows: String = (0..NETWORKS_MAX + 5).map(|n| row(&format!("10.{}.{}.1", n / 256, n % 256))).collect();
    let report = one(&part(&gzip(document(TODAY - DAY, TODAY, &rows).as_bytes()), "application/gzip")).unwrap();
    let sources = &report.parts[0].sources;
    assert_eq!(sources.len(), NETWORKS_MAX + 1);
    let other = sources.iter().find(|(network, _)| *network == SourceNetwork::Other).unwrap();
    assert_eq!(other.1.counts.messages(), 5);
}

#[test]
fn each_domain_of_a_report_has_its_own_limit_of_networks() {
    let of = |domain: &str, n: usize| {
        let row = row(&format!("10.{}.{}.1", n / 256, n % 256));
        row.replace("</record>", &format!("<identifiers><header_from>{domain}</header_from></identifiers></record>"))
    };
    let first = (0..NETWORKS_MAX + 3).map(|n| of(OURS[0], n));
    let rows: String = first.chain((0..NETWORKS_MAX).map(|n| of(OURS[1], n))).collect();
    let report = one(&part(&gzip(document(TODAY - DAY, TODAY, &rows).as_bytes()), "application/gzip")).unwrap();
    let other = |part: &Part| {
        let found = part.sources.iter().find(|(network, _)| *network == SourceNetwork::Other);
        found.map_or(0, |(_, source)| source.counts.messages())
    };
    assert_eq!(report.parts.iter().map(other).collect::<Vec<_>>(), [3, 0]);
}

#[test]
fn own_networks_are_counted_separately_in_a_report_above_the_limit() {
    let many: String = (0..=NETWORKS_MAX).map(|n| row(&format!("10.{}.{}.1", n / 256, n % 256))).collect();
    let rows = many + &row("203.0.113.9");
    let report = one(&part(&gzip(document(TODAY - DAY, TODAY, &rows).as_bytes()), "application/gzip")).unwrap();
    let of = |wanted| report.parts[0].sources.iter().find(|(network, _)| *network == wanted);
    let messages = |wanted| of(wanted).map(|(_, source)| source.counts.messages());
    assert_eq!(messages(SourceNetwork::V4([203, 0, 113])), Some(1));
    assert_eq!(messages(SourceNetwork::Other), Some(1));
}

#[test]
fn names_have_no_characters_that_change_the_direction_of_text() {
    let text = document(TODAY - DAY, TODAY, &row("192.0.2.1"));
    let name = text.split_once("<org_name>").unwrap().1.split_once("</org_name>").unwrap().0;
    let text = text.replacen(name, "goo\u{202e}gle.com\u{2069}", 1);
    assert_eq!(one(&part(text.as_bytes(), "text/xml")).unwrap().reporter, "goo gle.com");
}

/// Measures the largest report. Run it with `--ignored --nocapture` and optimisation.
#[test]
#[ignore = "a measurement"]
fn measure_the_largest_report() {
    let mut rows = String::new();
    for n in 0..20_000_u32 {
        let address = format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255);
        rows.push_str(&format!(
            "<record><row><source_ip>{address}</source_ip><count>{}</count><policy_evaluated>\
             <disposition>none</disposition><dkim>pass</dkim><spf>fail</spf></policy_evaluated></row>\
             <identifiers><envelope_from>x{n}.example.net</envelope_from><header_from>example.com</header_from>\
             </identifiers><auth_results><dkim><domain>example.com</domain><selector>s{n}</selector>\
             <result>pass</result></dkim><spf><domain>x{n}.example.net</domain><scope>mfrom</scope>\
             <result>pass</result></spf></auth_results></record>",
            n % 100 + 1
        ));
    }
    let document = document(TODAY - DAY, TODAY, &rows);
    let message = part(&gzip(document.as_bytes()), "application/gzip");
    for _ in 0..5 {
        let start = std::time::Instant::now();
        let report = one(&message).unwrap();
        let took = start.elapsed();
        eprintln!("{} bytes, {} sources: {took:?}", document.len(), report.parts[0].sources.len());
    }
}
