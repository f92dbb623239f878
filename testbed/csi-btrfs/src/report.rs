//! What the driver says on stderr: one line per failing call, and a few about itself.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tonic::{
    Status,
    codegen::{Service, http},
};
use tower::Layer;

/// Writes one line: what is a line break inside of the message, as in the output of a command, becomes `; `.
#[expect(
    clippy::print_stderr,
    reason = "the log of this program is its stderr; this is its one writer"
)]
pub(crate) fn line(message: fmt::Arguments<'_>) {
    eprintln!("{}", one_line(&message.to_string()));
}

fn one_line(text: &str) -> String {
    text.trim()
        .split('\n')
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Logs each call that is answered with an error, the unimplemented ones included.
#[derive(Clone, Debug)]
pub(crate) struct LogFailures;

impl<S> Layer<S> for LogFailures {
    type Service = Logged<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Logged { inner }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Logged<S> {
    inner: S,
}

impl<S, Q, R> Service<http::Request<Q>> for Logged<S>
where
    S: Service<http::Request<Q>, Response = http::Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Q>) -> Self::Future {
        let method = request.uri().path().to_owned();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            // All calls served here are unary, and a unary call's error travels in the headers, not in trailers.
            if let Some(status) = Status::from_header_map(response.headers())
                && status.code() != tonic::Code::Ok
            {
                line(format_args!(
                    "{method} {:?} {}",
                    status.code(),
                    status.message()
                ));
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_command_becomes_one_line() {
        assert_eq!(one_line("ERROR: a\n  b\n"), "ERROR: a; b");
    }
}
