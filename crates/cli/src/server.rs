//! Creates a client from a kubeconfig, like kubectl.

use std::{path::PathBuf, time::Duration};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{arguments::Cluster, environment::Environment, failure::Failure};

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Returns the configuration for the connection to the API server.
pub(crate) async fn config(
    cluster: &Cluster,
    environment: &Environment,
) -> Result<Config, Failure> {
    let paths = paths(cluster, environment)?;
    let mut config = if paths.is_empty() {
        Config::incluster().map_err(|error| {
            Failure::client(format!("the Pod's ServiceAccount cannot be used: {error}"))
        })?
    } else {
        from_files(&paths, cluster.context.as_deref()).await?
    };
    config.connect_timeout = Some(CONNECT);
    // If the client repeated a write automatically, our own success could appear as a conflict.
    config.default_retry = false;
    Ok(config)
}

pub(crate) fn client(config: Config) -> Result<Client, Failure> {
    Client::try_from(config)
        .map_err(|error| Failure::client(format!("the kubeconfig cannot be used: {error}")))
}

/// Returns the kubeconfig files to read. An empty list means to use the ServiceAccount of the Pod
/// in which we run.
fn paths(cluster: &Cluster, environment: &Environment) -> Result<Vec<PathBuf>, Failure> {
    if let Some(path) = &cluster.kubeconfig {
        return Ok(vec![path.clone()]);
    }
    if let Some(list) = &environment.kubeconfig {
        let all: Vec<PathBuf> = std::env::split_paths(list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        // Like kubectl: if the variable lists several files, only the existing ones are read.
        let there: Vec<PathBuf> = all.iter().filter(|path| path.exists()).cloned().collect();
        return Ok(if there.is_empty() { all } else { there });
    }
    let usual = environment
        .home
        .as_ref()
        .map(|home| home.join(".kube").join("config"))
        .filter(|path| path.exists());
    match usual {
        Some(path) => Ok(vec![path]),
        None if environment.is_in_pod => Ok(Vec::new()),
        None => Err(Failure::client(
            "no kubeconfig: '~/.kube/config' does not exist and KUBECONFIG is not set; set it, or give '--kubeconfig PATH'",
        )),
    }
}

/// Returns the contexts of the kubeconfig.
pub(crate) fn contexts(
    cluster: &Cluster,
    environment: &Environment,
) -> Result<Vec<String>, Failure> {
    let merged = merged(&paths(cluster, environment)?)?;
    let contexts = merged.contexts.into_iter();
    Ok(contexts.map(|context| context.name).collect())
}

/// Formats the paths of the kubeconfig files.
fn named(paths: &[PathBuf]) -> String {
    let names = paths.iter().map(|path| format!("'{}'", path.display()));
    names.collect::<Vec<_>>().join(", ")
}

fn wrong(paths: &[PathBuf], error: &KubeconfigError) -> Failure {
    let named = named(paths);
    // The text of this error repeats the path in other quotes.
    if let KubeconfigError::ReadConfig(cause, path) = error {
        let path = path.display();
        return Failure::client(format!("the kubeconfig '{path}' cannot be read: {cause}"));
    }
    let chain = api::error::chain(error);
    Failure::client(format!("the kubeconfig {named} cannot be used: {chain}"))
}

fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, Failure> {
    let wrong = |error: KubeconfigError| wrong(paths, &error);
    let mut merged = Kubeconfig::default();
    for path in paths {
        merged = merged
            .merge(Kubeconfig::read_from(path).map_err(wrong)?)
            .map_err(wrong)?;
    }
    Ok(merged)
}

async fn from_files(paths: &[PathBuf], context: Option<&str>) -> Result<Config, Failure> {
    let merged = merged(paths)?;
    if let Some(context) = context
        && !merged.contexts.iter().any(|known| known.name == context)
    {
        let known: Vec<String> = merged
            .contexts
            .iter()
            .map(|known| format!("'{}'", known.name))
            .collect();
        return Err(Failure::client(format!(
            "the kubeconfig {} has no context '{context}'; it has {}",
            named(paths),
            if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            }
        )));
    }
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    Config::from_custom_kubeconfig(merged, &options)
        .await
        .map_err(|error| wrong(paths, &error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TWO: &str = "apiVersion: v1
kind: Config
current-context: here
clusters: [{ name: c, cluster: { server: 'http://127.0.0.1:1' } }]
users: [{ name: u, user: {} }]
contexts:
- { name: here, context: { cluster: c, user: u, namespace: team } }
- { name: there, context: { cluster: c, user: u } }
";

    fn environment(kubeconfig: Option<String>, home: Option<PathBuf>) -> Environment {
        Environment {
            kubeconfig: kubeconfig.map(Into::into),
            home,
            is_in_pod: false,
            ..Environment::of_process()
        }
    }

    async fn namespace(cluster: &Cluster, environment: &Environment) -> Result<String, String> {
        config(cluster, environment)
            .await
            .map(|config| config.default_namespace)
            .map_err(|failure| failure.message())
    }

    #[tokio::test]
    async fn the_kubeconfig_is_found_as_kubectl_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_owned();
        let other = home.join("other");
        fs::write(&other, TWO).unwrap();
        let other = other.display().to_string();
        let missing = home.join("missing").display().to_string();
        let plain = Cluster::default();
        let there = Cluster {
            context: Some("there".to_owned()),
            ..Cluster::default()
        };

        let none = environment(None, Some(home.clone()));
        let said = namespace(&plain, &none).await.unwrap_err();
        assert!(said.contains("no kubeconfig"), "{said}");

        let by_variable = environment(Some(format!("{missing}:{other}")), None);
        assert_eq!(namespace(&plain, &by_variable).await, Ok("team".to_owned()));
        assert_eq!(
            namespace(&there, &by_variable).await,
            Ok("default".to_owned())
        );

        let by_flag = Cluster {
            kubeconfig: Some(other.into()),
            ..Cluster::default()
        };
        assert_eq!(namespace(&by_flag, &none).await, Ok("team".to_owned()));

        let wrong = environment(Some(missing.clone()), None);
        let said = namespace(&plain, &wrong).await.unwrap_err();
        assert_eq!(
            said,
            format!(
                "the kubeconfig '{missing}' cannot be read: No such file or directory (os error 2)"
            )
        );
        assert_eq!(
            contexts(&plain, &by_variable).map_err(|failure| failure.message()),
            Ok(vec!["here".to_owned(), "there".to_owned()])
        );

        let nowhere = Cluster {
            context: Some("nowhere".to_owned()),
            ..Cluster::default()
        };
        let said = namespace(&nowhere, &by_variable).await.unwrap_err();
        assert!(
            said.contains("no context 'nowhere'; it has 'here', 'there'"),
            "{said}"
        );

        fs::create_dir(home.join(".kube")).unwrap();
        fs::write(home.join(".kube/config"), TWO).unwrap();
        assert_eq!(namespace(&plain, &none).await, Ok("team".to_owned()));
    }
}
