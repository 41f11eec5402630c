//! Server capabilities (RFC 5321 4.1.1.1), limited to those used for sending.

use super::reply::{Reply, said};

/// The extensions in the server's EHLO answer. [`Default`] is a server that only supports HELO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether commands may be sent without waiting for the previous answer (RFC 2920).
    pub pipelining: bool,
    /// Whether STARTTLS is offered (RFC 3207).
    pub starttls: bool,
    /// Whether the body may contain bytes above 127 (RFC 6152).
    pub eight_bit_mime: bool,
    /// Whether addresses and headers may contain bytes above 127 (RFC 6531).
    pub smtputf8: bool,
    /// Whether the SIZE parameter may be sent (RFC 1870).
    pub size: bool,
    /// Maximum message size in bytes, if the server announces one.
    pub size_max: Option<u64>,
    /// Whether AUTH PLAIN is offered (RFC 4954, RFC 4616).
    pub auth_plain: bool,
    /// Whether AUTH LOGIN is offered.
    pub auth_login: bool,
    /// Maximum number of messages per connection (RFC 9422 MAILMAX), if the server announces one.
    pub messages_max: Option<u32>,
}

impl Capabilities {
    /// Parses an answer to EHLO, whose first line is the server's name.
    pub fn of(reply: &Reply) -> Self {
        let mut capabilities = Self::default();
        for line in reply.lines.iter().skip(1) {
            let text = String::from_utf8_lossy(said(line));
            // Some old servers write `SIZE=n`.
            let mut words = text.split(|c: char| c.is_ascii_whitespace() || c == '=').filter(|word| !word.is_empty());
            if let Some(keyword) = words.next() {
                capabilities.add(&keyword.to_ascii_uppercase(), words);
            }
        }
        capabilities
    }

    fn add<'a>(&mut self, keyword: &str, mut parameters: impl Iterator<Item = &'a str>) {
        match keyword {
            "PIPELINING" => self.pipelining = true,
            "STARTTLS" => self.starttls = true,
            "8BITMIME" => self.eight_bit_mime = true,
            "SMTPUTF8" => self.smtputf8 = true,
            "SIZE" => {
                self.size = true;
                // Zero means no limit (RFC 1870 4).
                self.size_max = parameters.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
            }
            // Some old servers write `AUTH=LOGIN`, in addition to the proper form or in place of it.
            "AUTH" => {
                for mechanism in parameters {
                    self.auth_plain |= mechanism.eq_ignore_ascii_case("PLAIN");
                    self.auth_login |= mechanism.eq_ignore_ascii_case("LOGIN");
                }
            }
            "LIMITS" => {
                let is_mailmax = |word: &&str| word.eq_ignore_ascii_case("MAILMAX");
                if parameters.by_ref().any(|word| is_mailmax(&word)) {
                    self.messages_max = parameters.next().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::reply::ReplyParser;

    fn of(text: &str) -> Capabilities {
        Capabilities::of(&ReplyParser::new().feed(text.as_bytes()).unwrap().1.unwrap())
    }

    #[test]
    fn parses_keywords_in_any_case_and_ignores_unknown_ones() {
        let got = of(
            "250-mx\n250-pipelining\n250-SIZE 1000\n250-8BITMIME\n250-XFOO a b\n250-Limits RCPTMAX=1 MAILMAX=5\n250 SMTPUTF8\n",
        );
        let want = Capabilities {
            pipelining: true,
            eight_bit_mime: true,
            smtputf8: true,
            size: true,
            size_max: Some(1000),
            messages_max: Some(5),
            ..Capabilities::default()
        };
        assert_eq!(got, want);
    }

    #[test]
    fn collects_login_mechanisms_from_all_lines() {
        let got = of("250-mx\n250-AUTH CRAM-MD5 plain\n250 AUTH=LOGIN\n");
        assert_eq!(got, Capabilities { auth_plain: true, auth_login: true, ..Capabilities::default() });
    }

    #[test]
    fn a_size_of_zero_or_without_a_number_means_no_limit() {
        for text in ["250-mx\n250 SIZE 0\n", "250-mx\n250 SIZE\n", "250-mx\n250 SIZE lots\n"] {
            assert_eq!(of(text), Capabilities { size: true, ..Capabilities::default() });
        }
        assert_eq!(of("250-mx\n250 SIZE=7\n").size_max, Some(7));
        assert_eq!(of("250-mx\n250SIZE 9\n").size_max, Some(9));
    }

    #[test]
    fn the_first_line_is_always_the_server_name() {
        assert_eq!(of("250 STARTTLS\n"), Capabilities::default());
    }
}
