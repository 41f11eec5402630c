//! Facts of a certificate: its validity period, and the names it is for. Trust is not checked here.

use std::path::Path;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

use crate::base::time::Timestamp;
use crate::machine::renewal::Validity;

/// The first certificate of a PEM chain.
pub struct Certificate(CertificateDer<'static>);

impl Certificate {
    /// Reads the first certificate of a file.
    ///
    /// # Errors
    /// The reason why the certificate can't be read, as a sentence.
    pub fn read(path: &Path) -> Result<Self, String> {
        CertificateDer::from_pem_file(path).map(Self).map_err(|error| format!("{}: {error:?}", path.display()))
    }

    /// Returns the validity period.
    pub fn validity(&self) -> Option<Validity> {
        validity(self.0.as_ref())
    }

    /// Returns whether the certificate is for `name`.
    pub fn is_for(&self, name: &str) -> bool {
        let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(&self.0), ServerName::try_from(name)) else {
            return false;
        };
        rustls::client::verify_server_name(&parsed, &name).is_ok()
    }
}

/// Parses `Certificate.tbsCertificate.validity` (RFC 5280 4.1).
fn validity(der: &[u8]) -> Option<Validity> {
    let (_, certificate, _) = element(der)?;
    let (_, mut rest, _) = element(certificate)?;
    if let (0xa0, _, after_version) = element(rest)? {
        rest = after_version;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let (tag, from, rest) = element(validity)?;
    let from = moment(tag, from)?;
    let (tag, until, _) = element(rest)?;
    Some(Validity { from, until: moment(tag, until)? })
}

fn moment(tag: u8, time: &[u8]) -> Option<Timestamp> {
    let digits = std::str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let digits = match tag {
        // UTCTime: years from 50 on belong to the 20th century.
        0x17 => format!("{}{digits}", if *time.first()? >= b'5' { "19" } else { "20" }),
        0x18 => digits.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| digits.get(from..to);
    let text = format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?,
        part(12, 14)?
    );
    text.parse().ok()
}

/// Parses the first DER element: its tag, its content, and the bytes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(year: i32) -> Certificate {
        let mut params = rcgen::CertificateParams::new(vec!["mail.example.com".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1999, 12, 31);
        params.not_after = rcgen::date_time_ymd(year, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        Certificate(params.self_signed(&key).unwrap().der().clone())
    }

    #[test]
    fn the_validity_period_is_read_in_both_time_formats() {
        let from = "1999-12-31T00:00:00Z".parse().unwrap();
        for year in [2031, 2049, 2050, 2077] {
            let until = format!("{year}-02-03T00:00:00Z").parse().unwrap();
            assert_eq!(made(year).validity(), Some(Validity { from, until }));
        }
    }

    #[test]
    fn a_certificate_is_for_its_names() {
        assert!(made(2031).is_for("mail.example.com"));
        assert!(!made(2031).is_for("example.com"));
        assert!(!made(2031).is_for("not a name"));
    }

    #[test]
    fn bytes_that_are_not_a_certificate_have_no_validity() {
        let whole = made(2031).0;
        for length in 0..whole.len() {
            assert_eq!(validity(&whole[..length]), None);
        }
        for byte in 0..=u8::MAX {
            let _ = validity(&[byte; 64]);
        }
    }
}
