//! Logs to standard error, with one level for all crates.

use std::io::{self, IsTerminal};

use anyhow::Context;
use clap::ValueEnum;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The default filter: everything at `info`, and only warnings and errors of verbose dependencies.
///
/// It has a plain level, never a list of our crates. A crate that is missing in such a list logs nothing,
/// not even its errors.
pub const DEFAULT: &str =
    "info,hyper=warn,hyper_util=warn,kube_client=warn,russh=warn,rustls=warn,tower=warn";

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object a line, for programs.
    Json,
    /// For people.
    Human,
}

/// Starts logging for the whole process.
///
/// # Errors
/// When the filter is not valid, or logging was started before.
pub fn start(format: Format, filter: &str) -> anyhow::Result<()> {
    let filter = check(filter).map_err(anyhow::Error::msg)?;
    let subscriber = subscriber(format, filter, io::stderr);
    tracing::subscriber::set_global_default(subscriber).context("logging was started before")
}

/// Parses a filter.
///
/// # Errors
/// When a directive is not valid. When there is no level for everything: all crates that are not named
/// would be silent. When a directive turns a target off: its errors would be silent, too.
pub fn check(filter: &str) -> Result<EnvFilter, String> {
    let directives = without_spaces(filter);
    let mut level = None;
    for word in directives.split(',').filter(|word| !word.is_empty()) {
        if let Ok(found) = word.parse::<LevelFilter>() {
            level = Some(found);
        }
        if let Some((target, value)) = word.rsplit_once('=')
            && matches!(value.parse(), Ok(LevelFilter::OFF))
        {
            return Err(format!(
                "'{word}' silences '{target}', errors too; use '{target}=error'"
            ));
        }
    }
    match level {
        None => Err(format!(
            "'{filter}' has no level for everything, so that whatever it does not name would be \
             silent, errors too; begin it with one, such as 'info,{filter}'"
        )),
        Some(LevelFilter::OFF) => Err(format!("'{filter}' silences everything, errors too")),
        Some(_) => EnvFilter::builder().parse(&directives).map_err(|error| {
            format!("'{filter}' is not a filter such as 'info,engine=debug': {error}")
        }),
    }
}

/// Removes the spaces around directives and around `=`. `EnvFilter` treats ' warn' as the name of a target.
/// Then every target that no other directive names is silent.
fn without_spaces(filter: &str) -> String {
    let directives = filter.split(',').map(|directive| {
        let sides = directive.split('=').map(str::trim);
        sides.collect::<Vec<_>>().join("=")
    });
    directives.collect::<Vec<_>>().join(",")
}

fn subscriber<W>(format: Format, filter: EnvFilter, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(filter)
        .with_writer(writer);
    match format {
        Format::Json => Box::new(builder.json().flatten_event(true).finish()),
        Format::Human => Box::new(builder.finish()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::Path,
        sync::{Arc, Mutex},
    };

    use tracing::{
        Dispatch, Event, Level, Metadata,
        callsite::{Callsite, Identifier},
        field::{FieldSet, Value},
        metadata::Kind,
        subscriber::Interest,
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A call site for events that are created by hand. The macros need targets that are known to the
    /// compiler.
    struct Site(Level, String);

    impl Callsite for Site {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("this site is never registered")
        }
    }

    /// Returns the output for an event with this level and target, and with the message `said`.
    fn written(format: Format, filter: &str, level: Level, target: &str) -> String {
        let page = Page::default();
        let writer = page.clone();
        let filter = EnvFilter::builder().parse(without_spaces(filter)).unwrap();
        let subscriber = subscriber(format, filter, move || writer.clone());
        let site: &'static Site = Box::leak(Box::new(Site(level, target.to_owned())));
        let fields = FieldSet::new(&["message"], Identifier(site));
        let event = Metadata::new(
            "event",
            &site.1,
            site.0,
            None,
            None,
            None,
            fields,
            Kind::EVENT,
        );
        let event: &'static Metadata<'static> = Box::leak(Box::new(event));
        let dispatch = Dispatch::new(subscriber);
        if dispatch.enabled(event) {
            let message = event.fields().field("message").unwrap();
            let values = [(&message, Some(&"said" as &dyn Value))];
            dispatch.event(&Event::new(event, &event.fields().value_set(&values)));
        }
        String::from_utf8(page.0.lock().unwrap().clone()).unwrap()
    }

    fn crates() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let manifest = entry.unwrap().path().join("Cargo.toml");
            let text = fs::read_to_string(&manifest).unwrap();
            let manifest: toml::Table = text.parse().unwrap();
            let name = manifest["package"]["name"].as_str().unwrap();
            names.push(name.replace('-', "_"));
        }
        names.push("orchestrator".to_owned());
        names
    }

    #[test]
    fn r01_every_workspace_crate_logs_at_the_default_filter() {
        let names = crates();
        for wanted in ["api", "engine", "operator"] {
            assert!(names.iter().any(|name| name == wanted), "{names:?}");
        }
        for name in names {
            for target in [name.clone(), format!("{name}::deep::inside")] {
                for level in [Level::ERROR, Level::WARN, Level::INFO] {
                    for format in [Format::Json, Format::Human] {
                        let text = written(format, DEFAULT, level, &target);
                        assert!(
                            text.contains("said") && text.contains(level.as_str()),
                            "{target} is silent at {level}: '{text}'"
                        );
                    }
                }
                assert_eq!(written(Format::Json, DEFAULT, Level::DEBUG, &target), "");
            }
        }
    }

    #[test]
    fn the_test_above_would_see_a_list_of_crates() {
        let list = "operator=info,kube=info";
        assert_eq!(written(Format::Json, list, Level::ERROR, "engine"), "");
    }

    #[test]
    fn talkative_dependencies_say_only_what_is_wrong() {
        for target in [
            "hyper::proto",
            "rustls::client",
            "kube_client::client",
            "tower::buffer",
        ] {
            assert_eq!(written(Format::Json, DEFAULT, Level::INFO, target), "");
            assert!(written(Format::Json, DEFAULT, Level::WARN, target).contains("said"));
        }
    }

    #[test]
    fn a_line_of_json_is_json() {
        let text = written(Format::Json, DEFAULT, Level::INFO, "engine");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&line["level"], &line["target"]),
            (&"INFO".into(), &"engine".into())
        );
        assert_eq!(line["message"], "said");
    }

    #[test]
    fn r01_a_filter_that_silences_what_it_does_not_name_is_refused() {
        for good in [
            DEFAULT,
            "debug",
            "info,engine=debug",
            "engine=debug, WARN",
            " info , engine = debug ",
            "error",
            "info,tasks=error,engine::pass=error",
        ] {
            assert!(check(good).is_ok(), "{good}");
            for name in crates() {
                let text = written(Format::Json, good, Level::ERROR, &name);
                assert!(text.contains("said"), "'{good}' silences {name}");
            }
        }
        for bad in [
            "",
            "engine=debug",
            "engine=debug,",
            "off",
            "info,off",
            "engine",
            "info,engine=loud",
            "info,tasks=off",
            "info,tasks = OFF",
            "info,tasks=0",
            "info,engine::pass=off",
            "tenants=off,info,engine=debug",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        let advice = check("engine=debug").unwrap_err();
        assert!(advice.contains("'info,engine=debug'"), "{advice}");
        let advice = check("info,tasks=off").unwrap_err();
        assert!(advice.contains("'tasks=error'"), "{advice}");
    }
}
