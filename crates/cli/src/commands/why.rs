//! `why`

use actions::{Error, ObjectName, Request};
use why::gather::{GatherError, Options, Target, TargetKind};

use crate::{
    Exit,
    arguments::{DataFormat, Why},
    failure::{Advice, Failure, others_of},
    output,
    session::Session,
    target,
};

pub(crate) async fn run(verb: Why, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let words = target::one_word(&verb.target);
    let (kind, name) = target::explained(&words).map_err(Failure::Client)?;
    let server = session.server().await?;
    let target = Target {
        kind,
        namespace: server.namespace.clone(),
        name,
    };
    let namespace = server.namespace.clone();
    let options = Options::at(session.now());
    let world = why::gather(server.client.clone(), target, options.clone()).await;
    let world = match world {
        // A name without a kind may be that of a run of another kind.
        Err(GatherError::NotFound(object)) if !words.contains('/') => {
            match server.find_other(&object.name).await? {
                Some(other) => {
                    let word = other.name.argument();
                    let (kind, name) = target::explained(&word).map_err(Failure::Client)?;
                    let target = Target {
                        kind,
                        namespace: namespace.clone(),
                        name,
                    };
                    why::gather(server.client, target, options).await
                }
                None => Err(GatherError::NotFound(object)),
            }
        }
        world => world,
    };
    let world = world.map_err(|error| failure(&error, kind, &namespace))?;
    let mut explanation = why::explain(&world);
    for step in &mut explanation.next_steps {
        step.command = session.same_cluster(&step.command);
    }
    let text = match verb.output {
        Some(DataFormat::Json) => output::json(&explanation)?,
        Some(DataFormat::Yaml) => output::yaml(&explanation)?,
        None => why::render(&explanation, session.width(), session.paint.is_on),
    };
    session.print(&text)?;
    Ok(Exit::Ok)
}

fn failure(error: &GatherError, kind: TargetKind, namespace: &str) -> Failure {
    let message = error.to_string();
    match error {
        GatherError::NotFound(_) => Failure::Gone {
            message,
            next: others(kind),
        },
        GatherError::NotInstalled(object) => match kind.row() {
            Some(row) => {
                let object = ObjectName::new(row, &object.name);
                let request = Request::about("get", &object, namespace);
                Failure::from(Error::Unknown(request, message))
            }
            None => Failure::Client(message),
        },
        GatherError::Unreadable(_) => Failure::Client(message),
    }
}

fn others(kind: TargetKind) -> Vec<Advice> {
    match kind.row() {
        Some(row) => others_of(row),
        None => vec![("to see those of a run", "tree RUN".to_owned())],
    }
}

#[cfg(test)]
mod tests {
    use why::ObjectRef;

    use super::*;

    #[test]
    fn what_is_not_there_is_code_5_and_what_cannot_be_read_is_2() {
        let object = ObjectRef::namespaced("TaskRun", "team", "shop-7");
        let missing = failure(
            &GatherError::NotFound(object.clone()),
            TargetKind::TaskRun,
            "team",
        );
        assert_eq!(missing.exit().code(), 5);
        assert!(missing.message().contains("'shop-7'"));
        assert_eq!(missing.advice()[0].1, "get runs");
        let unknown = failure(
            &GatherError::NotInstalled(object),
            TargetKind::TaskRun,
            "team",
        );
        assert_eq!(unknown.exit().code(), 2);
    }
}
