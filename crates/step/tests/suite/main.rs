//! Tests of the built program against real servers, with the real git and ssh.
//!
//! Needs git, ssh, sshd and lighttpd on the machine. They are in `testbed/packages.txt`.

#[cfg(test)]
mod attacks;
#[cfg(test)]
mod clone;
#[cfg(test)]
mod edits;
#[cfg(test)]
mod fetching;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod kernels;
#[cfg(test)]
mod publish;
#[cfg(test)]
mod pushing;
#[cfg(test)]
mod servers;
