//! Interim answers: a few are skipped, an endless series is an error.

use super::*;

const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
const FINAL: &str = "HTTP/1.1 202 Ok\r\nContent-Length: 0\r\n\r\n";

async fn answered(text: &str) -> (Option<u16>, Option<PostError>) {
    let outcome = World::new(answers(text)).await.post().await;
    (outcome.status, outcome.error)
}

#[tokio::test]
async fn up_to_sixteen_interim_answers_are_skipped() {
    let good = (Some(202), None);
    assert_eq!(answered(&format!("HTTP/1.1 100 Continue\r\n\r\n{INTERIM}{FINAL}")).await, good);
    assert_eq!(answered(&format!("{}{FINAL}", INTERIM.repeat(16))).await, good);
    let too_many = answered(&format!("{}{FINAL}", INTERIM.repeat(17))).await;
    assert_eq!(too_many, (None, Some(PostError::Protocol)));
}

#[tokio::test]
async fn interim_answers_without_an_end_fail_the_attempt_before_its_deadline() {
    for text in ["HTTP/1.1 100 Continue\r\n\r\n", INTERIM] {
        let outcome = World::new(Does::Repeats(text)).await.post().await;
        assert_eq!((outcome.status, outcome.error), (None, Some(PostError::Protocol)));
        assert!(outcome.duration < TEST_DEADLINE, "{outcome:?}");
    }
}

#[tokio::test]
async fn at_most_64_kib_may_precede_the_final_head() {
    let long = format!("HTTP/1.1 103 Early Hints\r\nLink: <{}>\r\n\r\n", "a".repeat(6000));
    assert_eq!(answered(&format!("{}{FINAL}", long.repeat(5))).await, (Some(202), None));
    let too_long = answered(&format!("{}{FINAL}", long.repeat(16))).await;
    assert_eq!(too_long, (None, Some(PostError::Protocol)));
}

#[tokio::test]
async fn the_interim_answer_limit_applies_to_each_request() {
    let world = World::new(Does::KeepsAlive(concat!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 204 Fine\r\n\r\n"
    )))
    .await;
    for _ in 0..5 {
        let outcome = world.post().await;
        assert_eq!((outcome.status, outcome.error), (Some(204), None));
    }
    assert_eq!(world.connections.load(Ordering::SeqCst), 1);
}
