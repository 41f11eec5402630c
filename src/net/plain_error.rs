//! Words for errors of connections, as timelines, alerts and checks show them.

use std::fmt::Display;

/// Mark of a message of the operating system, before the number of the error.
const NUMBER: &str = " (os error ";

/// Returns an error without the system's numbers: `connection refused` for `Connection refused (os error 111)`.
pub fn plain_error(error: impl Display) -> String {
    let text = error.to_string();
    let Some((first, mut rest)) = text.split_once(NUMBER) else { return text };
    let mut words = match first.split_once(char::is_whitespace) {
        Some((word, others)) if !first.contains(": ") => format!("{} {others}", word.to_lowercase()),
        Some(_) | None => first.to_owned(),
    };
    loop {
        rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).trim_start_matches(')');
        match rest.split_once(NUMBER) {
            Some((before, behind)) => {
                words.push_str(before);
                rest = behind;
            }
            None => return words + rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_connections_have_no_system_numbers() {
        let refused = std::io::Error::from_raw_os_error(111);
        assert_eq!(plain_error(&refused), "connection refused");
        for (text, words) in [
            ("No route to host (os error 113)", "no route to host"),
            ("tcp: Connection refused (os error 111); Timed out (os error 110)", "tcp: Connection refused; Timed out"),
            ("DNS has no answer", "DNS has no answer"),
        ] {
            assert_eq!(plain_error(text), words);
        }
    }
}
