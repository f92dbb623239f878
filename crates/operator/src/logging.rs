//! Logs: to standard error, at a level for everything.

use std::io::{self, IsTerminal};

use anyhow::Context;
use clap::ValueEnum;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// What is logged unless the configuration says otherwise: everything at `info`, and of talkative
/// dependencies only what is wrong.
///
/// A plain level and never a list of our crates: a crate that is missing in such a list says
/// nothing, not even that it failed.
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

/// Starts logging, for the whole process.
///
/// # Errors
/// When the filter is not valid, or logging was started before.
pub fn start(format: Format, filter: &str) -> anyhow::Result<()> {
    let filter = check(filter).map_err(anyhow::Error::msg)?;
    let subscriber = subscriber(format, filter, io::stderr);
    tracing::subscriber::set_global_default(subscriber).context("logging was started before")
}

/// The filter that these words make.
///
/// # Errors
/// When one is not understood, or when there is no level for everything: all crates that are not
/// named would be silent.
pub fn check(filter: &str) -> Result<EnvFilter, String> {
    let words = filter.split(',').map(str::trim);
    let mut level = None;
    for word in words.filter(|word| !word.is_empty()) {
        if let Ok(found) = word.parse::<LevelFilter>() {
            level = Some(found);
        }
    }
    match level {
        None => Err(format!(
            "'{filter}' has no level for everything, so that whatever it does not name would be \
             silent, errors too; begin it with one, such as 'info,{filter}'"
        )),
        Some(LevelFilter::OFF) => Err(format!("'{filter}' silences everything, errors too")),
        Some(_) => EnvFilter::builder().parse(filter).map_err(|error| {
            format!("'{filter}' is not a filter such as 'info,engine=debug': {error}")
        }),
    }
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

    /// Events are made by hand, because the macros want targets that are known to the compiler.
    struct Site(Level, String);

    impl Callsite for Site {
        fn set_interest(&self, _: Interest) {}
        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("this site is never registered")
        }
    }

    /// What is written when something says "said" with this target at this level.
    fn written(format: Format, filter: &str, level: Level, target: &str) -> String {
        let page = Page::default();
        let writer = page.clone();
        let filter = EnvFilter::builder().parse(filter).unwrap();
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
            "error",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "engine=debug",
            "engine=debug,",
            "off",
            "info,off",
            "engine",
            "info,engine=loud",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
        let advice = check("engine=debug").unwrap_err();
        assert!(advice.contains("'info,engine=debug'"), "{advice}");
    }
}
