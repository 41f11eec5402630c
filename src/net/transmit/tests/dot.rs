//! A message whose final dot is withheld.

use super::*;
use crate::engine::ports::{Body, BoxFuture};

/// A message that must not be completed: the final dot is refused.
struct Withheld(Bytes);

impl Body for Withheld {
    fn size(&self) -> usize {
        self.0.len()
    }

    fn read(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        let bytes = self.0.clone();
        Box::pin(async move { Some(bytes) })
    }

    fn may_end(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }
}

#[tokio::test]
async fn a_withheld_message_ends_before_the_final_dot() {
    for length in [10, 200_000] {
        let (listener, target) = listener().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"220 mx\r\n").await.unwrap();
            assert_ne!(stream.read(&mut [0; 64]).await.unwrap(), 0);
            stream.write_all(b"250-mx\r\n250 PIPELINING\r\n").await.unwrap();
            assert_ne!(stream.read(&mut [0; 256]).await.unwrap(), 0);
            stream.write_all(b"250 ok\r\n250 ok\r\n354 go\r\n").await.unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).await.unwrap();
            received
        };
        let transmitter = transmitter(None);
        let client = async {
            let mut session = transmitter.connect(&target).await.unwrap();
            let outcome = session.send(&envelope(), &mut Withheld(Bytes::from(vec![b'a'; length]))).await;
            assert!(!session.is_reusable());
            outcome
        };
        let (received, outcome) = tokio::join!(server, client);
        assert!(matches!(outcome.ending, Ending::Closed(_)), "{outcome:?}");
        assert!(received.len() < length && !received.ends_with(b".\r\n"), "{length}: {} bytes", received.len());
    }
}
