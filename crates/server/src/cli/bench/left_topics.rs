//! The topics that a benchmark creates at a running server, and removes again.

use bytes::Bytes;
use hyper::Method;
use prombus_client::transport::{HttpClient, HttpFailure, HttpResponse};
use prombus_proto::{ErrorCode, Topic};

use crate::cli::server_arguments::Endpoint;

/// Topics that did not exist before the benchmark.
pub(super) struct LeftTopics {
    http: HttpClient,
    topics: Vec<Topic>,
}

impl LeftTopics {
    /// Finds those of `topics` that the server does not have. A server that does not say so keeps all of them.
    pub(super) async fn among(endpoint: &Endpoint, topics: Vec<Topic>) -> Option<Self> {
        let mut http = match endpoint.http() {
            Ok(http) => http,
            Err(error) => {
                eprintln!("prombus: the topics of the benchmark will stay: {error}");
                return None;
            }
        };
        let mut absent = Vec::new();
        for topic in topics {
            match exists(http.get(&path(&topic)).await).await {
                Ok(true) => {}
                Ok(false) => absent.push(topic),
                Err(failure) => {
                    eprintln!("prombus: the topics of the benchmark will stay: {failure}");
                    return None;
                }
            }
        }
        Some(Self { http, topics: absent })
    }

    /// Deletes them, also those that nothing was published to in the end.
    pub(super) async fn remove(mut self) {
        for topic in self.topics {
            let path = path(&topic);
            let answer = self.http.send(Method::DELETE, &path, "application/json", Bytes::new());
            if let Err(failure) = exists(answer.await).await {
                eprintln!("prombus: cannot remove the topic {topic}: {failure}");
            }
        }
    }
}

fn path(topic: &Topic) -> String {
    format!("/topics/{topic}")
}

/// Returns `true` if the server knew the topic of a request.
async fn exists(answer: Result<HttpResponse, HttpFailure>) -> Result<bool, HttpFailure> {
    match answer {
        Ok(response) => response.bytes().await.map(|_| true),
        Err(HttpFailure::Refused { code, .. }) if code == ErrorCode::UnknownTopic.as_str() => {
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}
