//! Text of errors.

use std::error::Error;

/// Joins an error and its causes, the deepest one last. A cause whose text is already contained is left
/// out.
///
/// An error of the client shows only its outermost layer: `client error (Connect)`. The cause, such as
/// `Connection refused`, is some layers below. Each layer implements [`Error::source`].
///
/// An error of the API server prints its response twice, the second time with all fields in the form of [`Debug`], in
/// parentheses. That form is left out.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = text.replace(&format!(" ({cause:?})"), "");
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<dyn Error + Send + Sync>>);

    impl fmt::Display for Layer {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|cause| &**cause as _)
        }
    }

    fn below(text: &'static str, cause: impl Error + Send + Sync + 'static) -> Layer {
        Layer(text, Some(Box::new(cause)))
    }

    #[test]
    fn the_deepest_cause_is_shown_and_nothing_twice() {
        let dns = "failed to lookup address information: Name or service not known";
        let expired = "invalid peer certificate: certificate expired";
        let cases: [(Layer, String); 5] = [
            (Layer("alone", None), "alone".to_owned()),
            (
                below(
                    "ServiceError: client error (Connect)",
                    below(
                        "client error (Connect)",
                        below("tcp connect error", io::Error::other("Connection refused")),
                    ),
                ),
                "ServiceError: client error (Connect): tcp connect error: Connection refused"
                    .to_owned(),
            ),
            // The client prints a response of the API server with all of its fields.
            (
                below(
                    "no list: ApiError: not found: NotFound (Layer(\"not found: NotFound\", None))",
                    below(
                        "ApiError: not found: NotFound (Layer(\"not found: NotFound\", None))",
                        Layer("not found: NotFound", None),
                    ),
                ),
                "no list: ApiError: not found: NotFound".to_owned(),
            ),
            (
                below(
                    "client error (Connect)",
                    below("dns error", io::Error::other(dns)),
                ),
                format!("client error (Connect): dns error: {dns}"),
            ),
            // An io::Error prints the error inside of it.
            (
                below(
                    "client error (Connect)",
                    io::Error::other(Layer("invalid peer certificate: certificate expired", None)),
                ),
                format!("client error (Connect): {expired}"),
            ),
        ];
        for (error, wanted) in cases {
            assert_eq!(chain(&error), wanted);
        }
    }
}
