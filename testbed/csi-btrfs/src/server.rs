//! Sockets, serving, and the end of it.

use std::{
    fs, io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    net::UnixListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Server, server::Router};
use tower::layer::util::{Identity as NoLayer, Stack};

use crate::{
    args::Args,
    controller::Controller,
    driver::Driver,
    identity::Identity,
    node::Node,
    proto::{
        csi::{
            controller_server::ControllerServer, identity_server::IdentityServer,
            node_server::NodeServer,
        },
        pluginregistration::registration_server::RegistrationServer,
    },
    registration::Registration,
    report::{self, LogFailures},
};

/// How long a call may still take once the driver is told to end. A retry repairs what is cut off.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until SIGTERM or SIGINT.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let driver = Arc::new(Driver::open(&args).await?);
    let csi = Server::builder()
        .layer(LogFailures)
        .add_service(IdentityServer::new(Identity(Arc::clone(&driver))))
        .add_service(ControllerServer::new(Controller(Arc::clone(&driver))))
        .add_service(NodeServer::new(Node(Arc::clone(&driver))));
    let socket = Socket::bind(&args.endpoint)?;
    // Bound after the CSI socket: the kubelet calls that one as soon as it sees this one.
    let registration = match args.registration {
        None => None,
        Some(path) => {
            let service = Registration {
                name: args.name,
                endpoint: args.endpoint,
            };
            let router = Server::builder()
                .layer(LogFailures)
                .add_service(RegistrationServer::new(service));
            Some((router, Socket::bind(&path)?))
        }
    };
    report::line(format_args!(
        "csi-btrfs: serving {} on {}",
        driver.name,
        driver.pool.root().display()
    ));
    let mut servers = JoinSet::new();
    servers.spawn(serve(csi, socket));
    if let Some((router, announcement)) = registration {
        servers.spawn(serve(router, announcement));
    }
    // The first that fails ends the other: half a driver is of no use.
    while let Some(ended) = servers.join_next().await {
        ended.context("a server broke off")??;
    }
    // A change whose caller hung up is no call that the servers wait for, but it holds the store.
    match tokio::time::timeout(GRACE, driver.store()).await {
        Ok(_idle) => Ok(()),
        Err(_elapsed) => anyhow::bail!(
            "a change was still under way {} s after the end",
            GRACE.as_secs()
        ),
    }
}

async fn serve(router: Router<Stack<LogFailures, NoLayer>>, socket: Socket) -> anyhow::Result<()> {
    let Socket { listener, file } = socket;
    let graceful =
        router.serve_with_incoming_shutdown(UnixListenerStream::new(listener), terminated());
    let forced = async {
        terminated().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = graceful => result.with_context(|| format!("serving {}", file.0.display())),
        () = forced => anyhow::bail!("{}: calls were still open {} s after the end", file.0.display(), GRACE.as_secs()),
    }
}

async fn terminated() {
    let (mut terminate, mut interrupt) = match (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) {
        (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
        (Err(error), _) | (_, Err(error)) => {
            report::line(format_args!(
                "csi-btrfs: cannot wait for signals, ending: {error}"
            ));
            return;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[derive(Debug)]
struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

impl Socket {
    fn bind(path: &Path) -> anyhow::Result<Self> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        remove_stale(path)?;
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen on {}", path.display()))?;
        Ok(Self {
            listener,
            file: SocketFile(path.to_owned()),
        })
    }
}

/// Only a socket is removed: a path to anything else is a mistake on the command line.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)
            .with_context(|| format!("cannot remove the old socket {}", path.display())),
        Ok(found) => {
            anyhow::bail!(
                "wanted a socket or nothing at {}, found {:?}",
                path.display(),
                found.file_type()
            )
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
    }
}

/// Removes the socket when serving ends, in whichever way, so that the kubelet unregisters the driver.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            report::line(format_args!(
                "csi-btrfs: cannot remove {}: {error}",
                self.0.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugins/csi.sock");
        fs::create_dir(dir.path().join("plugins")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = Socket::bind(&path).unwrap();
        assert!(path.exists());
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "data").unwrap();
        let error = Socket::bind(&path).unwrap_err();
        assert!(
            error.to_string().contains("wanted a socket or nothing"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
