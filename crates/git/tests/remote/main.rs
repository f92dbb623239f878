//! Requests to real servers (lighttpd with git's own backend, sshd), and to servers that are no Git
//! servers.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trust;
