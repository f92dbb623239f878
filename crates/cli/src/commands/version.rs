//! `version`

use actions::Request;

use crate::{
    Exit,
    failure::Failure,
    session::{Session, ask},
    text::clean,
};

/// Prints the versions. An unreachable server is printed and is not an error, because the client's
/// version is known.
pub(crate) async fn run(session: &mut Session<'_>) -> Result<Exit, Failure> {
    session.line(&format!("orc {}", env!("CARGO_PKG_VERSION")))?;
    let server = match server_version(session).await {
        Ok(version) => format!("Kubernetes {version}"),
        Err(failure) => format!("Kubernetes not reached: {}", clean(&failure.message())),
    };
    session.line(&server)?;
    Ok(Exit::Ok)
}

async fn server_version(session: &Session<'_>) -> Result<String, Failure> {
    let server = session.server().await?;
    let request = Request {
        verb: "get",
        kind: "version",
        resource: "/version",
        name: None,
        namespace: None,
    };
    Ok(ask(request, server.client.apiserver_version())
        .await?
        .git_version)
}
