//! Memory budget for answers that wait for their client, charged like request bodies ([`super::body_budget`]). A client
//! that requests much and reads nothing must not use up the memory of others.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::Method;
use hyper::body::{Body, Frame, SizeHint};

use super::answer::Answer;
use super::body_budget::{BodyBudgets, BudgetHolder, Charge, ExcessPolicy, UNCHARGED_BYTES};
use super::error::ApiError;
use crate::net::http_body::BodyStream;

/// Charged bytes of a streamed answer: the part in transit and the part that the client has not read yet.
const STREAM_BYTES: usize = 96 * 1024;

/// Charges the bytes of `answer` to the client, until the last of them is sent or dropped. Small answers and those to
/// the operator are free.
///
/// # Errors
/// [`ApiError::Overloaded`] if the holder, or all together, hold too much. An account still gets the answer to its own
/// changes: then the charge overdraws its share.
pub(super) fn charged(
    mut answer: Answer,
    method: &Method,
    budgets: &Arc<BodyBudgets>,
    charged_to: BudgetHolder,
) -> Result<Answer, ApiError> {
    let holder = answer.account().map_or(charged_to, BudgetHolder::Account);
    // The body of an answer to HEAD is dropped at once.
    if holder == BudgetHolder::Operator || *method == Method::HEAD {
        return Ok(answer);
    }
    let changes = *method != Method::GET;
    let excess = if changes && matches!(holder, BudgetHolder::Account(_)) {
        ExcessPolicy::Overdraw
    } else {
        ExcessPolicy::Refuse
    };
    if let Some(bytes) = answer.own_bytes().filter(|bytes| bytes.len() > UNCHARGED_BYTES) {
        let charge = Charge::of_answer(budgets, holder, bytes.len(), excess)?;
        *bytes = charge.hold(std::mem::replace(bytes, Bytes::new()));
    }
    if answer.is_stream() {
        let charge = Charge::of_answer(budgets, holder, STREAM_BYTES, excess)?;
        answer.wrap_stream(|stream| Box::pin(ChargedStream { stream, _charge: charge }));
    }
    Ok(answer)
}

/// A streamed body with its charge, until it ends.
struct ChargedStream {
    stream: BodyStream,
    _charge: Charge,
}

impl Body for ChargedStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.stream.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, Empty};
    use hyper::StatusCode;

    use super::*;
    use crate::base::id::{AccountId, Ulid};
    use crate::http::body_budget::BudgetSizes;

    fn budgets() -> Arc<BodyBudgets> {
        Arc::new(BodyBudgets::new(&BudgetSizes { shared: 80_000, strangers: 40_000, stranger: 10_000 }))
    }

    fn account(id: u8) -> BudgetHolder {
        BudgetHolder::Account(AccountId(Ulid([id; 16])))
    }

    fn of(bytes: impl Into<Bytes>) -> Answer {
        Answer::bytes(StatusCode::OK, "text/plain", bytes)
    }

    #[test]
    fn unread_answers_of_one_account_use_at_most_a_quarter() {
        let budgets = budgets();
        let ask = |method, holder| charged(of(vec![b'x'; 10_000]), &method, &budgets, holder);
        let held = [ask(Method::GET, account(1)).unwrap(), ask(Method::GET, account(1)).unwrap()];
        assert_eq!(ask(Method::GET, account(1)).err(), Some(ApiError::Overloaded));
        assert!(ask(Method::GET, account(2)).is_ok());
        assert!(ask(Method::HEAD, account(1)).is_ok() && ask(Method::GET, BudgetHolder::Operator).is_ok());
        drop(held);
        assert!(ask(Method::GET, account(1)).is_ok());
    }

    #[test]
    fn streams_of_one_account_use_at_most_a_quarter_until_they_end() {
        let sizes = BudgetSizes { shared: 8 * STREAM_BYTES, strangers: 0, stranger: 0 };
        let budgets = Arc::new(BodyBudgets::new(&sizes));
        let ask = |holder| {
            let stream: BodyStream =
                Box::pin(Empty::<Bytes>::new().map_err(|never: Infallible| -> io::Error { match never {} }));
            charged(Answer::stream(StatusCode::OK, "text/csv", stream), &Method::GET, &budgets, holder)
        };
        let held = [ask(account(1)).unwrap(), ask(account(1)).unwrap()];
        assert_eq!(ask(account(1)).err(), Some(ApiError::Overloaded));
        assert!(ask(account(2)).is_ok() && ask(BudgetHolder::Operator).is_ok());
        drop(held);
        assert!(ask(account(1)).is_ok());
    }

    #[test]
    fn an_answer_to_a_change_overdraws_the_share() {
        let budgets = budgets();
        let ask = |method, bytes| charged(of(vec![b'x'; bytes]), &method, &budgets, account(1));
        let held = [ask(Method::GET, 20_000).unwrap(), ask(Method::POST, 5000).unwrap()];
        assert_eq!(Charge::new(&budgets, account(1)).grow(1), Err(ApiError::Overloaded));
        drop(held);
        assert_eq!(Charge::new(&budgets, account(1)).grow(20_000), Ok(()));
    }

    #[test]
    fn an_answer_larger_than_the_share_is_allowed_if_nothing_else_is_charged() {
        let budgets = budgets();
        let ask = || charged(of(vec![b'x'; 30_000]), &Method::GET, &budgets, account(1));
        let held = ask().unwrap();
        assert_eq!(ask().err(), Some(ApiError::Overloaded));
        drop(held);
        assert!(ask().is_ok());
    }

    #[test]
    fn answers_to_a_signed_in_visitor_are_charged_to_the_account() {
        let budgets = budgets();
        let ask = |bytes| {
            let answer = of(vec![b'x'; bytes]).for_account(AccountId(Ulid([1; 16])));
            charged(answer, &Method::GET, &budgets, BudgetHolder::Unauthenticated(None))
        };
        let _held = ask(20_000).unwrap();
        assert_eq!(ask(5000).err(), Some(ApiError::Overloaded));
    }

    #[test]
    fn unauthenticated_clients_have_a_share_beside_small_and_shared_answers() {
        let budgets = budgets();
        let cached = Bytes::from(vec![b'x'; 20_000]);
        let ask = |bytes: Bytes| charged(of(bytes), &Method::POST, &budgets, BudgetHolder::Unauthenticated(None));
        let _held = ask(vec![b'x'; 10_000].into()).unwrap();
        assert_eq!(ask(vec![b'x'; UNCHARGED_BYTES + 1].into()).err(), Some(ApiError::Overloaded));
        assert!(ask(vec![b'x'; UNCHARGED_BYTES].into()).is_ok());
        assert!(ask(cached.clone()).is_ok() && ask(Bytes::from_static(&[b'x'; 20_000])).is_ok());
    }
}
