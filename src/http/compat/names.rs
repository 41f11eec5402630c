//! Client names of message fields, under which errors are reported.

use super::service::CompatService;
use crate::domain::violation::Violations;

/// Client names for the fields of one message.
#[derive(Debug, Clone)]
pub(super) struct Names {
    service: CompatService,
    /// Our fields that came from another field of the client, and that field.
    moved: Vec<(String, String)>,
}

impl Names {
    pub(super) const fn of(service: CompatService) -> Self {
        Self { service, moved: Vec::new() }
    }

    /// Records that our field comes from the client's field `theirs`.
    pub(super) fn moved(&mut self, ours: impl Into<String>, theirs: impl Into<String>) {
        self.moved.push((ours.into(), theirs.into()));
    }

    /// Returns the client's name for one of our dotted field names.
    pub(super) fn name(&self, ours: &str) -> String {
        let moved = self.moved.iter().find_map(|(from, to)| {
            let rest = ours.strip_prefix(from.as_str())?;
            (rest.is_empty() || rest.starts_with('.')).then(|| format!("{to}{rest}"))
        });
        moved.unwrap_or_else(|| self.service.field(ours))
    }

    /// Returns the errors under the client's names.
    pub(super) fn translated(&self, ours: &Violations) -> Violations {
        let mut theirs = Violations::new();
        for (field, sentences) in ours.by_field() {
            let name = self.name(field);
            sentences.iter().for_each(|sentence| theirs.add(name.as_str(), sentence.as_str()));
        }
        theirs
    }
}

/// Returns Resend's name for one of our fields.
pub(super) fn of_resend(ours: &str) -> String {
    let (first, rest) = parted(ours);
    match first {
        "metadata" => format!("tags{rest}"),
        "from_name" => "from".to_owned(),
        "unsubscribe_url" => "headers.List-Unsubscribe".to_owned(),
        _ => ours.to_owned(),
    }
}

/// Returns Postmark's name for one of our fields.
pub(super) fn of_postmark(ours: &str) -> String {
    let (first, rest) = parted(ours);
    match first {
        "from" | "from_name" => "From".to_owned(),
        "to" => "To".to_owned(),
        "subject" => "Subject".to_owned(),
        "text" => "TextBody".to_owned(),
        "html" => "HtmlBody".to_owned(),
        "headers" => format!("Headers{rest}"),
        "metadata" => format!("Metadata{rest}"),
        "unsubscribe_url" => "Headers.List-Unsubscribe".to_owned(),
        "attachments" => {
            let (place, member) = rest.rsplit_once('.').unwrap_or((rest, ""));
            match member {
                "filename" => format!("Attachments{place}.Name"),
                "content" => format!("Attachments{place}.Content"),
                "content_type" => format!("Attachments{place}.ContentType"),
                "content_id" => format!("Attachments{place}.ContentID"),
                _ => format!("Attachments{rest}"),
            }
        }
        _ => ours.to_owned(),
    }
}

/// Splits a dotted name after its first part. The rest keeps its dot.
fn parted(dotted: &str) -> (&str, &str) {
    dotted.split_at(dotted.find('.').unwrap_or(dotted.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_reported_under_the_clients_name() {
        for (ours, resend, postmark) in [
            ("from", "from", "From"),
            ("from_name", "from", "From"),
            ("text", "text", "TextBody"),
            ("headers.X-Foo.Bar", "headers.X-Foo.Bar", "Headers.X-Foo.Bar"),
            ("headers", "headers", "Headers"),
            ("metadata.a.b", "tags.a.b", "Metadata.a.b"),
            ("attachments", "attachments", "Attachments"),
            ("attachments.3", "attachments.3", "Attachments.3"),
            ("attachments.3.filename", "attachments.3.filename", "Attachments.3.Name"),
            ("attachments.3.content_id", "attachments.3.content_id", "Attachments.3.ContentID"),
            ("unsubscribe_url", "headers.List-Unsubscribe", "Headers.List-Unsubscribe"),
            ("Idempotency-Key", "Idempotency-Key", "Idempotency-Key"),
        ] {
            assert_eq!((of_resend(ours).as_str(), of_postmark(ours).as_str()), (resend, postmark));
        }
        let mut names = Names::of(CompatService::Postmark);
        names.moved("headers.Reply-To", "ReplyTo");
        assert_eq!(
            (names.name("headers.Reply-To").as_str(), names.name("headers.Reply-To2").as_str()),
            ("ReplyTo", "Headers.Reply-To2")
        );
    }
}
