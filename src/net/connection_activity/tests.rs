//! Tests of the deadlines and of the choice of a connection to close.

use super::*;

#[test]
fn each_deadline_follows_the_connection_s_activity() {
    let limits = HttpLimits::default();
    let opened = Instant::now();
    let at = |seconds| opened + Duration::from_micros(1) + Duration::from_secs(seconds);
    let activity = Arc::new(Activity::new(opened, Protocol::Http1));
    assert_eq!(activity.judge(at(3), &limits, false), Verdict::Wait(at(10)));
    assert_eq!(activity.judge(at(10), &limits, false), Verdict::SlowHead);
    let busy = activity.begin();
    assert_eq!(activity.judge(at(500), &limits, false), Verdict::Wait(at(510)));
    drop(busy);
    activity.idle_since.store(1, Relaxed);
    assert_eq!(activity.judge(at(3), &limits, false), Verdict::Wait(at(5)));
    assert_eq!(activity.judge(at(20), &limits, false), Verdict::Wait(at(25)));
    assert_eq!(activity.judge(at(72), &limits, false), Verdict::Wait(at(75)));
    assert_eq!(activity.judge(at(75), &limits, false), Verdict::Idle);
    assert_eq!(activity.judge(at(4), &limits, true), Verdict::Wait(at(5)));
    assert_eq!(activity.judge(at(5), &limits, true), Verdict::Idle, "connections are scarce");
    activity.blocked_since.store(1, Relaxed);
    assert_eq!(activity.judge(at(30), &limits, false), Verdict::Stuck);
}

#[test]
fn a_client_that_reads_no_bytes_of_its_answer_is_stuck() {
    let limits = HttpLimits::default();
    let opened = Instant::now();
    let activity = Arc::new(Activity::new(opened, Protocol::Http2));
    let busy = activity.begin();
    let offers = [busy.offer(), busy.offer()];
    activity.offered_since.store(1, Relaxed);
    let at = |seconds| opened + Duration::from_micros(1) + Duration::from_secs(seconds);
    assert_eq!(activity.judge(at(29), &limits, false), Verdict::Wait(at(39)));
    activity.has_written(&Poll::Ready(Ok(500)));
    assert_eq!(activity.judge(at(30), &limits, false), Verdict::Stuck);
    activity.has_written(&Poll::Ready(Ok(600)));
    assert_eq!(activity.judge(at(30), &limits, false), Verdict::Wait(at(40)), "it still reads");
    assert_eq!(activity.judge(at(60), &limits, false), Verdict::Stuck);
    drop(offers);
    activity.offered_since.store(1, Relaxed);
    assert_eq!(activity.judge(at(500), &limits, false), Verdict::Wait(at(510)), "our own work has no stall limit");
}

#[test]
fn a_connection_can_be_evicted_while_no_request_is_in_flight() {
    let opened = Instant::now();
    let at = |seconds| opened + Duration::from_secs(seconds);
    let activity = Arc::new(Activity::new(opened, Protocol::Http1));
    let rank = |seconds| activity.dispensable(at(seconds)).map(|(rank, _)| rank);
    assert_eq!((rank(1), rank(2)), (Some(EvictionReason::New), Some(EvictionReason::Idle)));
    let request = activity.begin();
    assert_eq!(rank(500), None);
    let body = activity.await_body(false);
    assert_eq!(rank(0), Some(EvictionReason::Unauthenticated));
    let other = activity.begin();
    assert_eq!(rank(0), None, "one request is being processed");
    drop((body, other));
    let answer = request.offer();
    let ranks = [0, 2, 6].map(rank);
    assert_eq!(ranks, [None, Some(EvictionReason::BrieflyUnread), Some(EvictionReason::Unread)]);
    activity.has_written(&Poll::Ready(Ok(1100)));
    assert_eq!(rank(6), Some(EvictionReason::SlowlyRead));
    activity.has_written(&Poll::Ready(Ok(60_000)));
    assert_eq!((rank(6), rank(10)), (None, Some(EvictionReason::SlowlyRead)));
    drop((answer, request));
    let refused_body = activity.linger();
    assert_eq!(rank(0), Some(EvictionReason::Idle));
    assert_eq!(activity.judge(at(500), &HttpLimits::default(), true), Verdict::Wait(at(510)));
    drop(refused_body);
}

#[test]
fn a_connection_that_awaits_an_authenticated_body_is_evicted_last() {
    let opened = Instant::now();
    let activity = Arc::new(Activity::new(opened, Protocol::Http2));
    let rank = |seconds| activity.dispensable(opened + Duration::from_secs(seconds)).map(|(rank, _)| rank);
    let (_known, _stranger) = (activity.begin(), activity.begin());
    let _strangers_body = activity.await_body(false);
    let body = activity.await_body(true);
    assert_eq!((rank(1), rank(6)), (None, Some(EvictionReason::Unsent)));
    assert!(EvictionReason::Unsent > EvictionReason::Unread);
    drop(body);
    assert_eq!(rank(6), None, "one request is being processed");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_seconds_for_each_of_many_small_answers_is_slow() {
    let activity = Arc::new(Activity::new(Instant::now(), Protocol::Http2));
    let rank = || activity.dispensable(Instant::now()).map(|(rank, _)| rank);
    let mut request = activity.begin();
    for round in 0..60 {
        let answer = request.offer();
        tokio::time::advance(Duration::from_secs(3)).await;
        activity.has_written(&Poll::Ready(Ok(60)));
        // The check follows the second answer of each period.
        let is_slow = round % 21 > 0;
        assert!(!is_slow || rank() == Some(EvictionReason::SlowlyRead), "{round}");
        let next = activity.begin();
        drop(answer);
        request = next;
    }
    drop(request.offer());
    for _ in 0..1000 {
        // A client that reads at once is not slow, however little it asks for.
        let answer = request.offer();
        activity.has_written(&Poll::Ready(Ok(60)));
        drop(answer);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let _answer = request.offer();
    assert_eq!(rank(), None);
}
