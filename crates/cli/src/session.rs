//! The session of one command: its output, its colors, and its cluster.

use std::{
    io::{self, Write},
    time::Duration,
};

use actions::{Error, Object, ObjectName, Request};
use api::{
    Timestamp,
    tasks::{AGENT, TASK_RUN},
};
use kube::Client;

use crate::{
    Exit,
    arguments::Cluster,
    environment::Environment,
    failure::Failure,
    server, target,
    text::{Paint, Tone, clean},
};

/// Timeout of one request to the server. Without it, a connection that hangs would block the
/// command.
const ANSWER: Duration = Duration::from_secs(30);

/// Number of columns if the terminal does not report it.
const WIDTH: usize = 80;

/// Number of lines if the terminal does not report it.
const HEIGHT: usize = 24;

/// The session of one command.
pub(crate) struct Session<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
    pub(crate) paint: Paint,
    cluster: Cluster,
}

/// The cluster and the namespace that a command uses.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Server {
    /// Reads an object of any kind.
    pub(crate) async fn get(&self, name: &ObjectName) -> Result<Object, Failure> {
        let action = actions::get(&self.client, &self.namespace, name);
        bounded(self.request("get", name), action).await
    }

    /// Reads the run of this name: the TaskRun, or else the only run of another kind.
    ///
    /// # Errors
    /// No TaskRun has the name, and no other run; or several others have it.
    pub(crate) async fn find(&self, name: &str) -> Result<Object, Failure> {
        match self.get(&ObjectName::new(&TASK_RUN, name)).await {
            Err(failure) if failure.exit() == Exit::NotFound => {
                Ok(self.find_other(name).await?.ok_or(failure)?)
            }
            found => found,
        }
    }

    /// Reads the only run of this name that is not a TaskRun, if there is one.
    pub(crate) async fn find_other(&self, name: &str) -> Result<Option<Object>, Failure> {
        let mut found = Vec::new();
        for kind in target::kinds_of_runs() {
            let object = ObjectName::new(kind, name);
            if *kind == TASK_RUN {
                continue;
            }
            // A kind that cannot be read is skipped: the caller reports that no TaskRun has the
            // name, which is true, and suggests the list, which names the missing permission.
            if let Ok(object) = self.get(&object).await {
                found.push(object);
            }
        }
        only(name, found)
    }

    /// Returns a request about an object, for error messages.
    pub(crate) fn request(&self, verb: &'static str, name: &ObjectName) -> Request {
        Request::about(verb, name, &self.namespace)
    }
}

/// Returns the only one of several runs with the same name.
fn only(name: &str, mut found: Vec<Object>) -> Result<Option<Object>, Failure> {
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let names: Vec<String> = found.iter().map(|run| run.name.argument()).collect();
    let names = names.join("' and '");
    Err(Failure::client(format!(
        "several runs have the name '{name}'; name the kind: '{names}'"
    )))
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        environment: &'a Environment,
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
        cluster: Cluster,
    ) -> Self {
        let is_on = environment.is_terminal && !environment.no_color && !cluster.no_color;
        Self {
            environment,
            out,
            err,
            paint: Paint { is_on },
            cluster,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.environment.now)()
    }

    /// Returns the terminal's columns, or `None` if the output is not a terminal.
    pub(crate) fn room(&self) -> Option<usize> {
        self.environment.is_terminal.then(|| self.screen().0)
    }

    /// Returns the columns and lines of the terminal.
    pub(crate) fn screen(&self) -> (usize, usize) {
        (self.environment.size)().unwrap_or((WIDTH, HEIGHT))
    }

    /// Returns the number of columns for wrapped text.
    pub(crate) fn width(&self) -> usize {
        self.room().unwrap_or(WIDTH)
    }

    pub(crate) fn print(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.print(&format!("{text}\n"))
    }

    /// Prints a remark to the standard error, so that it does not mix with the data of the output.
    pub(crate) fn remark(&mut self, text: &str) -> io::Result<()> {
        self.err.write_all(format!("{text}\n").as_bytes())?;
        self.err.flush()
    }

    /// Prints the next command about an object to the standard error.
    pub(crate) fn hint(&mut self, purpose: &str, verb: &str, name: &ObjectName) -> io::Result<()> {
        let next = self.command(&format!("{verb} {}", name.argument()));
        self.remark(&format!("  {purpose}: {next}"))
    }

    /// Returns a command that a user can type, with the same cluster flags as the current command.
    pub(crate) fn command(&self, rest: &str) -> String {
        command(self.environment.program, &self.cluster, rest)
    }

    /// Returns a suggested command for the same cluster as the current command, with the name of the program that users
    /// type. It has a namespace already.
    pub(crate) fn same_cluster(&self, line: &str) -> String {
        same_cluster(self.environment.program, &self.cluster, line)
    }

    pub(crate) fn namespace_flag(&self) -> Option<&str> {
        self.cluster.namespace.as_deref()
    }

    pub(crate) async fn server(&self) -> Result<Server, Failure> {
        let config = server::config(&self.cluster, self.environment).await?;
        let namespace = self
            .cluster
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = server::client(config)?;
        Ok(Server { client, namespace })
    }

    /// Prints the failure and suggestions for the next step.
    pub(crate) fn report(&mut self, failure: &Failure) -> io::Result<()> {
        if failure.is_silent() {
            return Ok(());
        }
        let is_on = self.environment.is_error_terminal
            && !self.environment.no_color
            && !self.cluster.no_color;
        let word = Paint { is_on }.apply(Tone::Bad, "error:");
        let message = clean(&failure.message());
        self.remark(&format!("{word} {message}"))?;
        for (what, next) in failure.advice() {
            let next = self.command(&next);
            self.remark(&format!("  {what}: {next}"))?;
        }
        if let Some((agent, namespace)) = failure.unusable_agent() {
            let check = self.kubectl(
                &format!("auth can-i use {}/{agent}", AGENT.crd_name),
                namespace,
            );
            self.remark(&format!(
                "  an administrator can allow you to use it; to see whether you may: {check}"
            ))?;
        }
        Ok(())
    }

    /// Returns a command of kubectl, for the same cluster as the current command.
    pub(crate) fn kubectl(&self, rest: &str, namespace: String) -> String {
        let cluster = Cluster {
            namespace: Some(namespace),
            ..self.cluster.clone()
        };
        command("kubectl", &cluster, rest)
    }
}

/// Adds the flags of the cluster in front of the verb, where a pipe or a `--` cannot be in the way.
fn same_cluster(program: &str, cluster: &Cluster, line: &str) -> String {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (program, context) = match name {
        "orc" => (program, "--context"),
        "kubectl" => (name, "--context"),
        "helm" => (name, "--kube-context"),
        _ => return line.to_owned(),
    };
    let path = cluster.kubeconfig.as_ref();
    let path = path.map(|path| path.display().to_string());
    let mut words = vec![program.to_owned()];
    for (flag, value) in [(context, &cluster.context), ("--kubeconfig", &path)] {
        words.extend(value.iter().map(|value| format!("{flag} {value}")));
    }
    words.push(rest.to_owned());
    words.join(" ")
}

fn command(program: &str, cluster: &Cluster, rest: &str) -> String {
    let Cluster {
        namespace,
        context,
        kubeconfig,
        no_color: _,
    } = cluster;
    let mut line = format!("{program} {rest}");
    let path = kubeconfig.as_ref().map(|path| path.display().to_string());
    for (flag, value) in [
        ("-n", namespace),
        ("--context", context),
        ("--kubeconfig", &path),
    ] {
        if let Some(value) = value {
            // Insert the flags before a redirection, which ends the command.
            let at = line.find(" < ").unwrap_or(line.len());
            line.insert_str(at, &format!(" {flag} {value}"));
        }
    }
    line
}

/// Runs an action with a time limit, so that it cannot wait indefinitely.
pub(crate) async fn bounded<T>(
    request: Request,
    action: impl Future<Output = Result<T, Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(ANSWER, action).await {
        Ok(result) => Ok(result?),
        Err(_elapsed) => {
            let message = format!("nothing came within {} s", ANSWER.as_secs());
            Err(Failure::from(Error::Unanswered(request, message)))
        }
    }
}

/// Sends one request with kube's client, with a time limit.
pub(crate) async fn ask<T>(
    request: Request,
    question: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    let words = request.clone();
    bounded(request, async {
        question.await.map_err(|error| words.failed(error))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_several_runs_have_needs_its_kind() {
        let run = |kind| {
            let object = serde_json::json!({ "metadata": { "name": "x" } });
            Object::new(kind, serde_json::from_value(object).unwrap())
        };
        let docs = run(&api::tasks::DOCS_RUN);
        assert_eq!(only("x", Vec::new()).unwrap(), None);
        assert_eq!(only("x", vec![docs.clone()]).unwrap(), Some(docs.clone()));
        let said = only("x", vec![docs, run(&TASK_RUN)]).unwrap_err().message();
        assert!(
            said.ends_with("name the kind: 'docsrun/x' and 'x'"),
            "{said}"
        );
    }

    #[test]
    fn the_next_command_is_about_the_same_cluster() {
        let cluster = Cluster {
            namespace: Some("team".to_owned()),
            context: Some("prod".to_owned()),
            ..Cluster::default()
        };
        assert_eq!(
            command("kubectl orc", &cluster, "why shop-7"),
            "kubectl orc why shop-7 -n team --context prod"
        );
        assert_eq!(
            command("orc", &cluster, "context add shop-7 - < a.md"),
            "orc context add shop-7 - -n team --context prod < a.md"
        );
        for (line, wanted) in [
            ("orc logs x -n a", "kubectl orc --context prod logs x -n a"),
            (
                "kubectl get pods -n a | wc -l",
                "kubectl --context prod get pods -n a | wc -l",
            ),
            (
                "helm upgrade orchestrator",
                "helm --kube-context prod upgrade orchestrator",
            ),
            ("vi agent.yaml", "vi agent.yaml"),
        ] {
            assert_eq!(same_cluster("kubectl orc", &cluster, line), wanted);
        }
        assert_eq!(
            same_cluster("orc", &Cluster::default(), "orc get"),
            "orc get"
        );
        let elsewhere = Cluster {
            kubeconfig: Some("/a/b".into()),
            ..Cluster::default()
        };
        assert_eq!(
            command("orc", &elsewhere, "get"),
            "orc get --kubeconfig /a/b"
        );
        assert_eq!(command("orc", &Cluster::default(), "get"), "orc get");
    }
}
