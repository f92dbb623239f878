//! Asking real servers: lighttpd with git's own backend, sshd; and servers that are none.

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
