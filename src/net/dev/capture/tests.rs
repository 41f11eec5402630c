//! Tests: captured mail stays until it is cleared.

use super::*;
use crate::base::secret::Secret;
use crate::domain::token_key::TokenKeys;

/// A clock that advances by a second on each reading.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + 1000 * self.0.fetch_add(1, Ordering::Relaxed))
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

fn open(data_dir: &Path) -> Capture {
    Capture::open(data_dir, Arc::new(Ticking(AtomicU64::new(0)))).unwrap()
}

fn keep(capture: &Capture, text: &str) -> MessageId {
    capture.keep("b@bounces.example".to_owned(), "to@example.com".to_owned(), text.as_bytes()).unwrap()
}

const ONE: &str = "msg_01HF7YAT00000000000000000A";
const TWO: &str = "msg_01HF7YAT00000000000000000B";

fn message(id: &str, subject: &str) -> String {
    format!("Subject: {subject}\r\nMessage-ID:\r\n <{id}@example.test>\r\n\r\nBody\n\r\0\r\n")
}

#[test]
fn captured_mail_survives_reopening_newest_first_with_its_bytes() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    keep(&capture, &message(TWO, "first"));
    keep(&capture, &message(ONE, "=?UTF-8?Q?gr=C3=BC=C3=9Fe?=\r\n =?UTF-8?B?IQ==?="));
    let listed = capture.list();
    let subjects: Vec<_> = listed.iter().map(|mail| mail.subject.as_deref()).collect();
    assert_eq!(subjects, [Some("grüße!"), Some("first")]);
    drop(capture);

    fs::write(data_dir.path().join("captured/7.partial"), "half").unwrap();
    fs::write(data_dir.path().join("captured/other.mail"), "not ours").unwrap();
    let reopened = open(data_dir.path());
    assert_eq!(reopened.list(), listed);
    let (mail, bytes) = reopened.get(TWO.parse().unwrap()).unwrap().unwrap();
    assert_eq!((mail, bytes), (listed[1].clone(), message(TWO, "first").into_bytes()));
    assert!(!data_dir.path().join("captured/7.partial").exists());
}

#[test]
fn only_the_owner_can_read_captured_mail_even_from_earlier_versions() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let data_dir = tempfile::tempdir().unwrap();
    let directory = data_dir.path().join("captured");
    let capture = open(data_dir.path());
    keep(&capture, &message(ONE, "secret"));
    let file = directory.join(format!("{ONE}.mail"));
    assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
    drop(capture);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    open(data_dir.path());
    assert_eq!((mode(&directory), mode(&file)), (0o700, 0o600));
}

#[test]
fn a_message_received_twice_is_listed_once_with_its_latest_content() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    for subject in ["early", "late"] {
        keep(&capture, &message(ONE, subject));
    }
    assert_eq!(capture.list().len(), 1);
    assert_eq!(capture.get(ONE.parse().unwrap()).unwrap().unwrap().0.subject.as_deref(), Some("late"));
    assert_eq!(open(data_dir.path()).list(), capture.list());
}

#[test]
fn mail_without_one_of_our_identifiers_gets_one() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    for text in ["", "no header", "Message-ID: <x@y>\r\n\r\n", "Message-ID: <msg_../../evil@y>\r\n\r\n"] {
        let id = keep(&capture, text);
        assert_eq!(capture.get(id).unwrap().unwrap().1, text.as_bytes());
    }
    assert_eq!(capture.list().len(), 4);
}

#[test]
fn clearing_removes_the_files_and_the_index() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    let id = keep(&capture, &message(ONE, "x"));
    keep(&capture, &message(TWO, "y"));
    capture.clear().unwrap();
    assert_eq!((capture.list(), capture.get(id).unwrap()), (Vec::new(), None));
    assert_eq!(fs::read_dir(data_dir.path().join("captured")).unwrap().count(), 0);
}

#[test]
fn the_listed_record_has_the_contracts_members() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    keep(&capture, &message(ONE, "x"));
    assert_eq!(
        serde_json::to_string(&capture.list()).unwrap(),
        format!(
            "[{{\"message_id\":\"{ONE}\",\"mail_from\":\"b@bounces.example\",\"rcpt_to\":\"to@example.com\",\
             \"received_at\":\"2023-11-14T22:13:20.000+00:00\",\"subject\":\"x\",\
             \"from\":null,\"account_id\":null}}]"
        )
    );
}

#[tokio::test]
async fn a_wait_ends_when_a_matching_message_arrives() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    let mail = |id: &str| format!("From: Shop <Shop@example.test>\r\n{}", message(id, "Your CODE is 7"));
    let filter = MailFilter {
        to: Some("to@example.com".to_owned()),
        from: Some("shop@example.test".to_owned()),
        subject: Some("your code".to_owned()),
        account: None,
    };
    assert!(capture.wait_for(&filter, 1, Duration::ZERO).await.is_empty());
    let wait = Duration::from_secs(60);
    let (found, _) = tokio::join!(capture.wait_for(&filter, 2, wait), async {
        keep(&capture, &message(TWO, "another"));
        keep(&capture, &mail(ONE));
        capture.keep(String::new(), "TO@Example.com".to_owned(), mail("msg_01HF7YAT00000000000000000C").as_bytes())
    });
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].from.as_deref(), Some("Shop@example.test"));
    let (found, ()) = tokio::join!(capture.wait_for(&filter, 3, wait), async { capture.end_waits() });
    assert_eq!(found.len(), 2, "a shutdown ends every wait");
}

#[test]
fn removing_an_account_s_mail_keeps_the_rest_and_erased_messages_are_not_stored() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    let (one, account): (MessageId, AccountId) = (ONE.parse().unwrap(), AccountId::default());
    capture.find_accounts(Box::new(move |message| (message == one).then_some(account)));
    keep(&capture, &message(ONE, "own"));
    keep(&capture, &message(TWO, "from elsewhere"));
    assert_eq!(capture.list()[1].account_id, Some(account));
    capture.remove_of(account).unwrap();
    assert_eq!(capture.list().len(), 1);
    let keys = TokenKeys::new(Secret::new([7; 32]));
    let path = format!("{}@bounces.example", return_path::encode(account, TWO.parse().unwrap(), &keys));
    capture.keep(path, "to@example.com".to_owned(), message(TWO, "erased").as_bytes()).unwrap();
    assert_eq!(capture.list()[0].subject.as_deref(), Some("from elsewhere"));
}

#[test]
fn a_message_with_the_client_s_message_id_is_found_by_our_identifier() {
    let data_dir = tempfile::tempdir().unwrap();
    let capture = open(data_dir.path());
    let (own, account): (MessageId, AccountId) = (ONE.parse().unwrap(), AccountId::default());
    capture.find_accounts(Box::new(move |message| (message == own).then_some(account)));
    let keys = TokenKeys::new(Secret::new([7; 32]));
    let path = format!("{}@bounces.example", return_path::encode(account, own, &keys));
    for id in ["order-1@shop.example", &format!("{TWO}@example.test")] {
        let mail = format!("Message-ID: <{id}>\r\nSubject: x\r\n\r\nx\r\n");
        capture.keep(path.clone(), "to@example.com".to_owned(), mail.as_bytes()).unwrap();
        assert_eq!((capture.list()[0].message_id, capture.list()[0].account_id), (own, Some(account)));
    }
    assert_eq!(capture.list().len(), 1);
}
